"""An interactive shell on a terminal: prompts, history, completion, full-screen programs."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import termios
import time
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from shioenv.behavior.observe import SandboxRunner
from shioenv.domain.behavior import Behavior
from shioenv.live.asciicast import AsciicastWriter, CurrentLine
from shioenv.live.shell import IDLE_SECONDS, nothing
from shioenv.sandbox.base import Closing
from shioenv.text import short_repr

INTERACTIVE: Final = "exec env TERM={terminal} bash -i"
"""The interactive shell. It reads the system's rc files, as the shell of a login does (our
choice)."""

QUIET_SECONDS: Final = 0.15
"""Seconds without output after which a shell that waits for input is assumed to show its prompt."""

_PIECE = 1 << 16
_ENTER = (b"\r", b"\n", b"\x04", b"\x03")


class TerminalShell(Closing):
    """An interactive shell on a separate terminal and machine.

    `send` types bytes, and `read` returns output. The shell's own state (variables, functions,
    options, the directory) is not reported, because bash keeps it in its memory.
    """

    def __init__(
        self,
        runner: SandboxRunner,
        cwd: str | None = None,
        *,
        terminal: str = "xterm-256color",
        rows: int = 24,
        columns: int = 80,
        idle_seconds: float = IDLE_SECONDS,
        close: Callable[[], None] | None = None,
    ) -> None:
        """Start the shell. `terminal` is the value of `$TERM`.

        The shell ends after `idle_seconds` without a `look`. `close` is called after the shell is
        closed. Errors: those of `SandboxRunner.start_terminal`.
        """
        self._lines, self._master = runner.start_terminal(
            INTERACTIVE.format(terminal=terminal), cwd, idle_seconds=idle_seconds
        )
        self._close = close or nothing
        self._over = False
        self._line = CurrentLine()
        self.resize(rows, columns)

    def __repr__(self) -> str:
        return short_repr(self, {"ended": self.ended})

    @property
    def ended(self) -> bool:
        """Whether the shell has ended or hung up, so that it prints nothing more."""
        return self._over

    @property
    def busy(self) -> bool:
        """Whether a process other than the shell was in the foreground at the last `look`."""
        return self._lines.busy

    def resize(self, rows: int, columns: int) -> None:
        """Resize the terminal and notify its programs."""
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)

    def send(self, data: bytes) -> int:
        """Type as many bytes as the terminal accepts now, and return their number.

        A terminal buffers a few thousand bytes that no program has read. It accepts none while its
        output is unread, nor after the shell's end.
        """
        try:
            return 0 if self._over else os.write(self._master, data)
        except BlockingIOError:
            return 0
        except OSError:
            self._over = True
            return 0

    def read(self, timeout: float | None = None) -> bytes:
        """Return the next output; empty if the shell ended, or was silent for `timeout` seconds."""
        if self._over or not select.select([self._master], [], [], timeout)[0]:
            return b""
        try:
            data = os.read(self._master, _PIECE)
        except OSError:  # EIO: no process has the terminal open any longer
            data = b""
        self._over = not data
        return data

    def look(self) -> Behavior:
        """Return the changes since the last look.

        Errors: SandboxError, after which the shell is gone.
        """
        return self._lines.look()

    def attach(
        self,
        keyboard: int,
        screen: int,
        *,
        recording: AsciicastWriter | None = None,
        at_prompt: Callable[[Behavior], Sequence[str]] | None = None,
    ) -> None:
        """Connect the shell with a terminal of the caller, until the shell ends.

        `keyboard` and `screen` are descriptors. The size follows the caller's terminal. `at_prompt`
        is called with the changes each time the shell is back at its prompt. The lines that it
        returns are shown above the prompt.
        """
        with _raw(keyboard), self._following(screen):
            due, typed = None, b""
            while not self._over:
                left = None if due is None else max(0.0, due - time.monotonic())
                keys, full = ([], [self._master]) if typed else ([keyboard], [])
                try:
                    ready, taking, _ = select.select([*keys, self._master], full, [], left)
                except InterruptedError:
                    continue
                if self._master in ready:
                    shown = self.read(0)
                    _write_all(screen, shown)
                    self._line.follow(shown.decode("utf-8", "surrogateescape"))
                    if recording is not None:
                        recording.write_output(shown)
                    due = None if due is None else time.monotonic() + QUIET_SECONDS
                if keyboard in ready:
                    typed = os.read(keyboard, _PIECE)
                    if not typed:
                        return
                    if recording is not None:
                        recording.write_input(typed)
                    if any(key in typed for key in _ENTER):
                        due = time.monotonic() + QUIET_SECONDS
                elif due is not None and time.monotonic() >= due and not self._over:
                    due = self._tell(screen, recording, at_prompt)
                if typed and (taking or keyboard in ready):
                    typed = typed[self.send(typed) :]
        self._tell(screen, recording, at_prompt)

    def close(self) -> None:
        """Hang up and end everything in the machine; closing twice does nothing."""
        self._over = True
        if self._master >= 0:
            os.close(self._master)
            self._master = -1
            self._lines.close()
        close, self._close = self._close, nothing
        close()

    def _tell(
        self,
        screen: int,
        recording: AsciicastWriter | None,
        at_prompt: Callable[[Behavior], Sequence[str]] | None,
    ) -> float | None:
        """Report the changes; return the time of the next report, or None if no program runs."""
        if recording is None and at_prompt is None:
            return None
        behavior = self.look()
        if behavior.patch or behavior.content_digests:
            if recording is not None:
                recording.write_behavior(None, behavior)
            if at_prompt is not None:
                shown = self._line.above(at_prompt(behavior))
                _write_all(screen, shown.encode("utf-8", "surrogateescape"))
        return time.monotonic() + 10 * QUIET_SECONDS if self.busy else None

    @contextmanager
    def _following(self, screen: int) -> Iterator[None]:
        """Give the shell's terminal the size of the caller's, now and whenever that changes."""

        def follow(*_: object) -> None:
            try:
                columns, rows = os.get_terminal_size(screen)
            except OSError:
                return
            self.resize(rows, columns)

        follow()
        before = signal.signal(signal.SIGWINCH, follow)
        try:
            yield
        finally:
            signal.signal(signal.SIGWINCH, before)


@contextmanager
def _raw(keyboard: int) -> Iterator[None]:
    """Set the caller's terminal to raw mode, so that it passes every key on."""
    if not os.isatty(keyboard):
        yield
        return
    before = termios.tcgetattr(keyboard)
    tty.setraw(keyboard)
    try:
        yield
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


def _write_all(screen: int, data: bytes) -> None:
    while data:
        data = data[os.write(screen, data) :]
