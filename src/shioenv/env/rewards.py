"""What a step is worth: pure functions of scores, and two constants."""

from __future__ import annotations

from typing import Final

from shioenv.irreducibility.score import Score

INVALID: Final = -10.0
"""The reward of an action that the rules forbid (Section C.1.2)."""

NOTHING: Final = 0.0
"""The reward of every other step that executes nothing."""


def terminal_reward(score: Score) -> float:
    """The reward of the executing step: the irreducibility, 0 to 1 (Section 3.3).

    0 where it is undefined because nothing can be removed (D-2).
    """
    return NOTHING if score.irreducibility is None else float(score.irreducibility)
