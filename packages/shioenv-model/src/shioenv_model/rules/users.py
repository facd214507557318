"""Users and groups that come, change and go, told by rule from the files of accounts."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from shioenv.errors import Abstained
from shioenv_model.rules.accounts import GROUP, PASSWD, accounts, named
from shioenv_model.rules.passwords import SHADOW, lock, today
from shioenv_model.rules.tree_changes import Effects, options_of

GSHADOW = "/etc/gshadow"
SUBORDINATE = ("/etc/subuid", "/etc/subgid")
SKELETON = "/etc/skel"
EXISTS = 9
"""The exit code for a name that is taken (useradd(8))."""

_NUMBERS = range(1000, 60_001)
_SUBORDINATE_FROM, _SUBORDINATE_COUNT = 100_000, 65_536
"""Debian's `/etc/login.defs`."""

_VALUED = "sdcgGup"
_NAME = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_OFFERED = "/bin/sh"


@dataclass(frozen=True)
class _Asked:
    """What a `useradd` asks for: the letters of its options, their values, and the name."""

    letters: frozenset[str]
    values: Mapping[str, str]
    name: str


def useradd(made: Effects, words: Sequence[str]) -> bytes:
    """What `useradd` leaves: the user's lines, backups of the files, a home with `-m`.

    Errors: Abstained for options and values that are beyond it.
    """
    asked = _read(words)
    users, groups = accounts(made.state, PASSWD), accounts(made.state, GROUP)
    if asked.name in users:
        made.errors = f"useradd: user '{asked.name}' already exists\n".encode()
        made.exit_code = EXISTS
        return b""
    if asked.name in groups and "g" not in asked.values:
        raise Abstained("a group of that name")
    number = _number(asked, {fields[2] for fields in users.values()})
    group, is_new = _group(asked, number, groups)
    more = asked.values["G"].split(",") if "G" in asked.values else []
    if not {*more} <= groups.keys():
        raise Abstained("a group that is not there")
    if number not in _NUMBERS:
        made.errors = (
            f"useradd warning: {asked.name}'s uid {number} outside of the "
            f"UID_MIN {_NUMBERS.start} and UID_MAX {_NUMBERS.stop - 1} range.\n"
        ).encode()
    home = asked.values.get("d", f"/home/{asked.name}")
    shell = asked.values.get("s", _OFFERED)
    entry = made.entry(made.state.resolve(shell))
    if entry is None or not home.startswith("/") or not entry["perms"][3:4] == "x":
        raise Abstained("a shell or a home that is warned of")
    comment = asked.values.get("c", "")
    added = f"{asked.name}:x:{number}:{group}:{comment}:{home}:{shell}\n"
    _rewrite(made, PASSWD, lambda text: text + added)
    password = asked.values.get("p", "!")
    aged = f"{asked.name}:{password}:{today(made)}:0:99999:7:::\n"
    _rewrite(made, SHADOW, lambda text: text + aged)
    if is_new or more:
        own = (f"{asked.name}:x:{group}:\n", f"{asked.name}:!::\n") if is_new else ("", "")
        for file, line in zip((GROUP, GSHADOW), own, strict=True):
            _rewrite(made, file, lambda text, line=line: _joined(text, asked.name, more) + line)  # type: ignore[misc]
    for file in SUBORDINATE:
        _rewrite(made, file, lambda text: text + _subordinate(text, asked.name))
    lock(made)
    if "m" in asked.letters:
        _make_home(made, home, str(number), group)
    return b""


def userdel(made: Effects, words: Sequence[str]) -> bytes:
    """What `userdel` leaves, without the user's home where `-r` stands. Errors: Abstained."""
    options, names = options_of(words, "r")
    (name,) = names if len(names) == 1 else ("",)
    users = accounts(made.state, PASSWD)
    user = users.get(name)
    if user is None or user[2] == "0":
        raise Abstained("a user who is not there, or who is root")
    others = [one for one in users.values() if one is not user]
    own = accounts(made.state, GROUP).get(name)
    if own is None or own[3] or any(one[3] == own[2] for one in others):
        raise Abstained("a group that others have too")
    for file in (PASSWD, SHADOW, *SUBORDINATE):
        _rewrite(made, file, lambda text: _without(text, name))
    for file in (GROUP, GSHADOW):
        _rewrite(made, file, lambda text: _left(_without(text, name), name))
    lock(made)
    home = made.entry(user[5])
    if "r" in options:
        if home is None or made.state.entry(f"/var/mail/{name}"):
            raise Abstained("a home that is not there, or mail")
        made.errors = f"userdel: {name} mail spool (/var/mail/{name}) not found\n".encode()
        made.remove_tree(user[5])
    return b""


def usermod(made: Effects, words: Sequence[str]) -> bytes:
    """What `usermod -aG GROUPS USER` and `usermod -s SHELL USER` leave. Errors: Abstained."""
    if len(words) != 3 or words[0] not in ("-aG", "-s"):
        raise Abstained("an option that is beyond it")
    option, value, name = words
    if name not in accounts(made.state, PASSWD):
        raise Abstained("a user who is not there")
    if option == "-s":
        entry = made.entry(made.state.resolve(value))
        if entry is None or entry["perms"][3:4] != "x":
            raise Abstained("a shell that is warned of")
        _rewrite(made, PASSWD, lambda text: _with_shell(text, name, value))
    else:
        groups = value.split(",")
        if not {*groups} <= accounts(made.state, GROUP).keys():
            raise Abstained("a group that is not there")
        for file in (GROUP, GSHADOW):
            _rewrite(made, file, lambda text: _joined(text, name, groups))
    lock(made)
    return b""


