"""Record the effects of lines typed on a terminal, once each line has ended."""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import struct
import termios
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from shioenv.domain.behavior import Behavior
from shioenv.errors import SandboxError
from shioenv_serve.ssh.calls import PIECE, read_descriptor, write_descriptor
from shioenv_serve.ssh.machines import VisitorMachine
from shioenv_serve.ssh.visitor_channel import SshChannel, cancel_tasks

LONGEST: Final = 4096
"""Maximum characters kept of a line, as many as a terminal accepts."""

_ERASES = {"\x7f", "\b"}
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|[^\[O])")

QUIET_SECONDS: Final = 0.15
"""Seconds without output after which a sleeping program counts as waiting for input; our choice."""

UNHEARD_SECONDS: Final = 1.0
"""Seconds after which a line without an echo counts as read; our choice."""

HELD_SECONDS: Final = 10.0
"""Maximum seconds for which keys are held back; our choice."""

_LOOK_SECONDS = 0.1  # seconds between two looks at the foreground, without output
_LINES = 100  # maximum lines reported together
_AT_ONCE = re.compile(rb"[\x03\x1a\x1c]|\x1b\[200~")  # keys that are signals, a paste
_GET_SESSION = 0x5429  # TIOCGSID


class Typed:
    """Assemble keys into lines, as far as the keys alone determine them.

    Erased characters are removed. Text filled in by history or completion is unknown: `edited` then
    means that the line that ran may differ.
    """

    def __init__(self) -> None:
        self._line: list[str] = []
        self._escape = ""
        self.edited = False
        """Whether a key of the newest line had an effect that keys alone do not determine."""
        self.pasting = False
        """Whether the newest key is part of a paste, which ends with an escape sequence."""

    def keys(self, data: bytes) -> list[tuple[str, bool]]:
        """Return the lines that these keys complete, each with its `edited`."""
        lines = []
        for key in data.decode("utf-8", "replace"):
            if self._escape or key == "\x1b":
                self._escape += key
                if _SEQUENCE.fullmatch(self._escape) or len(self._escape) > 16:
                    pasted = self._escape in {"\x1b[200~", "\x1b[201~"}
                    self.edited = self.edited or not pasted
                    self.pasting = self._escape == "\x1b[200~" if pasted else self.pasting
                    self._escape = ""
            elif key in "\r\n":
                lines.append(("".join(self._line), self.edited))
                self._forget()
            elif key in _ERASES:
                del self._line[-1:]
            elif key in "\x03\x15":
                self._forget()
            elif key == "\x17":
                self._line = list(re.sub(r"\S*\s*$", "", "".join(self._line)))
            elif key < " ":
                self.edited = self.edited or key != "\x04"
            elif len(self._line) < LONGEST:
                self._line.append(key)
        return lines

    def _forget(self) -> None:
        self._line.clear()
        self.edited = False


@dataclass(frozen=True, slots=True)
class Front:
    """The state of a terminal's foreground process group."""

    shell: bool
    """Whether the group is the terminal's shell."""
    by_key: bool
    """Whether it reads key by key, as a shell with line editing does at its prompt."""
    asleep: bool


