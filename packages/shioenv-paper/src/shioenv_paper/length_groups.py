"""Scores grouped by sampler, number of arguments, and whether the input succeeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import TypeAlias

from shioenv_eval.report.markup import Key, grouped
from shioenv_eval.report.means import MeanDifference, Moments
from shioenv_paper.reference import evenly
from shioenv_paper.scores import NAMES, ScoredRecord, ones, values

FEW = 20
"""Minimum number of inputs for a mean to be shown in the picture.

From this number on, a normal interval has the intended coverage of 95% (93 to 95%, simulated with
the exact scores of the first experiment).
"""

FEW_OF_A_COMMAND = 5
"""Minimum number of inputs of one command and length for comparing samplers."""

RESCORED = 100
"""Maximum number of inputs of each sampler and length scored by the reference rules."""

PAPER_LENGTH = 11
"""The number of arguments for which the paper reports means (Section 4.3)."""
PAPER_MEANS = {"gcs": 0.346, "ucs": 0.129}
"""The paper's mean irreducibility at `PAPER_LENGTH`, by sampler."""
PAPER_GAINS = (0.11, 0.25)
"""The range of the paper's difference between the means of GCS and UCS, for 2 to 12 arguments."""
PAPER_PERFECT = 0.2
"""The paper's share of GCS inputs that are exactly 1: "over 20%"."""

Condition: TypeAlias = Callable[[ScoredRecord], bool]

GROUPS: Mapping[str, Condition] = {
    "all inputs": lambda score: True,
    "inputs that succeed (exit 0)": lambda score: score.exit_code == 0,
    "inputs that fail (other exits)": lambda score: score.exit_code != 0,
}
"""Groups by success, which differs between samplers and changes which arguments matter."""


@dataclass(frozen=True, slots=True)
class LengthCell:
    """The scores of one sampler's inputs of one length, in one of `GROUPS`."""

    sampler: str
    n: int
    group: str
    moments: Moments
    ones: int
    """Number of scores that are exactly 1."""


def to_rescore(scores: Sequence[ScoredRecord]) -> list[ScoredRecord]:
    """Select the records to be scored by other rules as well.

    They are up to `RESCORED` of each number of arguments, chosen by `evenly`.
    """
    groups = grouped(scores, attrgetter("n_arguments"))
    return [score for group in groups.values() for score in evenly(group, RESCORED)]


def cells_of(scores: Sequence[ScoredRecord]) -> list[LengthCell]:
    """Return all cells that have a score, sorted by sampler and length."""
    places = grouped(scores, attrgetter("sampler", "n_arguments"))
    return [
        LengthCell(name, n, group, Moments.of(numbers), ones(numbers))
        for sampler, name in NAMES.items()
        for n in sorted(n for of, n in places if of == sampler)
        for group, holds in GROUPS.items()
        if (numbers := values(places[sampler, n], holds))
    ]


def by_place(cells: Sequence[LengthCell], group: str) -> dict[tuple[str, int], LengthCell]:
    """Return the cells of one group by sampler and number of arguments."""
    return {(cell.sampler, cell.n): cell for cell in cells if cell.group == group}


def gains_of(scores: Sequence[ScoredRecord], holds: Condition) -> dict[int, MeanDifference]:
    """Return the difference of means of GCS and UCS by length, if both have `FEW` inputs."""
    pairs = _pairs(scores, holds, attrgetter("n_arguments"))
    return {
        n: MeanDifference.of(gcs, ucs)
        for n, (gcs, ucs) in sorted(pairs.items())
        if _least((gcs, ucs)) >= FEW
    }


def gains_by_command(scores: Sequence[ScoredRecord], holds: Condition) -> dict[int, MeanDifference]:
    """Return differences as in `gains_of`, but between inputs of the same command.

    A gain is the mean of the commands' differences, weighted by their numbers of UCS inputs. A
    command counts if both samplers have at least `FEW_OF_A_COMMAND` inputs of it. A length has a
    gain if both have at least `FEW` inputs of such commands.

    The reason: samplers differ in how often they write each command, and commands differ in how
    often they succeed.
    """
    pairs = sorted(_pairs(scores, holds, attrgetter("n_arguments", "command")).items())
    several = ((n, pair) for (n, _), pair in pairs if _least(pair) >= FEW_OF_A_COMMAND)
    gains = {}
    for n, commands in grouped(several, itemgetter(0)).items():
        total = sum(ucs.count for _, (_, ucs) in commands)
        if min(total, sum(gcs.count for _, (gcs, _) in commands)) >= FEW:
            weighed = [(pair[1].count / total, MeanDifference.of(*pair)) for _, pair in commands]
            gains[n] = MeanDifference(
                math.fsum(weight * gain.value for weight, gain in weighed),
                math.sqrt(math.fsum((weight * gain.error) ** 2 for weight, gain in weighed)),
            )
    return gains


def _least(pair: tuple[Moments, Moments]) -> int:
    return min(moments.count for moments in pair)


def _pairs(
    scores: Sequence[ScoredRecord], holds: Condition, key: Callable[[ScoredRecord], Key]
) -> dict[Key, tuple[Moments, Moments]]:
    """Return the scores of GCS and of UCS by group; groups that lack either are left out."""
    pairs = {}
    for place, group in grouped(filter(holds, scores), key).items():
        gcs, ucs = (
            Moments.of(values(group_scores(group, sampler, 0))) for sampler in ("gcs", "ucs")
        )
        if gcs.count and ucs.count:
            pairs[place] = gcs, ucs
    return pairs


def group_scores(scores: Sequence[ScoredRecord], sampler: str, least: int) -> list[ScoredRecord]:
    """Return a sampler's scores of inputs with at least `least` arguments."""
    return [s for s in scores if s.sampler == sampler and s.n_arguments >= least]
