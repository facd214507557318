"""A machine in which any number of commands can be started from outside, as separate processes."""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import IO, Final, Protocol, TypeVar, cast

from shioenv.bash.words import quoted
from shioenv.behavior.capture import network_fields
from shioenv.errors import UsageError
from shioenv.live.entered import (
    RUN,
    SAY_STATUS,
    START_SECONDS,
    close,
    parse_control_line,
    send_first,
)
from shioenv.live.machine_thread import Closable, Seat
from shioenv.live.shell import IDLE_SECONDS
from shioenv.sandbox.backends import default_sandbox
from shioenv.sandbox.base import (
    LARGEST,
    LONGEST_INPUT,
    MEBIBYTE,
    Closing,
    Entered,
    Execution,
    Limits,
    Request,
    ShellSandbox,
)
from shioenv.system.store import System

_LAUNCH: Final = (
    "exec 9<&0 0</dev/null; set -m\n"
    "( cd {cwd} 2>&8 && {{ unset OLDPWD; {words}\n{run}; }}; {say} ) 8>&2 2>&9 &\n"
    "printf 'group %d\\n' $! >&9"
)
"""Starts a command in the background, and reports its process group on the control channel. Job
control creates the group, and gives the command the same signal settings as in a shell."""

_READ_WORDS: Final = 'eval "set -- $(/usr/bin/head -c {length} <&9)"'
"""Sets `$@` to words from the first bytes of the control channel, because an input cannot hold so
many words."""

OUTPUT: Final = 16 * MEBIBYTE
"""Bytes kept of each output of a command; later bytes are read and dropped."""

DRAIN_SECONDS: Final = 0.1
"""Seconds for which outputs are read after a command's end, if other processes hold them open."""

PROCESSES: Final = 1024
"""Maximum processes and threads; our choice, because agents start more than an input does."""

_PIECE: Final = 1 << 16

_LONGEST_WORDS: Final = LONGEST_INPUT // 2  # the input contains the directory too

_PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command to be run in a machine, with the options of `docker exec`."""

    text: str = ""
    """The command's text, which is run by `bash -c`."""
    program: Sequence[str] = ()
    """A program and its arguments, run instead of a text."""
    cwd: str = "/"
    """The absolute path of the start directory."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables added to those of the machine's processes."""
    user: str | None = None
    """The name or number of the user to run as; None for root."""
    fed: bool = False
    """Whether standard input comes from the control channel; else it is empty."""
    reads: bool = False
    """Whether the command leaves the machine unchanged."""


def agent_limits(*, memory_bytes: int, disk_bytes: int) -> Limits:
    """Return the limits of a machine in which an agent works for hours.

    The time limit applies to reading its changes, because each command has a separate limit.
    """
    return Limits(
        wall_seconds=60.0,
        cpu_seconds=LARGEST["cpu_seconds"],
        memory_bytes=memory_bytes,
        disk_bytes=disk_bytes,
        processes=PROCESSES,
        scan_seconds=60.0,
    )


class EnteredMachine(Closing):
    """A separate machine, pristine at first. Calls from several threads run one after the other.

    Commands share files, network and time. Processes that a command leaves running continue.
    Nothing inside can end the machine. A reached limit ends the processes, not the machine.
    """

    def __init__(
        self, system: System, limits: Limits, *, idle_seconds: float = IDLE_SECONDS
    ) -> None:
        """Open the machine. Errors: those of `open_sandbox`; UsageError for a microVM's limits."""
        if limits.sandbox != "namespaces" or limits.without_shell_state:
            raise UsageError("commands can be started only with the sandbox namespaces")
        self.system, self._idle_seconds = system, idle_seconds
        self._sandbox = cast("ShellSandbox", default_sandbox(system, limits))

    def start(self, command: Command) -> Entered:
        """Start a command. Its control channel prints `group N` at once, and `status N` at its end.

        The numbers are those of the process group and the exit status. A channel that closes
        without a status means that the command was killed. Errors: InputError for a command that is
        too long for an input; SandboxError if the machine does not start it.
        """
        return start(command, self.system, self._enter)

    def end_group(self, group: int) -> None:
        """Kill a process group inside. Errors: SandboxError."""
        end_group(group, self._enter)

    def _enter(self, text: str) -> Entered:
        request = Request(text, cwd="/", wall_seconds=START_SECONDS)
        return self._sandbox.enter(request, idle_seconds=self._idle_seconds)

    def changes(self) -> Execution:
        """End every process, and return the changes since the machine was pristine.

        No process runs in the machine while its files are read, and they are read from outside.
        Errors: SandboxError, after which the machine is gone.
        """
        execution = self._sandbox.look()
        if execution.network is not None and self._is_pristine(execution.network):
            execution = replace(execution, network=None)
        return execution

    def _is_pristine(self, network: bytes) -> bool:
        with default_sandbox(self.system) as other:
            return network_fields(other.network()) == network_fields(network)

    def renew(self) -> None:
        """Reset the machine to its pristine state, and end everything in it.

        Errors: SandboxError.
        """
        self._sandbox.end_shell()

    def close(self) -> None:
        """End the machine and everything in it."""
        self._sandbox.close()


