"""Compressed files, read as any others: ours are known by their names, others by their content."""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from shioenv.files.regular import LARGEST, open_regular

SUFFIX = ".zst"

LEVEL = 3
"""Zstandard's own default: higher ones take several times as long for a tenth less (ours)."""

_GZIP, _ZSTANDARD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
"""What such files begin with."""

_CHUNK = 4096
"""Bytes decompressed at once: what a hostile file makes of them is 128 MiB at most."""


class DamagedFile(OSError):  # noqa: N818 - as those of the standard library are called
    """A compressed file that does not hold what was written."""


@contextmanager
def reading(path: Path) -> Iterator[IO[bytes]]:
    """What a regular file holds, as a stream, compressed where its name ends in `.zst`.

    OSError as `open_regular` raises it; DamagedFile where a compressed one is damaged.
    """
    with open_regular(path) as file:
        if path.suffix == SUFFIX:
            with io.BufferedReader(_Content(file)) as stream:
                yield stream
        else:
            yield file


@contextmanager
def unpacking(path: Path) -> Iterator[io.BufferedReader[Any]]:
    """What a regular file holds, as a stream that can be peeked at. It is decompressed where it
    begins as gzip or Zstandard does, whatever the file is called. Errors: as `reading`.
    """
    with open_regular(path) as file:
        begin = file.peek(len(_ZSTANDARD))
        if not begin.startswith((_GZIP, _ZSTANDARD)):
            yield file
            return
        packed = _Unzipped(file) if begin.startswith(_GZIP) else _Content(file)
        with io.BufferedReader(packed) as stream:
            yield stream


def lines(stream: IO[bytes], most: int = LARGEST) -> Iterator[bytes]:
    """The lines of a stream, each with its end.

    OSError with EFBIG for one of more than `most` bytes, before it fills the memory.
    """
    number = 0
    while line := stream.readline(most + 1):
        number += 1
        if len(line) > most:
            raise OSError(errno.EFBIG, f"line {number} is longer than {most:,} bytes")
        yield line


@contextmanager
def writing(file: IO[bytes], name: str) -> Iterator[IO[bytes]]:
    """Writes into a file that is open, compressed where it is to have such a name.

    The same content gives the same bytes with the same library.
    """
    if not name.endswith(SUFFIX):
        yield file
        return
    from zstandard import ZstdCompressor

    compressor = ZstdCompressor(level=LEVEL, write_checksum=True, write_content_size=False)
    with compressor.stream_writer(file, closefd=False) as stream:
        yield stream


def sha256_of(path: Path) -> str:
    """SHA-256 (hex) of the lines in a file, compressed or not. Errors: as `reading` and `lines`."""
    with reading(path) as stream:
        digest = hashlib.sha256()
        for line in lines(stream):  # so that one without an end is told, not read to no end
            digest.update(line)
        return digest.hexdigest()


class _Content(io.RawIOBase):
    """What a compressed file holds. One that ends early is damaged, which the library's own reader
    takes for its end.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._frame: Any = None
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            content = self._file.read(_CHUNK)
            if not content:
                if self._frame is not None:
                    raise self._damaged("it ends early")
                return 0
            self._rest = self._of(content)
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size

    def _of(self, content: bytes) -> bytes:
        from zstandard import ZstdDecompressor, ZstdError

        made = []
        try:
            while content:
                self._frame = self._frame or ZstdDecompressor().decompressobj()
                made.append(self._frame.decompress(content))
                content = self._frame.unused_data
                if self._frame.eof:
                    self._frame = None
        except ZstdError as error:
            raise self._damaged(str(error)) from None
        return b"".join(made)

    def _damaged(self, why: str) -> DamagedFile:
        return DamagedFile(0, f"it is no sound Zstandard file: {why}", self._file.name)


class _Unzipped(io.RawIOBase):
    """What a file that gzip compressed holds, with one error for whatever damages it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._name = file.name
        self._content = gzip.GzipFile(fileobj=file)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            return self._content.readinto(buffer)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise DamagedFile(0, f"it is no sound gzip file: {error}", self._name) from None