def front_of(master: int) -> Front:
    """Return the foreground state of a pseudoterminal by its master end.

    Errors: OSError if no process has the terminal open.
    """
    group = os.tcgetpgrp(master)
    (leader,) = struct.unpack("i", fcntl.ioctl(master, _GET_SESSION, bytes(4)))
    try:
        state = Path(f"/proc/{group}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:  # the leader has exited, others of its group continue
        state = b"S"
    # Read the terminal settings after the state: a shell that slept while waiting for a child reads
    # key by key only once it is back.
    try:
        by_key = not termios.tcgetattr(master)[3] & termios.ICANON
    except termios.error as error:
        raise OSError(*error.args) from None
    return Front(group == leader, by_key, state == b"S")


class PromptWatch:
    """Pass keys to a terminal line by line, and find out the effects of each line.

    A line has ended when the shell is back at its prompt. Keys typed at a prompt are held back
    until the previous line has ended and its effects are reported.
    """

    def __init__(self, channel: SshChannel, machine: VisitorMachine, master: int) -> None:
        self._channel, self._machine, self._master = channel, machine, master
        self._typed = Typed()
        self._waiting: list[str] = []
        self._entered_at = self._shown_at = 0.0
        self._echoed = self._to_program = self._edits = False
        self._due, self._changed, self._free = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._free.set()

    async def type(self) -> None:
        """Pass on the visitor's input until it ends."""
        held, ended = b"", False
        reading = asyncio.create_task(read_descriptor(self._channel.fds[0]))
        freed = asyncio.create_task(self._freed())
        try:
            while held or not ended:
                waits: set[asyncio.Task[Any]] = {freed} if held else set()
                if not ended and len(held) < PIECE:
                    waits.add(reading)
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                if reading.done() and not ended:
                    data = reading.result()
                    held, ended = held + data, not data
                    if data:
                        reading = asyncio.create_task(read_descriptor(self._channel.fds[0]))
                piece = b""
                if _AT_ONCE.search(held) or self._typed.pasting:
                    piece = held
                elif held and freed.done():
                    piece = re.match(rb"[^\r\n]*[\r\n]?", held)[0]  # type: ignore[index]
                if piece:
                    held = held[len(piece) :]
                    self._take(piece)
                    if not await write_descriptor(self._master, piece):
                        return
                if freed.done():
                    freed = asyncio.create_task(self._freed())
        finally:
            await cancel_tasks(reading, freed)

    def entered(self, line: str, edited: bool) -> None:
        """Note a complete line of input."""
        self._channel.entered(line, edited)
        self._waiting = [*self._waiting, line][-_LINES:]
        self._entered_at = self._shown_at = time.monotonic()
        self._echoed = False
        front = self._front()
        self._to_program = front is not None and not front.shell
        if not self._to_program:
            self._free.clear()
        self._due.set()

    def shown(self, data: bytes) -> None:
        """Note output of the terminal."""
        self._shown_at = time.monotonic()
        self._echoed = self._echoed or b"\n" in data
        self._changed.set()

    async def look(self) -> None:
        """Report the effects of each line, repeatedly."""
        while True:
            await self._due.wait()
            self._due.clear()
            while not self._is_over():
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_SECONDS):
                        await self._changed.wait()
                self._changed.clear()
            # Shielded from cancellation: nothing else reports what this look finds.
            looking = asyncio.ensure_future(self._look())
            await asyncio.shield(looking)
            if not self._waiting:
                self._free.set()

    async def _look(self) -> None:
        """Report the effects of unreported lines; a failed look leaves them for the last one."""
        lines, self._waiting = self._waiting, []
        try:
            self._tell(lines, await self._machine.look())
        except SandboxError:
            self._waiting = [*lines, *self._waiting]

    def tell(self, behavior: Behavior) -> None:
        """Report a behavior as the effect of all lines not reported yet."""
        lines, self._waiting = self._waiting, []
        self._tell(lines, behavior)

    def _tell(self, lines: list[str], behavior: Behavior) -> None:
        if not lines and not behavior.patch and not behavior.content_digests:
            return
        took = max(0.0, self._shown_at - self._entered_at)
        # The output is in the recording, and is not divided by line.
        unknown: dict[str, Any] = {} if self._machine.ended else {"exit_code": None}
        self._channel.did("\n".join(lines), behavior, took, output=None, **unknown)

    def _take(self, keys: bytes) -> None:
        self._channel.typed(keys)
        for line, edited in self._typed.keys(keys):
            self.entered(line, edited)

    async def _freed(self) -> None:
        """Wait until keys may pass: a line has ended, or the program that it started may read.

        A process that runs, or waits for a processor, does not read. Keys after a line that is slow
        on a busy machine are therefore held back until it ends, or for `HELD_SECONDS`.
        """
        seconds, until = UNHEARD_SECONDS, time.monotonic() + HELD_SECONDS
        while not self._free.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._free.wait()
            seconds, front = _LOOK_SECONDS, self._front()
            if front is None or front.asleep or time.monotonic() > until:
                self._free.set()

    def _front(self) -> Front | None:
        try:
            return front_of(self._master)
        except OSError:
            return None

    def _is_over(self) -> bool:
        """Whether the newest line has ended."""
        front = self._front()
        if front is None or not front.asleep:
            return False
        now = time.monotonic()
        read = self._echoed or now - self._entered_at >= UNHEARD_SECONDS
        if front.by_key:
            self._edits = self._edits or front.shell
            return read
        waits = self._to_program if not front.shell else not self._edits
        return waits and read and now - self._shown_at >= QUIET_SECONDS
