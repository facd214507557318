"""Compressed files, read like any other file.

Files of this package are recognised by their name, files of others by their first bytes.
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
"""Zstandard's default level. Higher levels take several times as long to save a tenth (ours)."""

_GZIP, _ZSTANDARD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
"""The first bytes of a file that gzip or Zstandard compressed."""

_CHUNK = 4096
"""Compressed bytes that are decompressed at once; in a hostile file they become 128 MiB at most."""


class DamagedFile(OSError):  # noqa: N818 - as those of the standard library are called
    """A compressed file whose content cannot be restored."""


@contextmanager
def reading(path: Path) -> Iterator[IO[bytes]]:
    """The content of a regular file as a stream, decompressed where the name ends in `.zst`.

    OSError as `open_regular` raises it. Reading from the stream raises DamagedFile where the
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
    """The content of a regular file as a stream that can be peeked at.

    The content is decompressed where the file's first bytes are those of gzip or Zstandard. The
    file's name does not matter. Errors: as `reading`.
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
    """The lines of a stream, each with its newline.

    OSError with EFBIG for a line of more than `most` bytes, before the line fills the memory.
    """
    number = 0
    while line := stream.readline(most + 1):
        number += 1
        if len(line) > most:
            raise OSError(errno.EFBIG, f"line {number} is longer than {most:,} bytes")
        yield line


@contextmanager
def writing(file: IO[bytes], name: str) -> Iterator[IO[bytes]]:
    """A stream that writes into an open file, compressed where `name` ends in `.zst`.

    The same version of the library writes the same bytes for the same content.
    """
    if not name.endswith(SUFFIX):
        yield file
        return
    from zstandard import ZstdCompressor

    compressor = ZstdCompressor(level=LEVEL, write_checksum=True, write_content_size=False)
    with compressor.stream_writer(file, closefd=False) as stream:
        yield stream


def sha256_of(path: Path) -> str:
    """SHA-256 (hex) of the content that `reading` gives. Errors: as `reading` and `lines`."""
    with reading(path) as stream:
        digest = hashlib.sha256()
        for line in lines(stream):  # a line without an end is an error, and is not read for ever
            digest.update(line)
        return digest.hexdigest()


class _Content(io.RawIOBase):
    """The content of a file that Zstandard compressed.

    A file that ends early is damaged. The library's own reader would take that for the end of the
    content.
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
        return DamagedFile(0, f"it is no sound Zstandard file: {why}", self._file.name)


class _Unzipped(io.RawIOBase):
    """The content of a file that gzip compressed. Every damage raises DamagedFile."""

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
