"""What was typed and shown on a channel, for `asciinema play` and for Cowrie's `playlog`."""

from __future__ import annotations

import hashlib
import struct
import time
from pathlib import Path
from typing import Final

from shioenv.domain.behavior import Behavior
from shioenv.files.durable import storage_errors
from shioenv.live.cast import Cast, marker
from shioenv.live.shell import Closing
from shioenv.sandbox.base import MEBIBYTE

LONGEST_RECORDING: Final = 16 * MEBIBYTE
"""Bytes of a channel that are recorded; ours. What is typed and shown counts, and markers.
What comes after them is not."""

_ENTRY: Final = struct.Struct("<iLiiLL")
"""An entry of a ttylog: what it is, the terminal, the length, the direction, seconds, microseconds
(`cowrie.core.ttylog`). The bytes follow."""

_OPEN, _CLOSE, _WRITE = 1, 2, 3
_TYPED, _SHOWN, _COMMAND = 1, 2, 3


class ChannelRecording(Closing):
    """A channel's two recordings, `NAME.cast` and `NAME.ttylog`, written while things happen.

    Errors: DatasetStorageError, here and later.
    """

    def __init__(self, directory: Path, name: str, command: str | None, size: tuple[int, int]):
        """`command` is None for a shell; `size` are rows and columns."""
        with storage_errors(directory):
            directory.mkdir(parents=True, exist_ok=True)
        self.cast_file, self.file = directory / f"{name}.cast", directory / f"{name}.ttylog"
        self._cast = Cast(self.cast_file, command or "shell", *size)
        with storage_errors(self.file):
            self._tty = self.file.open("xb", buffering=0)
        self._digest = hashlib.sha256()
        self.size = 0
        """Bytes that were typed and shown, as far as they are recorded."""
        self._markers = 0
        self.whole = True
        """Whether all of them are, and all markers."""
        self._enter(_OPEN, 0, b"")
        if command is not None:
            self._take(_COMMAND, command.encode("utf-8", "surrogateescape"))

    @property
    def digest(self) -> str:
        """The SHA-256 of what was typed, by which Cowrie knows sessions that are alike."""
        return self._digest.hexdigest()

    def shown(self, data: bytes) -> None:
        """Takes what was shown."""
        if self._take(_SHOWN, data):
            self._cast.shown(data)

    def typed(self, data: bytes) -> None:
        """Takes what was typed."""
        if self._take(_TYPED, data):
            self._cast.typed(data)

    def did(self, line: str, behavior: Behavior) -> None:
        """Takes what a line did, as a marker of the cast alone."""
        text = marker(line, behavior)
        if self._has_room(len(text)):
            self._markers += len(text)
            self._cast.marked(text)

    def close(self) -> None:
        """Ends the recordings; closing twice does nothing."""
        self._cast.close()
        if not self._tty.closed:
            self._enter(_CLOSE, 0, b"")
            self._tty.close()

    def _take(self, direction: int, data: bytes) -> bool:
        if self._has_room(len(data)) and data:
            self.size += len(data)
            if direction != _SHOWN:
                self._digest.update(data)
            self._enter(_WRITE, direction, data)
        return self.whole

    def _has_room(self, count: int) -> bool:
        """Whether that many more bytes are recorded; if not, none is from then on."""
        self.whole = self.whole and self.size + self._markers + count <= LONGEST_RECORDING
        return self.whole

    def _enter(self, what: int, direction: int, data: bytes) -> None:
        seconds, micro = divmod(time.time_ns() // 1000, 1_000_000)
        entry = _ENTRY.pack(what, 0, len(data), direction, seconds, micro) + data
        with storage_errors(self.file):
            left = memoryview(entry)
            while left:
                left = left[self._tty.write(left) or 0 :]