def start(command: Command, system: System, enter: Callable[[str], Entered]) -> Entered:
    """Start a command by `enter`, which runs an input in a machine; see `EnteredMachine.start`."""
    program = command.program or ("/bin/bash", "-c", command.text)
    given = [*(f"{name}={value}" for name, value in command.env.items()), *program]
    for word in given:
        Request(word).argument()  # check against the longest argument that Linux allows
    words = " ".join(map(quoted, ["/usr/bin/env", *given]))
    words = f"{_as_user(command.user, system)}{words}"
    sent = words.encode("utf-8", "surrogateescape")
    is_long = len(sent) > _LONGEST_WORDS
    entered = enter(
        _LAUNCH.format(
            cwd=quoted(command.cwd),
            words=_READ_WORDS.format(length=len(sent)) if is_long else f"set -- {words}",
            run=f"<{'&9' if command.fed else '/dev/null'} {RUN}",
            say=SAY_STATUS,
        )
    )
    if is_long:
        send_first(entered, sent)
    return entered


def end_group(group: int, enter: Callable[[str], Entered]) -> None:
    """Kill a process group inside. Errors: those of `enter`."""
    close(enter(f"kill -KILL -- -{group:d} 2> /dev/null"))


def _as_user(user: str | None, system: System) -> str:
    """Return words that precede a program in a command, and run it as a user with HOME set."""
    if user is not None and user.isdecimal():
        number = int(user)
        names = {there: name for name, there in system.users.items()}
        if number and number not in names:
            return f"/usr/bin/setpriv --reuid={number} --regid={number} --clear-groups "
        user = names.get(number)
    if user in (None, "root"):
        return ""
    assert user is not None
    home = f"/usr/bin/env HOME=~{user} " if _PLAIN_NAME.fullmatch(user) else ""
    return f"{home}/usr/sbin/runuser -u {quoted(user)} -- "


@dataclass(frozen=True, slots=True)
class Finished:
    """The result of a command."""

    exit_code: int
    """The exit status as bash reports it. It is 137 if no status was reported, because the command
    was killed."""
    output: bytes
    errors: bytes
    whole: bool
    """Whether `output` is complete."""
    errors_whole: bool = True
    """Whether `errors` is complete."""


class Running:
    """A started command, for use in the caller's event loop."""

    def __init__(self, entered: Entered, group: int | None = None) -> None:
        """`group` is the process group, if `group_of` already read it."""
        self._entered: Entered | None = entered
        self.group = group
        """The command's process group in the machine, once the control channel reported it."""
        self.printed = (b"", b"")
        """Output and errors that were kept, available after `finish` ended or was cancelled."""

    async def finish(
        self, given: IO[bytes] | None = None, into: IO[bytes] | None = None, most: int = OUTPUT
    ) -> Finished:
        """Wait for the command's end; processes that it left running continue.

        Standard input is the bytes of `given`. At most `most` bytes of the command's output are
        written `into` a file or returned. Without a file, `most` limits the errors as well. With a
        file, the end of a command is not awaited once its output exceeds `most`. May be called
        once. Cancelling the call does not end the command.
        """
        assert self._entered is not None
        entered, self._entered = self._entered, None
        talk = socket.socket(fileno=entered.talk)
        output, errors = (
            os.fdopen(descriptor, "rb", buffering=0)
            for descriptor in (entered.output, entered.errors)
        )
        closing = [talk.close, output.close, errors.close]  # or that of a transport (below)
        feeding, kept = [], []
        try:
            reader, writer = await asyncio.open_connection(sock=talk)
            closing[0] = writer.transport.close
            feeding.append(asyncio.create_task(_feed(writer, given)))
            for number, (pipe, file, longest) in enumerate(
                ((output, into, most), (errors, None, OUTPUT if into else most)), start=1
            ):
                stream, transport = await _reading(pipe)
                closing[number] = transport.close
                enough = None if file is None else writer.transport.abort
                kept.append(asyncio.create_task(_kept(stream, file, longest, enough)))
            exit_code = await self._status(reader)
            await asyncio.wait(kept, timeout=DRAIN_SECONDS)
        finally:
            for task in feeding:
                task.cancel()
            for close_one in closing:
                close_one()
            ended = await asyncio.gather(*feeding, *kept, return_exceptions=True)
            both = [one[0] for one in ended[len(feeding) :] if isinstance(one, tuple)]
            self.printed = (both[0], both[1]) if len(both) == 2 else self.printed
        (out, whole), (err, errors_whole) = (task.result() for task in kept)
        return Finished(exit_code, out, err, whole, errors_whole)

    async def _status(self, reader: asyncio.StreamReader) -> int:
        """Return the exit code from the control channel. Root inside the machine can forge it."""
        with suppress(ValueError, ConnectionError):  # a line is too long
            while line := await reader.readline():
                word, number = parse_control_line(line) or ("", 0)
                if word == "status":
                    return number & 0xFF
                if word:
                    self.group = number
        return 137

    def close(self) -> None:
        """Close the descriptors of the command, unless `finish` already did."""
        if self._entered is not None:
            close(self._entered)
        self._entered = None


