"""The working directory that `pwd` prints and `cd` changes, by Bash's rules."""

from __future__ import annotations

import os
import posixpath
import re
from itertools import takewhile

from shioenv.domain.behavior import Behavior
from shioenv.domain.patch import ContextPatch, Operation
from shioenv.domain.runner import State
from shioenv.errors import Abstained
from shioenv_model.bash.expand import Expander
from shioenv_model.composition.call import Call
from shioenv_model.composition.conditions import is_root
from shioenv_model.composition.variables import Variables

_OPTIONS = re.compile("-[LPe@]+")


def printed_directory(call: Call, state: State) -> Behavior | None:
    """What `pwd` says, by rule; None for other commands."""
    if call.text not in {"pwd", "pwd -L", "pwd -P"}:
        return None
    where: str = state.before.document["cwd"] if call.text == "pwd -P" else _logical(state)
    said = where.encode("utf-8", "surrogateescape") + b"\n"
    return Behavior(0, said, stdout=said, stderr=b"")


def _logical(state: State) -> str:
    """The working directory by the name that Bash took to it, links included."""
    document = state.before.document
    cwd: str = document["cwd"]
    named: str = document["env"].get("PWD", cwd)
    return named if state.resolve(named) == cwd else cwd


def changed_directory(call: Call, state: State) -> Behavior | None:
    """What a `cd` to one directory does, or to several, by rule.

    None for other commands, for one directory with options, and for `cd -` where the shell left a
    directory before. None too under `CDPATH` or `set -o physical`, for other users than root, and
    where the directory above is missing.
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
