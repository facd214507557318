"""Irreducibility by number of arguments, of inputs that the three samplers write.

Section 4.3 of the paper. Single commands, every number of arguments equally often.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shioenv.irreducibility.scoring import THE_PAPERS, Scoring
from shioenv.synthesis.drawing import Drawing
from shioenv.text import rounded
from shioenv_paper import quoted
from shioenv_paper.length_groups import (
    GROUPS,
    LengthCell,
    cells_of,
    gains_of,
    scores_of,
    to_rescore,
)
from shioenv_paper.length_tables import tables_of
from shioenv_paper.reference import rule_columns, scores_by_rule
from shioenv_paper.results import Findings, columns, experiment
from shioenv_paper.scores import COLUMNS, NAMES, ScoredRecord, made, ones, values
from shioenv_paper.setting import ExperimentSetting

NAME = "irreducibility-by-length"
COUNT = 50_000
"""Inputs of each sampler at full size: at least 3,846 of each length from 1 to 12."""
PAPER_COUNT = 250_000
"""Inputs of each sampler in the paper."""


@experiment(NAME)
def run(
    setting: ExperimentSetting, *, count: int = COUNT, scoring: Scoring = THE_PAPERS
) -> Findings:
    """Generates `count` inputs with each sampler, scores some by other rules, writes results.

    Errors: those of `experiment`, `made` and `scores_by_rule`.
    """
    from shioenv_paper import charts

    drawings = {
        sampler: Drawing(sampler=sampler, policy="lengths", composite_share=0.0)
        for sampler in NAMES
    }
    datasets = {
        sampler: made(setting, f"{sampler}-lengths", count, drawing, scoring)
        for sampler, drawing in drawings.items()
    }
    scores = [score for dataset in datasets.values() for score in dataset.scores]
    rescorings = {
        sampler: scores_by_rule(setting, dataset.directory, to_rescore(dataset.scores))
        for sampler, dataset in datasets.items()
    }
    ruled = [row for rescoring in rescorings.values() for row in rescoring.ruled]
    cells = cells_of(scores)
    return Findings(
        title="Irreducibility by number of arguments",
        data={"scores": columns(scores, *COLUMNS), "rules": rule_columns(ruled)},
        tables=list(tables_of(scores, cells, ruled)),
        chart=charts.by_length(scores, cells, scoring.budget),
        counts={
            sampler: {
                **dataset.counts,
                "mean executions": round(
                    sum(score.n_executions for score in dataset.scores) / len(dataset.scores), 1
                ),
                **rescorings[sampler].counts,
            }
            for sampler, dataset in datasets.items()
        },
        parameters={
            "inputs of each sampler": count,
            "budget": scoring.budget,
            "estimator": scoring.estimator,
        },
        summary=_summary(scores, cells),
    )


def _summary(scores: Sequence[ScoredRecord], cells: Sequence[LengthCell]) -> dict[str, Any]:
    gains = [gain.value for n, gain in gains_of(scores, GROUPS["all inputs"]).items() if n > 1]
    gcs = values(scores_of(scores, "gcs", 0))
    return {
        "GCS above UCS, least": rounded(min(gains, default=None)),
        "GCS above UCS, most": rounded(max(gains, default=None)),
        f"means at length {quoted.LENGTH}": {
            cell.sampler: rounded(cell.moments.mean)
            for cell in cells
            if (cell.group, cell.n) == ("all inputs", quoted.LENGTH)
        },
        "share of GCS inputs at exactly 1": rounded(ones(gcs) / max(1, len(gcs))),
    }
