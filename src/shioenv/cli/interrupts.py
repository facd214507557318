"""What Ctrl-C does to a program: it ends at once, but where it has something to put away."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

INTERRUPTED = 128 + signal.SIGINT
"""The exit status."""


def leave(number: int, frame: object) -> None:
    """Ends the process at once; a handler of signals."""
    try:
        os.write(2, b"interrupted\n")
    finally:
        os._exit(INTERRUPTED)


@contextmanager
def interruptible() -> Iterator[None]:
    """While it lasts, an interrupt is a KeyboardInterrupt where it else would end the process.

    Other handlers stay as they are: they are of who called this.
    """
    if signal.getsignal(signal.SIGINT) is not leave:
        yield
        return
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        yield
    finally:
        signal.signal(signal.SIGINT, leave)
