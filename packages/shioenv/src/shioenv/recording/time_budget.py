"""Time limits of a session's executions, and rules for repeating them (D-10)."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

from shioenv.domain.behavior import Behavior
from shioenv.domain.inputs import Session
from shioenv.domain.runner import Executing, Order, State

HURRIED_SECONDS = 0.25
"""Minimum wall time of hurried sub-inputs (`TimedRuns`), in seconds. An input that hangs without
some argument (`ping` without its count) mostly hangs without further arguments too. So once one
sub-input hung, others get less time (our choice)."""

HASTE = 4
"""Factor by which a hurried sub-input gets more time if it timed out while working (our choice)."""


def _cut(behavior: Behavior) -> bool:
    """Whether processes still ran at the end of the time allowed after the shell's end."""
    return "background_seconds" in behavior.limits_hit


Alone = Callable[[Callable[[], Behavior]], Behavior]
"""A function that calls a run while no other run competes for resources."""


def at_once(run: Callable[[], Behavior]) -> Behavior:
    """Call the run at once, for callers without parallel runs."""
    return run()


class TimedRuns:
    """Executes a session and its sub-inputs, and decides their limits of wall time.

    The first run of the session is repeated once through `alone` if it timed out, and the second
    run counts. The same applies to a sub-input that times out although the session does not, unless
    the session is `volatile` anyway. If the sub-input times out again, or is not repeated, all
    further sub-inputs are hurried.

    A hurried sub-input gets 20 times the session's own time: at least `HURRIED_SECONDS`, and at
    most the time of the sub-input that timed out. If it was sleeping when its time was over, it is
    not repeated. If it was working, it was slow and did not hang. Then it gets four times as long,
    repeatedly. Once this reaches the time of the sub-input that timed out, it gets the usual wall
    time.

    Background processes may exceed the time allowed after the shell's end. If they do in the first
    run of the session, the run is repeated once through `alone`. If they do in a sub-input, it is
    repeated too, unless it is hurried, or the session is volatile or has such processes itself.

    A run that breaks its sandboxes is repeated once through `alone`, because another run may have
    taken its resources. If it breaks them again, the run itself is the cause. Then all further runs
    of the session and its sub-inputs get one sandbox each.
    """

    def __init__(
        self, session: Session, runner: Executing, *, alone: Alone = at_once, volatile: bool = False
    ) -> None:
        self.hangs = False
        """Whether the session itself times out, or breaks its sandboxes."""
        self.hurried: float | None = None
        """Wall time of further sub-inputs in seconds; None until a sub-input timed out."""
        self.limits_reached: set[str] = set()
        """Names of the limits that runs of the whole session reached."""
        self._text = session.body
        self._state = State(cwd=session.cwd, history=session.history)
        self._runner, self._alone, self._volatile = runner, alone, volatile
        self._took = self._longest = math.inf
        self._breaks = self._cut = False

    def begin(self) -> Behavior:
        """Run the session for the first time, and return the behavior that counts."""
        first = self.whole()
        if first.timed_out or _cut(first):
            first = self._alone(self.whole)
        self.hangs = first.timed_out or self._breaks
        self._cut = _cut(first)
        return first

    def whole(self, order: Order = "as it comes") -> Behavior:
        """Run the whole session, with its processes in this order, and return its behavior."""
        began = self._runner.seconds
        behavior = self._executed(
            self._text, **({} if order == "as it comes" else {"order": order})
        )
        self._took = min(self._took, self._seconds_since(began))
        self.limits_reached.update(behavior.limits_hit)
        return behavior

    def channels(self) -> Behavior:
        """Run the whole session with two pipes (D-9), and return its behavior."""
        behavior = self._executed(self._text, separate=True)
        self.limits_reached.update(behavior.limits_hit)
        return behavior

    @property
    def length(self) -> int:
        """Size of the executed session in bytes, including its history."""
        return len(os.fsencode("\n".join([*self._state.history, self._text])))

    def followed_by(self, line: str) -> Behavior:
        """Run the session followed by a line, and return their joint behavior."""
        return self._executed(f"{self._text}\n{line}")

    def part(self, text: str) -> Behavior:
        """Run a sub-input, and return its behavior."""
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
        """Run a hurried sub-input, with more time if it was working when it timed out."""
        behavior = self._executed(text, wall_seconds=wall)
        while behavior.timed_out and not self._runner.waited and wall < self._longest:
            wall *= HASTE
            more = wall if wall < self._longest else None
            behavior = self._executed(text, wall_seconds=more)
        return behavior

    def _seconds_since(self, began: float) -> float:
        """Return the seconds that executions ran since `began`, without waiting for a turn.

        If a new sandbox was opened since then, counting begins at 0.
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
