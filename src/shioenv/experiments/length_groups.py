"""Scores grouped by sampler, number of arguments, and whether the input succeeds."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from shioenv.experiments.means import Spread
from shioenv.experiments.reference import evenly
from shioenv.experiments.scores import NAMES, Score, values

FEW = 20
"""Inputs whose mean is not worth a point in the picture, and from which on a normal interval is one
of 95% (of 93 to 95%, simulated with the exact scores of the first experiment)."""

RESCORED = 100
"""Inputs of each sampler and length that are also scored as the reference implementation does."""

Group = Callable[[Score], bool]

GROUPS: Mapping[str, Group] = {
    "all inputs": lambda score: True,
    "inputs that succeed (exit 0)": lambda score: score.exit_code == 0,
    "inputs that fail (other exits)": lambda score: score.exit_code != 0,
}
"""Samplers write different shares of inputs that fail, and of those other arguments matter."""


@dataclass(frozen=True, slots=True)
class Cell:
    """The scores of one sampler's inputs of one length, in one of `GROUPS`."""

    sampler: str
    n: int
    group: str
    spread: Spread
    ones: int
    """Those that are exactly 1."""


def to_rescore(scores: Sequence[Score]) -> list[Score]:
    """Those to be scored by other rules as well: `RESCORED` of each number of arguments."""
    groups: dict[int, list[Score]] = defaultdict(list)
    for one in scores:
        groups[one.n_arguments].append(one)
    return [one for group in groups.values() for one in evenly(group, RESCORED)]


def cells_of(scores: Sequence[Score]) -> list[Cell]:
    """Every cell that has a score, samplers and lengths in order."""
    found = []
    for sampler, name in NAMES.items():
        mine = [one for one in scores if one.sampler == sampler]
        for n in sorted({one.n_arguments for one in mine if one.n_arguments}):
            here = [one for one in mine if one.n_arguments == n]
            for group, holds in GROUPS.items():
                numbers = values(here, holds)
                spread = Spread.of(numbers)
                if spread is not None:
                    ones = sum(number >= 1 for number in numbers)
                    found.append(Cell(name, n, group, spread, ones))
    return found


def by_place(found: Sequence[Cell], group: str) -> dict[tuple[str, int], Cell]:
    """The cells of one group by sampler and number of arguments."""
    return {(cell.sampler, cell.n): cell for cell in found if cell.group == group}


def gains_of(found: Sequence[Cell], group: str) -> dict[int, tuple[float, float]]:
    """By length: how much higher the mean of GCS is than that of UCS, and its standard error; where
    both have `FEW` inputs.
    """
    cells = by_place(found, group)
    gains = {}
    for (sampler, n), cell in cells.items():
        other = cells.get((NAMES["ucs"], n))
        if sampler != NAMES["gcs"] or other is None:
            continue
        if min(cell.spread.count, other.spread.count) >= FEW:
            variance = cell.spread.variance_of_mean + other.spread.variance_of_mean
            gains[n] = cell.spread.mean - other.spread.mean, math.sqrt(variance)
    return gains


def scores_of(scores: Sequence[Score], sampler: str, least: int) -> list[Score]:
    """A sampler's scores of inputs with so many arguments at least."""
    return [one for one in scores if one.sampler == sampler and one.n_arguments >= least]
