"""Save the caller's terminal and open files before a command, and restore them afterwards."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_EXCLUSIVE = 0x8004_5440  # TIOCGEXCL, which Python does not define
_SIZE = struct.Struct("4H")  # rows, columns, width and height in pixels


class _SignalledError(BaseException):
    """A signal that ends this process, after the terminal is restored."""


class _Terminal:
    """A terminal's modes, window size, line discipline and lock."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._modes = termios.tcgetattr(descriptor)
        self._size = self._ask(termios.TIOCGWINSZ, _SIZE.size)
        self._discipline = self._ask(termios.TIOCGETD, 4)
        self._exclusive = self._ask(_EXCLUSIVE, 4)

    def _ask(self, request: int, size: int) -> bytes:
        return fcntl.ioctl(self._descriptor, request, bytes(size))

    def restore(self) -> None:
        """Restore the settings that differ."""
        if self._ask(termios.TIOCGETD, 4) != self._discipline:
            fcntl.ioctl(self._descriptor, termios.TIOCSETD, self._discipline)
        if self._ask(_EXCLUSIVE, 4) != self._exclusive:
            fcntl.ioctl(self._descriptor, termios.TIOCNXCL)
        size = self._ask(termios.TIOCGWINSZ, _SIZE.size)
        if size != self._size and not self._is_of_emulator(size):
            fcntl.ioctl(self._descriptor, termios.TIOCSWINSZ, self._size)
        if termios.tcgetattr(self._descriptor) != self._modes:
            termios.tcsetattr(self._descriptor, termios.TCSANOW, self._modes)
        termios.tcflow(self._descriptor, termios.TCOON)

    def _is_of_emulator(self, size: bytes) -> bool:
        """Whether a terminal emulator set this window size: it sets the size in pixels, too."""
        before, after = _SIZE.unpack(self._size)[2:], _SIZE.unpack(size)[2:]
        return all(after) and before != after


@contextmanager
def kept_streams() -> Iterator[list[Callable[[], None]]]:
    """Restore standard input, output and error, and their terminals, at the end.

    They are also restored if a signal ends the process. The functions in the list are called when
    the size of the terminal's window changes. Signals are handled only in the main thread.
    """
    on_resize: list[Callable[[], None]] = []
    flags: dict[int, int] = {}
    terminals: dict[tuple[int, int], _Terminal] = {}
    for descriptor in (0, 1, 2):
        with suppress(OSError, termios.error):
            flags[descriptor] = fcntl.fcntl(descriptor, fcntl.F_GETFL)
            if os.isatty(descriptor):
                status = os.fstat(descriptor)
                terminals.setdefault((status.st_dev, status.st_ino), _Terminal(descriptor))
    try:
        with _signals(on_resize):
            yield on_resize
    except _SignalledError as error:
        _restore(flags, terminals)
        os.kill(os.getpid(), error.args[0])
        raise
    finally:
        _restore(flags, terminals)


def _restore(flags: dict[int, int], terminals: dict[tuple[int, int], _Terminal]) -> None:
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTTOU])  # background jobs get it
    try:
        for descriptor, number in flags.items():
            with suppress(OSError):
                if fcntl.fcntl(descriptor, fcntl.F_GETFL) != number:
                    fcntl.fcntl(descriptor, fcntl.F_SETFL, number)
        for terminal in terminals.values():
            with suppress(OSError, termios.error):  # the terminal is gone
                terminal.restore()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


@contextmanager
def _signals(on_resize: list[Callable[[], None]]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _frame: object) -> None:
        for each in before:
            if each in _ENDING:
                signal.signal(each, signal.SIG_IGN)  # the first signal is enough
        raise _SignalledError(number)

    before: dict[signal.Signals, Any] = {
        number: signal.signal(number, end)
        for number in _ENDING
        if signal.getsignal(number) is signal.SIG_DFL
    }

    def resize(_number: int, _frame: object) -> None:
        for each in on_resize:
            each()

    before[signal.SIGWINCH] = signal.signal(signal.SIGWINCH, resize)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
