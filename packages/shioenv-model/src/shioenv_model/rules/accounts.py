"""Output of `id` and `groups` for named users, derived from `/etc/passwd` and `/etc/group`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from shioenv.domain.runner import State
from shioenv.errors import Abstained
from shioenv_model.rules.words import options_of

PASSWD, GROUP = "/etc/passwd", "/etc/group"
"""The account databases: passwd(5), group(5)."""


def parse_accounts(state: State, file: str) -> dict[str, list[str]]:
    """Parse an account database: the fields of each line, by account name. Errors: Abstained."""
    data = state.read(file)
    if data is None:
        raise Abstained(f"the content of {file} is unknown")
    lines = (line.split(":") for line in data.decode("utf-8", "replace").splitlines())
    return {fields[0]: fields for fields in lines if len(fields) > 2}


def name_of_number(known: Mapping[str, Sequence[str]], number: str) -> str | None:
    """Return the name of the first account in `known` with this number; None if there is none."""
    return next((name for name, fields in known.items() if fields[2] == number), None)


def _quoted(name: str) -> str:
    return f"\u2018{name}\u2019"


@dataclass(frozen=True)
class _Users:
    """The machine's users and groups: by name, the fields of their lines."""

    users: Mapping[str, list[str]]
    groups: Mapping[str, list[str]]

    @classmethod
    def of(cls, state: State) -> _Users:
        return cls(parse_accounts(state, PASSWD), parse_accounts(state, GROUP))

    def called(self, word: str) -> list[str] | None:
        """Look up a user by name, else by number."""
        return self.users.get(word) or self.users.get(name_of_number(self.users, word) or "")

    def groups_of(self, user: Sequence[str]) -> list[str]:
        """Return the numbers of a user's groups, the primary group first."""
        named = [fields for fields in self.groups.values() if user[0] in fields[-1].split(",")]
        return list(dict.fromkeys([user[3], *(fields[2] for fields in named)]))

    def group(self, number: str) -> str:
        """Return the name of a group. Errors: Abstained for a number without a name."""
        name = name_of_number(self.groups, number)
        if name is None:
            raise Abstained("a group without a name")
        return name


def id_lines(words: Sequence[str], state: State) -> Iterator[tuple[str, str]]:
    """Return the output of `id` for each user operand: a line, or an error.

    Errors: Abstained for `id` without operands, which describes the shell's own process, and for
    unsupported options.
    """
    options, names = options_of(words, "ugGnr")
    which = options & set("ugG")
    if not names or len(which) > 1 or (options and not which):
        raise Abstained("more or fewer than one kind of number")
    known = _Users.of(state)
    for name in names:
        user = known.called(name)
        if user is None:
            yield "", f"id: {_quoted(name)}: no such user"
            continue
        numbers = known.groups_of(user)
        shown = [known.group(each) for each in numbers] if "n" in options else numbers
        if not which:
            pairs = [f"{each}({known.group(each)})" for each in numbers]
            yield f"uid={user[2]}({user[0]}) gid={pairs[0]} groups={','.join(pairs)}", ""
        elif "u" in which:
            yield user[0] if "n" in options else user[2], ""
        else:
            yield shown[0] if "g" in which else " ".join(shown), ""


def groups_of_users(words: Sequence[str], state: State) -> Iterator[tuple[str, str]]:
    """Return the output of `groups` for each user operand: a line, or an error.

    Errors: Abstained; see `id_lines`.
    """
    _, names = options_of(words, "")
    if not names:
        raise Abstained("groups of the shell itself")
    known = _Users.of(state)
    for name in names:
        user = known.users.get(name)
        if user is None:
            yield "", f"groups: {_quoted(name)}: no such user"
        else:
            yield f"{name} : {' '.join(map(known.group, known.groups_of(user)))}", ""
