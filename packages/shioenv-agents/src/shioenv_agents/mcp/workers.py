"""Blocking work for many clients at once: threads, bounded waiting, and cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Final, TypeVar

import anyio

from shioenv.errors import OverloadedError

Result = TypeVar("Result")

MOST_WAITING: Final = 64
"""Maximum calls that wait for one kind of work (our choice)."""

WAIT_SECONDS: Final = 30.0
"""Seconds for which a call waits until its work begins (our choice)."""

END_SECONDS: Final = 30.0
"""Seconds for which a cancelled call waits for its work to end (our choice)."""


class Slots:
    """A bound on simultaneous work of one kind, and on the calls that wait for it."""

    def __init__(self, at_once: int, work: str) -> None:
        self._semaphore = anyio.Semaphore(at_once)
        self._waiting = 0
        self._refusal = OverloadedError(
            f"too many calls are waiting for {work}", hint="repeat the call in a few seconds"
        )

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """Hold a slot during the block. Errors: OverloadedError if none gets free in time."""
        if self._waiting >= MOST_WAITING:
            raise self._refusal
        self._waiting += 1
        try:
            with anyio.fail_after(WAIT_SECONDS):
                await self._semaphore.acquire()
        except TimeoutError:
            raise self._refusal from None
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._semaphore.release()


class Threads:
    """Threads for blocking work.

    They are kept, because the kernel ends some child processes with the thread that started them.
    """

    def __init__(self, most: int) -> None:
        self._threads = ThreadPoolExecutor(most, thread_name_prefix="shioenv-mcp")
        self._interrupts = ThreadPoolExecutor(4, thread_name_prefix="shioenv-mcp-interrupt")
        self._later = ThreadPoolExecutor(4, thread_name_prefix="shioenv-mcp-later")

    async def call(
        self, work: Callable[[], Result], interrupt: Callable[[], object] | None = None
    ) -> Result:
        """Return the result of `work`, done in a thread.

        If the caller is cancelled, `interrupt` is called in another thread. It has to make the work
        end soon. The cancelled caller waits for that end. Without `interrupt`, the work continues.
        """
        future = self._threads.submit(work)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            ended = future.cancel() or future.done()
            if not ended and interrupt is not None:
                with anyio.move_on_after(END_SECONDS, shield=True):
                    await asyncio.wrap_future(self._interrupts.submit(interrupt))
                    await asyncio.wait([waited := asyncio.wrap_future(future)])
                    waited.cancelled() or waited.exception()  # the result is not used
            raise

    def submit(self, work: Callable[[], object]) -> None:
        """Do work in a thread, without waiting for it; after `close` before returning."""
        try:
            self._later.submit(work)
        except RuntimeError:  # closed
            work()

    def close(self) -> None:
        """Cancel calls that wait, finish all other work, and end the threads."""
        self._threads.shutdown(cancel_futures=True)
        self._interrupts.shutdown()
        self._later.shutdown()
