"""Files that a command edits in place, told by what the command prints of each."""

from __future__ import annotations

import hashlib
import os
import posixpath
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from shioenv.composition.call import Call
from shioenv.domain.behavior import Behavior
from shioenv.domain.context import OF_DATE, FileEntry
from shioenv.domain.names import file_key
from shioenv.domain.patch import ContextPatch, Operation
from shioenv.domain.pointer import pointer
from shioenv.domain.runner import Answer, State

EDITORS = frozenset({"sed", "perl"})
"""Programs that edit files in place with `-i`: the output of the program becomes the file."""

_IN_PLACE = frozenset({"-i", "--in-place"})
_SCRIPTS = frozenset({"-e", "-E", "--expression", "-f", "--file"})

Options: TypeAlias = tuple[tuple[str, str | None], ...]


def edited_in_place(
    name: str,
    options: Options,
    operands: tuple[str, ...],
    state: State,
    fresh: Mapping[str, Any],
    ask: Callable[[Call, State], Answer],
) -> Answer | None:
    """What `sed -i` and `perl -i` do. `ask` says what the command prints of one file.

    `fresh` is the entry of an empty file that is made now. None for other commands, for files whose
    content is not known, and where the command would print an error.
    """
    if name not in EDITORS or not any(option in _IN_PLACE for option, _ in options):
        return None
    suffix = "".join(value or "" for option, value in options if option in _IN_PLACE)
    others = [pair for pair in options if pair[0] not in _IN_PLACE]
    apart = 0 if any(option in _SCRIPTS for option, _ in others) else 1
    script, files = operands[:apart], operands[apart:]
    if not files or "/" in suffix or "*" in suffix:
        return None
    operations: list[Operation] = []
    digests: dict[str, str] = {}
    written: dict[str, bytes] = {}
    sure = 1.0
    for path in files:
        entry, content = state.entry(path), state.read(path)
        if entry is None or content is None or entry.links > 1:
            return None
        words = [name, *(word for option in others for word in _words(option)), *script, path]
        answer = ask(Call.of(words), state)
        said = answer.behavior
        if said.exit_code or said.patch or said.stderr or said.stdout is None:
            return None
        sure = min(sure, answer.confidence)
        key = _key(path, state)
        key = _key(path, state)
        operations += _replaced(key, state, entry, len(said.stdout), fresh)
        if suffix:
            kept = _key(f"{path}{suffix}", state)
            if state.before.entry(kept) is not None:
                return None
            operations.append(("a", pointer("fs", kept), entry.to_json()))
            digests[kept], written[kept] = _digest(content), content
        if said.stdout != content:
            digests[key] = _digest(said.stdout)
        written[key] = said.stdout
    if not suffix:
        operations += _directories(files, state, fresh)
    behavior = Behavior(
        0, b"", ContextPatch(tuple(operations)), content_digests=digests, stdout=b"", stderr=b""
    )
    return Answer(behavior, sure, "a file edited in place, by rule", written)


def _words(option: tuple[str, str | None]) -> list[str]:
    name, value = option
    if value is None:
        return [name]
    return [f"{name}={value}"] if name.startswith("--") else [name, value]


def _key(path: str, state: State) -> str:
    directory = state.resolve(posixpath.dirname(path) or ".")
    whole = posixpath.join(directory, posixpath.basename(path))
    return file_key(os.fsencode(whole), os.fsencode(state.cwd))


def _replaced(
    key: str, state: State, entry: FileEntry, size: int, fresh: Mapping[str, Any]
) -> list[Operation]:
    """What becomes of the file `key`: a new one with the rights and the owner of `entry`.

    A link becomes a file. A new file has no special bits.
    """
    was = state.before.entry(key) or entry
    perms = entry.perms.translate(str.maketrans("sStT", "x-x-"))
    wanted = entry.to_json() | {"perms": perms, "size": size}
    wanted |= {each: fresh[each] for each in OF_DATE}
    operations: list[Operation] = [
        ("=", pointer("fs", key, name), value)
        for name, value in wanted.items()
        if getattr(was, name) != value
    ]
    if was.target is not None:
        operations.append(("r", pointer("fs", key, "target")))
    return operations


def _directories(files: tuple[str, ...], state: State, fresh: Mapping[str, Any]) -> list[Operation]:
    """The times of the directories in which files were replaced."""
    operations: dict[str, Operation] = {}
    for path in files:
        directory = posixpath.dirname(path) or "."
        key = file_key(os.fsencode(state.resolve(directory)), os.fsencode(state.cwd))
        entry = state.entry(directory)
        for each in OF_DATE:
            if entry is not None and getattr(entry, each) != fresh[each]:
                operations[f"{key}/{each}"] = ("=", pointer("fs", key, each), fresh[each])
    return list(operations.values())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
