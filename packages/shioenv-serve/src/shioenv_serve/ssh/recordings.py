"""Recordings of a channel's input and output, for `asciinema play` and Cowrie's `playlog`."""

from __future__ import annotations

import hashlib
import struct
import time
from pathlib import Path
from typing import Final

from shioenv.domain.behavior import Behavior
from shioenv.files.durable import storage_errors
from shioenv.live.asciicast import AsciicastWriter, marker
from shioenv.live.shell import Closing
from shioenv.sandbox.base import MEBIBYTE

LONGEST_RECORDING: Final = 16 * MEBIBYTE
"""Maximum bytes recorded of a channel; our choice.

Input, output and markers count. Nothing is recorded after the limit.
"""

_ENTRY: Final = struct.Struct("<iLiiLL")
"""The header of a ttylog entry, as in `cowrie.core.ttylog`; the data follows.

Its fields: operation, terminal, length, direction, seconds, microseconds.
"""

_OPEN, _CLOSE, _WRITE = 1, 2, 3
_TYPED, _SHOWN, _COMMAND = 1, 2, 3


class ChannelRecording(Closing):
    """A channel's two recordings, `NAME.cast` and `NAME.ttylog`, written as events arrive.

    Errors: DatasetStorageError, here and later.
    """

    def __init__(self, directory: Path, name: str, command: str | None, size: tuple[int, int]):
        """Open both files. `command` is None for a shell; `size` are rows and columns."""
        with storage_errors(directory):
            directory.mkdir(parents=True, exist_ok=True)
        self.cast_file, self.file = directory / f"{name}.cast", directory / f"{name}.ttylog"
        self._cast = AsciicastWriter(self.cast_file, command or "shell", *size)
        with storage_errors(self.file):
            self._tty = self.file.open("xb", buffering=0)
        self._digest = hashlib.sha256()
        self.size = 0
        """Bytes of input and output recorded so far."""
        self._markers = 0
        self.whole = True
        """Whether all bytes and markers are recorded."""
        self._enter(_OPEN, 0, b"")
        if command is not None:
            self._take(_COMMAND, command.encode("utf-8", "surrogateescape"))

    @property
    def digest(self) -> str:
        """The SHA-256 of the input, by which Cowrie recognises equal sessions."""
        return self._digest.hexdigest()

    def shown(self, data: bytes) -> None:
        """Record output."""
        if self._take(_SHOWN, data):
            self._cast.write_output(data)

    def typed(self, data: bytes) -> None:
        """Record input."""
        if self._take(_TYPED, data):
            self._cast.write_input(data)

    def did(self, line: str, behavior: Behavior) -> None:
        """Record the effects of a line, as a marker in the cast only."""
        text = marker(line, behavior)
        if self._has_room(len(text)):
            self._markers += len(text)
            self._cast.write_marker(text)

    def close(self) -> None:
        """Close the recordings; a second call does nothing."""
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
        """Whether that many more bytes fit; if not, recording stops for good."""
        self.whole = self.whole and self.size + self._markers + count <= LONGEST_RECORDING
        return self.whole

    def _enter(self, what: int, direction: int, data: bytes) -> None:
        seconds, micro = divmod(time.time_ns() // 1000, 1_000_000)
        entry = _ENTRY.pack(what, 0, len(data), direction, seconds, micro) + data
        with storage_errors(self.file):
            left = memoryview(entry)
            while left:
                left = left[self._tty.write(left) or 0 :]
