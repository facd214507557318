"""Changed contents as a unified diff of bounded size, for `patch` and `git apply`."""

from __future__ import annotations

import difflib
import hashlib
import os
import stat
from collections.abc import Callable, Collection, Iterable
from itertools import islice

from shioenv.sandbox.base import FileChange, FileStat

LARGEST_TEXT = 64 * 1024
"""Maximum bytes of a file that is compared as text."""

LARGEST_DIFF = 256 * 1024
"""Maximum characters of all diffs together."""

MOST_LINES = 4096
"""Maximum lines of a file that is compared as text: more take too long to compare."""

MOST_LISTED = 4096
"""Maximum files without a diff that are listed by name."""

Reader = Callable[[FileChange], tuple[bytes | None, bytes | None]]
"""A callable that returns a file's old and new content; None if it is missing or unreadable."""

_ESCAPES = {7: "a", 8: "b", 9: "t", 10: "n", 11: "v", 12: "f", 13: "r", 34: '"', 92: "\\"}
_ABSENT, _EMPTY = "0" * 7, "e69de29"  # Git's hashes; `patch` deletes an empty file only with them
_NO_NEWLINE = "\\ No newline at end of file\n"


class _NoTextError(Exception):
    """The contents of a file cannot be shown; with `is_last`, neither can those of later files."""

    def __init__(self, reason: str, *, is_last: bool = False) -> None:
        super().__init__(reason)
        self.is_last = is_last


def text_diff(
    changes: Iterable[FileChange], read: Reader, moved: Collection[bytes] = ()
) -> tuple[str, bool]:
    """Return the diff of all changed contents, and whether it omits a text.

    Only regular files are compared. `moved` are paths of files that were only renamed. Files whose
    contents cannot be shown come first, one line each. Their contents are not UTF-8, contain a NUL,
    are larger than `LARGEST_TEXT`, or exceed `LARGEST_DIFF`.
    """
    listed: list[str] = []
    parts: list[str] = []
    room, is_cut = LARGEST_DIFF, False
    for change in sorted(changes, key=lambda change: change.path):
        if change.path in moved:
            continue
        try:
            part = _part(change, read, room)
        except UnicodeDecodeError:
            listed.append("Binary files {} and {} differ".format(*_names(change)))
        except _NoTextError as error:
            listed.append("Files {} and {} differ: {}".format(*_names(change), error))
            is_cut = True
            room = 0 if error.is_last else room
        else:
            parts.append(part)
            room -= len(part)
    if len(listed) > MOST_LISTED:
        listed[MOST_LISTED:] = [f"{len(listed) - MOST_LISTED} more files differ"]
    return "".join([*(f"{line}\n" for line in listed), *parts]), is_cut


def _part(change: FileChange, read: Reader, room: int) -> str:
    """Return one file's part of the diff, at most `room` characters; empty if there is none."""
    before, after = _regular(change.before), _regular(change.after)
    part = _header(change.path, before, after)
    if before and after and before.digest == after.digest:
        return part if len(part) <= room else ""
    sizes = [side.size for side in (before, after) if side]
    if not sizes:
        return ""
    too_large = f"too large for a diff: {' and '.join(map(str, sizes))} bytes"
    if not room or max(sizes) > LARGEST_TEXT:
        raise _NoTextError(too_large)
    contents = zip((before, after), read(change), strict=True)
    old, new = (_lines(side, content) for side, content in contents)
    if max(len(old), len(new)) > MOST_LINES:
        raise _NoTextError(too_large)
    if old != new:
        names = (f"{name}\t" if " " in name and name[0] != '"' else name for name in _names(change))
        part += "--- {}\n+++ {}\n".format(*names) + _hunks(old, new)
    if len(part) > room:
        raise _NoTextError(too_large, is_last=True)
    return part


def _names(change: FileChange) -> tuple[str, ...]:
    """Return the names of both sides; `/dev/null` for a side that is not a regular file."""
    return tuple(
        _quoted(prefix + change.path) if _regular(side) else "/dev/null"
        for prefix, side in ((b"a", change.before), (b"b", change.after))
    )


def _regular(side: FileStat | None) -> FileStat | None:
    return side if side is not None and stat.S_ISREG(side.mode) else None


def _header(path: bytes, before: FileStat | None, after: FileStat | None) -> str:
    """Return the header of a file's diff in Git's format; empty if there is nothing to show.

    Without it, `patch` uses parts of the previous file's header.
    """
    old, new = (_quoted(prefix + path, blanks=True) for prefix in (b"a", b"b"))
    first = f"diff --git {old} {new}\n"
    if before is None:
        if after is None:
            return ""
        index = "" if after.size else f"index {_ABSENT}..{_EMPTY}\n"
        return f"{first}new file mode {after.mode:o}\n{index}"
    if after is None:
        index = "" if before.size else f"index {_EMPTY}..{_ABSENT}\n"
        return f"{first}deleted file mode {before.mode:o}\n{index}"
    if before.mode == after.mode:
        return first if before.digest != after.digest else ""
    return f"{first}old mode {before.mode:o}\nnew mode {after.mode:o}\n"


def _quoted(name: bytes, *, blanks: bool = False) -> str:
    """Quote a name as Git does, if necessary; with `blanks`, also a name with spaces."""
    try:
        text = name.decode()
    except UnicodeDecodeError:
        text = ""
    is_plain = text.isprintable() and not {'"', "\\"} & set(text) and text == " ".join(text.split())
    if text and is_plain and not (blanks and " " in text):
        return text
    return '"' + "".join(map(_escaped, name)) + '"'


def _escaped(byte: int) -> str:
    if byte in _ESCAPES:
        return "\\" + _ESCAPES[byte]
    return chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}"


def _lines(side: FileStat | None, content: bytes | None) -> list[str]:
    """Split a text into lines with their ends. UnicodeDecodeError if it is not UTF-8 text."""
    if side is None:
        return []
    if content is None:
        raise _NoTextError("the content cannot be read")
    if len(content) != side.size or (
        side.digest is not None and hashlib.sha256(content).hexdigest() != side.digest
    ):
        raise _NoTextError("the content changed again while it was read")
    if b"\0" in content:
        raise UnicodeDecodeError("utf-8", content, 0, 1, "NUL")
    lines = [f"{line}\n" for line in content.decode().split("\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def _hunks(before: list[str], after: list[str]) -> str:
    lines = islice(difflib.unified_diff(before, after), 2, None)  # skip the names of the files
    return "".join(line if line.endswith("\n") else f"{line}\n{_NO_NEWLINE}" for line in lines)


def read_at(directory: int, path: bytes) -> bytes | None:
    """Return the content of a regular file below a directory, `LARGEST_TEXT` bytes at most.

    None if it cannot be read.
    """
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