def groupadd(made: Effects, words: Sequence[str]) -> bytes:
    """What `groupadd` leaves. Errors: Abstained."""
    _, names = options_of(words, "")
    groups = accounts(made.state, GROUP)
    if len(names) != 1 or not _NAME.fullmatch(names[0]):
        raise Abstained("no one plain name")
    (name,) = names
    if name in groups:
        made.errors = f"groupadd: group '{name}' already exists\n".encode()
        made.exit_code = EXISTS
        return b""
    number = _next({fields[2] for fields in groups.values()})
    _rewrite(made, GROUP, lambda text: f"{text}{name}:x:{number}:\n")
    _rewrite(made, GSHADOW, lambda text: f"{text}{name}:!::\n")
    lock(made)
    return b""


def _next(taken: set[str]) -> int:
    """One above the highest number that is taken."""
    return max([_NUMBERS.start - 1, *(int(n) for n in taken if int(n) in _NUMBERS)]) + 1


def _without(text: str, name: str) -> str:
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if line.partition(":")[0] != name)


def _with_shell(text: str, name: str, shell: str) -> str:
    pattern = re.compile(f"^({re.escape(name)}:.*:)[^:]*$", re.MULTILINE)
    return pattern.sub(lambda match: match[1] + shell, text)


def _left(text: str, name: str) -> str:
    """The lines of groups, of which none has a member of this name."""
    lines = []
    for line in text.splitlines():
        before, colon, _ = line.rpartition(":")
        kept = [member for member in _members(line) if member != name]
        lines.append(f"{before}{colon}{','.join(kept)}\n")
    return "".join(lines)


def _members(line: str) -> list[str]:
    return line.rpartition(":")[2].split(",")


def _read(words: Sequence[str]) -> _Asked:
    letters: set[str] = set()
    values: dict[str, str] = {}
    names: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if re.fullmatch(f"-[mMo]*[{_VALUED}]", word) and left:
            letters.update(word[1:-1])
            values[word[-1]] = left.pop(0)
        elif re.fullmatch("-[mMo]+", word):
            letters.update(word[1:])
        elif word.startswith("-"):
            raise Abstained("an option that is beyond it")
        else:
            names.append(word)
    if len(names) != 1 or not _NAME.fullmatch(names[0]) or {"m", "M"} <= letters:
        raise Abstained("no one plain name")
    if any(":" in value or "\n" in value for value in values.values()):
        raise Abstained("a value that is refused")
    return _Asked(frozenset(letters), values, names[0])


def _number(asked: _Asked, taken: set[str]) -> int:
    """The user's number: the wanted one, or one above the highest of users."""
    if "u" not in asked.values:
        return _next(taken)
    wanted = asked.values["u"]
    if not wanted.isdecimal() or ("o" not in asked.letters and wanted in taken):
        raise Abstained("a number that is refused")
    return int(wanted)


def _group(asked: _Asked, number: int, groups: Mapping[str, Sequence[str]]) -> tuple[str, bool]:
    """The number of the user's group, and whether the group is made for the user."""
    taken = {fields[2] for fields in groups.values()}
    wanted = asked.values.get("g")
    if wanted is None:
        if str(number) in taken:
            raise Abstained("a group with the user's number")
        return str(number), True
    found = groups[wanted][2] if wanted in groups else wanted
    if found not in taken:
        raise Abstained("a group that is not there")
    return found, False


def _rewrite(made: Effects, file: str, change: Callable[[str], str]) -> None:
    """Writes a file of accounts anew, and the file as it was beside it. Errors: Abstained."""
    before, entry = made.state.read(file), made.entry(file)
    if before is None or entry is None:
        raise Abstained(f"nobody knows {file}")
    after = os.fsencode(change(os.fsdecode(before)))
    if after == before:
        return
    made.put(f"{file}-", dict(entry))
    made.contents[made.key(f"{file}-")] = before
    made.write(file, after)


def _joined(text: str, name: str, groups: Sequence[str]) -> str:
    """The lines of groups, of which some have one more member."""
    lines = text.splitlines()
    for at, line in enumerate(lines):
        if line.partition(":")[0] in groups and name not in _members(line):
            lines[at] = f"{line}{'' if line.endswith(':') else ','}{name}"
    return "".join(f"{line}\n" for line in lines)


def _subordinate(text: str, name: str) -> str:
    ranges = (line.split(":")[1:] for line in text.splitlines())
    ends = [int(start) + int(count) for start, count in ranges]
    return f"{name}:{max([_SUBORDINATE_FROM, *ends])}:{_SUBORDINATE_COUNT}\n"


def _make_home(made: Effects, home: str, user: str, group: str) -> None:
    """Makes a home with copies of what is in `SKELETON`. Errors: Abstained."""
    whole = made.place(home)
    if made.entry(whole) is not None or made.entry(posixpath.dirname(whole)) is None:
        raise Abstained("a home that is there, or that nothing is around")
    owner = {"owner": _called(made, PASSWD, user), "group": _called(made, GROUP, group)}
    made.put(whole, {**made.made("d", 0o755), **owner})
    for path in sorted(made.inside(SKELETON)):
        entry, content = made.entry(path), made.state.read(path)
        if entry is None or entry["perms"][0] != "-" or content is None:
            raise Abstained("a skeleton that is not copied")
        copy = whole + path[len(SKELETON) :]
        made.put(copy, {**entry, **owner})
        made.contents[made.key(copy)] = content


def _called(made: Effects, file: str, number: str) -> str:
    """What a context calls a number: by the machine's files as they were at first."""
    return named(accounts(made.state, file), number) or number
