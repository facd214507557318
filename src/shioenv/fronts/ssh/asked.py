"""Sessions that a model answers, alone or above a machine: lines in, answers out.

The terminal is sshd's own: it echoes and edits lines, as a program sees them that reads lines.
"""

from __future__ import annotations

import asyncio
import re
import signal
import time

from shioenv.errors import Abstained
from shioenv.fronts.ssh import wires
from shioenv.fronts.ssh.calls import Caller, LoginCall
from shioenv.fronts.ssh.sessions import Ended, House, SshChannel, Visitor, end
from shioenv.fronts.ssh.shells import VisitorShell

_EXIT = re.compile(r"\s*(?:exit|logout)(?:\s+(\d{1,3}))?\s*")


class AskedChannel(SshChannel):
    """A channel whose lines a shell without a terminal answers."""

    def __init__(
        self, house: House, visit: Visitor, call: LoginCall, caller: Caller, shell: VisitorShell
    ) -> None:
        super().__init__(house, visit, call, caller)
        self._shell = shell

    async def _sit(self) -> Ended:
        if self._call.command is not None:
            return await self._answer(self._call.command), None
        await self._show(self._greeting)
        status = 0
        while not self._shell.ended:
            await self._show(self._prompt())
            line = await self._line()
            if line is None:
                await self._show(b"logout\n")
                break
            self.entered(line, False)
            if leaves := _EXIT.fullmatch(line):
                await self._show(b"logout\n")
                status = int(leaves[1] or status) & 255
                break
            if line.strip():
                status = await self._answer(line)
        return status, None

    async def _run(self) -> Ended:
        command = self._call.command
        if command is not None:
            self.entered(command, False)
            return await self._answer(command), None
        stdin, _ = await self._standard_input(may_be_none=False)
        status = 0
        for line in stdin.decode("utf-8", "surrogateescape").splitlines():
            if self._shell.ended:
                break
            self.entered(line, False)
            status = await self._answer(line)
        return status, None

    async def _line(self) -> str | None:
        """The next line, without its end; empty after Ctrl-C, None at the end."""
        reading = asyncio.create_task(wires.read(self._call.fds[0]))
        heard = asyncio.create_task(self._interrupted())
        try:
            await asyncio.wait({reading, heard}, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                await self._show(b"\n")
                return "" if heard.result() else None
            data = reading.result()
        finally:
            await end(reading, heard)
        if self._cast:
            self._cast.typed(data)
        return data.decode("utf-8", "surrogateescape").rstrip("\n") if data else None

    async def _interrupted(self) -> bool:
        """Whether Ctrl-C came; False where the visitor is gone."""
        while True:
            kind, number = await self._caller.message()
            if kind == "w":
                self._tell_size()
            elif not kind or number == signal.SIGHUP:
                return False
            elif number == signal.SIGINT:
                return True

    async def _answer(self, line: str) -> int:
        """Answers a line; the exit code."""
        began = time.monotonic()
        try:
            behavior, guess = await self._shell.run(line)
        except Abstained as error:
            self._tell("shioenv.abstained", input=line, reason=error.message)
            return 0
        took = time.monotonic() - began
        self.did(line, behavior, took, guess, exit_code=behavior.exit_code)
        await asyncio.sleep(max(0.0, self._hold_until - time.monotonic()))
        errors = b"" if self._call.tty else behavior.stderr or b""
        await self._show(behavior.output if not errors else behavior.stdout or b"")
        await wires.write(self._call.fds[2], errors)
        return behavior.exit_code

    def _prompt(self) -> bytes:
        place = self._shell.cwd
        if place == "/root" or place.startswith("/root/"):
            place = "~" + place.removeprefix("/root")
        return f"root@{self._house.hostname}:{place}# ".encode("utf-8", "surrogateescape")

    async def _show(self, data: bytes) -> None:
        if self._cast:
            self._cast.shown(data.replace(b"\n", b"\r\n"))
        await wires.write(self._call.fds[1], data)
