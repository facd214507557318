"""Sessions backed by a machine: terminals, and commands with separate streams."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from shioenv.domain.behavior import Behavior
from shioenv.live.entered import parse_control_line
from shioenv.sandbox.base import Entered
from shioenv_serve.events import LONGEST
from shioenv_serve.ssh.calls import Caller, LoginCall, read_descriptor, resize, write_descriptor
from shioenv_serve.ssh.machines import Machines, VisitorMachine, login_words
from shioenv_serve.ssh.uploads import Tap, tap_of
from shioenv_serve.ssh.visitor_channel import LOST, Ended, House, SshChannel, Visitor, cancel_tasks
from shioenv_serve.ssh.watch import PromptWatch

_HANGING_UP = 40  # checks of a shell after a hang-up, 0.05 s apart


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
        words = login_words(self._account, call.command, call.environment, tty=True)
        machine, master = await self._seated(words)
        os.set_blocking(master, False)
        watch = PromptWatch(self, machine, master)
        left = True
        try:
            call.hand_on(master)
            if call.command is None:
                greeting = self._greeting.replace(b"\n", b"\r\n")
                self.shown(greeting)
                await write_descriptor(call.fds[1], greeting)
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

    async def _attended(self, watch: PromptWatch, master: int) -> bool:
        """Connect the visitor with a terminal until its shell ends.

        Return True if the visitor left first.
        """
        up = asyncio.create_task(watch.type())
        down = asyncio.create_task(self._show(master, watch))
        told = asyncio.create_task(self._listen(master))
        look = asyncio.create_task(watch.look())
        try:
            await asyncio.wait({up, down, told}, return_when=asyncio.FIRST_COMPLETED)
            return not down.done()
        finally:
            await cancel_tasks(up, down, told, look)

    async def _show(self, master: int, watch: PromptWatch) -> None:
        while data := await read_descriptor(master):
            watch.shown(data)
            await self.hold()
            self.shown(data)
            if not await write_descriptor(self._call.fds[1], data):
                return

    async def _listen(self, master: int) -> None:
        """Follow changes of the visitor's terminal size until the login shell is gone."""
        while True:
            kind, _ = await self._caller.message()
            if not kind:
                return
            if kind == "w":
                resize(master, self._tell_size())

    async def _seated(self, words: str) -> tuple[VisitorMachine, int]:
        """Return a machine that runs quoted words on its terminal, and the master end."""
        machine = await self._visit.machine_of(self._machines, free=True)
        try:
            return machine, await machine.sit(words)
        except BaseException:
            await self._visit.end(machine)
            raise

    async def _hang_up(self, machine: VisitorMachine, left: bool) -> Behavior:
        """Return the effects since the last look, once the shell has ended.

        A machine whose shell is still running, for example because the visitor `left`, is closed.
        An additional machine opened for a second terminal is closed as well. Errors: SandboxError.
        """
        behavior = Behavior(LOST, b"")
        try:
            for _ in range(1 if left else _HANGING_UP):
                behavior = _after(behavior, await machine.look())
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
        words = login_words(self._account, command, call.environment, tty=False)
        if command is not None:
            self.entered(command, False)
        machine = await self._visit.machine_of(self._machines)
        entered = await machine.enter(words, self._account.name)
        return await connect_command(
            self, command, entered, tap_of(command, self._uploads), machine.look
        )


def _after(earlier: Behavior, later: Behavior) -> Behavior:
    """Return the joint behavior of two looks. The second has what a shell changed until its end."""
    return replace(
        later,
        patch=earlier.patch.compose(later.patch),
        content_digests={**earlier.content_digests, **later.content_digests},
        limits_hit=tuple(dict.fromkeys(earlier.limits_hit + later.limits_hit)),
        patch_truncated=earlier.patch_truncated or later.patch_truncated,
    )


