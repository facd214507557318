"""A machine that commands enter from outside: any number at once, each in processes of its own."""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import IO, Final, cast

from shioenv.bash.words import quoted
from shioenv.behavior.capture import network_fields
from shioenv.errors import SandboxError, UsageError
from shioenv.live.shell import IDLE_SECONDS, Closing
from shioenv.sandbox.backends import default_sandbox
from shioenv.sandbox.base import (
    LONGEST_INPUT,
    MEBIBYTE,
    Entered,
    Execution,
    Limits,
    Request,
    ShellSandbox,
)
from shioenv.system.store import System

START_SECONDS: Final = 60.0
"""Seconds that the start of a command may take; ours, because a machine may be busy."""

_LAUNCH: Final = (
    "exec 9<&0 0</dev/null; set -m\n"
    "( cd {cwd} 2>&8 && {{ unset OLDPWD; {words}\n{run}; }}; {say} ) 8>&2 2>&9 &\n"
    "printf 'group %d\\n' $! >&9"
)
"""Starts a command in the background, in a group of its own, and says on the talk which one it is.

Job control makes the group, and leaves the command the signals that a shell has.
"""

_READ_WORDS: Final = 'eval "set -- $(/usr/bin/head -c {length} <&9)"'
"""Sets the words that the talk is sent first. An input could not hold so many bytes."""

RUN: Final = '"$@" 2>&8 8>&- 9>&-'
"""Runs the words that are set, without the talk.

What Bash says of a command that a signal killed goes to the talk, and quotes this text. So nothing
that a command's words say can stand on the talk.
"""

SAY_STATUS: Final = "printf 'status %d\\n' $? >&9"
"""Says on the talk how the command before ended."""

_TOLD = re.compile(rb"(group|status) ([0-9]{1,10})\s*")


def told(line: bytes) -> tuple[str, int] | None:
    """What a line of the talk says: `group` or `status`, and its number; None for another line."""
    found = _TOLD.fullmatch(line)
    return (found[1].decode(), int(found[2])) if found else None


OUTPUT: Final = 16 * MEBIBYTE
"""Bytes kept of each output of a command; what comes later is read and dropped."""

DRAIN_SECONDS: Final = 0.1
"""Seconds for which outputs are read after the command has ended, where it left them to others."""

_PIECE: Final = 1 << 16

_LONGEST_WORDS: Final = LONGEST_INPUT // 2  # in an input that holds the directory too

_PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What is to be run in a machine, as `docker exec` takes it."""

    text: str = ""
    """The text, as `bash -c` is given it."""
    program: Sequence[str] = ()
    """A program and its arguments, to be run in place of a text."""
    cwd: str = "/"
    """The directory to start in, absolute."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables besides those that the machine's processes have."""
    user: str | None = None
    """The name or number of the user to run as; None for root."""
    fed: bool = False
    """Standard input is what the talk is sent; else it is at its end."""
    reads: bool = False
    """It changes nothing of the machine."""


class EnteredMachine(Closing):
    """A machine of its own, pristine at first. Threads' calls are taken one after the other.

    Commands share files, network and time. What a command leaves running goes on. Nothing inside
    can end the machine. A limit ends the processes, not the machine.
    """

    def __init__(
        self, system: System, limits: Limits, *, idle_seconds: float = IDLE_SECONDS
    ) -> None:
        """Opens the machine. Errors: those of `open_sandbox`; UsageError for a microVM's limits."""
        if limits.sandbox != "namespaces" or limits.without_shell_state:
            raise UsageError("commands enter a machine in namespaces alone")
        self.system, self._idle_seconds = system, idle_seconds
        self._sandbox = cast("ShellSandbox", default_sandbox(system, limits))

    def start(self, command: Command) -> Entered:
        """Starts a command. Its talk says `group N` at once, and `status N` when it has ended.

        N are the number of its process group and its exit code. A talk that ends without a status
        was killed. Errors: InputError for a text that no input can hold; SandboxError where the
        machine does not start it.
        """
        return start(command, self.system, self._enter)

    def end_group(self, group: int) -> None:
        """Kills a process group inside. Errors: SandboxError."""
        end_group(group, self._enter)

    def _enter(self, text: str) -> Entered:
        request = Request(text, cwd="/", wall_seconds=START_SECONDS)
        return self._sandbox.enter(request, idle_seconds=self._idle_seconds)

    def changes(self) -> Execution:
        """Ends every process, and tells what changed since the machine was pristine.

        Nothing of the machine runs while its files are read, and no program of the machine reads
        them. Errors: SandboxError, after which the machine is gone.
        """
        execution = self._sandbox.look()
        if execution.network is not None and self._is_pristine(execution.network):
            execution = replace(execution, network=None)
        return execution

    def _is_pristine(self, network: bytes) -> bool:
        with default_sandbox(self.system) as other:
            return network_fields(other.network()) == network_fields(network)

    def renew(self) -> None:
        """Ends everything in the machine, which is pristine afterwards. Errors: SandboxError."""
        self._sandbox.end_shell()

    def close(self) -> None:
        """Ends the machine with all that is in it."""
        self._sandbox.close()


