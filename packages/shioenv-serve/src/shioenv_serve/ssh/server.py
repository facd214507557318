"""The SSH server: accept connections, start an sshd for each, and assign machines to sessions."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import random
import signal
import socket
import struct
import time
from collections import OrderedDict
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from shioenv.errors import HostError, ServingError, ShioenvError, UsageError
from shioenv.execution.process import adopt_orphans
from shioenv.files.durable import locked, storage_errors
from shioenv.files.regular import LARGEST_LIST, lines_of, read_regular
from shioenv.live.shells import Shells
from shioenv.sandbox.base import LONGEST_IDLE, refuse_limit
from shioenv.system.host_checks import OPEN_FILES, allow_open_files
from shioenv.system.store import System
from shioenv_serve.events import EventLog, duration, origin
from shioenv_serve.ssh.calls import Caller, LoginCall, accept, read_descriptor
from shioenv_serve.ssh.daemon import Daemon, make_host_keys
from shioenv_serve.ssh.machine_channel import MachineChannel
from shioenv_serve.ssh.machines import Machines, login_accounts
from shioenv_serve.ssh.model_channel import ModelChannel
from shioenv_serve.ssh.sshd_log import LONGEST_LINE, SshdLogParser
from shioenv_serve.ssh.visitor_channel import LEAVING_SECONDS, LOST, House, SshChannel, Visitor
from shioenv_serve.visit_log import LOG

REMEMBERED: Final = 10_000
"""Maximum number of remembered addresses; the oldest is dropped first. (Our choice: each takes
about a kilobyte.)"""


class PasswordPolicy(Protocol):
    """A policy that accepts or rejects passwords."""

    def passes(self, address: str, user: str, password: str) -> bool:
        """Whether this password lets this user in from this address."""
        ...


class Always:
    """Accepts every login, or rejects every login."""

    def __init__(self, answer: bool) -> None:
        self._answer = answer

    def passes(self, address: str, user: str, password: str) -> bool:
        """Whether the password is accepted; see `PasswordPolicy.passes`."""
        return self._answer


class Listed:
    """Accept the listed pairs of a name and a password. The name `*` matches every user."""

    def __init__(self, pairs: frozenset[tuple[str, str]]) -> None:
        self._pairs = pairs

    def passes(self, address: str, user: str, password: str) -> bool:
        """Whether the password is accepted; see `PasswordPolicy.passes`."""
        return (user, password) in self._pairs or ("*", password) in self._pairs


class AtTry:
    """Accept an address at its nth attempt, with any name and password.

    From then on only the pair that was accepted is valid for this address.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._seen: OrderedDict[str, int | tuple[str, str]] = OrderedDict()

    def passes(self, address: str, user: str, password: str) -> bool:
        """Whether the password is accepted; see `PasswordPolicy.passes`."""
        known = self._seen.pop(address, 0)
        if isinstance(known, int):
            known += 1
            if known >= self._number:
                known = (user, password)
        self._seen[address] = known
        if len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
        return known == (user, password)


def policy_of(text: str) -> PasswordPolicy:
    """Parse a policy: `any`, `never`, `try:N`, or `list:FILE`.

    The file has a line `NAME:PASSWORD` for each pair. Errors: UsageError.
    """
    kind, _, rest = text.partition(":")
    if text in {"any", "never"}:
        return Always(text == "any")
    if kind == "try" and rest.isdecimal() and int(rest) > 0:
        return AtTry(int(rest))
    if kind == "list" and rest:
        return Listed(_pairs(Path(rest)))
    raise UsageError(
        f"invalid --passwords {text!r}", hint="use any, never, try:N with a number, or list:FILE"
    )


def _pairs(file: Path) -> frozenset[tuple[str, str]]:
    try:
        lines = lines_of(read_regular(file, LARGEST_LIST).decode())
    except (OSError, ValueError) as error:
        raise UsageError(f"{file} cannot be read: {error}") from None
    pairs = set()
    for number, line in enumerate(lines, 1):
        name, colon, password = line.partition(":")
        if not name or not colon:
            raise UsageError(f"{file}:{number}: {line!r:.60} is not NAME:PASSWORD")
        pairs.add((name, password))
    return frozenset(pairs)


