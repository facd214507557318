"""Irreducibility by number of arguments, of inputs that the three samplers write.

Section 4.3 of the paper. Single commands, every number of arguments equally often.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from shioenv.experiments import quoted
from shioenv.experiments.length_groups import (
    GROUPS,
    LengthCell,
    by_place,
    cells_of,
    gains_of,
    to_rescore,
)
from shioenv.experiments.length_tables import tables_of
from shioenv.experiments.reference import Rescoring, rule_columns, scores_by_rule
from shioenv.experiments.results import Findings, Outcome, check_libraries, write
from shioenv.experiments.scores import NAMES, Made, Score, columns, made, values
from shioenv.experiments.setting import Setting
from shioenv.irreducibility.scoring import Scoring
from shioenv.report.text import rounded
from shioenv.synthesis.drawing import Drawing

NAME = "irreducibility-by-length"
COUNT = 50_000
"""Inputs of each sampler at full size: 3,846 of each length from 1 to 12 at least."""
PAPER_COUNT = 250_000
"""Inputs of each sampler in the paper."""


def run(setting: Setting, *, count: int = COUNT, scoring: Scoring = Scoring()) -> Outcome:
    """Generates `count` inputs with each sampler and writes what came out.

    Errors: MissingExtraError before anything is executed; those of `made` and `write`.
    """
    check_libraries()
    from shioenv.experiments import charts

    started = time.monotonic()
    datasets = {
        sampler: made(
            setting,
            f"{sampler}-lengths",
            count,
            Drawing(sampler=sampler, policy="lengths", composite_share=0.0),
            scoring,
        )
        for sampler in NAMES
    }
    scores = [score for one in datasets.values() for score in one.scores]
    rescorings = {
        sampler: scores_by_rule(setting, one.directory, to_rescore(one.scores))
        for sampler, one in datasets.items()
    }
    ruled = [row for one in rescorings.values() for row in one.ruled]
    found = cells_of(scores)
    findings = Findings(
        title="Irreducibility by number of arguments",
        data={"scores": columns(scores), "rules": rule_columns(ruled)},
        tables=list(tables_of(scores, found, ruled)),
        chart=charts.by_length(scores, found, scoring.budget),
        counts=_counts(datasets, rescorings),
        parameters={
            "inputs of each sampler": count,
            "budget": scoring.budget,
            "estimator": scoring.estimator,
        },
        summary=_summary(scores, found),
    )
    return write(setting, NAME, findings, started=started)


def _counts(datasets: Mapping[str, Made], rescorings: Mapping[str, Rescoring]) -> dict[str, Any]:
    return {
        sampler: {
            **one.counts,
            "mean executions": round(
                sum(score.n_executions for score in one.scores) / len(one.scores), 1
            ),
            **rescorings[sampler].counts,
        }
        for sampler, one in datasets.items()
    }


def _summary(scores: Sequence[Score], found: Sequence[LengthCell]) -> dict[str, Any]:
    gains = [gain.value for n, gain in gains_of(scores, GROUPS["all inputs"]).items() if n > 1]
    cells = by_place(found, "all inputs")
    at = {
        name: rounded(cells[name, quoted.LENGTH].spread.mean)
        for name in NAMES.values()
        if (name, quoted.LENGTH) in cells
    }
    gcs = values(scores, lambda one: one.sampler == "gcs")
    ones = sum(one >= 1 for one in gcs) / max(1, len(gcs))
    return {
        "GCS above UCS, least": rounded(min(gains, default=None)),
        "GCS above UCS, most": rounded(max(gains, default=None)),
        f"means at length {quoted.LENGTH}": at,
        "share of GCS inputs at exactly 1": rounded(ones),
    }
