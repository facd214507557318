"""A preview leaves the caller's terminal and open files unchanged."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from typing import Any

import pytest

pytestmark = pytest.mark.xdist_group("preview")

SHIOENV = (sys.executable, "-m", "shioenv", "preview")
SPOILS = """
import fcntl, os, struct, sys, termios, tty
fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("4H", 10, 20, 0, 0))
fcntl.ioctl(0, termios.TIOCEXCL)
tty.setraw(0)
for number in (0, 1, 2): os.set_blocking(number, False)
os.write(1, b"ready")
"""


@pytest.fixture(autouse=True)
def _hung_up() -> Iterator[None]:
    """A suite started by `nohup` ignores SIGHUP, and so would its children."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 800, 480))
    yield ours, theirs
    os.close(ours)
    os.close(theirs)


def state(descriptor: int) -> list[Any]:
    return [
        termios.tcgetattr(descriptor),
        fcntl.ioctl(descriptor, termios.TIOCGWINSZ, bytes(8)),
        fcntl.ioctl(descriptor, 0x8004_5440, bytes(4)),
        fcntl.fcntl(descriptor, fcntl.F_GETFL),
    ]


def read_until(descriptor: int, text: bytes) -> bytes:
    found = b""
    while text not in found:
        found += os.read(descriptor, 1024)
    return found


@pytest.mark.parametrize(
    ("ending", "sent", "status"),
    [
        ("sys.exit(3)", None, 3),
        ("os.kill(os.getpid(), 9)", None, 137),
        ("import time; time.sleep(600)", signal.SIGINT, 130),
        ("import time; time.sleep(600)", signal.SIGTERM, -signal.SIGTERM),
        ("import time; time.sleep(600)", signal.SIGHUP, -signal.SIGHUP),
        ("while True: pass", "limit", 124),
    ],
)
def test_the_terminal_is_put_back(
    terminal: tuple[int, int], ending: str, sent: signal.Signals | str | None, status: int
) -> None:
    ours, theirs = terminal
    before = state(theirs)
    options = ["--timeout", "2"] if sent == "limit" else []
    words = [*SHIOENV, *options, "--", sys.executable, "-c", SPOILS + ending]
    streams: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
    with subprocess.Popen(words, **streams) as process:
        read_until(ours, b"ready")
        if isinstance(sent, signal.Signals):
            process.send_signal(sent)
    assert process.returncode == status
    assert state(theirs) == before


def test_a_resized_window_is_the_commands_too_and_stays(terminal: tuple[int, int]) -> None:
    ours, theirs = terminal
    script = (
        "import os, signal\n"
        "signal.signal(signal.SIGWINCH, lambda *_: None)\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGWINCH])\n"
        "print('ready', flush=True)\n"
        "signal.sigwait([signal.SIGWINCH])\n"
        "print('size', *os.get_terminal_size(0))\n"
    )
    words = [*SHIOENV, "--", sys.executable, "-c", script]
    streams: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
    with subprocess.Popen(words, **streams, preexec_fn=_own_terminal) as process:
        read_until(ours, b"ready")
        fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("4H", 30, 90, 900, 600))
        assert b"size 90 30" in read_until(ours, b"exit code 0")
    assert process.returncode == 0
    assert struct.unpack("4H", fcntl.ioctl(theirs, termios.TIOCGWINSZ, bytes(8)))[:2] == (30, 90)


def _own_terminal() -> None:
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