STARTUPS: Final = (10, 30, 100)
"""The default MaxStartups of sshd, applied to connections before login.

From 10 such connections on, the server drops 30% of the new ones. The share rises with their
number; from 100 on, the server drops all.
"""

CHANNELS: Final = 10
"""Maximum sessions of one connection, the default of sshd (MaxSessions)."""

CHANNELS_ON_AVERAGE: Final = 4
"""Average sessions of a connection when all connections are in use; our choice: most have one."""

FILES_OF_A_CONNECTION: Final = 6
"""Files that the server has open for a connection.

The connection and sshd's log count twice, since some connections begin while others end. Two files
are the machine's.
"""

FILES_OF_A_CHANNEL: Final = 9
"""Files that the server has open for a channel.

Three belong to the visitor, one to the login shell, two to the recordings, and three to a command.
A further machine with its terminal uses as many as a command.
"""

_TOO_MANY = b"Exceeded MaxStartups\r\n"
_GATE_SECONDS = 5.0

_LAST_LOGIN = struct.Struct("=i32s256s")
"""`struct lastlog`: time, terminal, host."""


@dataclass(frozen=True, slots=True)
class ServerBounds:
    """Limits on the visitors' use of the server. Errors: LimitsError for an invalid time."""

    connections: int = 200
    """Maximum simultaneous connections."""
    per_address: int = 20
    """Maximum simultaneous connections of one address."""
    seconds: float = 3600.0
    """Maximum duration of a connection in seconds, up to 30 days."""

    def __post_init__(self) -> None:
        refuse_limit("seconds", self.seconds, LONGEST_IDLE)

    @property
    def channels(self) -> int:
        """Maximum simultaneous channels of all connections."""
        return CHANNELS_ON_AVERAGE * self.connections

    @property
    def files(self) -> int:
        """Maximum files that the server has open."""
        held = self.connections * FILES_OF_A_CONNECTION + self.channels * FILES_OF_A_CHANNEL
        return OPEN_FILES + held


