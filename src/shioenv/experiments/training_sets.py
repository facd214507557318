"""The scores of the four training sets: what UCS and GCS write, and GCS cut at a score of 0.5.

Section 4.4 of the paper. Inputs are as `shioenv generate` makes them, composites included.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shioenv.experiments import quoted
from shioenv.experiments.reference import (
    NOTE,
    RULES,
    Rescoring,
    evenly,
    rule_columns,
    scores_by_rule,
)
from shioenv.experiments.results import Findings, Outcome, check_libraries, write
from shioenv.experiments.scores import NAMES, Made, Score, columns, made, values
from shioenv.experiments.setting import Setting
from shioenv.irreducibility.scoring import Scoring
from shioenv.report.means import Spread
from shioenv.report.tables import Table
from shioenv.report.text import share
from shioenv.synthesis.drawing import Drawing
from shioenv.synthesis.policy import STOP_PROBABILITY

NAME = "training-sets"
COUNT = 50_000
"""Scored inputs of each source at full size; the paper's sets have 500,000 each."""

RESCORED = 1000
"""Inputs of each source that are also scored as the reference implementation does."""

COMPOSITES = 0.25
"""Share of composites, the default of `shioenv generate`."""

SOURCES = ("ucs", "gcs")

SETS: Mapping[str, tuple[str, Callable[[float], bool]]] = {
    "UCS, R* ≥ 0": ("ucs", lambda score: True),
    "GCS, R* ≥ 0": ("gcs", lambda score: True),
    "GCS, R* ≥ 0.5": ("gcs", lambda score: score >= 0.5),
    "GCS, R* ≤ 0.5": ("gcs", lambda score: score <= 0.5),
}
"""The paper's training sets: a source, and which of its scores are in the set."""


def run(
    setting: Setting,
    *,
    count: int = COUNT,
    scoring: Scoring = Scoring(),
) -> Outcome:
    """Generates inputs until `count` of each source have a score, and writes what came out.

    Errors: MissingExtraError before anything is executed; those of `made` and `write`.
    """
    check_libraries()
    from shioenv.experiments import charts

    started = time.monotonic()
    datasets = {source: _scored(setting, source, count, scoring) for source in SOURCES}
    scores = [score for one in datasets.values() for score in one.scores]
    sets = {name: _set(datasets, name) for name in SETS}
    rescorings = {
        source: scores_by_rule(setting, one.directory, evenly(one.scores, RESCORED))
        for source, one in datasets.items()
    }
    findings = Findings(
        title="The training sets' scores",
        data={
            "scores": columns(scores),
            "rules": rule_columns([row for one in rescorings.values() for row in one.ruled]),
        },
        tables=[_table(datasets, sets), _length_table(datasets), _rule_table(rescorings)],
        chart=charts.training_sets(sets),
        counts={
            source: {
                **one.counts,
                "with a score": len(values(one.scores)),
                **rescorings[source].counts,
            }
            for source, one in datasets.items()
        },
        parameters={
            "scored inputs of each source": count,
            "budget": scoring.budget,
            "estimator": scoring.estimator,
            "share of composites": COMPOSITES,
            "stop probability": STOP_PROBABILITY,
        },
        summary={name: _summary(numbers) for name, numbers in sets.items()},
    )
    return write(setting, NAME, findings, started=started)


def _scored(setting: Setting, source: str, count: int, scoring: Scoring) -> Made:
    """The source's inputs up to the one that has the last score wanted."""
    wanted, new = count, 0
    while True:
        drawing = Drawing(sampler=source, composite_share=COMPOSITES)
        found = made(setting, source, wanted, drawing, scoring)
        new += found.new
        scored = len(values(found.scores))
        if scored >= count:
            return Made(found.directory, new, _until(found.scores, count))
        wanted += math.ceil(1.02 * (count - scored) * wanted / max(scored, 1))


def _until(scores: Sequence[Score], count: int) -> list[Score]:
    """The first scores, as many as hold `count` that are not None."""
    left = count
    for place, one in enumerate(scores, 1):
        left -= one.irreducibility is not None
        if not left:
            return list(scores[:place])
    return list(scores)


def _set(datasets: Mapping[str, Made], name: str) -> list[float]:
    source, holds = SETS[name]
    return [score for score in values(datasets[source].scores) if holds(score)]


def _summary(numbers: Sequence[float]) -> dict[str, Any]:
    spread = Spread.of(numbers)
    if spread is None:
        return {"inputs": 0}
    return {"inputs": spread.count, "mean": round(spread.mean, 4), "sd": round(spread.sd, 4)}


def _table(datasets: Mapping[str, Made], sets: Mapping[str, Sequence[float]]) -> Table:
    rows = []
    for name, numbers in sets.items():
        source, holds = SETS[name]
        several = [
            score
            for score in values(datasets[source].scores, lambda one: one.n_arguments > 1)
            if holds(score)
        ]
        mean, sd = quoted.TRAINING[name]
        rows.append(
            (
                name,
                f"{len(numbers):,}",
                _shown(numbers),
                f"{mean:.2f} ± {sd:.2f}",
                _shown(several),
                share(sum(one >= 1 for one in numbers), len(numbers)),
            )
        )
    return Table(
        "Mean and standard deviation",
        "Of the inputs with a score; those without arguments have none. A score of exactly 0.5 is "
        "in both of the sets that are cut there. *2 and more*: without inputs of one argument.",
        ("set", "inputs", "ours", "paper", "2 and more", "exactly 1"),
        rows,
    )


def _shown(numbers: Sequence[float]) -> str:
    spread = Spread.of(numbers)
    return "-" if spread is None else spread.text


def _length_table(datasets: Mapping[str, Made]) -> Table:
    rows = []
    for source, one in datasets.items():
        lengths = Counter(min(score.n_arguments, 13) for score in one.scores)
        total = len(one.scores)
        rows.append((NAMES[source], *(share(lengths[n], total) for n in range(14))))
    return Table(
        "Arguments of the inputs",
        "Share of each source's inputs by number of removable arguments, over all commands of an "
        "input; the paper does not say how its sets are distributed.",
        ("source", *map(str, range(13)), "more"),
        rows,
    )


def _rule_table(rescorings: Mapping[str, Rescoring]) -> Table:
    rows = []
    for name, (source, holds) in SETS.items():
        rules = zip(*(one.by_rule for one in rescorings[source].ruled), strict=True)
        cells = [_counted([score for score in scores if holds(score)]) for scores in rules]
        if cells:
            rows.append((name.replace("R*", "score"), *cells))
    return Table(
        "By the rules of the reference implementation",
        f"{NOTE} Of up to {RESCORED:,} inputs of each source, evenly spaced among those that are "
        "not volatile, executed again; in brackets how many are in the set, since each rule's "
        "scores are cut at 0.5 by themselves.",
        ("set", *RULES),
        rows,
    )


def _counted(numbers: Sequence[float]) -> str:
    return f"{_shown(numbers)} ({len(numbers)})"
