"""The sandboxes of all clients: machines with an owner, a lifetime and running commands."""

from __future__ import annotations

import asyncio
import hmac
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import IO, TYPE_CHECKING, Final, Literal

import msgspec
from starlette.exceptions import HTTPException

from shioenv.errors import SandboxError, ShioenvError, UnknownSystemError
from shioenv.live.entered import close
from shioenv.live.machine_thread import Seat
from shioenv.sandbox.base import LARGEST, Entered, Limits
from shioenv.system.store import System, find_system
from shioenv_agents.e2b.snapshots import SandboxMachine, Snapshot, take_snapshot
from shioenv_agents.tasks.entered_machine import (
    OUTPUT,
    Command,
    CommandTimeoutError,
    Finished,
    finished,
    group_of,
)

if TYPE_CHECKING:
    from shioenv_agents.e2b.process_service import ClientProcess
    from shioenv_agents.e2b.watching import Watcher

OF_ONE_CLIENT: Final = 8
"""Maximum sandboxes and snapshots of one client (our choice, because each takes megabytes)."""

MOST_FORKS: Final = 20
"""Maximum forks of one request (as at E2B)."""

LONGEST_LIFE: Final = 86_400
"""Maximum seconds of a sandbox's life (our choice, as at E2B)."""

SWEEP_SECONDS: Final = 1.0
"""Seconds between two searches for sandboxes whose time is over (our choice)."""

STEP_SECONDS: Final = 30.0
"""Maximum seconds of a short program that the server itself runs in a machine (our choice)."""

TRANSFER_SECONDS: Final = 600.0
"""Seconds that the transfer of a file may take (our choice)."""

NOT_FOUND: Final = "the sandbox was not found"
"""The message by which the SDK recognises a sandbox that does not run."""

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")

_STOP: Final = "kill -STOP -1; echo stopped"
_CONTINUE: Final = "kill -CONT -1"
_END_ALL: Final = "kill -KILL -1; echo ended"


class Resuming(msgspec.Struct, frozen=True):
    """Whether a request resumes a paused sandbox."""

    enabled: bool = False


class NewSandbox(msgspec.Struct, frozen=True, rename="camel"):
    """The body of a request for a sandbox."""

    template_id: str = msgspec.field(default="base", name="templateID")
    timeout: int = 300
    auto_pause: bool = False
    auto_pause_memory: bool = True
    auto_resume: Resuming | None = None
    metadata: dict[str, str] = {}
    env_vars: dict[str, str] = {}
    allow_internet_access: bool | None = msgspec.field(default=None, name="allow_internet_access")
    mcp: object = None
    network: dict[str, object] | None = None
    iam: object = None
    volume_mounts: list[object] = []


async def open_pipe(descriptor: int) -> tuple[asyncio.StreamReader, asyncio.ReadTransport]:
    """Return a reader of a pipe, and the transport that closes it."""
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", buffering=0)
    )
    return reader, transport


