"""File trees of emulators: the system's files to load, and the files that an input changed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shioenv.domain.context import escape
from shioenv.domain.names import file_key
from shioenv.domain.patch import ContextPatch, Operation
from shioenv.system.store import DEVICES, IndexEntry, System
from shioenv_eval.predictors.line_program import installed

LARGEST = 64 * 1024
"""Maximum size in bytes of loaded contents; larger files (programs) are loaded empty."""


@dataclass(frozen=True, slots=True)
class EmulatedFile:
    """One file as seen by an emulator."""

    kind: str
    """`file`, `directory`, `symlink`, or another word."""
    mode: int
    """Permission bits."""
    modified: float
    """Seconds since 1970."""
    content: Any = None
    """A value that represents the content in comparisons, such as the size; None if missing."""


Tree = Mapping[str, EmulatedFile]
"""Files by absolute path."""


def loaded(system: System) -> Iterator[tuple[IndexEntry, bytes | None]]:
    """Yield the system's files, parents first, with the contents of regular files.

    Only regular files, directories and symbolic links are included, and none in /sys, /proc and
    /dev. `System.shown_in_proc` has the files of /proc. The content is None for directories and
    links, empty for files larger than `LARGEST`.
    """
    for path, entry in sorted(system.index.items()):
        if path.startswith(("/sys/", "/proc/", "/dev/")) or path in DEVICES:
            continue
        if stat.S_ISREG(entry.mode):
            yield entry, system.read(path) if entry.size <= LARGEST else b""
        elif stat.S_ISDIR(entry.mode) or stat.S_ISLNK(entry.mode):
            yield entry, None


def is_program(entry: IndexEntry, content: bytes | None) -> bool:
    """Whether a loaded file is a program of the system, but not a script.

    An emulator that finds such a file in PATH would run it as a script.
    """
    runs = content is not None and entry.mode & 0o111 and entry.path.startswith("/usr/")
    return bool(runs) and not (content or b"").startswith(b"#!")


def pristine_directory(system: System) -> Path:
    """Return the cache directory with the system's files (`loaded`), created on first use.

    Files have their modes and times, and belong to the user who created the directory. Programs of
    predictors share it, and must not write to it. Errors: those of `installed`.
    """
    return installed(f"root-{system.digest[:16]}", lambda top: _lay_out(system, top))


def _lay_out(system: System, top: Path) -> None:
    entries = list(loaded(system))
    for entry, content in entries:
        path = top / entry.path.lstrip("/")
        if stat.S_ISLNK(entry.mode):
            path.symlink_to(entry.target)
        elif content is None:
            path.mkdir(exist_ok=True)
        else:
            path.write_bytes(content)
    for entry, _ in reversed(entries):  # set a directory's time after its contents exist
        path = top / entry.path.lstrip("/")
        if not stat.S_ISLNK(entry.mode):
            path.chmod(stat.S_IMODE(entry.mode))
        os.utime(path, (entry.mtime, entry.mtime), follow_symlinks=False)


def file_pointer(path: str, start: str) -> str:
    """Return the JSON Pointer of the file at an absolute path, in patches relative to `start`."""
    return f"/fs/{escape(file_key(path.encode('utf-8', 'surrogateescape'), start.encode()))}"


def changed_file(verb: str, path: str, start: str) -> Operation:
    """Return the operation for a file that was `added`, `removed` or `changed`."""
    pointer = file_pointer(path, start)
    if verb == "removed":
        return ("r", pointer)
    return ("a", pointer, {}) if verb == "added" else ("=", f"{pointer}/content", True)


def file_changes_patch(before: Tree, after: Tree, start: str) -> ContextPatch:
    """Return the patch at the level of files: added, removed and changed files.

    Times of directories are ignored, since only some emulators set them for new entries.
    """
    operations: list[Operation] = []
    for path in {*before, *after}:
        old, new = before.get(path), after.get(path)
        if old == new:
            continue
        pointer = file_pointer(path, start)
        if new is None:
            operations.append(("r", pointer))
        elif old is None:
            operations.append(("a", pointer, {"kind": new.kind, "mode": f"{new.mode:o}"}))
        else:
            operations += _changed(pointer, old, new)
    return ContextPatch(tuple(operations))


def _changed(pointer: str, old: EmulatedFile, new: EmulatedFile) -> Iterable[Operation]:
    if old.kind != new.kind:
        yield ("=", f"{pointer}/kind", new.kind)
    if old.mode != new.mode:
        yield ("=", f"{pointer}/mode", f"{new.mode:o}")
    if old.content != new.content:
        yield ("=", f"{pointer}/content", True)
    elif old.modified != new.modified and new.kind == "file":
        yield ("=", f"{pointer}/time", new.modified)
