"""File trees of emulators: the system's files to load, and the files that an input changed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shioenv.domain.names import file_key
from shioenv.domain.patch import ContextPatch, Operation
from shioenv.domain.pointer import escape
from shioenv.system.store import DEVICES, IndexEntry, System
from shioenv_eval.predictors.lines import installed

LARGEST = 64 * 1024
"""Bytes of a file at most whose content is loaded; larger files, which are programs, are empty."""


@dataclass(frozen=True, slots=True)
class ShownFile:
    """One file as an emulator shows it."""

    kind: str
    """`file`, `directory`, `symlink`, or another word."""
    mode: int
    """Permission bits."""
    modified: float
    """Seconds since 1970."""
    content: Any = None
    """What stands for the content when files are compared, such as the size; None for nothing."""


Tree = Mapping[str, ShownFile]
"""Files by absolute path."""


def loaded(system: System) -> Iterator[tuple[IndexEntry, bytes | None]]:
    """The system's files, parents first, with the contents of regular files.

    Left out is all that lies in /sys, /proc and /dev, and what is no regular file, directory or
    symbolic link. The files of /proc that programs are shown are `System.shown_in_proc`. The
    content is None for directories and links, empty for files larger than `LARGEST`.
    """
    for path, entry in sorted(system.index.items()):
        if path.startswith(("/sys/", "/proc/", "/dev/")) or path in DEVICES:
            continue
        if stat.S_ISREG(entry.mode):
            yield entry, system.read(path) if entry.size <= LARGEST else b""
        elif stat.S_ISDIR(entry.mode) or stat.S_ISLNK(entry.mode):
            yield entry, None


def is_program(entry: IndexEntry, content: bytes | None) -> bool:
    """Whether a loaded file is a program of the system, and no script.

    An emulator that finds such a file in PATH would run it as a script of its own.
    """
    runs = content is not None and entry.mode & 0o111 and entry.path.startswith("/usr/")
    return bool(runs) and not (content or b"").startswith(b"#!")


def laid_out(system: System) -> Path:
    """The directory in the cache where the system's files (`loaded`) lie, made on first use.

    Files have their modes and times, and belong to whoever made the directory. Programs for whom
    they are laid out share the directory, and must not write there. Errors: those of `installed`.
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
    for entry, _ in reversed(entries):  # what lies in a directory comes before the directory
        path = top / entry.path.lstrip("/")
        if not stat.S_ISLNK(entry.mode):
            path.chmod(stat.S_IMODE(entry.mode))
        os.utime(path, (entry.mtime, entry.mtime), follow_symlinks=False)


def file_pointer(path: str, start: str) -> str:
    """The pointer of the file at an absolute path, as patches of a start directory have it."""
    return f"/fs/{escape(file_key(path.encode('utf-8', 'surrogateescape'), start.encode()))}"


def changed_file(verb: str, path: str, start: str) -> Operation:
    """The operation for a file that was `added`, `removed` or `changed`, without its facts."""
    pointer = file_pointer(path, start)
    if verb == "removed":
        return ("r", pointer)
    return ("a", pointer, {}) if verb == "added" else ("=", f"{pointer}/content", True)


def changes(before: Tree, after: Tree, start: str) -> ContextPatch:
    """The patch at the level of files: what was added, removed or changed, and how.

    The time of a directory does not count: some emulators set it when an entry comes, some do not.
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


def _changed(pointer: str, old: ShownFile, new: ShownFile) -> Iterable[Operation]:
    if old.kind != new.kind:
        yield ("=", f"{pointer}/kind", new.kind)
    if old.mode != new.mode:
        yield ("=", f"{pointer}/mode", f"{new.mode:o}")
    if old.content != new.content:
        yield ("=", f"{pointer}/content", True)
    elif old.modified != new.modified and new.kind == "file":
        yield ("=", f"{pointer}/time", new.modified)
