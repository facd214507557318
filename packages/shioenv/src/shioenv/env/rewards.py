"""Rewards of an executed session: functions of its behavior and score, and constants.

Any function of a `ScoredSession` can be a reward. `docs/reference/environment.md` describes the
behavior that each of these functions teaches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from shioenv.bash.words import plain_words
from shioenv.env.scorer import ScoredSession

Reward: TypeAlias = Callable[[ScoredSession], float]

INVALID: Final = -10.0
"""The reward of an action that the rules forbid (Section C.1.2)."""

NOTHING: Final = 0.0
"""The reward of every other step without an execution, and of a session that a gate rejects."""

SEES_ALONE: Final = 24
"""The score budget with which each of up to twelve arguments is left out alone.

With n arguments, the estimator `balanced` does so from a budget of n + 11 on, `stratified` from 2 n
on. With a smaller budget, `necessary` rewards long inputs hardly at all, so that agents learn to
write short ones.
"""


def irreducibility(scored: ScoredSession) -> float:
    """Return the irreducibility, 0 to 1 (Section 3.3); 0 if nothing can be removed (D-2)."""
    value = scored.score.irreducibility
    return NOTHING if value is None else float(value)


def necessary(scored: ScoredSession) -> float:
    """Return the number of necessary arguments, divided by the maximum number (our choice).

    Each argument is omitted alone. The value is 0 to 1, since a session has at most `horizon`
    arguments. An argument does not count if it has no effect or the same effect as another, or if
    its omission was not run. So use a budget of at least `SEES_ALONE`.
    """
    segments = scored.score.segments
    counted = sum(
        argument.leave_one_out is True for segment in segments for argument in segment.arguments
    )
    return counted / scored.horizon


class Gate:
    """A reward that is 0 unless the session meets each enabled condition.

    `success`: the session ended with exit code 0. `steady`: the session is not volatile. `unseen`:
    this gate has not rewarded the same start directory with the same words before, in any order and
    quoting. For `unseen` the gate stores a number for each session that it rewarded. Environments
    should share one gate; with separate gates, each rewards the same input once.
    """

    def __init__(
        self,
        reward: Reward = necessary,
        *,
        success: bool = True,
        steady: bool = True,
        unseen: bool = True,
    ) -> None:
        self.reward = reward
        self.success, self.steady, self.unseen = success, steady, unseen
        self._paid: set[int] = set()

    def __call__(self, scored: ScoredSession) -> float:
        """Return the value of the reward, or 0 if a condition is not met."""
        if self.success and scored.behavior.exit_code:
            return NOTHING
        if self.steady and scored.volatile:
            return NOTHING
        if self.unseen:
            words = (tuple(sorted(plain_words(row.text))) for row in scored.session.rows)
            key = hash((scored.session.cwd, *words))
            if key in self._paid:
                return NOTHING
            self._paid.add(key)
        return self.reward(scored)
