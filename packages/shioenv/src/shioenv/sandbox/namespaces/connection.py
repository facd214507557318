"""The socket of a supervisor, which is given up where the supervisor is stopped."""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from shioenv.system import stopped

T = TypeVar("T")


class SupervisorSocket:
    """A socket to the supervisor `process`, on this host.

    Its timeout is how long the supervisor may be silent. It is counted in looks at the supervisor,
    so the time in which this process is stopped does not count.
    """

    def __init__(self, connection: socket.socket, process: int) -> None:
        self._connection, self._process = connection, process
        self._seconds = connection.gettimeout()
        connection.settimeout(stopped.LOOK_SECONDS)

    def gettimeout(self) -> float | None:
        """Seconds for which the supervisor may be silent."""
        return self._seconds

    def settimeout(self, seconds: float) -> None:
        """Change the seconds for which the supervisor may be silent."""
        self._seconds = seconds

    def sendall(self, data: bytes) -> None:
        """Send these bytes. Errors: those of `recv`."""
        sent = 0
        while sent < len(data):
            sent += self._patiently(partial(self._connection.send, memoryview(data)[sent:]))

    def recv(self, most: int) -> bytes:
        """Some of the bytes that the supervisor wrote; none once it ended.

        Errors: TimeoutError where it is silent for too long, ConnectionError where it stays
        stopped.
        """
        return self._patiently(partial(self._connection.recv, most))

    def receive_descriptors(self, count: int) -> list[int]:
        """The descriptors that come with the next byte. Errors: those of `recv`."""
        return self._patiently(partial(socket.recv_fds, self._connection, 1, count))[1]

    def close(self) -> None:
        """Close the socket, at which the supervisor ends."""
        self._connection.close()

    def _patiently(self, call: Callable[[], T]) -> T:
        """The result of `call`, repeated while it times out and the supervisor may yet answer."""
        silent, watch = 0.0, stopped.StopWatch()
        while True:
            try:
                return call()
            except TimeoutError:
                silent += stopped.LOOK_SECONDS
                if watch.is_lost(self._process):
                    raise ConnectionAbortedError("somebody stopped it (SIGSTOP)") from None
                if self._seconds is not None and silent >= self._seconds:
                    raise
