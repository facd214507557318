"""A machine with a dedicated thread, for callers in any thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, Protocol, TypeVar

from shioenv.errors import SandboxError

Answer = TypeVar("Answer")


class Closable(Protocol):
    """A machine that can be ended."""

    def close(self) -> None:
        """End the machine; closing twice does nothing."""
        ...


Machine = TypeVar("Machine", bound=Closable)


class Seat(Generic[Machine]):
    """One agent's machine, with a thread in which all calls to the machine are made.

    A sandbox takes one call at a time. The first call of `do` opens the machine. Errors: if opening
    fails, every use raises that error.
    """

    def __init__(
        self,
        opened: Callable[[], Machine],
        interrupt: Callable[[Machine], object] | None = None,
    ) -> None:
        """`opened` opens the machine. `interrupt` aborts a running call, from any thread."""
        self._opened, self._interrupt = opened, interrupt
        self._newest: Future[Any] | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="shioenv")
        self._machine: Machine | None = None
        self._ended: Future[None] | None = None
        self._completing: set[asyncio.Future[None]] = set()

    @classmethod
    def at(cls, machine: Machine, interrupt: Callable[[Machine], object]) -> Seat[Machine]:
        """Return an object for a machine that another thread opened and keeps afterwards."""
        seat = cls(lambda: machine, interrupt)
        seat._machine = machine
        return seat

    async def do(self, action: Callable[[Machine], Answer]) -> Answer:
        """Call an action with the machine in the machine's thread, and return its result.

        Errors: those of the action; SandboxError if this object is closed.
        """
        if self._ended is not None:
            raise SandboxError("the machine is closed")
        self._newest = future = self._thread.submit(self._do, action)
        return await asyncio.wrap_future(future)

    async def complete(self, work: Coroutine[Any, Any, None]) -> None:
        """Wait for work, which runs to its end even if the caller is cancelled."""
        task = asyncio.ensure_future(work)
        self._completing.add(task)  # the event loop has only weak references to tasks
        task.add_done_callback(self._completing.discard)
        await asyncio.shield(task)

    async def close(self) -> None:
        """End the machine and the thread, after all earlier calls of `do`.

        With `interrupt`, a running call is ended. A machine that is still being opened is ended as
        soon as it is open, even after `close` was cancelled. May be called any number of times.
        """
        if self._ended is None:
            if self._interrupt and self._machine and self._newest and not self._newest.done():
                self._interrupt(self._machine)
            self._ended = self._thread.submit(self._end)
            self._thread.shutdown(wait=False)
        await asyncio.shield(asyncio.wrap_future(self._ended))

    def _end(self) -> None:
        if self._machine is not None:
            self._machine.close()
        self._machine = None

    def _do(self, action: Callable[[Machine], Answer]) -> Answer:
        if self._machine is None:
            self._machine = self._opened()
        return action(self._machine)
