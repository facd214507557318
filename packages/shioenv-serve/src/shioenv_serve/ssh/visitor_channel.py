"""One channel of a visitor: the parts common to all kinds of channel."""

from __future__ import annotations

import asyncio
import hashlib
import random
import socket
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from shioenv.domain.behavior import Behavior
from shioenv.errors import SandboxError, ShioenvError
from shioenv.files.durable import storage_errors
from shioenv.live.asciicast import AsciicastWriter, marker
from shioenv.live.machine_thread import Seat
from shioenv.live.shell import Shell
from shioenv.live.shells import Shells, interrupt
from shioenv.sandbox.base import MEBIBYTE, Closing
from shioenv_serve.events import EventLog, Origin, duration
from shioenv_serve.sessions import TYPED
from shioenv_serve.ssh.calls import Caller, LoginCall
from shioenv_serve.ssh.machines import Account, Machines, VisitorMachine
from shioenv_serve.ssh.uploads import HELD, LARGEST, Room, Uploads
from shioenv_serve.visit_log import RECORDINGS

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

    Errors: DatasetStorageError if a file cannot be written.
    """

    def __init__(self, directory: Path, name: str, command: str | None, size: tuple[int, int]):
        """Open both files. `command` is None for a shell; `size` are rows and columns."""
        with storage_errors(directory):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)  # visitors type passwords
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


LEAVING_SECONDS: Final = 5.0
"""Seconds that channels have to report their last effects after the visitor left; our choice."""

LOST: Final = 255
"""The exit code of a session whose machine is gone."""

Ended: TypeAlias = tuple[int, int | None]
"""An exit code, and the signal that ended the shell."""


@dataclass
class Visitor:
    """A visitor's connection, from its first byte to its last."""

    origin: Origin
    connection: socket.socket | None = None
    """Held, so that the server can shut it down."""
    began: float = field(default_factory=time.monotonic)
    logged_in: bool = False
    machine: VisitorMachine | None = None
    """The machine for commands and for the terminal that was opened first."""
    machines: list[VisitorMachine] = field(default_factory=list)
    """All machines of the visitor. Terminals that are open at the same time have one each."""
    shell: Seat[Shell] | None = None
    """The model's shell that answers in place of a machine."""
    closed: bool = False
    """Whether the visitor has left, so that nothing may be opened any more."""
    choosing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a channel opens a machine or shell that other channels may share."""
    room: Room = field(default_factory=lambda: Room(LARGEST))
    """Remaining bytes that may be kept of the visitor's uploads."""
    channels: int = 0
    open: set[asyncio.Task[Any]] = field(default_factory=set)
    """Tasks that serve channels."""

    leaving: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the visitor's sshd has ended."""

    async def left(self) -> None:
        """End the visitor's channels, and wait for their last reports."""
        self.leaving.set()
        if self.open:
            await asyncio.wait(self.open, timeout=LEAVING_SECONDS)

    async def machine_of(self, machines: Machines, *, free: bool = False) -> VisitorMachine:
        """Return the visitor's machine, opening it first if necessary.

        With `free`, return another machine if a shell already uses the terminal of the first.
        Errors: SandboxError if none can be opened, or the visitor has left.
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
        """Return the shell in which a model answers the visitor. Errors: those of `machine_of`."""
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
        """Check that the visitor has not left. Errors: SandboxError."""
        if self.closed:
            raise SandboxError("the visitor has left")

    async def end(self, machine: VisitorMachine) -> None:
        """Close one of the visitor's machines; a second call does nothing."""
        if machine in self.machines:
            self.machines.remove(machine)
        if self.machine is machine:
            self.machine = None
        await machine.close()

    async def close(self) -> None:
        """Close the visitor's machines; one that is being opened is closed once it is open."""
        self.closed = True
        if self.shell:
            await self.shell.close()
        for machine in list(self.machines):
            await self.end(machine)