def start(command: Command, system: System, enter: Callable[[str], Entered]) -> Entered:
    """Start a command by `enter`, which runs an input in a machine; see `EnteredMachine.start`."""
    program = command.program or ("/bin/bash", "-c", command.text)
    given = [*(f"{name}={value}" for name, value in command.env.items()), *program]
    for word in given:
        Request(word).argument()  # as long as Linux takes one
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


def send_first(entered: Entered, order: bytes) -> None:
    """Send what an input that was entered reads first. Errors: SandboxError, with all closed."""
    try:
        with socket.socket(fileno=os.dup(entered.talk)) as talk:
            talk.settimeout(START_SECONDS)
            talk.sendall(order)
            talk.setblocking(False)
    except OSError as error:
        close(entered)
        raise SandboxError(f"the command could not be started: {error}") from error


def end_group(group: int, enter: Callable[[str], Entered]) -> None:
    """Kill a process group inside. Errors: those of `enter`."""
    close(enter(f"kill -KILL -- -{group:d} 2> /dev/null"))


def _as_user(user: str | None, system: System) -> str:
    """The words that make the program behind them a user's, whose home is in HOME."""
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
    """How a command ended."""

    exit_code: int
    """As bash gives it; 137 for a command of which nobody said how it ended: it was killed."""
    output: bytes
    errors: bytes
    whole: bool
    """Whether `output` is all of it."""
    errors_whole: bool = True
    """Whether `errors` is all of it."""


class Running:
    """A command that was started, as the event loop of the caller sees it."""

    def __init__(self, entered: Entered, group: int | None = None) -> None:
        """`group` is what the talk said of it, where that was read already (`group_of`)."""
        self._entered: Entered | None = entered
        self.group = group
        """The number of its process group inside, once it was told."""
        self.printed = (b"", b"")
        """Output and errors that were kept, once `finish` ended, also where it was cancelled."""

    async def finish(
        self, given: IO[bytes] | None = None, into: IO[bytes] | None = None, most: int = OUTPUT
    ) -> Finished:
        """How the command ended, once it has; what it left running goes on.

        It is fed with the bytes of `given`. At most `most` bytes of its output go `into` a file, or
        into the result; without a file, `most` bounds the errors too. Nobody waits for a command
        that has more for a file. May be called once, and be cancelled, which does not end the
        command.
        """
        assert self._entered is not None
        entered, self._entered = self._entered, None
        talk = socket.socket(fileno=entered.talk)
        output, errors = (
            os.fdopen(descriptor, "rb", buffering=0)
            for descriptor in (entered.output, entered.errors)
        )
        closing = [talk.close, output.close, errors.close]  # each, until a transport has it
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
        (told, whole), (wrong, errors_whole) = (task.result() for task in kept)
        return Finished(exit_code, told, wrong, whole, errors_whole)

    async def _status(self, reader: asyncio.StreamReader) -> int:
        """The exit code, as the talk tells it. Whoever is root inside can tell another one."""
        with suppress(ValueError, ConnectionError):  # of a line that is too long
            while line := await reader.readline():
                word, number = told(line) or ("", 0)
                if word == "status":
                    return number & 0xFF
                if word:
                    self.group = number
        return 137

    def close(self) -> None:
        """Closes what nobody reads; after `finish` there is nothing to close."""
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
    """The first bytes of a stream, which were written `into` a file instead, and if that is all.

    `enough` is called as soon as there are more; without it, the stream is read to its end.
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
    with suppress(ConnectionError):  # nobody reads any more
        while given is not None and (piece := given.read(_PIECE)):
            writer.write(piece)
            await writer.drain()
        writer.write_eof()


def group_of(entered: Entered) -> int | None:
    """The process group of a command that was just started; None where its talk does not say it."""
    with socket.socket(fileno=os.dup(entered.talk)) as talk:
        talk.settimeout(START_SECONDS)
        # unbuffered: what the talk says behind that line is left to be read
        with suppress(OSError), talk.makefile("rb", buffering=0) as lines:
            word, number = told(lines.readline(32)) or ("", 0)
            return number if word == "group" else None
    return None


def close(entered: Entered) -> None:
    """Closes all ends of what was entered."""
    for descriptor in (entered.talk, entered.output, entered.errors):
        os.close(descriptor)
