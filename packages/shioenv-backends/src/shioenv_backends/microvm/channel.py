"""What the host and process 1 of a microVM say to each other: `native/guest/agent.c`, in Python.

One stream of bytes carries frames in both directions. A frame is a kind, a length and a body.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from enum import Enum

_HEAD = struct.Struct("<cI")
_TIME = struct.Struct("<q")
_LONGEST = 1 << 18
"""Bytes of the longest body that the host sends; of a frame from the guest it takes four times
that."""
_ENTROPY = 32


class FrameKind(bytes, Enum):
    """Kinds of frames."""

    OPEN = b"O"
    DATA = b"D"
    CLOSE = b"C"
    TIME = b"T"
    PING = b"P"
    BOOTED = b"B"
    KEPT = b"K"


class GuestChannel:
    """The host's end of the stream. OSError where the machine is gone, or silent for too long."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._pending = bytearray()

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()

    def send(self, kind: FrameKind, body: bytes = b"") -> None:
        """Sends a frame."""
        self._connection.sendall(_HEAD.pack(kind.value, len(body)) + body)

    def receive(self, seconds: float) -> tuple[bytes, bytes]:
        """The kind and body of the next frame, all of which has to come within so many seconds."""
        until = time.monotonic() + seconds
        kind, length = _HEAD.unpack(self._read(_HEAD.size, until))
        if length > 4 * _LONGEST:
            raise ConnectionError(f"a frame of {length} bytes")
        return kind, self._read(length, until)

    def expect(self, kind: FrameKind, seconds: float) -> bytes:
        """The body of the next frame, which has to be of this kind."""
        got, body = self.receive(seconds)
        if got != kind.value:
            raise ConnectionError(f"a frame of kind {got!r} where {kind.value!r} was due")
        return body

    def set_time(self, seconds: float) -> None:
        """Sets the machine's clock, in seconds since 1970, and gives its kernel fresh entropy."""
        self.send(FrameKind.TIME, _TIME.pack(round(seconds * 1e9)) + os.urandom(_ENTROPY))

    def _read(self, length: int, until: float) -> bytes:
        while len(self._pending) < length:
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError("timed out")
            self._connection.settimeout(left)
            more = self._connection.recv(_LONGEST)
            if not more:
                raise ConnectionResetError("the machine ended")
            self._pending += more
        read = bytes(self._pending[:length])
        del self._pending[:length]
        return read


class SupervisorStream:
    """A supervisor in the machine, used like the socket of a supervisor on this host."""

    def __init__(self, channel: GuestChannel, seconds: float) -> None:
        self._channel = channel
        self._seconds = seconds
        self._until = time.monotonic() + seconds
        self._data = b""

    def gettimeout(self) -> float:
        """Seconds after a request within which all of its answer must have come."""
        return self._seconds

    def settimeout(self, seconds: float) -> None:
        """Changes the seconds that an answer may take."""
        self._seconds = seconds

    def sendall(self, data: bytes) -> None:
        """Sends these bytes to the supervisor: the time for its answer begins."""
        self._until = time.monotonic() + self._seconds
        for at in range(0, len(data), _LONGEST):
            self._channel.send(FrameKind.DATA, data[at : at + _LONGEST])

    def recv(self, most: int) -> bytes:
        """Some of the bytes that the supervisor wrote; none once it ended."""
        if not self._data:
            kind, body = self._channel.receive(self._until - time.monotonic())
            if kind != FrameKind.DATA.value:
                return b""
            self._data = body
        data, self._data = self._data[:most], self._data[most:]
        return data

    def close(self) -> None:
        """Does nothing: the supervisor ends with its machine."""
