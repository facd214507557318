"""One channel of a visitor, and what all channels have in common."""

from __future__ import annotations

import asyncio
import random
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from shioenv.domain.answers import behavior_json
from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import Answer
from shioenv.errors import SandboxError, ShioenvError
from shioenv.fronts.ssh import wires
from shioenv.fronts.ssh.calls import Caller, LoginCall
from shioenv.fronts.ssh.events import EventLog, Origin
from shioenv.fronts.ssh.machines import Account, Machines, VisitorMachine
from shioenv.fronts.ssh.shells import Asking, VisitorShell
from shioenv.fronts.ssh.uploads import HELD, LARGEST, Room, Uploads
from shioenv.live.cast import Cast
from shioenv.sandbox.base import LONGEST_STDIN

BEGINS_SECONDS: Final = 0.05
"""Seconds for which a command's standard input may take to begin. A client that has something to
send has sent it by then; one that has nothing need not close its end."""

LEAVING_SECONDS: Final = 5.0
"""Seconds for which channels may find out what was done last, once their visitor has left; ours."""

LOST: Final = 255
"""The exit code of a session whose machine is gone."""

Ended: TypeAlias = tuple[int, int | None]
"""An exit code, and the signal that the shell died by."""


@dataclass
class Visitor:
    """A connection, from its first byte to its last."""

    origin: Origin
    connection: socket.socket | None = None
    """Held, so that the server can shut it down."""
    began: float = field(default_factory=time.monotonic)
    logged_in: bool = False
    machine: VisitorMachine | None = None
    """Where commands run, and the terminal that was opened first."""
    machines: list[VisitorMachine] = field(default_factory=list)
    """All of the visitor's machines. Further terminals that are open at once have their own."""
    shell: VisitorShell | None = None
    """What answers in place of a machine."""
    closed: bool = False
    """Whether the visitor has left, so that nothing may be opened any more."""
    choosing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a channel opens what the visitor's other channels may share."""
    room: Room = field(default_factory=lambda: Room(LARGEST))
    """Bytes that may still be kept of the visitor's uploads."""
    channels: int = 0
    open: set[asyncio.Task[Any]] = field(default_factory=set)
    """Tasks that serve channels."""

    async def left(self) -> None:
        """Waits for what the visitor's channels still have to tell, for a moment."""
        if self.open:
            await asyncio.wait(self.open, timeout=LEAVING_SECONDS)

    async def machine_of(self, machines: Machines, *, free: bool = False) -> VisitorMachine:
        """The visitor's machine; where no shell may have its terminal (`free`), maybe another one.

        Errors: SandboxError where none can be opened, or the visitor has left.
        """
        async with self.choosing:
            if self.machine is None:
                self.machine = await self._taken(machines)
            if free and self.machine.seated:
                return await self._taken(machines)
            return self.machine

    async def _taken(self, machines: Machines) -> VisitorMachine:
        self._stay()
        machine = await machines.take()
        self.machines.append(machine)
        try:
            self._stay()
        except SandboxError:
            await self.end(machine)
            raise
        return machine

    async def shell_of(self, asking: Asking, machines: Machines | None) -> VisitorShell:
        """The visitor's shell of a model. Errors: as of `machine_of`."""
        async with self.choosing:
            if self.shell is None:
                self._stay()
                shell = await asking.open(machines)
                try:
                    self._stay()
                except SandboxError:
                    await shell.close()
                    raise
                self.shell = shell
            return self.shell

    def _stay(self) -> None:
        """Errors: SandboxError where the visitor has left."""
        if self.closed:
            raise SandboxError("the visitor has left")

    async def end(self, machine: VisitorMachine) -> None:
        """Ends one of the visitor's machines; ending it twice does nothing."""
        if machine in self.machines:
            self.machines.remove(machine)
        if self.machine is machine:
            self.machine = None
        await machine.close()

    async def close(self) -> None:
        """Ends the visitor's machines. What is being opened is ended once it is open."""
        self.closed = True
        if self.shell:
            await self.shell.close()
        for machine in list(self.machines):
            await self.end(machine)


@dataclass(frozen=True)
class House:
    """What all sessions of a server share."""

    machines: Machines | None
    """None where a model answers alone."""
    hostname: str
    log: EventLog
    accounts: Mapping[str, Account]
    greetings: Mapping[int, bytes]
    kept: Path
    """Directory of uploads and recordings."""
    delay: tuple[float, float] = (0.0, 0.0)
    """Seconds that an answer is held back at least and at most; one is drawn for each line."""
    room: Room = field(default_factory=lambda: Room(HELD))
    """Bytes of uploads that may still be held in memory."""

    def account(self, name: str) -> Account:
        """Who a name logs in as: the user of that name, else the first one."""
        return self.accounts.get(name) or next(iter(self.accounts.values()))


