"""Signal handling: Ctrl-C ends a command with exit status 130, SIGTERM stops a server."""

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
"""The exit status after the output pipe was closed, 141, as for programs killed by SIGPIPE."""


def is_reader_gone() -> bool:
    """Whether standard output or standard error is a pipe without a reader.

    Such a stream is redirected to /dev/null.
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
    """End the process at once; a signal handler."""
    try:
        os.write(2, b"interrupted\n")
    finally:
        os._exit(INTERRUPTED)


@contextmanager
def interruptible() -> Iterator[None]:
    """Make an interrupt raise KeyboardInterrupt during the block, instead of ending the process.

    A handler other than `leave` was set by the caller, and is kept.
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
    """Make SIGTERM end a server cleanly during the block, by raising SystemExit with status 0.

    At the end of the block, wait for the processes that the server started.
    """
    from shioenv.execution.process import wait_for_children

    def stop(number: int, frame: object) -> None:
        signal.signal(number, signal.SIG_IGN)  # a second signal does not interrupt the shutdown
        sys.exit(0)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        wait_for_children()
        signal.signal(signal.SIGTERM, before)