async def _reading(pipe: IO[bytes]) -> tuple[asyncio.StreamReader, asyncio.ReadTransport]:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return reader, transport


async def _kept(
    reader: asyncio.StreamReader,
    into: IO[bytes] | None,
    most: int,
    enough: Callable[[], None] | None,
) -> tuple[bytes, bool]:
    """Return a stream's first bytes, or write them `into` a file.

    Also return whether these are all bytes. `enough` is called as soon as there are more bytes.
    Without `enough`, the stream is read to its end.
    """
    kept, length = [], 0
    while piece := await reader.read(_PIECE):
        fits = piece[: max(0, most - length)]
        length += len(piece)
        if into is not None:
            into.write(fits)
        elif fits:
            kept.append(fits)
        if length > most and enough is not None:
            enough()
            break
    return b"".join(kept), length <= most


async def _feed(writer: asyncio.StreamWriter, given: IO[bytes] | None) -> None:
    with suppress(ConnectionError):  # the command has closed its input
        while given is not None and (piece := given.read(_PIECE)):
            writer.write(piece)
            await writer.drain()
        writer.write_eof()


def group_of(entered: Entered) -> int | None:
    """Return a new command's process group; None if the control channel does not report it."""
    with socket.socket(fileno=os.dup(entered.talk)) as talk:
        talk.settimeout(START_SECONDS)
        # unbuffered: the bytes after that line stay in the channel
        with suppress(OSError), talk.makefile("rb", buffering=0) as lines:
            word, number = parse_control_line(lines.readline(32)) or ("", 0)
            return number if word == "group" else None
    return None


class Enterable(Closable, Protocol):
    """A machine in which commands can be started from outside, such as `EnteredMachine`."""

    def start(self, command: Command) -> Entered:
        """See `EnteredMachine.start`."""
        ...

    def end_group(self, group: int) -> None:
        """See `EnteredMachine.end_group`."""
        ...


EnterableMachine = TypeVar("EnterableMachine", bound=Enterable)


class CommandTimeoutError(TimeoutError):
    """A command timed out, and was ended with its process group."""

    def __init__(self, seconds: float | None, output: bytes, errors: bytes) -> None:
        super().__init__(f"Command timed out after {seconds} seconds")
        self.output, self.errors = output, errors
        """The command's output and errors until the timeout."""


async def finished(
    seat: Seat[EnterableMachine],
    command: Command,
    *,
    given: IO[bytes] | None = None,
    into: IO[bytes] | None = None,
    most: int = OUTPUT,
    seconds: float | None = None,
) -> Finished:
    """Start a command and wait for its end; see `Running.finish`.

    The command's processes are ended when the caller is cancelled or the time is over. Errors:
    CommandTimeoutError, those of `started`.
    """
    running = await started(seat, command)
    over = False
    try:
        async with asyncio.timeout(seconds):
            done = await running.finish(given, into, most)
        over = True
    except TimeoutError:
        raise CommandTimeoutError(seconds, *running.printed) from None
    finally:
        group = running.group
        if not over and group is not None:
            await seat.complete(seat.do(lambda machine: machine.end_group(group)))
    return done


async def started(seat: Seat[EnterableMachine], command: Command) -> Running:
    """Start a command, and return it with its process group if the control channel reports one.

    If the caller is cancelled, the command is ended as soon as it has started. Errors: those of
    `EnteredMachine.start`.
    """
    starting = asyncio.ensure_future(seat.do(lambda machine: _start(machine, command)))
    try:
        return Running(*await asyncio.shield(starting))
    except asyncio.CancelledError:
        await seat.complete(_end(seat, starting))
        raise


def _start(machine: Enterable, command: Command) -> tuple[Entered, int | None]:
    entered = machine.start(command)
    try:
        return entered, group_of(entered)
    except BaseException:
        close(entered)
        raise


async def _end(
    seat: Seat[EnterableMachine], starting: asyncio.Future[tuple[Entered, int | None]]
) -> None:
    await asyncio.wait([starting])
    if starting.exception() is None:
        entered, group = starting.result()
        await seat.do(lambda machine: _end_entered(machine, entered, group))


def _end_entered(machine: Enterable, entered: Entered, group: int | None) -> None:
    """Kill a new command. If its process group is unknown, it continues."""
    try:
        if group is not None:
            machine.end_group(group)
    finally:
        close(entered)
