"""How long the executions of one session may take, and what is repeated (D-10)."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

from shioenv.domain.behavior import Behavior
from shioenv.domain.inputs import Session, started
from shioenv.domain.runner import Executing, Order, State

HURRIED_SECONDS = 0.25
"""Wall time at least of the further sub-inputs of a session. It is for sessions of which one
sub-input ran out of time though the session itself did not. What hangs without one argument (`ping`
without its count) hangs without it and any others (ours).
"""

HASTE = 4
"""So many times as long as before may run what was busy when its time was over (ours)."""


def _cut(behavior: Behavior) -> bool:
    """Whether something still ran when the time behind the shell's end was over."""
    return "background_seconds" in behavior.limits_hit


Alone = Callable[[Callable[[], Behavior]], Behavior]
"""Calls what it is given while nothing runs that it could have lacked."""


def at_once(run: Callable[[], Behavior]) -> Behavior:
    """Calls it: nothing else runs anyway."""
    return run()


class Patience:
    """Executes a session and its sub-inputs, with as much wall time as each is worth.

    A first run that times out is repeated once through `alone`, and the second run counts. A
    sub-input that times out though the session does not is repeated so, too. The further sub-inputs
    are hurried where it times out again, and where the session is `volatile` anyway. They get 20
    times the session's own time, at most what this one had, and no repetition. What went on behind
    the shell's end until its time there was over is repeated once as well, where it matters. It
    matters of the session, and of a sub-input whose session does not do so. A sub-input may be
    still at work when its time is over, not asleep: it lacked time instead of hanging. It gets four
    times as much, then what every run has.

    A run that breaks its sandboxes is repeated once through `alone`, too: a neighbour may have
    taken what it needed. What breaks them again has done so itself, and its further runs get one
    sandbox.
    """

    def __init__(
        self, session: Session, runner: Executing, *, alone: Alone = at_once, volatile: bool = False
    ) -> None:
        self.hangs = False
        """The session itself runs out of time, or breaks its sandboxes."""
        self.hurried: float | None = None
        """Wall time of further sub-inputs in seconds, once one ran out of it."""
        self.limits_reached: set[str] = set()
        """By runs of the whole session."""
        self._text = session.body
        self._state = State(cwd=session.cwd, history=session.history)
        self._runner, self._alone, self._volatile = runner, alone, volatile
        self._took = self._longest = math.inf
        self._breaks = self._cut = False

    def begin(self) -> Behavior:
        """The session's first run."""
        first = self.whole()
        if first.timed_out or _cut(first):
            first = self._alone(self.whole)
        self.hangs = first.timed_out or self._breaks
        self._cut = _cut(first)
        return first

    def whole(self, order: Order = "as it comes") -> Behavior:
        """A run of the whole session, its processes in this order."""
        began = self._runner.seconds
        behavior = self._executed(
            self._text, **({} if order == "as it comes" else {"order": order})
        )
        self._took = min(self._took, self._seconds_since(began))
        self.limits_reached.update(behavior.limits_hit)
        return behavior

    def channels(self) -> Behavior:
        """A run of the whole session with two pipes (D-9)."""
        behavior = self._executed(self._text, separate=True)
        self.limits_reached.update(behavior.limits_hit)
        return behavior

    @property
    def length(self) -> int:
        """Bytes of the session as it is executed."""
        typed = "\n".join([*self._state.history, self._text])
        return len(os.fsencode(started(self._state.cwd, typed)))

    def followed_by(self, line: str) -> Behavior:
        """A run of the session with a line behind it."""
        return self._executed(f"{self._text}\n{line}")

    def part(self, text: str) -> Behavior:
        """A run of a sub-input."""
        if self.hurried is not None:
            return self._soon(text, self.hurried)
        began = self._runner.seconds
        behavior = self._executed(text)
        took = self._seconds_since(began)
        if _cut(behavior) and not (self._cut or self._volatile):
            return self._alone(lambda: self._executed(text))
        if behavior.timed_out and not self.hangs:
            if not self._volatile:
                behavior = self._alone(lambda: self._executed(text))
            if behavior.timed_out:
                self._longest = took
                self.hurried = max(HURRIED_SECONDS, min(20 * self._took, took))
        return behavior

    def _soon(self, text: str, wall: float) -> Behavior:
        """A run of what probably hangs: with more time where it is seen to work."""
        behavior = self._executed(text, wall_seconds=wall)
        while behavior.timed_out and not self._runner.waited and wall < self._longest:
            wall *= HASTE
            more = wall if wall < self._longest else None
            behavior = self._executed(text, wall_seconds=more)
        return behavior

    def _seconds_since(self, began: float) -> float:
        """What was executed, by itself: not the wait for a turn. A sandbox that is new since then
        began to count anew.
        """
        seconds = self._runner.seconds
        return seconds - began if seconds >= began else seconds

    def _executed(self, text: str, **how: Any) -> Behavior:
        if self._breaks:
            return self._runner.execute(text, self._state, sandboxes=1, **how)
        behavior = self._runner.execute(text, self._state, **how)
        if "sandboxes" in behavior.limits_hit:
            behavior = self._alone(lambda: self._runner.execute(text, self._state, **how))
            self._breaks = "sandboxes" in behavior.limits_hit
        return behavior
