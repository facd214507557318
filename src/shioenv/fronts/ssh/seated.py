"""Sessions with a machine behind them: terminals, commands, and programs that talk both ways."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from shioenv.domain.behavior import Behavior
from shioenv.errors import SandboxError
from shioenv.fronts.ssh import wires
from shioenv.fronts.ssh.byte_terminal import BEGIN, END, packed, set_for_bytes
from shioenv.fronts.ssh.calls import Caller, LoginCall, resize
from shioenv.fronts.ssh.machines import Machines, VisitorMachine, login_input
from shioenv.fronts.ssh.sessions import LOST, Ended, House, SshChannel, Visitor, end
from shioenv.fronts.ssh.typed import Typed
from shioenv.fronts.ssh.uploads import ScpSink, SftpServer

QUIET_SECONDS: Final = 0.15
"""Seconds without output after which a line is taken to be done, as in `shioenv shell`."""

_HANGING_UP = 40  # looks at a shell that was hung up, a twentieth of a second each
_PROTOCOL = re.compile(r"(?:\S*/)?(scp|sftp-server|rsync)(?= |$)")
"""Commands that talk with the visitor's program through both channels at once."""
_BUSY_SECONDS = 1.5


class MachineChannel(SshChannel):
    """A channel into the visitor's machine."""

    def __init__(
        self, house: House, visit: Visitor, call: LoginCall, caller: Caller, machines: Machines
    ) -> None:
        super().__init__(house, visit, call, caller)
        self._machines = machines

    # ---- terminals ----

    async def _sit(self) -> Ended:
        call = self._call
        text = login_input(self._account, call.command, call.environment, tty=True)
        machine, master = await self._seated(text)
        os.set_blocking(master, False)
        watch = _Watch(self, machine)
        left = True
        try:
            call.hand_on(master)
            if call.command is None:
                greeting = self._greeting.replace(b"\n", b"\r\n")
                if self._cast:
                    self._cast.shown(greeting)
                await wires.write(call.fds[1], greeting)
            else:
                watch.entered(call.command, False)
            left = await self._attended(watch, master)
        finally:
            os.close(master)
            behavior = await self._hang_up(machine, left)
        watch.tell(behavior)
        if left:
            return 128 + signal.SIGHUP, None
        return behavior.exit_code, behavior.died_by_signal

    async def _attended(self, watch: _Watch, master: int) -> bool:
        """Connects the visitor with a terminal until its shell ends.

        True where the visitor left before that.
        """

        def typed(data: bytes) -> None:
            if self._cast:
                self._cast.typed(data)
            watch.typed(data)

        up = asyncio.create_task(wires.copy(self._call.fds[0], master, typed))
        down = asyncio.create_task(self._show(master, watch))
        told = asyncio.create_task(self._listen(master))
        look = asyncio.create_task(watch.look())
        try:
            await asyncio.wait({up, down, told}, return_when=asyncio.FIRST_COMPLETED)
            return not down.done()
        finally:
            await end(up, down, told, look)

    async def _show(self, master: int, watch: _Watch) -> None:
        while data := await wires.read(master):
            watch.shown()
            if (wait := self._hold_until - time.monotonic()) > 0:
                await asyncio.sleep(wait)
            if self._cast:
                self._cast.shown(data)
            if not await wires.write(self._call.fds[1], data):
                return

    async def _listen(self, master: int) -> None:
        """Follows the size of the visitor's terminal, until its login shell is gone."""
        while True:
            kind, _ = await self._caller.message()
            if not kind:
                return
            if kind == "w":
                resize(master, self._tell_size())

    async def _seated(self, text: str) -> tuple[VisitorMachine, int]:
        """A machine that runs an input on its terminal, and the terminal's other end."""
        machine = await self._visit.machine_of(self._machines, free=True)
        try:
            return machine, await machine.sit(text)
        except BaseException:
            await self._visit.end(machine)
            raise

    async def _hang_up(self, machine: VisitorMachine, left: bool) -> Behavior:
        """What was done since the last look, once the shell has ended.

        A machine whose shell goes on is the visitor's no longer: where the visitor `left`, say.
        Nor is a machine that another terminal had for itself.
        Errors: SandboxError.
        """
        behavior = Behavior(LOST, b"")
        try:
            for _ in range(1 if left else _HANGING_UP):
                behavior = await machine.look()
                if machine.ended:
                    machine.seated = False
                    return behavior
                await asyncio.sleep(0.05)
        finally:
            if machine.seated or machine is not self._visit.machine:
                await self._visit.end(machine)
        return behavior

    # ---- commands ----

    async def _run(self) -> Ended:
        call, command = self._call, self._call.command
        protocol = command is not None and _PROTOCOL.match(command)
        text = login_input(self._account, command, call.environment, tty=False)
        if command is not None:
            self._tell("cowrie.command.input", input=command)
        if protocol:
            return await self._speak(text, protocol[1], command or "")
        stdin, ended = await self._standard_input(command is not None)
        if not ended:
            return await self._speak(text, "", command or "", stdin)
        if stdin and self._uploads.room(len(stdin)):
            self._uploads.keep("standard input", stdin)
            await self._uploads.write()
        began = time.monotonic()
        machine = await self._visit.machine_of(self._machines)
        running = asyncio.create_task(machine.run(text, stdin))
        gone = asyncio.create_task(self._gone())
        try:
            await asyncio.wait({running, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not running.done():  # nobody waits for the answer any more
                await self._visit.end(machine)
            behavior = await running
        finally:
            await end(gone)
            running.cancel()
        took = time.monotonic() - began
        line = command or os.fsdecode(stdin)
        self.did(line, behavior, took, exit_code=behavior.exit_code)
        await self._hold()
        if self._cast:
            self._cast.shown(behavior.output.replace(b"\n", b"\r\n"))
        await wires.write(call.fds[1], behavior.stdout or b"")
        await wires.write(call.fds[2], behavior.stderr or b"")
        return behavior.exit_code, behavior.died_by_signal

    # ---- protocols ----

    async def _speak(self, text: str, protocol: str, command: str, first: bytes = b"") -> Ended:
        """Connects the visitor's program with one in the machine, both ways at once.

        Its input in the machine is a terminal for bytes, its output a pipe for both channels.
        """
        began = time.monotonic()
        begin = f"head -c 1 > /dev/null; set -o pipefail; {text} 2>&1 | cat"
        machine, master = await self._seated(begin)
        os.set_blocking(master, False)
        tap = self._tap(protocol, command)
        set_for_bytes(master)
        up = asyncio.create_task(self._send(master, first, tap.sent if tap else _nothing))
        down = asyncio.create_task(
            wires.copy(master, self._call.fds[1], tap.answered if tap else _nothing)
        )
        gone = asyncio.create_task(self._gone())
        left = True
        try:
            await asyncio.wait({down, gone}, return_when=asyncio.FIRST_COMPLETED)
            left = not down.done()
        finally:
            try:
                await end(up, down, gone)
            finally:
                os.close(master)
                behavior = await self._hang_up(machine, left)
        took = time.monotonic() - began
        self.did(command, behavior, took, exit_code=behavior.exit_code)
        if left:
            return 128 + signal.SIGHUP, None
        return behavior.exit_code, behavior.died_by_signal

    async def _send(self, master: int, first: bytes, tap: Callable[[bytes], object]) -> None:
        """Types what the visitor sends, to its end."""
        going = await wires.write(master, BEGIN)
        data = first or await wires.read(self._call.fds[0])
        while going and data:
            tap(data)
            for piece in packed(data):
                going = going and await wires.write(master, piece)
            await self._uploads.write()
            data = await wires.read(self._call.fds[0])
        await wires.write(master, END)

    def _tap(self, protocol: str, command: str) -> ScpSink | SftpServer | None:
        if protocol == "sftp-server":
            return SftpServer(self._uploads)
        if protocol == "scp" and re.search(r" -\w*t", command):
            return ScpSink(self._uploads)
        return None


class _Watch:
    """Finds out what each typed line did, once the terminal is quiet again."""

    def __init__(self, session: MachineChannel, machine: VisitorMachine) -> None:
        self._session, self._machine = session, machine
        self._typed = Typed()
        self._waiting: list[str] = []
        self._entered_at = self._shown_at = 0.0
        self._due = asyncio.Event()

    def typed(self, data: bytes) -> None:
        """Takes keys."""
        for line, edited in self._typed.keys(data):
            self.entered(line, edited)
        if b"\x03" in data or b"\x04" in data:
            self._due.set()

    def entered(self, line: str, edited: bool) -> None:
        """Takes a whole line."""
        self._session.entered(line, edited)
        self._waiting = [*self._waiting, line][-100:]
        self._entered_at = self._shown_at = time.monotonic()
        self._due.set()

    def shown(self) -> None:
        """Takes notice that something was shown."""
        self._shown_at = time.monotonic()

    async def look(self) -> None:
        """Looks again and again, each time the terminal is quiet after a line."""
        while True:
            await self._due.wait()
            self._due.clear()
            while (quiet := time.monotonic() - self._shown_at) < QUIET_SECONDS:
                await asyncio.sleep(QUIET_SECONDS - quiet)
            with suppress(SandboxError):
                self.tell(await self._machine.look())
                if self._machine.busy and not self._due.is_set():
                    await asyncio.sleep(_BUSY_SECONDS)
                    self._due.set()

    def tell(self, behavior: Behavior) -> None:
        """Tells what the lines did that were entered since the last look."""
        if not self._waiting and not behavior.patch and not behavior.content_digests:
            return
        line = "\n".join(self._waiting)
        took = max(0.0, self._shown_at - self._entered_at)
        known = behavior.exit_code if self._machine.ended else None
        self._session.did(line, behavior, took, exit_code=known)
        self._waiting = []


def _nothing(data: bytes) -> None:
    """Takes notice of nothing."""
