"""Saved machines, kept for the next sandbox.

Each machine has a directory with its memory, the state of its devices, and a checksum of both.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from shioenv.files.durable import atomic_write, sync

NAMES = ("memory", "state")
_BLOCK = 1 << 16


def save_machine(place: Path, write: Callable[[Path], None]) -> None:
    """Create `place` with the files (`NAMES`) that `write` puts into a temporary directory.

    `place` is created completely and durably, or not at all. An existing `place` is left unchanged.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=".keep-", dir=place.parent))
    try:
        write(work)
        opened = _open(work)
        try:
            for each in opened:
                os.fsync(each)
            atomic_write(work / "sum", _sum(opened).encode())
        finally:
            _close(opened)
        work.rename(place)
        sync(place.parent)
    except OSError:
        if not place.is_dir():
            raise
    finally:
        shutil.rmtree(work, ignore_errors=True)


def open_kept(place: Path) -> tuple[int, ...]:
    """Open the kept files for reading and return descriptors, in the order of `NAMES`.

    OSError if `place` holds nothing, or its bytes have changed; `place` is then removed.
    """
    opened = _open(place)
    try:
        if (place / "sum").read_text() != _sum(opened):
            shutil.rmtree(place, ignore_errors=True)
            raise OSError(f"{place} was modified after it was saved")
    except ValueError as error:
        _close(opened)
        raise OSError(str(error)) from error
    except BaseException:
        _close(opened)
        raise
    return opened


def copy(source: int, target: Path) -> None:
    """Copy a sparse file, given as a descriptor, without its holes."""
    with target.open("wb") as file:
        to = file.fileno()
        os.ftruncate(to, os.fstat(source).st_size)
        for begin, end in _data(source):
            at = begin
            os.lseek(to, at, os.SEEK_SET)
            while at < end:
                at += os.sendfile(to, source, at, end - at)


def _open(place: Path) -> tuple[int, ...]:
    opened: list[int] = []
    try:
        opened += (os.open(place / name, os.O_RDONLY | os.O_CLOEXEC) for name in NAMES)
    except OSError:
        _close(tuple(opened))
        raise
    return tuple(opened)


def _close(opened: tuple[int, ...]) -> None:
    for each in opened:
        os.close(each)


def _sum(opened: tuple[int, ...]) -> str:
    """Return the SHA-256 (hex) of both files' content, independent of holes."""
    digest = hashlib.sha256()
    for descriptor in opened:
        digest.update(b"%d" % os.fstat(descriptor).st_size)
        read = 0
        for begin, end in _data(descriptor):
            for at in range(max(read, begin - begin % _BLOCK), end, _BLOCK):
                block = os.pread(descriptor, _BLOCK, at)
                if block.strip(b"\0"):
                    digest.update(b"%d:" % at + block)
                read = at + _BLOCK
    return digest.hexdigest()


def _data(file: int) -> Iterator[tuple[int, int]]:
    """Yield (begin, end) of each data region of a sparse file, in bytes."""
    end = 0
    while True:
        try:
            begin = os.lseek(file, end, os.SEEK_DATA)
        except OSError:  # nothing more
            return
        end = os.lseek(file, begin, os.SEEK_HOLE)
        yield begin, end
