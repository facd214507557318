"""The protocol between the host and process 1 of a microVM: `native/guest/agent.c`, in Python.

One byte stream carries frames in both directions. A frame is a kind, a length and a body.
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
"""Maximum length in bytes of a body sent by the host; the guest may send four times as many."""
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
    """The host's end of the stream. OSError if the machine is gone, or does not answer in time."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._pending = bytearray()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def send(self, kind: FrameKind, body: bytes = b"") -> None:
        """Send a frame."""
        self._connection.sendall(_HEAD.pack(kind.value, len(body)) + body)

    def receive(self, seconds: float) -> tuple[bytes, bytes]:
        """Return the kind and body of the next frame; wait for it at most `seconds`."""
        until = time.monotonic() + seconds
        kind, length = _HEAD.unpack(self._read(_HEAD.size, until))
        if length > 4 * _LONGEST:
            raise ConnectionError(f"received a frame of {length} bytes")
        return kind, self._read(length, until)

    def expect(self, kind: FrameKind, seconds: float) -> bytes:
        """Return the body of the next frame, which must be of this kind."""
        got, body = self.receive(seconds)
        if got != kind.value:
            raise ConnectionError(f"received a frame of kind {got!r} instead of {kind.value!r}")
        return body

    def set_time(self, seconds: float) -> None:
        """Set the machine's clock, in seconds since 1970, and add fresh entropy to its kernel."""
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
    """A supervisor in the machine, with the interface of a supervisor's socket on this host."""

    def __init__(self, channel: GuestChannel, seconds: float) -> None:
        self._channel = channel
        self._seconds = seconds
        self._until = time.monotonic() + seconds
        self._data = b""

    def gettimeout(self) -> float:
        """Return the time limit in seconds for the complete answer to a request."""
        return self._seconds

    def settimeout(self, seconds: float) -> None:
        """Change the time limit for an answer."""
        self._seconds = seconds

    def sendall(self, data: bytes) -> None:
        """Send these bytes to the supervisor, and start the time limit for its answer."""
        self._until = time.monotonic() + self._seconds
        for at in range(0, len(data), _LONGEST):
            self._channel.send(FrameKind.DATA, data[at : at + _LONGEST])

    def recv(self, most: int) -> bytes:
        """Return some of the bytes that the supervisor wrote; none after it has ended."""
        if not self._data:
            kind, body = self._channel.receive(self._until - time.monotonic())
            if kind != FrameKind.DATA.value:
                return b""
            self._data = body
        data, self._data = self._data[:most], self._data[most:]
        return data

    def close(self) -> None:
        """Do nothing: the supervisor ends with its machine."""
