"""Changed texts as a unified diff, of bounded size."""

from __future__ import annotations

import difflib
import json
import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator

from shioenv.domain.names import name_text
from shioenv.sandbox.base import FileChange, FileStat

LARGEST_TEXT = 64 * 1024
"""Bytes of a file that is compared as text, at most."""

LARGEST_DIFF = 256 * 1024
"""Characters of all diffs together, at most."""

MOST_LINES = 4096
"""Lines of a file that is compared as text, at most: more take too long to compare."""

Reader = Callable[[FileChange], tuple[bytes | None, bytes | None]]
"""Reads what a file held before and after; None where it is missing or cannot be read."""


def text_diff(
    changes: Iterable[FileChange], read: Reader, moved: Collection[bytes] = ()
) -> tuple[str, bool]:
    """The diffs of all changed texts, in the order of their paths, and whether some are left out.

    A file with bytes that are no UTF-8, or with a NUL, is no text. `moved` are paths of files that
    changed their name alone. A file that is larger than `LARGEST_TEXT` is left out.
    """
    parts: list[str] = []
    length, left_out = 0, False
    for change in sorted(changes, key=lambda change: change.path):
        if change.path in moved or not _holds_another(change):
            continue
        if max(_size(change.before), _size(change.after)) > LARGEST_TEXT:
            left_out = True
            continue
        before, after = (None if side is None else _lines(side) for side in read(change))
        if before is None and after is None:
            continue
        if max(len(before or ()), len(after or ())) > MOST_LINES:
            left_out = True
            continue
        text = "".join(_compared(change, before, after))
        if length + len(text) > LARGEST_DIFF:
            return "".join(parts), True
        parts.append(text)
        length += len(text)
    return "".join(parts), left_out


def _is_regular(side: FileStat | None) -> bool:
    return side is not None and stat.S_ISREG(side.mode)


def _size(side: FileStat | None) -> int:
    return side.size if side is not None and stat.S_ISREG(side.mode) else 0


def _holds_another(change: FileChange) -> bool:
    """Whether a regular file came, went, or holds something else now."""
    before, after = change.before, change.after
    if not (_is_regular(before) or _is_regular(after)):
        return False
    return before is None or after is None or before.digest != after.digest


def _lines(content: bytes) -> list[str] | None:
    """The lines of a text with their ends; None for what is no text."""
    if b"\0" in content:
        return None
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    return [f"{line}\n" for line in text.removesuffix("\n").split("\n")] if text else []


def _compared(
    change: FileChange, before: list[str] | None, after: list[str] | None
) -> Iterator[str]:
    old = "/dev/null" if change.before is None else _shown(f"a{name_text(change.path)}")
    new = "/dev/null" if change.after is None else _shown(f"b{name_text(change.path)}")
    return difflib.unified_diff(before or [], after or [], old, new)


def _shown(name: str) -> str:
    return name if name.isprintable() else json.dumps(name, ensure_ascii=False)


def read_at(directory: int, path: bytes) -> bytes | None:
    """What a regular file below a directory holds, or None; at most `LARGEST_TEXT` bytes."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return None
        return os.read(file, LARGEST_TEXT)
    except OSError:
        return None
    finally:
        os.close(file)
