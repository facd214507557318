"""Effects of opening a file by a redirection, and the permission bits of files."""

from __future__ import annotations

import os
import posixpath
import re
import stat
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from shioenv.domain.behavior import NOTHING, Behavior
from shioenv.domain.context import OF_DATE, pointer
from shioenv.domain.names import file_key
from shioenv.domain.patch import ContextPatch, Operation
from shioenv.domain.runner import State
from shioenv.errors import Abstained
from shioenv_model.bash.expand import Expander
from shioenv_model.composition.call import Call
from shioenv_model.composition.variables import Variables

NULL = "/dev/null"
"""The file that is always empty."""

_CLAUSE = re.compile(r"([ugoa]*)((?:[-+=](?:[rwxXst]+|[ugo])?)+)")
_ACTION = re.compile(r"([-+=])([rwxXst]+|[ugo])?")
_SHIFTS = {"u": 6, "g": 3, "o": 0}
_BITS = {"r": 4, "w": 2, "x": 1}


def opening(call: Call, state: State, fresh: Mapping[str, Any]) -> Behavior | None:
    """Return the behavior of `: > FILE`, `: < FILE` and `echo >> FILE`; None for other commands.

    `fresh` is the entry of an empty file created now.

    Errors: Abstained for an unknown file name.
    """
    if call.opens is not None:
        operator, word = call.opens.operator, call.opens.target
    elif call.written == ":" and call.reads is not None and not call.closed:
        operator, word = "<", call.reads
    else:
        return None
    fields = Expander(Variables(state)).fields(word)
    if len(fields) != 1:
        raise Abstained(f"{word!r:.40} is not one file")
    path = fields[0]
    entry = state.entry(path) if path else None
    wrong = _why_not(path, state, reads=operator == "<")
    keeps = operator == ">" and state.before.document["settings"].get("-o noclobber")
    if keeps and not wrong and entry is not None and entry.perms.startswith("-"):
        wrong = "cannot overwrite existing file"
    if wrong:
        said = os.fsencode(f"bash: line 1: {path}: {wrong}\n")
        return Behavior(1, said, stdout=b"", stderr=said)
    if operator == "<":
        return Behavior(0, b"", stdout=b"", stderr=b"")
    name = file_key(os.fsencode(state.resolve(path)), os.fsencode(state.cwd))
    size = 1 if call.written == "echo" else 0
    if entry is None:
        mode = stat.S_IFREG | 0o666 & ~umask_of(state)
        made = {**fresh, "size": size, "perms": stat.filemode(mode)}
        digests = {} if size else {name: NOTHING}
        patch = ContextPatch((("a", pointer("fs", name), made),))
        return Behavior(0, b"", patch, content_digests=digests, stdout=b"", stderr=b"")
    if operator == ">>" and not size:
        return Behavior(0, b"", stdout=b"", stderr=b"")
    now = {each: fresh[each] for each in OF_DATE}
    now["size"] = entry.size + size if operator == ">>" else size
    operations: list[Operation] = [
        ("=", pointer("fs", name, each), value)
        for each, value in now.items()
        if getattr(entry, each) != value
    ]
    digests = {name: NOTHING} if not now["size"] else {}
    patch = ContextPatch(tuple(operations))
    return Behavior(0, b"", patch, content_digests=digests, stdout=b"", stderr=b"")


def _why_not(path: str, state: State, *, reads: bool) -> str:
    """Return the error of open(2) for a path; empty if it succeeds."""
    plain = path.rstrip("/")
    entry = state.entry(path) if path else None
    above = state.entry(posixpath.dirname(plain) or ("/" if path.startswith("/") else "."))
    is_directory = entry is not None and entry.perms.startswith("d")
    if above is not None and not above.perms.startswith("d"):
        return "Not a directory"
    if not path or (entry is None and (reads or above is None)):
        return "No such file or directory"
    if not reads and (is_directory or path.endswith("/")):
        return "Is a directory"
    return "Not a directory" if path.endswith("/") and not is_directory else ""


def umask_of(state: State) -> int:
    """Return the state's umask; 0o022 if the state has no valid one."""
    said = str(state.before.document.get("umask"))
    return int(said, 8) if re.fullmatch("[0-7]{4}", said) else 0o022


def read_redirected_input(call: Call, state: State) -> tuple[Call, State] | None:
    """Replace `< FILE` by that file's content as standard input: the new command and state.

    None for a command without `<`, or if the content is unknown.
    """
    if call.reads is None:
        return None
    try:
        fields = Expander(Variables(state)).fields(call.reads)
    except Abstained:
        return None
    content = state.read(fields[0]) if len(fields) == 1 else None
    content = b"" if fields == [NULL] else content
    if content is None:
        return None
    return replace(call, reads=None, from_file=True), replace(state, stdin=content)


def changed_mode(text: str, mode: int, umask: int, *, directory: bool) -> int | None:
    """Apply `chmod TEXT` to permission bits; None if the text is not a mode.

    A directory keeps its set-ID bits if the mode is a number of at most four digits.
    """
    if re.fullmatch("[0-7]{1,4}", text):
        kept = mode & 0o6000 if directory else 0
        return int(text, 8) | kept
    for clause in text.split(","):
        match = _CLAUSE.fullmatch(clause)
        if match is None:
            return None
        who, actions = match.groups()
        for operator, letters in _ACTION.findall(actions):
            mode = _acted(mode, who, operator, letters, umask, directory=directory)
    return mode


def _acted(mode: int, who: str, operator: str, letters: str, umask: int, *, directory: bool) -> int:
    users = "ugo" if not who or "a" in who else who
    value = mask = 0
    for user in users:
        shift = _SHIFTS[user]
        if letters in ("u", "g", "o") and letters:
            value |= (mode >> _SHIFTS[letters] & 7) << shift
        else:
            for letter in letters:
                value |= _BITS.get(letter, 0) << shift
        mask |= 7 << shift
        mask |= {"u": stat.S_ISUID, "g": stat.S_ISGID, "o": 0}[user]
    if "X" in letters and (directory or mode & 0o111):
        for user in users:
            value |= 1 << _SHIFTS[user]
    if "s" in letters:
        value |= stat.S_ISUID * ("u" in users) | stat.S_ISGID * ("g" in users)
    if "t" in letters:
        value |= stat.S_ISVTX * (not who or "o" in users)
    if not who:
        value &= ~umask
    if operator == "+":
        return mode | value
    if operator == "-":
        return mode & ~value
    if not who:
        mask |= stat.S_ISVTX
    if directory:
        mask &= ~0o6000
    return mode & ~mask | value
