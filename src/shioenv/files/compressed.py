"""Files that are compressed where their name ends in `.zst`, read and written as any others."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

SUFFIX = ".zst"

LEVEL = 3
"""Zstandard's own default: higher ones take several times as long for a tenth less (ours)."""

_CHUNK = 4096
"""Bytes decompressed at once: what a hostile file makes of them is 128 MiB at most."""


class DamagedFile(OSError):  # noqa: N818 - as those of the standard library are called
    """A compressed file that does not hold what was written."""


@contextmanager
def reading(path: Path) -> Iterator[IO[bytes]]:
    """What a file holds, as a stream. OSError; DamagedFile where a compressed one is damaged."""
    with path.open("rb") as file:
        if path.suffix == SUFFIX:
            with io.BufferedReader(_Content(file)) as stream:
                yield stream
        else:
            yield file


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
    """SHA-256 (hex) of what a file holds, compressed or not. Errors: as `reading`."""
    with reading(path) as stream:
        digest = hashlib.sha256()
        while content := stream.read(1 << 20):
            digest.update(content)
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
