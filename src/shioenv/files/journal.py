"""Journals: what is finished so far, a line each behind its checksum, only ever appended to."""

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
    """A line as journals hold it: behind its CRC-32, as eight hexadecimal digits."""
    return b"%08x %b" % (zlib.crc32(content), content)


def sound(line: bytes) -> bytes | None:
    """What `checksummed` made a line of; None where the checksum is another's."""
    content = line[9:]
    return content if checksummed(content) == line else None


def sound_lines(path: Path) -> Iterator[bytes]:
    """What the sound lines of a journal hold, which another process may be writing; damaged ones
    and a torn end are left out. Nothing is changed. OSError as `open_regular` raises it.
    """
    with open_regular(path) as file:
        for line in lines(file):
            content = _content(line) if line.endswith(b"\n") else None
            if content is not None:
                yield content


class Journal(Generic[Value]):
    """A file of lines by number, opened by one process; who opens it holds the directory's lock.

    `read` gives the number of a line and what is to be known of it, None for a line that is none. A
    torn tail is what a killed process or a power cut leaves. When a journal is opened, such a tail
    is cut off, and damaged lines before it are left out; `report` is told. Of two lines of a number
    the later counts: the earlier was left out when that was written. OSError and whatever `read`
    raises pass through.
    """

    def __init__(
        self,
        path: Path,
        read: Callable[[bytes], tuple[int, Value] | None],
        report: Callable[[str], None] = lambda note: None,
    ) -> None:
        self.path = path
        self.values: dict[int, Value] = {}
        """What is known of each line; one that is taken out is as if it had never been written."""
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
        """Writes a line; all of it, or where that fails nothing."""
        line = checksummed(content)
        if not line.endswith(b"\n"):  # else it is under the checksum as well
            line += b"\n"
        try:
            _write_all(self._file, line, self._size)
        except BaseException:
            with suppress(OSError):
                os.ftruncate(self._file, self._size)
            raise
        self._keep(number, value, len(line))

    def read(self, number: int) -> bytes:
        """The content of a line, held against its checksum again."""
        offset, length = self._places[number]
        content = _content(os.pread(self._file, length, offset))
        if content is None:
            raise OSError(errno.EIO, "the journal was changed by somebody else", str(self.path))
        return content

    def close(self) -> None:
        """Closes the file when all of it is on the disk."""
        try:
            os.fsync(self._file)
        finally:
            os.close(self._file)

    def remove(self) -> None:
        """Closes the file, which is not wanted any more."""
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
    """What a line was written of, which ended in a newline or did not; None for a damaged one."""
    content = sound(line)
    return sound(line[:-1]) if content is None else content


def _write_all(file: int, content: bytes, offset: int) -> None:
    view = memoryview(content)
    while view:
        written = os.pwrite(file, view, offset)
        view, offset = view[written:], offset + written