class SshServer:
    """OpenSSH on a port, with a machine for each visitor."""

    def __init__(
        self,
        system: System,
        policy: PasswordPolicy,
        directory: Path,
        *,
        bounds: ServerBounds | None = None,
        accepted_keys: bytes = b"",
        shells: Shells | None = None,
        delay: tuple[float, float] = (0.0, 0.0),
        sensor: str | None = None,
    ) -> None:
        """Start sshd's namespaces and the first machines, without accepting connections.

        `directory` receives the log (`log.jsonl`), recordings and uploads, and holds the host keys.
        `shells` answer in place of machines, and are closed at the end. Each answer is delayed by a
        number of seconds drawn from the range `delay`. `sensor` names the server in each event;
        None: by this host's name. Errors: ServingError, HostError, DatasetStorageError,
        DatasetBusyError if another server uses the directory, those of a sandbox.
        """
        self._policy, self._bounds = policy, bounds or ServerBounds()
        allow_open_files(self._bounds.files)
        self._visits: dict[str, Visitor] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._failure: Exception | None = None
        with storage_errors(directory):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._held = ExitStack()
        self._held.enter_context(locked(directory))
        make_host_keys(directory / "host_keys")
        hostname = system.declaration.machine.hostname
        self._log = EventLog(directory / LOG, sensor or socket.gethostname(), self._fail)
        self._daemon = Daemon(system, directory / "host_keys", accepted_keys)
        try:
            machines = None if shells else Machines(system)
        except BaseException:
            self._daemon.close()
            self._held.close()
            raise
        known = login_accounts(system)
        greetings = {account.uid: _greeting(system, account.uid) for account in known.values()}
        opener = ThreadPoolExecutor(max_workers=1, thread_name_prefix="shells")
        self._house = House(
            machines, shells, opener, hostname, self._log, known, greetings, directory, delay
        )

    async def serve(self, listener: socket.socket) -> int:
        """Serve until SIGTERM or SIGINT; return the number of the signal.

        In every case, all connections and machines are closed. Errors: ServingError if the log
        cannot be written, or sshd's namespaces are gone.
        """
        loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        stopped_by = signal.SIGTERM

        def stop(number: signal.Signals) -> None:
            nonlocal stopped_by
            stopped_by = number
            self._stopping.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop, number)
        sockets = (listener, self._daemon.gate, self._daemon.sessions)
        for each, take in zip(sockets, (self._accept, self._ask, self._open), strict=True):
            accept(each, take)
        watching = self._begin(self._watch())
        try:
            await self._stopping.wait()
        finally:
            adopt_orphans()
            watching.cancel()
            for each in sockets:
                loop.remove_reader(each)
                each.close()
            await self._end()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
        if self._failure:
            raise ServingError(f"the server stopped: {self._failure}")
        return stopped_by

    async def _end(self) -> None:
        """Close everything. Channels first get time to report the effects of their last lines."""
        self._daemon.close()
        for visit in self._visits.values():
            visit.leaving.set()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=LEAVING_SECONDS)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(visit.close() for visit in self._visits.values()))
        if self._house.machines:
            await asyncio.to_thread(self._house.machines.close)
        if self._house.shells:
            await asyncio.to_thread(self._house.shells.close)
        self._house.opener.shutdown()
        for name in list(self._visits):
            self._closed(name)
        self._log.close()
        self._held.close()

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        asyncio.get_running_loop().call_soon_threadsafe(self._stopping.set)

    def _begin(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        """Remove a finished task. An exception in it is printed, and does not affect others."""
        self._tasks.discard(task)
        if not task.cancelled() and (fault := task.exception()):
            context = {"message": "an error of the server", "exception": fault, "task": task}
            asyncio.get_running_loop().call_exception_handler(context)

    async def _watch(self) -> None:
        """Stop the server when sshd's namespaces end; close connections beyond the time limit."""
        while True:
            await asyncio.sleep(0.5)
            if not self._daemon.running:
                self._fail(HostError("sshd's namespaces were ended by another process"))
            now = time.monotonic()
            for visit in list(self._visits.values()):
                if now - visit.began > self._bounds.seconds and visit.connection:
                    reason = f"after {self._bounds.seconds:g} seconds"
                    self._log.tell("shioenv.session.ended", visit.origin, reason=reason)
                    with suppress(OSError):
                        visit.connection.shutdown(socket.SHUT_RDWR)
                    visit.connection.close()
                    visit.connection = None

    # ---- connections ----

    def _accept(self, connection: socket.socket, peer: tuple[str, int]) -> None:
        local = connection.getsockname()
        where = origin((_plain(peer[0]), peer[1]), (_plain(local[0]), local[1]))
        reason = self._refusal(where.address)
        if reason:
            self._log.tell("shioenv.dropped", where, reason=reason)
            with suppress(OSError):
                connection.setblocking(False)
                connection.send(_TOO_MANY)
            connection.close()
            return
        try:
            connection.setblocking(True)
            log = self._daemon.serve(where.session, connection)
        except (OSError, ShioenvError) as error:
            connection.close()
            self._log.tell("shioenv.dropped", where, reason=str(error))
            return
        self._visits[where.session] = Visitor(where, connection=connection)
        self._log.tell("cowrie.session.connect", where)
        self._begin(self._listen(where.session, log))

    def _refusal(self, address: str) -> str:
        """Return the reason for dropping a new connection; empty to accept it."""
        visits = self._visits.values()
        if len(visits) >= self._bounds.connections:
            return "too many connections"
        if sum(visit.origin.address == address for visit in visits) >= self._bounds.per_address:
            return "too many connections from this address"
        begin, percent, full = STARTUPS
        waiting = sum(not visit.logged_in for visit in visits)
        share = percent + (100 - percent) * (waiting - begin) / (full - begin)
        if waiting >= begin and random.random() * 100 < share:
            return "too many connections without a login"
        return ""

    async def _listen(self, name: str, log: int) -> None:
        """Convert sshd's log into events, until the connection's last sshd has ended."""
        heard, visit, kept = SshdLogParser(), self._visits[name], b""
        os.set_blocking(log, False)
        try:
            while data := await read_descriptor(log):
                *lines, kept = (kept + data).split(b"\n")
                kept = kept[:LONGEST_LINE]
                for line in lines:
                    for event, fields in heard.line(
                        line.decode("utf-8", "backslashreplace").strip()
                    ):
                        self._log.tell(event, visit.origin, **fields)
                        visit.logged_in = visit.logged_in or event == "cowrie.login.success"
        finally:
            os.close(log)
        await visit.left()
        await visit.close()
        self._closed(name)

    def _closed(self, name: str) -> None:
        visit = self._visits.pop(name)
        if visit.connection:
            visit.connection.close()
        lasted = duration(time.monotonic() - visit.began)
        self._log.tell("cowrie.session.closed", visit.origin, **lasted)

    # ---- passwords ----

    def _ask(self, connection: socket.socket, _: object) -> None:
        self._begin(self._answer(connection))

    async def _answer(self, connection: socket.socket) -> None:
        """Answer a question of PAM: whether a password is accepted."""
        with connection:
            connection.setblocking(False)
            loop = asyncio.get_running_loop()
            try:
                data = await asyncio.wait_for(loop.sock_recv(connection, 16_384), _GATE_SECONDS)
                name, user, password = (
                    field.decode("utf-8", "backslashreplace") for field in data.split(b"\0")[:3]
                )
            except (OSError, ValueError, TimeoutError):
                return
            visit = self._visits.get(name)
            if visit is None:
                return
            passes = self._policy.passes(visit.origin.address, user, password)
            visit.logged_in = visit.logged_in or passes
            event = f"cowrie.login.{'success' if passes else 'failed'}"
            self._log.tell(event, visit.origin, username=user, password=password)
            with suppress(OSError):
                connection.send(b"A" if passes else b"R")

    # ---- sessions ----

    def _open(self, connection: socket.socket, _: object) -> None:
        self._begin(self._session(connection))

    async def _session(self, connection: socket.socket) -> None:
        caller = Caller(connection)
        call = await caller.call()
        visit = self._visits.get(call.connection) if call else None
        if call is None or visit is None:
            if call:
                call.close()
            caller.end(LOST)
            return
        if len(visit.open) >= CHANNELS or self._channels() >= self._bounds.channels:
            self._log.tell("shioenv.dropped", visit.origin, reason="too many channels")
            call.close()
            caller.end(LOST)
            return
        task = asyncio.create_task(self._channel(visit, call, caller))
        visit.open.add(task)
        task.add_done_callback(visit.open.discard)
        await task

    def _channels(self) -> int:
        return sum(len(visit.open) for visit in self._visits.values())

    async def _channel(self, visit: Visitor, call: LoginCall, caller: Caller) -> None:
        session: SshChannel
        if self._house.shells:
            try:
                shell = await visit.shell_of(self._house)
            except ShioenvError as error:
                self._log.tell("shioenv.session.lost", visit.origin, reason=error.message)
                call.close()
                caller.end(LOST)
                return
            session = ModelChannel(self._house, visit, call, caller, shell)
        else:
            assert self._house.machines
            session = MachineChannel(self._house, visit, call, caller, self._house.machines)
        await session.serve()


def _plain(address: str) -> str:
    """Convert an IPv4-mapped IPv6 address to IPv4."""
    with suppress(ValueError):
        mapped = getattr(ipaddress.ip_address(address.partition("%")[0]), "ipv4_mapped", None)
        return str(mapped) if mapped else address
    return address


def _greeting(system: System, uid: int) -> bytes:
    """Return the text that sshd and pam_motd print before a user's shell, with plain newlines."""
    messages = [system.content("/run/motd.dynamic"), system.content("/etc/motd")]
    text = b"".join(message for message in messages if message)
    begin = uid * _LAST_LOGIN.size
    record = (system.content("/var/log/lastlog") or b"")[begin : begin + _LAST_LOGIN.size]
    if len(record) == _LAST_LOGIN.size:
        seconds, _, host = _LAST_LOGIN.unpack(record)
        if seconds:
            when = time.strftime("%a %b %e %H:%M:%S %Y", time.gmtime(seconds)).encode()
            text += b"Last login: " + when
            text += b" from " + host.rstrip(b"\0") + b"\n" if host.rstrip(b"\0") else b"\n"
    return text
