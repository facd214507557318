"""What Ctrl-C does: end the program at once, or raise KeyboardInterrupt in `interruptible`."""

from __future__ import annotations

import os
import signal
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
