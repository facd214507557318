"""The directory builtins `pwd`, `cd`, `pushd`, `popd` and `dirs`."""

from __future__ import annotations

import os
import posixpath
import re
from itertools import takewhile

from shioenv.bash.words import quoted
from shioenv.domain.behavior import Behavior
from shioenv.domain.patch import ContextPatch, Operation
from shioenv.domain.runner import State
from shioenv.errors import Abstained
from shioenv_model.bash.expand import Expander
from shioenv_model.composition.call import Call
from shioenv_model.composition.conditions import is_root
from shioenv_model.composition.environment import Environment
from shioenv_model.composition.variables import Variables

STACKING = frozenset({"pushd", "popd", "dirs"})
"""The builtins of the directory stack."""

_USAGES = {"pushd": "pushd [-n] [+N | -N | dir]", "popd": "popd [-n] [+N | -N]"}
_NUMBER = re.compile(r"[-+]\d{1,9}")


def stack(here: Environment, values: list[str]) -> None:
    """Run `pushd`, `popd` or `dirs` with expanded operands. Errors: Abstained."""
    name, *rest = values
    below = here.own.carried.directories
    if below is None:
        raise Abstained("the directory stack is unknown")
    document = here.state.before.document
    whole = [str(document["env"].get("PWD", document["cwd"])), *below]
    if name == "dirs":
        _dirs(here, whole, rest)
        return
    rest = rest[1:] if rest[:1] == ["--"] else rest
    wrong = bool(rest) and not _NUMBER.fullmatch(rest[0])
    if wrong and (rest[0].startswith(("-", "+")) or name == "popd"):
        if rest[0] in ("-", "-n"):
            raise Abstained(f"{name} with options")
        what = "number" if rest[0][:1] in ("-", "+") else "argument"
        here.complain(f"{name}: {rest[0]}: invalid {what}")
        here.report(os.fsencode(f"{name}: usage: {_USAGES[name]}\n"))
        here.status = 2
    elif len(rest) > 1:
        _refused(here, f"{name}: too many arguments")
    elif name == "pushd":
        _pushd(here, whole, rest[0] if rest else "+1", named=bool(rest))
    else:
        _popd(here, whole, rest[0] if rest else "+0")


def _place(whole: list[str], word: str) -> int:
    """Return the stack index of `+N` or `-N`; -1 if out of range."""
    number = int(word[1:])
    place = number if word[0] == "+" else len(whole) - 1 - number
    return place if 0 <= place < len(whole) else -1


def _pushd(here: Environment, whole: list[str], word: str, *, named: bool) -> None:
    if not _NUMBER.fullmatch(word):
        if _went(here, "pushd", word):
            _keep(here, whole)
        return
    if not named and len(whole) < 2:
        _refused(here, "pushd: no other directory")
        return
    place = _place(whole, word)
    if place < 0 or len(whole) < 2:
        empty = len(whole) < 2
        said = "directory stack empty" if empty else f"{word}: directory stack index out of range"
        _refused(here, f"pushd: {said}")
        return
    turned = [*whole[place:], *whole[:place]]
    if not named:
        turned = [whole[1], whole[0], *whole[2:]]
    if _went(here, "pushd", turned[0]):
        _keep(here, turned[1:])


def _popd(here: Environment, whole: list[str], word: str) -> None:
    place = _place(whole, word)
    if len(whole) < 2 or place < 0:
        empty = len(whole) < 2
        said = "directory stack empty" if empty else f"{word}: directory stack index out of range"
        _refused(here, f"popd: {said}")
        return
    left = [*whole[:place], *whole[place + 1 :]]
    if place or _went(here, "popd", left[0]):
        _keep(here, left[1:])


def _keep(here: Environment, below: list[str]) -> None:
    """Store `below` as the stack below the current directory; print the stack, with status 0."""
    here.carry(directories=tuple(below))
    document = here.state.before.document
    _print(here, [document["env"].get("PWD", document["cwd"]), *below], whole_names=False)
    here.status = 0


def _print(here: Environment, whole: list[str], *, whole_names: bool) -> None:
    shown = " ".join(each if whole_names else _short(here, each) for each in whole)
    here.write(here.streams.fds[1], os.fsencode(f"{shown}\n"))


def _short(here: Environment, path: str) -> str:
    """Abbreviate the home directory to `~`."""
    home = here.variable("HOME")
    if home and len(home) > 1 and (path == home or path.startswith(f"{home}/")):
        return f"~{path[len(home) :]}"
    return path


def _went(here: Environment, name: str, place: str) -> bool:
    """Change the directory, as `cd` does. Return whether this succeeded."""
    call = Call(f"cd {quoted(place)}", parts=("cd", quoted(place)))
    behavior = here.ask(call)
    if behavior.exit_code:
        said = behavior.output.replace(b": cd: ", f": {name}: ".encode(), 1)
        here.write(here.streams.fds[2], said)
        here.status = 1
        return False
    here.advance(call.text, behavior)
    return True


def _refused(here: Environment, said: str) -> None:
    here.complain(said)
    here.status = 1


