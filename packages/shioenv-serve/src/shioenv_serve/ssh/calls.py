"""What everybody's login shell says when it calls the server: who logged in, and what for."""

from __future__ import annotations

import array
import asyncio
import fcntl
import os
import socket
import struct
import termios
import tty
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from shioenv_serve.ssh import wires

CONNECTION: Final = "SHIOENV_CONNECTION"
"""The variable that names the connection, as `native/ssh/calls.h` has it."""

_MOST = 192 * 1024
_DESCRIPTORS = 3


@dataclass(frozen=True, slots=True)
class LoginCall:
    """One login shell: its descriptors, its words, and its environment."""

    tty: bool
    words: tuple[str, ...]
    environment: Mapping[str, str]
    fds: tuple[int, int, int]
    """Standard input, output and error of the channel; they do not block."""

    @property
    def connection(self) -> str:
        """The name of the connection that the login came by; empty for none."""
        return self.environment.get(CONNECTION, "")

    @property
    def command(self) -> str | None:
        """The command to run; None for a shell."""
        return self.words[2] if len(self.words) > 2 else None

    @property
    def user(self) -> str:
        """The name that was logged in with."""
        return self.environment.get("USER", "")

    def size(self) -> tuple[int, int]:
        """Rows and columns of the terminal."""
        told = array.array("H", [0] * 4)
        with suppress(OSError):
            fcntl.ioctl(self.fds[0], termios.TIOCGWINSZ, told)
        return (told[0] or 24, told[1] or 80)

    def hand_on(self, terminal: int) -> None:
        """Gives another terminal the settings and size of this one, which hands every key on."""
        with suppress(OSError, termios.error):
            termios.tcsetattr(terminal, termios.TCSANOW, termios.tcgetattr(self.fds[0]))
            resize(terminal, self.size())
            tty.setraw(self.fds[0], termios.TCSANOW)

    def close(self) -> None:
        """Closes the channel's descriptors."""
        for number in self.fds:
            with suppress(OSError):
                os.close(number)


def resize(terminal: int, size: tuple[int, int]) -> None:
    """Gives a terminal another size, of which its programs are told."""
    with suppress(OSError):
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))


class Caller:
    """The connection to a login shell, which waits for how to end."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._connection = connection

    async def call(self) -> LoginCall | None:
        """What the shell says first; None where it says nothing that a login shell would."""
        await wires.ready(self._connection.fileno(), write=False)
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
        """What the shell says next: `w` for a changed size, `k` with a signal, empty at its end."""
        try:
            data = await asyncio.get_running_loop().sock_recv(self._connection, 64)
            kind, _, number = data.decode("ascii", "replace").partition(" ")
            return kind, int(number or 0)
        except (OSError, ValueError):
            return "", 0

    def end(self, exit_code: int, signal: int | None = None) -> None:
        """Has the shell end with an exit code, or by a signal."""
        with suppress(OSError):
            self._connection.send(b"s %d" % signal if signal else b"x %d" % exit_code)
        self._connection.close()
