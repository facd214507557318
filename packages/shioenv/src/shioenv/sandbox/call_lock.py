"""One call at a time: what threads share takes their calls one after the other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Final

from shioenv.errors import SandboxError

_CLOSING_SECONDS: Final = 0.05
"""Seconds for which closing waits for a call of another thread, before it interrupts the call."""


class CallLock:
    """The lock of something that several threads may call, in the process that made it.

    Other processes are refused: a fork has the lock as it was, held perhaps by a thread that the
    fork does not have.
    """

    def __init__(self) -> None:
        self._lock = RLock()
        self._owner = os.getpid()

    @property
    def lock(self) -> RLock:
        """The lock, for a `with` block. Errors: SandboxError in another process."""
        if os.getpid() != self._owner:
            raise SandboxError(
                "the sandbox was opened by another process", hint="open one in each process"
            )
        return self._lock

    @contextmanager
    def last(self, interrupt: Callable[[], object]) -> Iterator[None]:
        """Hold the lock to close what it protects; in another process the lock is not needed.

        A call of another thread is interrupted until it gives the lock back.
        """
        if os.getpid() != self._owner:
            yield
            return
        while not self._lock.acquire(timeout=_CLOSING_SECONDS):
            interrupt()
        try:
            yield
        finally:
            self._lock.release()
