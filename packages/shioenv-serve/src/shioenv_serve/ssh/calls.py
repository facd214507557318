"""Calls of login shells: each passes its command, environment and descriptors to the server."""

from __future__ import annotations

import array
import asyncio
import errno
import fcntl
import os
import socket
import struct
import termios
import tty
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

CONNECTION: Final = "SHIOENV_CONNECTION"
"""The environment variable that names the connection, as in `native/ssh/calls.h`."""

_MOST = 192 * 1024
_DESCRIPTORS = 3


@dataclass(frozen=True, slots=True)
class LoginCall:
    """One login shell: its descriptors, arguments and environment."""

    tty: bool
    words: tuple[str, ...]
    environment: Mapping[str, str]
    fds: tuple[int, int, int]
    """Standard input, output and error of the channel, in non-blocking mode."""

    @property
    def connection(self) -> str:
        """The name of the connection that the login came by; empty if there is none."""
        return self.environment.get(CONNECTION, "")

    @property
    def command(self) -> str | None:
        """The command to run; None for an interactive shell."""
        return self.words[2] if len(self.words) > 2 else None

    @property
    def user(self) -> str:
        """The login name."""
        return self.environment.get("USER", "")

    def size(self) -> tuple[int, int]:
        """Return rows and columns of the terminal."""
        told = array.array("H", [0] * 4)
        with suppress(OSError):
            fcntl.ioctl(self.fds[0], termios.TIOCGWINSZ, told)
        return (told[0] or 24, told[1] or 80)

    def hand_on(self, terminal: int) -> None:
        """Copy this terminal's settings and size to `terminal`, and set this one to raw mode."""
        with suppress(OSError, termios.error):
            termios.tcsetattr(terminal, termios.TCSANOW, termios.tcgetattr(self.fds[0]))
            resize(terminal, self.size())
            tty.setraw(self.fds[0], termios.TCSANOW)

    def close(self) -> None:
        """Close the channel's descriptors."""
        for number in self.fds:
            with suppress(OSError):
                os.close(number)


def resize(terminal: int, size: tuple[int, int]) -> None:
    """Set a terminal's size; the kernel notifies its programs."""
    with suppress(OSError):
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))


class Caller:
    """The connection to a login shell. The shell waits until `end` sends its exit status."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._connection = connection

    async def call(self) -> LoginCall | None:
        """Return the first message of the shell; None if it is not that of a login shell."""
        await ready(self._connection.fileno(), write=False)
        try:
            data, fds, *_ = socket.recv_fds(self._connection, _MOST, _DESCRIPTORS)
        except OSError:
            return None
        try:
            kind, count, *fields = [os.fsdecode(field) for field in data.split(b"\0")[:-1]]
            words, variables = fields[: int(count)], fields[int(count) :]
            environment = dict(variable.partition("=")[::2] for variable in variables)
            first, second, third = fds
        except ValueError:
            for number in fds:
                os.close(number)
            return None
        for number in fds:
            os.set_blocking(number, False)
        return LoginCall(kind == "tty", tuple(words), environment, (first, second, third))

    async def message(self) -> tuple[str, int]:
        """Return the next message: `w` for a new size, `k` with a signal, empty at the end."""
        try:
            data = await asyncio.get_running_loop().sock_recv(self._connection, 64)
            kind, _, number = data.decode("ascii", "replace").partition(" ")
            return kind, int(number or 0)
        except (OSError, ValueError):
            return "", 0

    def end(self, exit_code: int, signal: int | None = None) -> None:
        """Make the shell exit with an exit code, or die by a signal."""
        with suppress(OSError):
            self._connection.send(b"s %d" % signal if signal else b"x %d" % exit_code)
        self._connection.close()


PIECE: Final = 1 << 16

_SHORT = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


async def ready(fd: int, *, write: bool) -> None:
    """Wait until a descriptor is ready for reading, or for writing."""
    loop = asyncio.get_running_loop()
    waiting = loop.create_future()

    def now() -> None:
        if not waiting.done():
            waiting.set_result(None)

    (loop.add_writer if write else loop.add_reader)(fd, now)
    try:
        await waiting
    finally:
        (loop.remove_writer if write else loop.remove_reader)(fd)


def accept(
    listener: socket.socket, take: Callable[[socket.socket, Any], object], rest: float = 1.0
) -> None:
    """Pass each connection of a listener, and its peer, to `take` until the listener is closed.

    If descriptors or memory run out, accepting pauses for `rest` seconds.
    """
    loop = asyncio.get_running_loop()

    def come() -> None:
        try:
            connection, peer = listener.accept()
        except OSError as error:
            if error.errno in _SHORT:
                loop.remove_reader(listener)
                loop.call_later(rest, listen)
            return
        take(connection, peer)

    def listen() -> None:
        if listener.fileno() >= 0:
            loop.add_reader(listener, come)

    listener.setblocking(False)
    listen()


async def read_descriptor(fd: int, most: int = PIECE) -> bytes:
    """Return the next bytes of a non-blocking descriptor; empty at the end."""
    while True:
        try:
            return os.read(fd, most)
        except BlockingIOError:
            await ready(fd, write=False)
        except OSError:  # EIO: no process has the terminal open any more
            return b""


async def write_descriptor(fd: int, data: bytes) -> bool:
    """Write all of `data` to a non-blocking descriptor; return False once no reader is left."""
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(fd, left) :]
        except BlockingIOError:
            await ready(fd, write=True)
        except OSError:
            return False
    return True