@dataclass(frozen=True)
class House:
    """The state shared by all sessions of a server."""

    machines: Machines | None
    """None if `shells` answer."""
    shells: Shells | None
    """The model's shells that answer in place of machines."""
    opener: ThreadPoolExecutor
    """The thread that opens these shells, and lives as long as they do."""
    hostname: str
    log: EventLog
    accounts: Mapping[str, Account]
    greetings: Mapping[int, bytes]
    kept: Path
    """Directory of uploads and recordings."""
    delay: tuple[float, float] = (0.0, 0.0)
    """Minimum and maximum delay of an answer in seconds; one is drawn for each line."""
    room: Room = field(default_factory=lambda: Room(HELD))
    """Remaining bytes of uploads that may be held in memory."""

    def account(self, name: str) -> Account:
        """Return the account for a login name: the user of that name, otherwise the first one."""
        return self.accounts.get(name) or next(iter(self.accounts.values()))


class SshChannel(ABC):
    """One channel, from its request to its end."""

    def __init__(self, house: House, visit: Visitor, call: LoginCall, caller: Caller) -> None:
        self._house, self._visit, self._call, self._caller = house, visit, call, caller
        self._account = house.account(call.user)
        self._recording: ChannelRecording | None = None
        self._hold_until = 0.0
        visit.channels += 1  # here, because several channels may be waiting to be served
        self._number = visit.channels
        """The channel's number among all of the visitor's channels, from 1."""
        self._uploads = Uploads(
            house.kept / "uploads", self._brought, self._dropped, visit.room, house.room
        )

    async def serve(self) -> None:
        """Serve the channel until its end. A machine that fails ends only this session."""
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
        """Serve a terminal, and return how it ended."""

    @abstractmethod
    async def _run(self) -> Ended:
        """Serve a channel without a terminal, and return how it ended."""

    # ---- input of the visitor ----

    @property
    def fds(self) -> tuple[int, int, int]:
        """Standard input, output and error of the visitor, in non-blocking mode."""
        return self._call.fds

    async def gone(self) -> None:
        """Wait until the visitor's login shell or sshd is gone."""
        leaving = asyncio.create_task(self._visit.leaving.wait())
        heard = asyncio.create_task(self._silence())
        try:
            await asyncio.wait([leaving, heard], return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel_tasks(leaving, heard)

    async def _silence(self) -> None:
        while (await self._caller.message())[0]:
            pass

    async def write_uploads(self) -> None:
        """Write the files that are complete. Errors: DatasetStorageError."""
        await self._uploads.write()

    # ---- events ----

    @property
    def _greeting(self) -> bytes:
        """The message of the day and the last login."""
        return self._house.greetings.get(self._account.uid, b"")

    def _tell(self, event: str, **fields: object) -> None:
        fields = {**fields, "channel": self._number}
        self._house.log.tell(event, self._visit.origin, **fields)

    def _tell_size(self) -> tuple[int, int]:
        """Log and return the size of the visitor's terminal in rows and columns."""
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
        """Log the effects of a line; see `EventLog.did`."""
        where = self._visit.origin
        told = {"channel": self._number, **fields}
        self._house.log.did(where, line, behavior, seconds, runner, confidence, **told)
        if self._recording:
            self._recording.did(line, behavior)

    def shown(self, data: bytes) -> None:
        """Record output shown to the visitor."""
        if self._recording:
            self._recording.shown(data)

    def typed(self, data: bytes) -> None:
        """Record input typed by the visitor."""
        if self._recording:
            self._recording.typed(data)

    def entered(self, line: str, edited: bool) -> None:
        """Log a typed line, and draw the delay of its answer."""
        self._tell(TYPED, input=line, **({"edited": True} if edited else {}))
        self._hold_until = time.monotonic() + random.uniform(*self._house.delay)

    async def hold(self) -> None:
        """Wait for the rest of the newest line's delay."""
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


async def cancel_tasks(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks and wait for them. Errors: the error of the first task that failed."""
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception):
            raise result
