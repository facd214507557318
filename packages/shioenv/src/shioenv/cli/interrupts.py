"""What signals do to a command: Ctrl-C ends it with exit status 130, SIGTERM stops a server."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

INTERRUPTED = 128 + signal.SIGINT
"""The exit status of an interrupted program, 130."""


BROKEN_PIPE = 128 + signal.SIGPIPE
"""The exit status where nothing reads the output any more, 141, as where SIGPIPE ends a program."""


def is_reader_gone() -> bool:
    """Whether standard output or standard error is a pipe that nothing reads any more.

    Then it goes nowhere from now on.
    """
    poll = select.poll()
    for number in (1, 2):
        poll.register(number, 0)
    unread = [number for number, events in poll.poll(0) if events & select.POLLERR]
    if unread:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for number in unread:
            os.dup2(nowhere, number)
        os.close(nowhere)
    return bool(unread)


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
    from shioenv.execution.process import wait_for_children

    def stop(number: int, frame: object) -> None:
        signal.signal(number, signal.SIG_IGN)  # a second one does not break off the end
        sys.exit(0)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        wait_for_children()
        signal.signal(signal.SIGTERM, before)
