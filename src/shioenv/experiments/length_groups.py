"""Scores grouped by sampler, number of arguments, and whether the input succeeds."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from shioenv.experiments.reference import evenly
from shioenv.experiments.scores import NAMES, Score, values
from shioenv.report.means import Difference, Spread

FEW = 20
"""Inputs whose mean is not worth a point in the picture, and from which on a normal interval is one
of 95% (of 93 to 95%, simulated with the exact scores of the first experiment)."""

FEW_OF_A_COMMAND = 5
"""Inputs of one command and length whose mean is compared with that of another sampler's."""

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
class LengthCell:
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


def cells_of(scores: Sequence[Score]) -> list[LengthCell]:
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
                    found.append(LengthCell(name, n, group, spread, ones))
    return found


def by_place(found: Sequence[LengthCell], group: str) -> dict[tuple[str, int], LengthCell]:
    """The cells of one group by sampler and number of arguments."""
    return {(cell.sampler, cell.n): cell for cell in found if cell.group == group}


def gains_of(scores: Sequence[Score], holds: Group) -> dict[int, Difference]:
    """By length: how much higher GCS's mean is than UCS's, where both have `FEW` inputs."""
    pairs = _pairs(scores, holds, lambda one: one.n_arguments)
    return {
        n: Difference.of(gcs, ucs)
        for n, (gcs, ucs) in sorted(pairs.items())
        if min(gcs.count, ucs.count) >= FEW
    }


def gains_by_command(scores: Sequence[Score], holds: Group) -> dict[int, Difference]:
    """As `gains_of`, between inputs of the same command: the mean of the commands' differences,
    weighted by their numbers of UCS inputs, of commands with `FEW_OF_A_COMMAND` inputs of both.

    Samplers do not write, and do not get to succeed, the same commands equally often.
    """
    lengths: dict[int, list[tuple[Spread, Spread]]] = defaultdict(list)
    pairs = _pairs(scores, holds, lambda one: (one.n_arguments, one.command))
    for (n, _), pair in sorted(pairs.items()):
        if min(spread.count for spread in pair) >= FEW_OF_A_COMMAND:
            lengths[n].append(pair)
    found = {}
    for n, here in lengths.items():
        total = sum(ucs.count for _, ucs in here)
        if total >= FEW and sum(gcs.count for gcs, _ in here) >= FEW:
            weighed = [(ucs.count / total, Difference.of(gcs, ucs)) for gcs, ucs in here]
            found[n] = Difference(
                math.fsum(weight * one.value for weight, one in weighed),
                math.sqrt(math.fsum((weight * one.error) ** 2 for weight, one in weighed)),
            )
    return found


Key = TypeVar("Key", bound=Hashable)


def _pairs(
    scores: Sequence[Score], holds: Group, key: Callable[[Score], Key]
) -> dict[Key, tuple[Spread, Spread]]:
    """The scores of GCS and of UCS, group by group, where both have some."""
    groups: dict[Key, dict[str, list[Score]]] = defaultdict(lambda: defaultdict(list))
    for one in scores:
        if holds(one):
            groups[key(one)][one.sampler].append(one)
    found = {}
    for name, group in groups.items():
        gcs, ucs = (Spread.of(values(group[sampler])) for sampler in ("gcs", "ucs"))
        if gcs is not None and ucs is not None:
            found[name] = gcs, ucs
    return found


def scores_of(scores: Sequence[Score], sampler: str, least: int) -> list[Score]:
    """A sampler's scores of inputs with so many arguments at least."""
    return [one for one in scores if one.sampler == sampler and one.n_arguments >= least]