class SshChannel(ABC):
    """One channel: what it asks for, from its beginning to its end."""

    def __init__(self, house: House, visit: Visitor, call: LoginCall, caller: Caller) -> None:
        self._house, self._visit, self._call, self._caller = house, visit, call, caller
        self._account = house.account(call.user)
        self._cast: Cast | None = None
        self._hold_until = 0.0
        name = f"{visit.origin.session}-{visit.channels}.cast"
        self._recorded = house.kept / "recordings" / name
        self._uploads = Uploads(house.kept / "uploads", self._brought, visit.room, house.room)

    async def serve(self) -> None:
        """Serves the channel until its end. A machine that breaks ends this session alone."""
        call, exit_code, by_signal = self._call, LOST, None
        self._tell("cowrie.session.params", arch="linux-x64-lsb")
        for name, text in call.environment.items():
            if name in {"LANG", "TERM"} or name.startswith("LC_"):
                self._tell("cowrie.client.var", name=name, value=text)
        began = time.monotonic()
        try:
            try:
                with self._recording() as self._cast:
                    if call.tty:
                        self._tell_size()
                        exit_code, by_signal = await self._sit()
                    else:
                        exit_code, by_signal = await self._run()
            finally:
                await self._uploads.write()
        except ShioenvError as error:
            self._tell("shioenv.session.lost", reason=error.message)
        finally:
            self._uploads.close()
            self._tell(
                "cowrie.log.closed",
                ttylog=str(self._recorded), duration=round(time.monotonic() - began, 3),
            )  # fmt: skip
            self._call.close()
            self._caller.end(exit_code, by_signal)

    @abstractmethod
    async def _sit(self) -> Ended:
        """Serves a terminal; how it ended."""

    @abstractmethod
    async def _run(self) -> Ended:
        """Serves a channel without a terminal; how it ended."""

    # ---- what a visitor sends ----

    async def _gone(self) -> None:
        while (await self._caller.message())[0]:
            pass

    async def _standard_input(self, may_be_none: bool) -> tuple[bytes, bool]:
        """What stands on standard input, and whether that is all of it.

        It may begin too late, where it `may_be_none`; then it is empty.
        """
        fd, kept = self._call.fds[0], bytearray()
        reading = asyncio.create_task(wires.read(fd))
        if may_be_none:
            await asyncio.wait({reading}, timeout=BEGINS_SECONDS)
            if not reading.done():
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
                return b"", True
        data = await reading
        while data:
            kept += data
            if len(kept) >= LONGEST_STDIN - wires.PIECE:
                return bytes(kept), False
            data = await wires.read(fd)
        return bytes(kept), True

    # ---- what is told ----

    @property
    def _greeting(self) -> bytes:
        """The message of the day and the last login."""
        return self._house.greetings.get(self._account.uid, b"")

    def _tell(self, event: str, **fields: object) -> None:
        self._house.log.tell(event, self._visit.origin, **fields)

    def _tell_size(self) -> tuple[int, int]:
        """The size of the visitor's terminal, in rows and columns, which is told."""
        rows, columns = self._call.size()
        self._tell("cowrie.client.size", width=columns, height=rows)
        return rows, columns

    def did(
        self,
        line: str,
        behavior: Behavior,
        seconds: float,
        guess: Answer | None = None,
        *,
        exit_code: int | None = None,
    ) -> None:
        """Tells what a line did; `guess` is a model's answer, None where a machine ran it.

        An `exit_code` of None is not known.
        """
        document = behavior_json(behavior)
        self._tell(
            "shioenv.command",
            input=line,
            runner="model" if guess else "machine",
            confidence=guess.confidence if guess else 1.0,
            seconds=round(seconds, 4),
            exit_code=exit_code,
            patch=document["context_patch"],
            digests=document.get("content_digests", {}),
        )
        if self._cast:
            self._cast.did(line, behavior)

    def entered(self, line: str, edited: bool) -> None:
        """Tells that a line was typed, and draws how long its answer is held back."""
        self._tell("cowrie.command.input", input=line, **({"edited": True} if edited else {}))
        self._hold_until = time.monotonic() + random.uniform(*self._house.delay)

    async def _hold(self) -> None:
        await asyncio.sleep(random.uniform(*self._house.delay))

    def _brought(self, name: str, place: Path, digest: str) -> None:
        self._tell("cowrie.session.file_upload", filename=name, outfile=str(place), shasum=digest)

    def _recording(self) -> Cast:
        self._recorded.parent.mkdir(parents=True, exist_ok=True)
        rows, columns = self._call.size()
        return Cast(self._recorded, self._call.command or "shell", rows, columns)


async def end(*tasks: asyncio.Task[Any]) -> None:
    """Ends tasks. Errors: those of the first one that failed."""
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception):
            raise result
