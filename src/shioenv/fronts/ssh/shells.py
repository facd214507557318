"""Shells that a model answers, alone or above a machine: one for each visitor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeAlias

from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import Answer
from shioenv.errors import SandboxError
from shioenv.fronts.shells import OneAtATime
from shioenv.fronts.ssh.machines import Machines
from shioenv.live.asked import AskedShell, HybridShell

Asked: TypeAlias = AskedShell | HybridShell


class VisitorShell:
    """One visitor's shell, in a thread of its own, line by line."""

    def __init__(self, shell: Asked, interrupt: Callable[[], None]) -> None:
        """`interrupt` ends what the shell is waiting for."""
        self._shell, self._interrupt = shell, interrupt
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="visitor")
        self._newest: Future[tuple[Behavior, Answer | None]] | None = None
        self._closed = False
        self.cwd = shell.state.cwd
        """The directory that the shell is in."""

    async def run(self, line: str) -> tuple[Behavior, Answer | None]:
        """What the shell does with a line, and the model's answer; None where a machine ran it.

        Errors: those of `Shell.run`; SandboxError where the shell is closed.
        """
        if self._closed:
            raise SandboxError("the visitor's shell is closed")
        self._newest = self._thread.submit(self._run, line)
        return await asyncio.wrap_future(self._newest)

    def _run(self, line: str) -> tuple[Behavior, Answer | None]:
        behavior = self._shell.run(line)
        self.cwd = str(self._shell.state.before.document["cwd"])
        return behavior, self._shell.answer

    @property
    def ended(self) -> bool:
        """Whether the shell has ended."""
        return self._shell.ended

    async def close(self) -> None:
        """Ends the shell; closing twice does nothing."""
        if not self._closed:
            self._closed = True
            if self._newest and not self._newest.done():
                self._interrupt()
            ended = self._thread.submit(self._shell.close)
            self._thread.shutdown(wait=False)
            await asyncio.shield(asyncio.wrap_future(ended))


class Asking:
    """Opens visitors' shells: a model's, or a model's above a machine."""

    def __init__(self, model: str, machine_below: float | None) -> None:
        """Loads the model. Errors: ModelError."""
        from shioenv.model.files import card_of, load_model

        loaded = load_model(model)
        self._model, self._below = OneAtATime(loaded), machine_below
        self._start = loaded.world.state()
        self._start.before  # noqa: B018 - it is read once, before there are threads
        self.system: str | None = card_of(model).get("system")
        """The name of the system that the model is of."""

    async def open(self, machines: Machines | None) -> VisitorShell:
        """A new visitor's shell. Errors: SandboxError where no machine can be opened."""
        if machines is None or self._below is None:
            return VisitorShell(AskedShell(self._model, self._start), _nothing)
        machine = await machines.resident()
        shell = HybridShell(self._model, machine, self._below)
        return VisitorShell(shell, machine.interrupt)

    @property
    def executes(self) -> bool:
        """Whether a machine stands below the model."""
        return self._below is not None


def _nothing() -> None:
    """Interrupts nothing: a model answers soon."""
