"""A machine with a thread of its own, for callers that are not in one thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.sandbox.base import Limits
from shioenv.tasks.terminal import for_rows

Answer = TypeVar("Answer")


class Seat:
    """Where one agent works. A sandbox ends with the thread that opened it, and takes one call at a
    time: both are so where a thread does nothing else.

    The machine is opened by the first call of `do`. Errors: those of `open_sandbox`, of every use.
    """

    def __init__(self, system: str | None = None, limits: Limits | None = None) -> None:
        self._system, self._limits = system, limits
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="shioenv")
        self._machine: SandboxRunner | None = None
        self._ended: Future[None] | None = None

    async def do(self, action: Callable[[SandboxRunner], Answer]) -> Answer:
        """What an action gives that is called with the machine."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._do, action)

    async def close(self) -> None:
        """Ends machine and thread, once what is being done is done; any number of calls.

        A machine that is being opened is ended as soon as it is open, also where nobody waits.
        """
        if self._ended is None:
            self._ended = self._thread.submit(self._end)
            self._thread.shutdown(wait=False)
        await asyncio.shield(asyncio.wrap_future(self._ended))

    def _end(self) -> None:
        if self._machine is not None:
            self._machine.close()
        self._machine = None

    def _do(self, action: Callable[[SandboxRunner], Any]) -> Any:
        if self._machine is None:
            self._machine = open_sandbox(self._system, for_rows(self._limits))
        return action(self._machine)
