"""Journals: files to which a checksummed line is appended for each finished item."""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

from shioenv.files.compressed import stream_lines
from shioenv.files.regular import open_regular, refuse_other

Value = TypeVar("Value")


def checksummed(content: bytes) -> bytes:
    """Return a journal's line: the CRC-32 as eight hexadecimal digits, then the content."""
    return b"%08x %b" % (zlib.crc32(content), content)


def sound(line: bytes) -> bytes | None:
    """Return the content of a line made by `checksummed`; None if the checksum does not match."""
    content = line[9:]
    return content if checksummed(content) == line else None


def sound_lines(path: Path) -> Iterator[bytes]:
    """Yield the contents of a journal's valid lines; another process may be writing the journal.

    Damaged lines and a torn last line are skipped. The file is not changed. Errors: OSError as for
    `open_regular` and `lines`.
    """
    with open_regular(path) as file:
        for line in stream_lines(file):
            content = _content(line) if line.endswith(b"\n") else None
            if content is not None:
                yield content


class Journal(Generic[Value]):
    """A file of numbered lines. The process that opens it must hold the directory's lock.

    `read` parses the content of a line into the line's number and value; values are kept in
    `values`. It returns None for invalid content; that line counts as damaged. A killed process or
    a power failure may leave a torn last line. Opening a journal truncates a torn last line and
    skips damaged lines; `report` is called with a note about each. Of two lines with the same
    number, the later one is used: it was written because the earlier one was damaged. OSError and
    exceptions of `read` pass through.
    """

    def __init__(
        self,
        path: Path,
        read: Callable[[bytes], tuple[int, Value] | None],
        report: Callable[[str], None] = lambda note: None,
    ) -> None:
        self.path = path
        self.values: dict[int, Value] = {}
        """The value of each line by number. Removing an entry makes the line count as missing."""
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
        """Append a line with the content; if writing fails, remove what was written."""
        line = checksummed(content)
        if not line.endswith(b"\n"):  # else the content has this newline
            line += b"\n"
        try:
            _write_all(self._file, line, self._size)
        except BaseException:
            with suppress(OSError):
                os.ftruncate(self._file, self._size)
            raise
        self._keep(number, value, len(line))

    def read(self, number: int) -> bytes:
        """Read the content of the line with this number. OSError if its checksum does not match."""
        offset, length = self._places[number]
        content = _content(os.pread(self._file, length, offset))
        if content is None:
            raise OSError(errno.EIO, "the journal was changed by another process", str(self.path))
        return content

    def close(self) -> None:
        """Sync the file to disk, then close it."""
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
            for line in stream_lines(file):
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
            lines = "1 damaged line" if damaged == 1 else f"{damaged} damaged lines"
            report(f"{self.path}: skipped {lines}; the others are kept")
        size = os.fstat(self._file).st_size
        if size > self._size:
            report(
                f"{self.path}: removed an incomplete line of {size - self._size} bytes at the end"
            )
            os.ftruncate(self._file, self._size)


def _content(line: bytes) -> bytes | None:
    """Return the content of a line, with a final newline only if it was written with one.

    Return None for a damaged line.
    """
    content = sound(line)
    return sound(line[:-1]) if content is None else content


def _write_all(file: int, content: bytes, offset: int) -> None:
    view = memoryview(content)
    while view:
        written = os.pwrite(file, view, offset)
        view, offset = view[written:], offset + written