async def connect_command(
    channel: SshChannel,
    command: str | None,
    entered: Entered,
    tap: Tap,
    look: Callable[[], Awaitable[Behavior]],
) -> Ended:
    """Connect the visitor with a command that runs in a machine, and return how it ended.

    Its effects, as returned by `look`, are reported. Errors: those of `look`.
    """
    began = time.monotonic()
    stream = CommandStream(channel, entered, tap)
    try:
        exit_code, by_signal = await stream.spoken()
    finally:
        stream.close()
    took = time.monotonic() - began
    sent, output = bytes(stream.sent[:LONGEST]), bytes(stream.answered[:LONGEST])
    behavior = replace(await look(), exit_code=exit_code, output=output)
    cut = ["output", "output_b64"] if len(stream.answered) > LONGEST else []
    if command is None and len(stream.sent) > LONGEST:
        cut.append("input")
    channel.did(command or os.fsdecode(sent), behavior, took, cut=cut)
    return exit_code, by_signal


class CommandStream:
    """A command in the machine, connected with the visitor by three streams."""

    def __init__(self, channel: SshChannel, entered: Entered, tap: Tap) -> None:
        self._channel, self._tap = channel, tap
        self._talk = socket.socket(fileno=entered.talk)
        self._talk.setblocking(False)
        self._output, self._errors = entered.output, entered.errors
        for each in (self._output, self._errors):
            os.set_blocking(each, False)
        self.sent, self.answered = bytearray(), bytearray()
        """The first bytes of the visitor's input, and of the output on both channels.

        At most `LONGEST` bytes are reported; one byte more is kept, to detect that there were more.
        """

    async def spoken(self) -> Ended:
        """Connect both sides until the command has ended and no process has its outputs open.

        Return how it ended: as a hang-up if the visitor left first.
        """
        down = asyncio.gather(self._down(self._output, 1), self._down(self._errors, 2))
        status = asyncio.create_task(self._status())
        up = asyncio.create_task(self._up())
        gone = asyncio.create_task(self._channel.gone())
        over: asyncio.Future[Any] = asyncio.ensure_future(asyncio.gather(status, down))
        try:
            await asyncio.wait([over, gone], return_when=asyncio.FIRST_COMPLETED)
            return status.result() if over.done() else (128 + signal.SIGHUP, None)
        finally:
            await cancel_tasks(over, up, gone)

    async def _up(self) -> None:
        """Pass on the visitor's input, and its end."""
        while data := await read_descriptor(self._channel.fds[0]):
            self._tap.sent(data)
            self.sent += data[: max(0, LONGEST + 1 - len(self.sent))]
            await self._channel.write_uploads()
            if not await write_descriptor(self._talk.fileno(), data):
                return
        self._tap.ended()
        await self._channel.write_uploads()
        with suppress(OSError):
            self._talk.shutdown(socket.SHUT_WR)

    async def _down(self, source: int, number: int) -> None:
        """Pass on an output until its end, even if the visitor no longer reads."""
        goes_on = True
        while data := await read_descriptor(source):
            if number == 1:
                self._tap.answered(data)
                await self._channel.write_uploads()
            self.answered += data[: max(0, LONGEST + 1 - len(self.answered))]
            await self._channel.hold()
            self._channel.shown(data)
            goes_on = goes_on and await write_descriptor(self._channel.fds[number], data)

    async def _status(self) -> Ended:
        """Return how the command ended; without a report on the control socket, it was killed."""
        kept, killed = b"", False
        while data := await read_descriptor(self._talk.fileno()):
            *lines, kept = (kept + data).split(b"\n")
            kept = kept[-LONGEST:]
            for line in lines:
                word, number = parse_control_line(line) or ("killed", 0)
                if word == "status":
                    by_signal = number - 128 if killed and 128 < number < 193 else None
                    return number & 255, by_signal
                killed = killed or word == "killed"
        return 128 + signal.SIGKILL, signal.SIGKILL

    def close(self) -> None:
        """Close the command's descriptors. An incomplete uploaded file is reported."""
        self._tap.close()
        self._talk.close()
        os.close(self._output)
        os.close(self._errors)
