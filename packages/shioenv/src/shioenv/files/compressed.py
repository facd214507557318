"""Transparent reading and writing of compressed files.

This package's own files are recognised by name, other files by their first bytes.
"""

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
"""Zstandard's default level. By our measurements, higher levels take several times as long and save
a tenth of the size."""

_GZIP, _ZSTANDARD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
"""Magic numbers of gzip and Zstandard files."""

_CHUNK = 4096
"""Number of compressed bytes that are decompressed at once. In a hostile file they become at most
128 MiB."""


class DamagedFile(OSError):  # noqa: N818 - named like errors of the standard library
    """A compressed file cannot be decompressed."""


@contextmanager
def reading(path: Path) -> Iterator[IO[bytes]]:
    """Open a regular file as a stream, decompressed if the name ends in `.zst`.

    Errors: OSError as for `open_regular`. Reading from the stream raises DamagedFile if the
    compressed file is damaged.
    """
    with open_regular(path) as file:
        if path.suffix == SUFFIX:
            with io.BufferedReader(_Content(file)) as stream:
                yield stream
        else:
            yield file


@contextmanager
def unpacking(path: Path) -> Iterator[io.BufferedReader[Any]]:
    """Open a regular file as a stream with `peek`, decompressed if it is compressed.

    Compression is recognised by the magic number of gzip or Zstandard, whatever the file's name.
    Errors: as for `reading`.
    """
    with open_regular(path) as file:
        begin = file.peek(len(_ZSTANDARD))
        if not begin.startswith((_GZIP, _ZSTANDARD)):
            yield file
            return
        packed = _Unzipped(file) if begin.startswith(_GZIP) else _Content(file)
        with io.BufferedReader(packed) as stream:
            yield stream


def stream_lines(stream: IO[bytes], most: int = LARGEST) -> Iterator[bytes]:
    """Yield the lines of a stream, each with its newline.

    Errors: OSError with EFBIG for a line of more than `most` bytes, before reading all of it.
    """
    number = 0
    while line := stream.readline(most + 1):
        number += 1
        if len(line) > most:
            raise OSError(errno.EFBIG, f"line {number} is longer than {most:,} bytes")
        yield line


@contextmanager
def open_compressed(file: IO[bytes], name: str) -> Iterator[IO[bytes]]:
    """Open a stream that writes into an open file, compressed if `name` ends in `.zst`.

    The output is deterministic for a given version of the library.
    """
    if not name.endswith(SUFFIX):
        yield file
        return
    from zstandard import ZstdCompressor

    compressor = ZstdCompressor(level=LEVEL, write_checksum=True, write_content_size=False)
    with compressor.stream_writer(file, closefd=False) as stream:
        yield stream


def decompressed_sha256(path: Path) -> str:
    """Return the SHA-256 (hex) of the decompressed content. Errors: those of `reading`."""
    with reading(path) as stream:
        digest = hashlib.sha256()
        for line in stream_lines(stream):  # an endless line is an error instead of an endless loop
            digest.update(line)
        return digest.hexdigest()


class _Content(io.RawIOBase):
    """The content of a file compressed with Zstandard.

    A truncated file raises an error; the library's own reader would just stop.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._frame: Any = None
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            content = self._file.read(_CHUNK)
            if not content:
                if self._frame is not None:
                    raise self._damaged("it ends early")
                return 0
            self._rest = memoryview(self._of(content))
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
        return DamagedFile(0, f"damaged Zstandard file: {why}", self._file.name)


class _Unzipped(io.RawIOBase):
    """The content of a file compressed with gzip. Any damage raises DamagedFile."""

    def __init__(self, file: IO[bytes]) -> None:
        self._name = file.name
        self._content = gzip.GzipFile(fileobj=file)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            return self._content.readinto(buffer)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise DamagedFile(0, f"damaged gzip file: {error}", self._name) from None
