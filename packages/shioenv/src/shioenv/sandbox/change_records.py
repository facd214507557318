"""The supervisor's records of changed files (`scan.c`)."""

from __future__ import annotations

import os
import struct

from shioenv.errors import SandboxError
from shioenv.sandbox.base import FileChange, FileStat

CHANGE = struct.Struct("=4IQqIQ2I")
_LENGTH = struct.Struct("=I")


def scan_error(why: str) -> SandboxError:
    """Return the error for bytes that do not follow the protocol."""
    return SandboxError(
        f"cannot parse the supervisor's reply: {why}",
        hint="if it happens again, reinstall: pip install --force-reinstall shioenv",
    )


def parse_changes(data: memoryview) -> tuple[FileChange, ...]:
    """Parse the supervisor's change records (`scan.c`), joining the two sides of each path."""
    try:
        return _changes(data)
    except (struct.error, IndexError, OverflowError, ValueError) as error:
        raise scan_error(f"change records of {len(data)} bytes: {error}") from error


def _changes(data: memoryview) -> tuple[FileChange, ...]:
    sides: dict[bytes, list[FileStat | None]] = {}
    at, end = 0, len(data)
    while at < end:
        kind = data[at]
        (length,) = _LENGTH.unpack_from(data, at + 1)
        at += 5
        path = bytes(data[at : at + length])
        at += length
        mode, uid, gid, links, size, seconds, nanoseconds, inode, major, minor = CHANGE.unpack_from(
            data, at
        )
        at += CHANGE.size
        (length,) = _LENGTH.unpack_from(data, at)
        at += 4
        target = bytes(data[at : at + length]) if length else None
        at += length
        has_digest = data[at]
        at += 1
        digest = bytes(data[at : at + 32]).hex() if has_digest else None
        at += 32 if has_digest else 0
        entry = FileStat(
            mode,
            uid,
            gid,
            size,
            links,
            seconds * 1_000_000_000 + nanoseconds,
            inode,
            os.makedev(major, minor),
            target,
            digest,
        )
        sides.setdefault(path, [None, None])[b"BA".index(kind)] = entry
    if at > end:
        raise ValueError("the last one is incomplete")
    return tuple(FileChange(path, before, after) for path, (before, after) in sides.items())
