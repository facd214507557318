"""Journals: files to which a line with a checksum is appended for each thing that is finished."""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

from shioenv.files.compressed import lines
from shioenv.files.regular import open_regular, refuse_other

Value = TypeVar("Value")


def checksummed(content: bytes) -> bytes:
    """A line of a journal: its content behind the CRC-32, which is eight hexadecimal digits."""
    return b"%08x %b" % (zlib.crc32(content), content)


def sound(line: bytes) -> bytes | None:
    """The content that `checksummed` made a line from; None where the checksum does not fit."""
    content = line[9:]
    return content if checksummed(content) == line else None


def sound_lines(path: Path) -> Iterator[bytes]:
    """The contents of the sound lines of a journal, which another process may be writing.

    Damaged lines and a torn end are left out. The journal stays as it is. OSError as `open_regular`
    and `lines` raise it.
    """
    with open_regular(path) as file:
        for line in lines(file):
            content = _content(line) if line.endswith(b"\n") else None
            if content is not None:
                yield content


class Journal(Generic[Value]):
    """A file of numbered lines. The one process that opens it holds the directory's lock.

    `read` takes the content of a line and returns the line's number and its value, which is kept in
    `values`. `read` returns None for a content that it does not accept; that line counts as
    damaged. A killed process or a power cut may leave a torn tail. When a journal is opened, such a
    tail is cut off, and damaged lines before it are left out. `report` is told of both. Of two
    lines with the same number the later counts: the earlier line was left out when the later was
    written. OSError and whatever `read` raises pass through.
    """

    def __init__(
        self,
        path: Path,
        read: Callable[[bytes], tuple[int, Value] | None],
        report: Callable[[str], None] = lambda note: None,
    ) -> None:
        self.path = path
        self.values: dict[int, Value] = {}
        """The value of each line by number. A line that is taken out counts as never written."""
        self._places: dict[int, tuple[int, int]] = {}
        self._size = 0
        with suppress(FileNotFoundError):
            refuse_other(path.stat(), path)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
        try:
            refuse_other(os.fstat(self._file), path)
            self._load(read, report)
        except BaseException:
            os.close(self._file)
            raise

    def append(self, number: int, value: Value, content: bytes) -> None:
        """Write a line with the content; where writing fails, nothing of the line stays."""
        line = checksummed(content)
        if not line.endswith(b"\n"):  # else the newline is part of the content and of its checksum
            line += b"\n"
        try:
            _write_all(self._file, line, self._size)
        except BaseException:
            with suppress(OSError):
                os.ftruncate(self._file, self._size)
            raise
        self._keep(number, value, len(line))

    def read(self, number: int) -> bytes:
        """The content of the line with this number. OSError where its checksum no longer fits."""
        offset, length = self._places[number]
        content = _content(os.pread(self._file, length, offset))
        if content is None:
            raise OSError(errno.EIO, "the journal was changed by somebody else", str(self.path))
        return content

    def close(self) -> None:
        """Bring all of the file to the disk, then close it."""
        try:
            os.fsync(self._file)
        finally:
            os.close(self._file)

    def remove(self) -> None:
        """Close and delete the file."""
        os.close(self._file)
        self.path.unlink()

    def _keep(self, number: int, value: Value, length: int) -> None:
        self.values[number] = value
        self._places[number] = self._size, length
        self._size += length

    def _load(
        self, read: Callable[[bytes], tuple[int, Value] | None], report: Callable[[str], None]
    ) -> None:
        damaged = 0
        with os.fdopen(os.dup(self._file), "rb") as file:
            for line in lines(file):
                if not line.endswith(b"\n"):
                    break
                content = _content(line)
                known = None if content is None else read(content)
                if known is None:
                    damaged += 1
                    self._size += len(line)
                else:
                    self._keep(*known, len(line))
        if damaged:
            those = "a line is" if damaged == 1 else f"{damaged} lines are"
            report(f"{self.path}: {those} damaged and left out; the others are kept")
        size = os.fstat(self._file).st_size
        if size > self._size:
            report(f"{self.path}: the last {size - self._size} bytes are torn and are left out")
            os.ftruncate(self._file, self._size)


def _content(line: bytes) -> bytes | None:
    """The content of a line, with a newline at its end only if it was written with one.

    None for a damaged line.
    """
    content = sound(line)
    return sound(line[:-1]) if content is None else content


def _write_all(file: int, content: bytes, offset: int) -> None:
    view = memoryview(content)
    while view:
        written = os.pwrite(file, view, offset)
        view, offset = view[written:], offset + written
