"""Previews for clients of a server. Their helper processes (keepers) are started in advance."""

from __future__ import annotations

import subprocess
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any, Final

from shioenv.errors import InputError, SandboxError, ShioenvError, UsageError
from shioenv_agents.mcp.schema import LONGEST_COMMAND
from shioenv_agents.mcp.workers import Slots, Threads
from shioenv_agents.preview.keeper import Keeper, start_keeper
from shioenv_agents.preview.layered_run import USUAL_LIMITS, Preview, preview_in

READY: Final = 2
"""Keepers that wait for the next previews (our choice, because starting one takes half a
second)."""

AT_ONCE: Final = 4
"""Maximum simultaneous previews (our choice, because each may take 2 GiB of memory)."""


class _Attempt:
    """A keeper in use by one call. Another thread may abort the call."""

    def __init__(self) -> None:
        self.keeper: Keeper | None = None
        self.cancelled = False

    def end(self) -> None:
        """Abort the call."""
        self.cancelled = True
        if self.keeper is not None:
            self.keeper.end()


class Previews:
    """Previews of commands in a directory and below it."""

    def __init__(
        self, threads: Threads, root: Path, hide: Sequence[str] = (), show: Sequence[str] = ()
    ) -> None:
        """`hide` and `show` are those of `preview`. Errors: UsageError for a missing directory."""
        self._threads, self._hide, self._show = threads, tuple(hide), tuple(show)
        self._root = root.resolve()
        if not self._root.is_dir():
            raise UsageError(f"{root} is not a directory")
        self._slots = Slots(AT_ONCE, "a preview")
        self._ready: deque[Keeper] = deque()
        self._lock = Lock()
        self._closed = False

    async def preview(self, command: str, cwd: str | None, seconds: float) -> Preview:
        """Preview a Bash command line in a directory. A cancelled call ends its processes.

        Errors: InputError; UsageError for a directory outside the root; OverloadedError; those of
        `preview`.
        """
        if "\0" in command or len(command.encode()) > LONGEST_COMMAND:
            raise InputError(f"the command has more than {LONGEST_COMMAND:,} bytes, or a NUL byte")
        start = self._directory(cwd)
        limits = replace(USUAL_LIMITS, wall_seconds=seconds, cpu_seconds=seconds)
        attempt, stack = _Attempt(), ExitStack()

        def previewed() -> Preview:
            attempt.keeper = keeper = self._keeper()
            if attempt.cancelled:
                keeper.close()
                raise SandboxError("the call was cancelled")
            words = ["bash", "-c", command]
            hidden: Any = {"hide": self._hide, "show": self._show}
            return preview_in(keeper, words, start, **hidden, limits=limits, stack=stack)

        def tidy_up() -> None:
            stack.close()
            self.make_ready()

        async with self._slots.taken():
            try:
                return await self._threads.call(previewed, attempt.end)
            finally:
                self._threads.submit(tidy_up)

    def make_ready(self) -> None:
        """Start keepers for the next previews. If this fails, the next preview raises the error."""
        with suppress(ShioenvError, OSError):
            while not self._closed and len(self._ready) < READY:
                keeper = start_keeper(subprocess.DEVNULL, capture=True)
                with self._lock:
                    if not self._closed:
                        self._ready.append(keeper)
                        continue
                keeper.close()

    def close(self) -> None:
        """End the keepers that wait."""
        with self._lock:
            self._closed = True
            ready = list(self._ready)
            self._ready.clear()
        for keeper in ready:
            keeper.close()

    def _keeper(self) -> Keeper:
        while True:
            with self._lock:
                keeper = self._ready.popleft() if self._ready else None
            if keeper is None:
                return start_keeper(subprocess.DEVNULL, capture=True)
            if keeper.process.poll() is None:
                return keeper
            keeper.close()  # something killed it while it waited

    def _directory(self, cwd: str | None) -> str:
        """Return the start directory without links. Errors: UsageError."""
        if cwd is not None and "\0" in cwd:
            raise UsageError("the directory's name contains a NUL byte")
        start = (self._root / (cwd or ".")).resolve()
        if not start.is_relative_to(self._root):
            raise UsageError(
                f"{cwd!r:.200} is outside the server's directory",
                hint=f"use {self._root} or a directory below it",
            )
        if not start.is_dir():
            raise UsageError(f"{cwd!r:.200} is not a directory")
        return str(start)