def _dirs(here: Environment, whole: list[str], rest: list[str]) -> None:
    letters = "".join(word[1:] for word in rest)
    for word in rest:
        if _NUMBER.fullmatch(word):
            raise Abstained("dirs with numbers")
        if not re.fullmatch("-[clpv]+", word):
            here.complain(
                f"dirs: {word}: invalid {'number' if word[:1] in ('-', '+') else 'option'}"
            )
            here.report(b"dirs: usage: dirs [-clpv] [+N] [-N]\n")
            here.status = 2
            return
    here.status = 0
    if "c" in letters:
        here.carry(directories=())
        return
    names = [each if "l" in letters else _short(here, each) for each in whole]
    if "v" in letters:
        lines = "".join(f"{number:2d}  {name}\n" for number, name in enumerate(names))
    else:
        lines = ("\n" if "p" in letters else " ").join(names) + "\n"
    here.write(here.streams.fds[1], os.fsencode(lines))


_OPTIONS = re.compile("-[LPe@]+")


def printed_directory(call: Call, state: State) -> Behavior | None:
    """Return the behavior of `pwd`; None for other commands."""
    if call.text not in {"pwd", "pwd -L", "pwd -P"}:
        return None
    where: str = state.before.document["cwd"] if call.text == "pwd -P" else _logical(state)
    said = where.encode("utf-8", "surrogateescape") + b"\n"
    return Behavior(0, said, stdout=said, stderr=b"")


def _logical(state: State) -> str:
    """Return the logical working directory, which may contain links."""
    document = state.before.document
    cwd: str = document["cwd"]
    named: str = document["env"].get("PWD", cwd)
    return named if state.resolve(named) == cwd else cwd


def changed_directory(call: Call, state: State) -> Behavior | None:
    """Return the behavior of `cd` with no operand, one or several.

    None for other commands, for one operand with options, and for `cd -` with a known previous
    directory. None also with `CDPATH` or `set -o physical`, for users other than root, and if the
    parent directory is missing.
    """
    document = state.before.document
    environment, settings = document["env"], document["settings"]
    if (
        not call.text.startswith("cd")
        or call.reads
        or "CDPATH" in environment.keys() | settings.keys()
    ):
        return None
    try:
        expander = Expander(Variables(state))
        words = [field for word in call.words for field in expander.fields(word)]
    except Abstained:
        return None
    options = list(takewhile(_OPTIONS.fullmatch, words[1:]))
    if words[:1] != ["cd"] or settings.get("-o physical"):
        return None
    if words[len(options) + 1 :] == ["-"] and state.carried.left is None:
        said = b"bash: line 1: cd: OLDPWD not set\n"
        return Behavior(1, said, stdout=b"", stderr=said)
    if len(words) > len(options) + 2 and not words[len(options) + 1].startswith("-"):
        said = b"bash: line 1: cd: too many arguments\n"
        return Behavior(1, said, stdout=b"", stderr=said)
    if all(set(option) == set("-L") for option in options):
        words = ["cd", *words[len(options) + 1 :]]
    if len(words) > 2:
        return None
    name = words[1] if len(words) == 2 else environment.get("HOME", "")
    if len(words) == 1 and "HOME" not in environment.keys() | settings.keys():
        said = b"bash: line 1: cd: HOME not set\n"
        return Behavior(1, said, stdout=b"", stderr=said)
    if name.startswith("-") or not is_root(state) or (len(words) == 1 and not name):
        return None
    logical = posixpath.normpath(posixpath.join(_logical(state), name))
    place = logical.replace("//", "/")
    through = name.split("/")
    for end in [number for number, part in enumerate(through) if part == ".." and number]:
        before = posixpath.join(_logical(state), "/".join(through[:end]))
        if not _is_directory(posixpath.normpath(before), state):
            if state.entry_at(posixpath.normpath(before)) is not None:
                return None
            said = os.fsencode(f"bash: line 1: cd: {name}: No such file or directory\n")
            return Behavior(1, said, stdout=b"", stderr=said)
    if not _is_directory(place, state):
        above = nearest = posixpath.dirname(place)
        while state.entry(nearest) is None and nearest != "/":
            nearest = posixpath.dirname(nearest)
        wrong = "Not a directory"
        if state.entry(place) is None and _is_directory(nearest, state):
            if nearest != above:
                return None
            wrong = "No such file or directory"
        said = os.fsencode(f"bash: line 1: cd: {name}: {wrong}\n")
        return Behavior(1, said, stdout=b"", stderr=said)
    operations: list[Operation] = []
    for path, old, new in (
        ("/cwd", document["cwd"], state.resolve(place)),
        ("/env/PWD", environment.get("PWD"), logical),
    ):
        if old != new:
            operations.append(("=" if old is not None else "a", path, new))
    return Behavior(0, b"", ContextPatch(tuple(operations)), stdout=b"", stderr=b"")


def _is_directory(path: str, state: State) -> bool:
    entry = state.entry(path)
    return entry is not None and entry.perms.startswith("d")
