"""A factory of shells that a machine runs, a model answers, or both."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import Final

from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.errors import StartDirectoryError, UsageError
from shioenv.live.answerer import load_model
from shioenv.live.model_shell import HybridShell, ModelShell
from shioenv.live.resident import ResidentShell, shell_of
from shioenv.live.shell import Shell
from shioenv.sandbox.base import Closing, Limits

SPARE: Final = 2
"""Machines opened in advance for the next visitors (our choice, because opening one takes 0.2
seconds)."""

SPARE_SECONDS: Final = 7 * 86_400.0
"""Seconds for which a spare machine waits for a line (our choice, because servers end shells
earlier)."""


class Shells(Closing):
    """A factory of shells of one kind. Threads may open, use and close different shells at once."""

    def __init__(
        self,
        model: str | None = None,
        machine_below: float | None = None,
        system: str | None = None,
        cwd: str | None = None,
        limits: Limits | None = None,
    ) -> None:
        """Prepare to open shells.

        - `model`: the name or path of the model that answers lines without executing them. By
          default each shell runs on a machine.
        - `machine_below`: a machine runs each line for which the model's confidence is lower.
        - `cwd`: the start directory (default: the system's first one).

        Errors: those of `open_sandbox` and of `load_model`; StartDirectoryError. UsageError for a
        sandbox other than namespaces, because no other can keep a shell. UsageError for
        `machine_below` without a model.
        """
        if machine_below is not None and model is None:
            raise UsageError("--machine-below needs a model", hint="--model MODEL")
        self._opening = Lock()
        self._machines: SandboxRunner | None = None
        self._spare: deque[Shell] = deque()
        self._closed = False
        self._make: Callable[[], Shell] = self._on_machine
        self.system = system
        """The name of the shells' system; None for the default one."""
        if model is not None:
            loaded = load_model(model)
            self.system = system or loaded.system
            if machine_below is not None:
                self._make = lambda: HybridShell(loaded, self._on_machine(), machine_below)
            else:
                if cwd is not None and not loaded.world.has_directory(cwd):
                    raise StartDirectoryError(f"{cwd!r} is not a directory of the model's system")
                start = loaded.world.state(cwd)
                start.before  # noqa: B018 - computed once, before there are threads
                self._make = lambda: ModelShell(loaded, start)
        if model is None or machine_below is not None:
            self._machines = open_sandbox(self.system, limits)
            try:
                if not self._machines.keeps_shells:
                    raise UsageError(
                        "this sandbox does not support persistent shells",
                        hint="use the sandbox namespaces",
                    )
                self._cwd = cwd or self._machines.system.declaration.start_directory
                self._machines.context(self._cwd)
            except BaseException:
                self._machines.close()
                raise

    def open(self) -> Shell:
        """Open a shell. Errors: those of `shell_of`."""
        with self._opening:
            return self._spare.popleft() if self._spare else self._make()

    def make_ready(self) -> None:
        """Open spare machines for the next shells; do nothing if shells need no machine."""
        while True:
            with self._opening:
                if self._closed or self._machines is None or len(self._spare) >= SPARE:
                    return
                self._spare.append(self._make())

    def close(self) -> None:
        """End every shell and every machine. Call it when no shell is in use any more."""
        with self._opening:
            self._closed = True
            self._spare.clear()
            if self._machines is not None:
                self._machines.close()

    def _on_machine(self) -> Shell:
        assert self._machines is not None
        return shell_of(self._machines, self._cwd, idle_seconds=SPARE_SECONDS)


def answered_by(shell: Shell) -> tuple[str, float | None]:
    """Return the newest answer's source, `model` or `machine`, and the model's confidence."""
    answer = shell.answer if isinstance(shell, ModelShell | HybridShell) else None
    if answer is not None or isinstance(shell, ModelShell):
        return "model", answer.confidence if answer else None
    return "machine", None


def interrupt(shell: Shell) -> None:
    """End the machine that a shell waits for, from any thread; do nothing without a machine."""
    machine = shell.machine if isinstance(shell, HybridShell) else shell
    if isinstance(machine, ResidentShell):
        machine.interrupt()
