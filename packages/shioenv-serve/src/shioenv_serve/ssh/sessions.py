"""One channel of a visitor, and what all channels have in common."""

from __future__ import annotations

import asyncio
import random
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from shioenv.dataset.sessions import TYPED
from shioenv.domain.behavior import Behavior
from shioenv.errors import SandboxError, ShioenvError
from shioenv.live.seat import Seat
from shioenv.live.shell import Shell
from shioenv.live.shells import Shells, interrupt
from shioenv_serve.events import EventLog, Origin, duration
from shioenv_serve.logged import RECORDINGS
from shioenv_serve.ssh.calls import Caller, LoginCall
from shioenv_serve.ssh.machines import Account, Machines, VisitorMachine
from shioenv_serve.ssh.recordings import ChannelRecording
from shioenv_serve.ssh.uploads import HELD, LARGEST, Room, Uploads

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
    shell: Seat[Shell] | None = None
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

    leaving: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the visitor's sshd has ended."""

    async def left(self) -> None:
        """Has the visitor's channels end, and waits for what they still have to tell."""
        self.leaving.set()
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

    async def shell_of(self, house: House) -> Seat[Shell]:
        """The visitor's shell of a model. Errors: as of `machine_of`."""
        async with self.choosing:
            if self.shell is None:
                self._stay()
                assert house.shells
                opening = house.opener.submit(house.shells.open)
                shell = Seat.at(await asyncio.wrap_future(opening), interrupt)
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
    """None where `shells` answer."""
    shells: Shells | None
    """What answers in place of machines."""
    opener: ThreadPoolExecutor
    """The thread that opens these shells, and that lives as long as they."""
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
        self._recording: ChannelRecording | None = None
        self._hold_until = 0.0
        self._number = visit.channels
        """The channel among the visitor's, from 1."""
        self._uploads = Uploads(
            house.kept / "uploads", self._brought, self._dropped, visit.room, house.room
        )

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
                with self._recorded() as self._recording:
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
            self._tell_closed(time.monotonic() - began)
            self._call.close()
            self._caller.end(exit_code, by_signal)

    @abstractmethod
    async def _sit(self) -> Ended:
        """Serves a terminal; how it ended."""

    @abstractmethod
    async def _run(self) -> Ended:
        """Serves a channel without a terminal; how it ended."""

    # ---- what a visitor sends ----

    @property
    def fds(self) -> tuple[int, int, int]:
        """Standard input, output and error of the visitor; they do not block."""
        return self._call.fds

    async def gone(self) -> None:
        """Waits until the visitor's login shell is gone, or the visitor's sshd."""
        leaving = asyncio.create_task(self._visit.leaving.wait())
        heard = asyncio.create_task(self._silence())
        try:
            await asyncio.wait([leaving, heard], return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end(leaving, heard)

    async def _silence(self) -> None:
        while (await self._caller.message())[0]:
            pass

    async def write_uploads(self) -> None:
        """Writes the files that have come whole. Errors: DatasetStorageError."""
        await self._uploads.write()

    # ---- what is told ----

    @property
    def _greeting(self) -> bytes:
        """The message of the day and the last login."""
        return self._house.greetings.get(self._account.uid, b"")

    def _tell(self, event: str, **fields: object) -> None:
        fields = {**fields, "channel": self._number}
        self._house.log.tell(event, self._visit.origin, **fields)

    def _tell_size(self) -> tuple[int, int]:
        """The size of the visitor's terminal, in rows and columns, which is told."""
        rows, columns = self._call.size()
        self._tell("cowrie.client.size", width=columns, height=rows)
        return rows, columns

    def _tell_closed(self, seconds: float) -> None:
        made = self._recording
        if made is not None:
            cut = {} if made.whole else {"truncated": True}
            self._tell(
                "cowrie.log.closed",
                ttylog=str(made.file), cast=str(made.cast_file), size=made.size,
                shasum=made.digest, duplicate=False, **cut, **duration(seconds),
            )  # fmt: skip

    def did(
        self,
        line: str,
        behavior: Behavior,
        seconds: float,
        runner: str = "machine",
        confidence: float | None = None,
        **fields: Any,
    ) -> None:
        """Tells what a line did; see `EventLog.did`."""
        where = self._visit.origin
        told = {"channel": self._number, **fields}
        self._house.log.did(where, line, behavior, seconds, runner, confidence, **told)
        if self._recording:
            self._recording.did(line, behavior)

    def shown(self, data: bytes) -> None:
        """Records what the visitor is shown."""
        if self._recording:
            self._recording.shown(data)

    def typed(self, data: bytes) -> None:
        """Records what the visitor typed."""
        if self._recording:
            self._recording.typed(data)

    def entered(self, line: str, edited: bool) -> None:
        """Tells that a line was typed, and draws how long its answer is held back."""
        self._tell(TYPED, input=line, **({"edited": True} if edited else {}))
        self._hold_until = time.monotonic() + random.uniform(*self._house.delay)

    async def hold(self) -> None:
        """Waits for as long as the answer to the newest line is held back."""
        if (wait := self._hold_until - time.monotonic()) > 0:
            await asyncio.sleep(wait)

    def _brought(self, name: str, place: Path, digest: str) -> None:
        self._tell("cowrie.session.file_upload", filename=name, outfile=str(place), shasum=digest)

    def _dropped(self, name: str, reason: str) -> None:
        self._tell("shioenv.upload.dropped", filename=name, reason=reason)

    def _recorded(self) -> ChannelRecording:
        place = self._house.kept / RECORDINGS
        name = f"{self._visit.origin.session}-{self._number}"
        return ChannelRecording(place, name, self._call.command, self._call.size())


async def end(*tasks: asyncio.Future[Any]) -> None:
    """Ends tasks. Errors: those of the first one that failed."""
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception):
            raise result
