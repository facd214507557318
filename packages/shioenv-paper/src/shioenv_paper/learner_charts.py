"""The picture of how learners learn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import altair as alt

from shioenv_eval.report.panels import chart, titled

if TYPE_CHECKING:
    from shioenv_paper.learners import PolicyEpisode

POINTS = 25
"""A curve has 25 to 49 points, or one an episode where there are fewer than 25 episodes."""


def curves(training: Sequence[PolicyEpisode]) -> alt.Chart:
    """Mean reward (0 to 1) by inputs executed, a line for each regime and seed."""
    rows = list(_points(training))
    drawn = (
        chart(rows)
        .mark_line(strokeWidth=1.5)
        .encode(
            x=alt.X("inputs:Q", title="inputs executed"),
            y=alt.Y("reward:Q", title="mean reward"),
            color=alt.Color("regime:N", title="regime"),
            detail="seed:N",
        )
        .properties(width=420, height=240)
    )
    return titled(
        drawn,
        "What networks earn while they learn",
        "A line for each seed. The reward is the share of 12 arguments that are necessary, 0 for "
        "inputs that fail, are volatile, or were written before.",
    )


def _points(training: Sequence[PolicyEpisode]) -> Iterator[dict[str, Any]]:
    for regime, seed in dict.fromkeys((one.regime, one.seed) for one in training):
        own = [one for one in training if (one.regime, one.seed) == (regime, seed)]
        size = max(1, len(own) // POINTS)
        for first in range(0, len(own) - size + 1, size):
            group = own[first : first + size]
            mean = sum(one.reward for one in group) / size
            yield {
                "regime": regime,
                "seed": str(seed),
                "inputs": group[-1].number,
                "reward": mean,
            }
