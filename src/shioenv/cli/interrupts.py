"""What signals do to a command: Ctrl-C ends it with exit status 130, SIGTERM stops a server."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

INTERRUPTED = 128 + signal.SIGINT
"""The exit status of an interrupted program, 130."""


def leave(number: int, frame: object) -> None:
    """End the process at once, as a signal handler."""
    try:
        os.write(2, b"interrupted\n")
    finally:
        os._exit(INTERRUPTED)


@contextmanager
def interruptible() -> Iterator[None]:
    """A context in which an interrupt raises KeyboardInterrupt instead of ending the process.

    Where another handler than `leave` is set, that handler stays: it belongs to the caller.
    """
    if signal.getsignal(signal.SIGINT) is not leave:
        yield
        return
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        yield
    finally:
        signal.signal(signal.SIGINT, leave)


@contextmanager
def stoppable() -> Iterator[None]:
    """A context in which SIGTERM is a server's orderly end: it raises SystemExit with status 0.

    Where the context ends, so have the processes that the server started.
    """
    from shioenv.fronts.ending import wait_for_children

    def stop(number: int, frame: object) -> None:
        signal.signal(number, signal.SIG_IGN)  # a second one does not break off the end
        sys.exit(0)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        wait_for_children()
        signal.signal(signal.SIGTERM, before)
