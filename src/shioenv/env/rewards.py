"""What an executed session is worth: plain functions of what it did and scored, and two constants.

Any function of a `ScoredSession` is a reward. `docs/reference/environment.md` says what each of
these teaches.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

from shioenv.bash.words import plain_words
from shioenv.env.scorer import ScoredSession
from shioenv.errors import EnvironmentOptionError

Reward: TypeAlias = Callable[[ScoredSession], float]

INVALID: Final = -10.0
"""The reward of an action that the rules forbid (Section C.1.2)."""

NOTHING: Final = 0.0
"""The reward of every other step that executes nothing, and of what does not pass a gate."""

SEES_ALONE: Final = 24
"""The budget from which every argument of up to twelve is left out alone. `balanced` does that with
a budget of at least eleven more than arguments, `stratified` with twice as many as arguments. With
less, `necessary` pays long inputs next to nothing, and teaches short ones.
"""

FAILED: Final = -1.0
"""What `paper_v1` gives for an input that fails."""


def irreducibility(scored: ScoredSession) -> float:
    """The irreducibility, 0 to 1 (Section 3.3); 0 where nothing can be removed (D-2)."""
    value = scored.score.irreducibility
    return NOTHING if value is None else float(value)


def necessary(scored: ScoredSession) -> float:
    """How many arguments change the behavior when left out alone, over the horizon: 0 to 1 (ours).

    An argument that does nothing, or the same as another, earns nothing. Nor does an argument whose
    omission was not run: score with a budget of `SEES_ALONE`.
    """
    segments = scored.score.segments
    counted = sum(
        argument.leave_one_out is True for segment in segments for argument in segment.arguments
    )
    return counted / scored.horizon


def paper_v1(margin: float = 0.0) -> Reward:
    """The last step's reward of the paper's first version: -1 where the input fails. Else it is the
    share of necessary arguments less the margin, times the number of arguments over the horizon.

    The first version also paid for what a score gained on the way, which needs an execution at each
    step. Without discounting, this leaves out only that. Errors: EnvironmentOptionError for a
    margin that is no share.
    """
    if not 0 <= margin <= 1:
        raise EnvironmentOptionError(f"the margin is {margin!r}", hint="it is 0 to 1")
    return partial(_paper_v1, margin)


def _paper_v1(margin: float, scored: ScoredSession) -> float:
    if scored.behavior.exit_code:
        return FAILED
    return necessary(scored) - margin * scored.score.n_arguments / scored.horizon


class Gate:
    """A reward that is 0 unless the input did what one wants of it.

    `success`: it ended with exit code 0. `steady`: it is not volatile. `unseen`: this gate paid
    before for nothing with the input's start directory and words, in whatever order and however
    quoted. So the gate remembers each input (as a number). Give several environments one gate, or
    they pay the same input once each.
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
        """What the reward gives, or 0."""
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
