"""Shells without a persistent machine. A runner answers each line, or all lines are run again."""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import TYPE_CHECKING

from shioenv.behavior.typed_rows import Row, RowKind
from shioenv.domain.behavior import Behavior
from shioenv.domain.patch import ContextPatch, diff_documents
from shioenv.domain.runner import Answer, Runner, State, answer_of
from shioenv.errors import Abstained
from shioenv.live.shell import Shell, ended, nothing
from shioenv.sandbox.base import LARGEST, Closing, refuse_limit
from shioenv.text import short_repr

if TYPE_CHECKING:  # a model's shell needs no sandbox
    from shioenv.behavior.observe import SandboxRunner


class ModelShell(Closing):
    """A shell whose lines a runner answers, each in the state that the lines before it left.

    Only the contents of the state persist between lines.
    """

    def __init__(
        self, runner: Runner, start: State, close: Callable[[], None] | None = None
    ) -> None:
        """`close` is called once the shell is closed."""
        self._runner, self._close = runner, close or nothing
        self._turn = RLock()
        self._start = self.state = start
        """See `Shell.state`."""
        self.ended = False
        """See `Shell.ended`."""
        self.answer: Answer | None = None
        """The answer to the newest line; None if the runner declined, and before the first line."""

    def __repr__(self) -> str:
        return short_repr(self, {"runner": self._runner, "ended": self.ended})

    def run(self, line: str, *, timeout: float | None = None) -> Behavior:
        """See `Shell.run`. A runner that does not execute ignores `timeout`."""
        with self._turn:
            if self.ended:
                raise ended(line)
            self.answer = None
            self.answer = answer = answer_of(self._runner, line, self.state)
            behavior = answer.behavior
            self.ended = behavior.timed_out or behavior.died_by_signal is not None
            self.state = self.state.after(line, behavior, answer.written, answer.carried)
            return behavior

    def patch(self) -> ContextPatch:
        """See `Shell.patch`."""
        return diff_documents(self._start.before.document, self.state.before.document)

    def close(self) -> None:
        """See `Shell.close`."""
        self.ended = True
        close, self._close = self._close, nothing
        close()


class RepeatedShell(Closing):
    """A shell that runs all earlier lines again, on the pristine machine, for each new line.

    No process persists between lines, and a line's cost grows with the number of lines before it.
    It is the fallback for sandboxes without resident shells, and the oracle for resident shells.
    """

    def __init__(
        self, runner: SandboxRunner, cwd: str, close: Callable[[], None] | None = None
    ) -> None:
        """`close` is called once the shell is closed."""
        self._runner, self._cwd, self._close = runner, cwd, close or nothing
        self._turn = RLock()
        self._lines: list[Row] = []
        self._whole = Behavior(0, b"")
        self.state = runner.state(cwd)
        """See `Shell.state`."""
        self.ended = False
        """Whether a line reached a limit. An `exit` is not noticed: lines after it do nothing."""

    def __repr__(self) -> str:
        return short_repr(self, {"cwd": self._cwd, "ended": self.ended})

    def run(self, line: str, *, timeout: float | None = None) -> Behavior:
        """See `Shell.run`. Each repeated line has the same time limit as the new one."""
        with self._turn:
            return self._run(line, timeout)

    def _run(self, line: str, timeout: float | None) -> Behavior:
        if self.ended:
            raise ended(line)
        rows = [*self._lines, Row(RowKind.TYPED, line)]
        if timeout is not None:
            refuse_limit("wall_seconds", timeout)
        own = timeout or self._runner.limits.wall_seconds
        seconds = min(own * len(rows), LARGEST["wall_seconds"])
        whole = self._runner.type(rows, self._cwd, wall_seconds=seconds)
        behavior = whole
        if self._lines:
            before = self._runner.type(self._lines, self._cwd, wall_seconds=seconds)
            behavior = self._runner.since(before, whole, self._cwd)
        self._lines.append(Row(RowKind.AGAIN, line))
        self._whole = whole
        self.ended = behavior.timed_out or bool(behavior.limits_hit)
        self.state = self.state.after(line, behavior)
        return behavior

    def patch(self) -> ContextPatch:
        """See `Shell.patch`."""
        return self._whole.patch

    def close(self) -> None:
        """See `Shell.close`."""
        self.ended = True
        close, self._close = self._close, nothing
        close()


class HybridShell(Closing):
    """A model's shell with a machine as fallback: the model answers if it is confident enough.

    Lines that the model answers are not run. Before the machine answers a line, it runs all lines
    that the model answered before, so that this line finds their effects. From then on the state is
    the machine's.
    """

    def __init__(self, model: Runner, machine: Shell, confidence: float) -> None:
        """Use the model from this confidence on, 0 to 1. `close` also closes the machine."""
        self._model, self._confidence = model, confidence
        self.machine = machine
        """The shell that runs the lines that the model does not answer."""
        self._turn = RLock()
        self._start = self._state = machine.state
        self._owed: list[tuple[str, float | None]] = []
        self.answer: Answer | None = None
        """The model's answer to the newest line; None if the machine ran it."""

    def __repr__(self) -> str:
        return short_repr(self, {"machine": self.machine, "confidence": self._confidence})

    @property
    def ended(self) -> bool:
        """See `Shell.ended`."""
        return self.machine.ended

    @property
    def state(self) -> State:
        """See `Shell.state`."""
        return self._state

    def run(self, line: str, *, timeout: float | None = None) -> Behavior:
        """See `Shell.run`."""
        with self._turn:
            return self._run(line, timeout)

    def _run(self, line: str, timeout: float | None) -> Behavior:
        if self.ended:
            raise ended(line)
        try:
            answer = answer_of(self._model, line, self._state)
        except Abstained:
            answer = None
        self.answer = None
        if answer is not None and answer.confidence >= self._confidence:
            self.answer = answer
            self._owed.append((line, timeout))
            self._state = self._state.after(line, answer.behavior, answer.written, answer.carried)
            return answer.behavior
        behavior = self.settled().run(line, timeout=timeout)
        self._state = self.machine.state
        return behavior

    def settled(self) -> Shell:
        """Return the machine's shell after it ran the lines that the model answered.

        Callers that change the machine by other means than `run` call `follow` afterwards.
        """
        with self._turn:
            for owed, seconds in self._owed:
                if not self.machine.ended:
                    self.machine.run(owed, timeout=seconds)
            self._owed.clear()
            return self.machine

    def follow(self) -> None:
        """Use the machine's state for the next line."""
        self._state = self.machine.state

    def patch(self) -> ContextPatch:
        """See `Shell.patch`."""
        return diff_documents(self._start.before.document, self._state.before.document)

    def close(self) -> None:
        """See `Shell.close`."""
        self.machine.close()