@dataclass(slots=True, eq=False)
class ClientSandbox:
    """A client's machine. Its methods are called in the event loop."""

    owner: str
    asked: NewSandbox
    system: System
    limits: Limits
    seat: Seat[SandboxMachine]
    id: str = field(default_factory=lambda: f"i{secrets.token_hex(16)}")
    token: str = field(default_factory=lambda: secrets.token_hex(32))
    state: Literal["running", "paused", "ended"] = "running"
    started: float = field(default_factory=time.time)
    ends: float = 0.0
    processes: dict[int, ClientProcess] = field(default_factory=dict)
    watching: dict[int, ClientProcess] = field(default_factory=dict)
    """The programs of watchers."""
    watchers: dict[str, Watcher] = field(default_factory=dict)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while the sandbox is being paused, resumed or copied."""

    @property
    def home(self) -> str:
        """The directory in which commands start, and to which paths are relative."""
        return self.system.declaration.start_directory

    @property
    def resumes(self) -> bool:
        """Whether a request resumes the sandbox if it is paused."""
        return self.asked.auto_resume is not None and self.asked.auto_resume.enabled

    def command(self, *program: str, user: str | None = None, fed: bool = False) -> Command:
        """Return the command for a program that the server itself runs."""
        return Command(program=program, cwd=self.home, env={"LC_ALL": "C"}, user=user, fed=fed)

    async def finish(
        self,
        *program: str,
        user: str | None = None,
        given: IO[bytes] | None = None,
        into: IO[bytes] | None = None,
        most: int = OUTPUT,
    ) -> Finished:
        """Run a program to its end. Errors: SandboxError, also if its time limit is reached."""
        seconds = STEP_SECONDS if given is None and into is None else TRANSFER_SECONDS
        command = self.command(*program, user=user, fed=given is not None)
        try:
            return await finished(
                self.seat, command, given=given, into=into, most=most, seconds=seconds
            )
        except CommandTimeoutError:
            raise SandboxError(f"a file operation took more than {seconds:g} s") from None

    async def enter(self, command: Command) -> tuple[Entered, int]:
        """Start a command; return its descriptors and process group. Errors: SandboxError."""

        def begin(machine: SandboxMachine) -> tuple[Entered, int]:
            entered = machine.start(command)
            group = group_of(entered)
            if group is None:
                close(entered)
                raise SandboxError("the machine did not start the command")
            return entered, group

        return await self.seat.do(begin)

    async def _signal_all(self, text: str) -> None:
        """Run a line that sends a signal to every process, and wait until it has done so.

        The line's own shell is the only process that does not get the signal, so the line cannot
        report its end in the usual way. Errors: SandboxError.
        """
        entered, _ = await self.enter(self.command("/bin/bash", "-c", text))
        os.close(entered.errors)
        os.close(entered.talk)
        reader, transport = await open_pipe(entered.output)
        try:
            async with asyncio.timeout(STEP_SECONDS):
                done = await reader.readline()
        except (TimeoutError, ValueError):
            done = b""
        finally:
            transport.close()
        if not done:
            raise SandboxError("the machine's processes could not be signalled")

    async def pause(self, *, memory: bool) -> None:
        """Stop every process; without `memory`, end them. Errors: SandboxError."""
        await self._signal_all(_STOP if memory else _END_ALL)
        self.state = "paused"

    async def resume(self, *, memory: bool) -> None:
        """Let processes continue; without `memory`, end them. Errors: SandboxError."""
        if not memory:
            await self._signal_all(_END_ALL)
        await self.finish("/bin/bash", "-c", _CONTINUE)
        self.state = "running"

    async def end(self) -> None:
        """End the machine and everything in it."""
        self.state = "ended"
        await self.seat.close()


class Sandboxes:
    """The sandboxes of all clients. Methods are called in the event loop."""

    def __init__(self, system: System, limits: Limits, most: int, keys: Sequence[str] = ()) -> None:
        """`system` is the template `base`; `most` limits the number of sandboxes and snapshots."""
        self._system, self._most = system, most
        self._limits = replace(limits, cpu_seconds=LARGEST["cpu_seconds"])
        self._keys = [key.encode() for key in keys]
        self._known: dict[str, ClientSandbox] = {}
        self._snapshots: dict[str, Snapshot] = {}
        self._opening: list[str] = []

    @property
    def disk_bytes(self) -> int:
        """The bytes that a machine can hold in addition to its system."""
        return self._limits.disk_bytes

    def owner_of(self, key: str) -> str:
        """Return the owner under which a key's sandboxes are kept.

        If the server has no keys, any key is accepted, and sees only its own sandboxes.
        Errors: HTTPException for a missing or unknown key.
        """
        known = [each for each in self._keys if hmac.compare_digest(each, key.encode())]
        if not key or (self._keys and not known):
            raise HTTPException(401, "the API key is missing or unknown")
        return key

    def find(self, owner: str, name: str) -> ClientSandbox:
        """Return an owner's sandbox. Errors: HTTPException."""
        found = self._known.get(name)
        if found is None or found.owner != owner:
            raise HTTPException(404, f"{NOT_FOUND}: {name:.80}")
        return found

    def of_owner(self, owner: str) -> list[ClientSandbox]:
        """Return an owner's sandboxes, the oldest first."""
        return [each for each in self._known.values() if each.owner == owner]

    def with_token(self, name: str, token: str) -> ClientSandbox | None:
        """Return the sandbox of a name if the token is that sandbox's; else None."""
        found = self._known.get(name)
        expected = found.token if found else "-"
        return found if hmac.compare_digest(expected.encode(), token.encode()) else None

    def signing(self, is_right: Callable[[str], bool]) -> ClientSandbox | None:
        """Return the sandbox whose token gives the right signature; None without one."""
        return next((each for each in self._known.values() if is_right(each.token)), None)

    async def create(
        self, owner: str, asked: NewSandbox, files: Snapshot | None = None
    ) -> ClientSandbox:
        """Open a machine, with the files of a snapshot if the template is one.

        Errors: HTTPException, SandboxError.
        """
        _refuse(asked)
        template = asked.template_id
        files = files or self._snapshot_of(owner, template)
        system = files.system if files else await asyncio.to_thread(self._system_of, template)
        with self._claimed(owner):
            seat = Seat(lambda: SandboxMachine(system, self._limits, idle_seconds=LONGEST_LIFE))
            sandbox = ClientSandbox(owner, asked, system, self._limits, seat)
            try:
                await (files.unpack(sandbox) if files else sandbox.finish("/bin/true"))
            except BaseException:
                await seat.close()
                raise
            sandbox.ends = time.time() + asked.timeout
            self._known[sandbox.id] = sandbox
        return sandbox

    @contextmanager
    def _claimed(self, owner: str) -> Iterator[None]:
        """Count a sandbox or snapshot that is being made. Errors: HTTPException."""
        owners = [each.owner for each in self._known.values()]
        owners += [each.owner for each in self._snapshots.values()] + self._opening
        for most, count in ((OF_ONE_CLIENT, owners.count(owner)), (self._most, len(owners))):
            if count >= most:
                raise HTTPException(429, f"{count} sandboxes and snapshots are the limit")
        self._opening.append(owner)
        try:
            yield
        finally:
            self._opening.remove(owner)

    async def snapshot(self, sandbox: ClientSandbox, name: str) -> Snapshot:
        """Keep the files of a sandbox; they replace a snapshot with the same name.

        Errors: HTTPException, SandboxError.
        """
        if name and not _NAME.fullmatch(name):
            raise HTTPException(400, f"{name!r:.80} is no name of a snapshot")
        if await asyncio.to_thread(self._is_template, name):
            raise HTTPException(400, f"{name} is the name of a template")
        with self._claimed(sandbox.owner):
            async with sandbox.turn:
                made = await take_snapshot(sandbox, name)
            if name and (old := self._snapshot_of(sandbox.owner, name)):
                self.delete_snapshot(sandbox.owner, old.id)
            self._snapshots[made.id] = made
        return made

    def snapshots_of(self, owner: str) -> list[Snapshot]:
        """Return an owner's snapshots, the oldest first."""
        return [each for each in self._snapshots.values() if each.owner == owner]

    def _snapshot_of(self, owner: str, name: str) -> Snapshot | None:
        """Return an owner's snapshot with an id or a name; None without one."""
        return next(
            (each for each in self.snapshots_of(owner) if name and name in (each.id, each.name)),
            None,
        )

    def delete_snapshot(self, owner: str, name: str) -> None:
        """Forget a snapshot. Sandboxes that are already being made from it still get its files.

        Errors: HTTPException.
        """
        found = self._snapshot_of(owner, name)
        if found is None:
            raise HTTPException(404, f"the snapshot was not found: {name:.80}")
        del self._snapshots[found.id]

    async def fork(
        self, sandbox: ClientSandbox, count: int, seconds: int
    ) -> list[ClientSandbox | HTTPException]:
        """Open sandboxes with the files of another; return each, or why it is missing.

        Errors: HTTPException, SandboxError, if the source cannot be copied.
        """
        if not 1 <= count <= MOST_FORKS:
            raise HTTPException(400, f"count {count} is not from 1 to {MOST_FORKS}")
        asked = msgspec.structs.replace(sandbox.asked, timeout=check_seconds(seconds))
        async with sandbox.turn:
            files = await take_snapshot(sandbox)
        made: list[ClientSandbox | HTTPException] = []
        for _ in range(count):
            try:
                made.append(await self.create(sandbox.owner, asked, files))
            except HTTPException as error:
                made.append(error)
            except ShioenvError as error:
                made.append(HTTPException(500, error.message))
        return made

    async def end(self, sandbox: ClientSandbox) -> None:
        """End a sandbox; ending it twice does nothing."""
        self._known.pop(sandbox.id, None)
        await sandbox.end()

    async def pause(self, sandbox: ClientSandbox, *, memory: bool) -> bool:
        """Pause a sandbox, and return whether it ran before. Errors: SandboxError."""
        async with sandbox.turn:
            if sandbox.state != "running":
                return False
            await sandbox.pause(memory=memory)
            return True

    async def connect(self, sandbox: ClientSandbox, seconds: int, *, memory: bool) -> bool:
        """Resume a paused sandbox, and return whether it was paused. Errors: SandboxError.

        The time of a running sandbox is only ever extended.
        """
        async with sandbox.turn:
            was_paused = sandbox.state == "paused"
            if was_paused:
                await sandbox.resume(memory=memory)
            until = time.time() + seconds
            sandbox.ends = until if was_paused else max(until, sandbox.ends)
            return was_paused

    async def sweep(self) -> None:
        """End or pause sandboxes whose time is over, as requested when each was created.

        A sandbox that is being paused, resumed or copied waits for the next sweep.
        """
        now = time.time()
        over = [each for each in self._known.values() if each.ends <= now]
        for sandbox in over:
            if not sandbox.asked.auto_pause:
                await self.end(sandbox)
            elif sandbox.state == "running" and not sandbox.turn.locked():
                with suppress(ShioenvError):
                    await self.pause(sandbox, memory=sandbox.asked.auto_pause_memory)

    async def close(self) -> None:
        """End all sandboxes."""
        await asyncio.gather(*(self.end(each) for each in list(self._known.values())))

    def _is_template(self, name: str) -> bool:
        """Whether a template has this name, also one that is not built."""
        if name in ("", "base"):
            return bool(name)
        try:
            return bool(find_system(name))
        except UnknownSystemError:
            return name == self._system.name
        except ShioenvError:
            return True

    def _system_of(self, template: str) -> System:
        """Return the system of a template: a built system's name, or `base`. Errors: HTTPException.

        The name of a declaration's file is not accepted, because clients do not choose files.
        """
        if template in ("base", self._system.name):
            return self._system
        try:
            if not _NAME.fullmatch(template):
                raise UnknownSystemError(f"unknown system {template!r:.80}")
            return find_system(template)
        except ShioenvError as error:
            raise HTTPException(404, f"template: {error.message}") from None


def _refuse(asked: NewSandbox) -> None:
    """Refuse requests for features that no machine has. Errors: HTTPException."""
    refused: Mapping[str, object] = {
        "mcp": asked.mcp,
        "iam": asked.iam,
        "volume_mounts": asked.volume_mounts,
        "allow_internet_access": asked.allow_internet_access,
    }
    for name, value in refused.items():
        if value:
            raise HTTPException(400, f"{name} is not supported by machines without a network")
    check_network(asked.network or {})
    check_seconds(asked.timeout)


def check_network(rules: Mapping[str, object]) -> None:
    """Accept rules that only deny, as machines have no network. Errors: HTTPException."""
    for name, value in rules.items():
        if value and name != "denyOut":
            raise HTTPException(400, f"{name:.80} is not supported: machines have no network")


def check_seconds(seconds: int) -> int:
    """Return the seconds of a sandbox's life. Errors: HTTPException if they are out of range."""
    if not 0 <= seconds <= LONGEST_LIFE:
        raise HTTPException(400, f"timeout {seconds} is not from 0 to {LONGEST_LIFE:,} seconds")
    return seconds
