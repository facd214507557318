"""Shells of one kind for many visitors: of machines, of a model, of both."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import Final

from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import Answer, Runner, State, answer_of
from shioenv.errors import StartDirectoryError, UsageError
from shioenv.live.asked import AskedShell, HybridShell
from shioenv.live.resident import shell_of
from shioenv.live.shell import Closing, Shell
from shioenv.sandbox.base import Limits

KINDS: Final = ("sandbox", "hybrid")
"""The kinds of shell that are no model's name."""

SURE: Final = 0.9
"""How sure the model of a hybrid shell has to be; ours, as in the how-to of shells."""

SPARE: Final = 2
"""Machines that wait for the next visitors; ours, because one takes a fifth of a second to open."""

SPARE_SECONDS: Final = 7 * 86_400.0
"""Seconds for which a machine waits for a line; ours, since who serves ends shells earlier."""


class Shells(Closing):
    """Opens shells of one kind. Threads may open, use and close different shells at once.

    The threads that open shells have to live until `close`, because a machine ends with the thread
    that opened it.
    """

    def __init__(
        self,
        kind: str = "sandbox",
        system: str | None = None,
        cwd: str | None = None,
        limits: Limits | None = None,
        *,
        sure: float = SURE,
    ) -> None:
        """`kind` is `sandbox`, `hybrid`, or a model: a name or a file, which executes nothing.

        `hybrid` is the default model, above a machine that runs what the model is less sure of than
        `sure`. `cwd` is the start directory (None: the first one). Errors: those of `open_sandbox`
        and of `load_model`; StartDirectoryError; UsageError for limits of another sandbox than
        namespaces, in which no shell stays.
        """
        self.kind = kind
        self._opening = Lock()
        self._machines: SandboxRunner | None = None
        self._spare: deque[Shell] = deque()
        self._closed = False
        make = self._on_machine
        if kind != "sandbox":
            from shioenv.model.files import card_of, load_model

            name = "default" if kind == "hybrid" else kind
            loaded = load_model(name)
            model = OneAtATime(loaded)
            if kind == "hybrid":
                system = system or card_of(name).get("system")
                make = self._above(model, sure)
            else:
                if cwd is not None and not loaded.world.has_directory(cwd):
                    raise StartDirectoryError(f"{cwd!r} is no directory of the model's system")
                start = loaded.world.state(cwd)
                start.before  # noqa: B018 - it is read once, before there are threads
                make = lambda: AskedShell(model, start)  # noqa: E731
        if kind in KINDS:
            self._machines = open_sandbox(system, limits)
            try:
                if not self._machines.keeps_shells:
                    raise UsageError(
                        "no shell stays in this sandbox", hint="open shells in namespaces"
                    )
                self._cwd = cwd or self._machines.system.declaration.start_directory
                self._machines.context(self._cwd)
            except BaseException:
                self._machines.close()
                raise
        self._make: Callable[[], Shell] = make

    def open(self) -> Shell:
        """A shell for one visitor. Errors: those of `shell_of`."""
        with self._opening:
            return self._spare.popleft() if self._spare else self._make()

    def make_ready(self) -> None:
        """Opens what the next visitors are given; does nothing where that costs nothing."""
        while True:
            with self._opening:
                if self._closed or self._machines is None or len(self._spare) >= SPARE:
                    return
                self._spare.append(self._make())

    def close(self) -> None:
        """Ends every shell and every machine. No shell may be in use any more."""
        with self._opening:
            self._closed = True
            self._spare.clear()
            if self._machines is not None:
                self._machines.close()

    def _on_machine(self) -> Shell:
        assert self._machines is not None
        return shell_of(self._machines, self._cwd, idle_seconds=SPARE_SECONDS)

    def _above(self, model: Runner, sure: float) -> Callable[[], Shell]:
        return lambda: HybridShell(model, self._on_machine(), sure)


class OneAtATime:
    """A runner that threads may ask at once: it answers one after the other."""

    def __init__(self, runner: Runner) -> None:
        self._runner, self._lock = runner, Lock()

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        """See `Runner.run`."""
        return self.answer(shell_input, state).behavior

    def answer(self, shell_input: str, state: State | None = None) -> Answer:
        """See `Guesser.answer`."""
        with self._lock:
            return answer_of(self._runner, shell_input, state)


def answered_by(shell: Shell) -> tuple[str, float | None]:
    """Who answered a shell's newest line, `model` or `machine`, and how sure the model was."""
    answer = shell.answer if isinstance(shell, AskedShell | HybridShell) else None
    if answer is not None or isinstance(shell, AskedShell):
        return "model", answer.confidence if answer else None
    return "machine", None
