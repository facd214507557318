"""The scores of the four training sets: UCS, GCS, and GCS split at a score of 0.5.

This is Section 4.4 of the paper. Inputs are generated as by `shioenv generate`, with composites. If
a dataset of inputs that people wrote (NL2CMD) is given, its scores are added for comparison.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from shioenv.dataset.manifest import finished_manifest
from shioenv.errors import DatasetMismatchError
from shioenv.irreducibility.scoring import THE_PAPERS, Scoring
from shioenv.synthesis.drawing import Drawing
from shioenv.synthesis.policy import STOP_PROBABILITY
from shioenv.text import share
from shioenv_eval.report.markup import Table
from shioenv_eval.report.means import Moments
from shioenv_model.training.material import enlarged
from shioenv_paper.experiment_output import Findings, columns, experiment
from shioenv_paper.reference import (
    NOTE,
    RULES,
    Rescoring,
    evenly,
    rule_columns,
    scores_by_rule,
)
from shioenv_paper.scores import (
    COLUMNS,
    NAMES,
    PAPER_TRAINING,
    ScoredDataset,
    ScoredRecord,
    make_dataset,
    ones,
    scores_of,
    values,
)
from shioenv_paper.setting import ExperimentSetting

NAME = "training-sets"
COUNT = 50_000
"""Number of scored inputs of each source at full size; the paper's sets have 500,000 each."""

RESCORED = 1000
"""Maximum number of inputs of each source that are also scored by the reference rules."""

COMPOSITES = 0.25
"""Share of composites, the default of `shioenv generate`."""

SOURCES = ("ucs", "gcs")

SETS: Mapping[str, tuple[str, Callable[[float], bool]]] = {
    "UCS, R* ≥ 0": ("ucs", lambda score: True),
    "GCS, R* ≥ 0": ("gcs", lambda score: True),
    "GCS, R* ≥ 0.5": ("gcs", lambda score: score >= 0.5),
    "GCS, R* ≤ 0.5": ("gcs", lambda score: score <= 0.5),
}
"""The paper's training sets: a source, and a condition on its scores."""

GIVEN = "nl2cmd"
"""The source that cannot be generated: its dataset is given, or left out."""

GIVEN_SETS: Mapping[str, tuple[str, Callable[[float], bool]]] = {
    "NL2CMD, R* ≥ 0": (GIVEN, lambda score: True),
    "NL2CMD, R* ≥ 0.5": (GIVEN, lambda score: score >= 0.5),
    "NL2CMD, R* ≤ 0.5": (GIVEN, lambda score: score <= 0.5),
}

_CALLED = {**NAMES, GIVEN: "NL2CMD"}


@experiment(NAME)
def run_training_sets(
    setting: ExperimentSetting,
    *,
    count: int = COUNT,
    scoring: Scoring = THE_PAPERS,
    nl2cmd: Path | None = None,
    rules: bool = True,
) -> Findings:
    """Generate inputs until `count` of each source have a score, and write the results.

    `nl2cmd` is a dataset of inputs that people wrote, scored on the same system with the same
    settings. Without `rules`, no input is executed again. Errors: those of `experiment`,
    `make_dataset` and `scores_by_rule`; DatasetMismatchError if `nl2cmd` was scored on another
    system or with other settings.
    """
    from shioenv_paper import experiment_charts

    given = {} if nl2cmd is None else {GIVEN: _given(setting, nl2cmd, scoring)}
    generated = {source: _scored(setting, source, count, scoring) for source in SOURCES}
    datasets = {**generated, **given}
    scores = [score for dataset in datasets.values() for score in dataset.scores]
    cut = {**SETS, **(GIVEN_SETS if given else {})}
    sets = {
        name: list(filter(holds, values(datasets[source].scores)))
        for name, (source, holds) in cut.items()
    }
    rescorings = {
        source: scores_by_rule(setting, dataset.directory, evenly(dataset.scores, RESCORED))
        for source, dataset in generated.items()
        if rules
    }
    ruled = [row for rescoring in rescorings.values() for row in rescoring.ruled]
    return Findings(
        title="The training sets' scores",
        data={
            "scores": columns(scores, *COLUMNS),
            **({"rules": rule_columns(ruled)} if rules else {}),
        },
        tables=[
            _table(datasets, cut, sets),
            _source_table(datasets),
            _length_table(datasets),
            *([_rule_table(rescorings)] if rules else []),
        ],
        chart=experiment_charts.draw_training_sets(sets),
        counts={
            source: {
                **dataset.counts,
                "with a score": len(values(dataset.scores)),
                **(rescorings[source].counts if source in rescorings else {}),
            }
            for source, dataset in datasets.items()
        },
        parameters={
            "scored inputs of each source": count,
            "budget": scoring.budget,
            "estimator": scoring.estimator,
            "share of composites": COMPOSITES,
            "stop probability": STOP_PROBABILITY,
        },
        summary={name: _summary(Moments.of(numbers)) for name, numbers in sets.items()},
    )


def _scored(setting: ExperimentSetting, source: str, count: int, scoring: Scoring) -> ScoredDataset:
    """Return the source's inputs until `count` of them have a score."""
    wanted, new = count, 0
    drawing = Drawing(sampler=source, policy="paper", composite_share=COMPOSITES)
    while True:
        dataset = make_dataset(setting, source, wanted, drawing, scoring)
        new += dataset.new
        scored = len(values(dataset.scores))
        if scored >= count:
            return ScoredDataset(dataset.directory, new, _until(dataset.scores, count))
        wanted = enlarged(wanted, scored, count)


def _given(setting: ExperimentSetting, directory: Path, scoring: Scoring) -> ScoredDataset:
    plan = finished_manifest(directory).plan
    asked = replace(plan, scoring=scoring, system_digest=setting.system.digest)
    if others := plan.differences(asked):
        raise DatasetMismatchError(str(directory), others)
    return ScoredDataset(directory, 0, list(scores_of(directory)))


def _until(scores: Sequence[ScoredRecord], count: int) -> list[ScoredRecord]:
    """Return the shortest prefix of `scores` with `count` values, which must exist."""
    places = (place for place, s in enumerate(scores, 1) if s.irreducibility is not None)
    return list(scores[: next(islice(places, count - 1, None))])


def _summary(moments: Moments) -> dict[str, Any]:
    if not moments.count:
        return {"inputs": 0}
    return {"inputs": moments.count, "mean": round(moments.mean, 4), "sd": round(moments.sd, 4)}


def _table(
    datasets: Mapping[str, ScoredDataset],
    cut: Mapping[str, tuple[str, Callable[[float], bool]]],
    sets: Mapping[str, Sequence[float]],
) -> Table:
    rows = []
    for name, (source, holds) in cut.items():
        numbers = sets[name]
        several = values(datasets[source].scores, lambda score: score.n_arguments > 1)
        rows.append(
            (
                name,
                f"{len(numbers):,}",
                Moments.of(numbers).text,
                f"{PAPER_TRAINING[name][0]:.2f} ± {PAPER_TRAINING[name][1]:.2f}"
                if name in PAPER_TRAINING
                else "-",
                Moments.of(list(filter(holds, several))).text,
                share(ones(numbers), len(numbers)),
            )
        )
    return Table(
        "Mean and standard deviation",
        "Inputs without arguments have no score and are not included. A score of exactly 0.5 "
        "counts in both R* ≥ 0.5 and R* ≤ 0.5. *2 and more* covers inputs with at least two "
        "arguments.",
        ("set", "inputs", "ours", "paper", "2 and more", "exactly 1"),
        rows,
    )


def _source_table(datasets: Mapping[str, ScoredDataset]) -> Table:
    rows = []
    for source, dataset in datasets.items():
        total, counts = len(dataset.scores), dataset.counts
        commands = Counter(score.command for score in dataset.scores).most_common()
        sums = np.cumsum([count for _, count in commands])
        rows.append(
            (
                _CALLED[source],
                f"`{commands[0][0]}`, {share(commands[0][1], total)}",
                str(int(np.searchsorted(2 * sums, total)) + 1),
                _skewness(values(dataset.scores)),
                share(counts["fail"], total),
                share(counts["volatile"], total),
            )
        )
    return Table(
        "Commands and failures",
        "The skewness is below 0 if a few scores are far below the mean.",
        (
            *("source", "commonest command"),
            "number of commands with which half of the inputs begin (commonest first)",
            *("skewness of R*", "fail", "volatile"),
        ),
        rows,
    )


def _skewness(numbers: Sequence[float]) -> str:
    """Return the third standardised moment; a dash if all numbers are equal, or there are none."""
    array = np.asarray(numbers, dtype=float)
    spread = array.std() if len(array) else 0.0
    return f"{((array - array.mean()) ** 3).mean() / spread**3:.2f}" if spread else "-"


def _length_table(datasets: Mapping[str, ScoredDataset]) -> Table:
    rows = []
    for source, dataset in datasets.items():
        lengths = Counter(min(score.n_arguments, 13) for score in dataset.scores)
        shares = (share(lengths[n], len(dataset.scores)) for n in range(14))
        rows.append((_CALLED[source], *shares))
    return Table(
        "Arguments of the inputs",
        "The table has the share of inputs by number of removable arguments, over all commands of "
        "an input. The paper does not report the distribution of its sets.",
        ("source", *map(str, range(13)), "more"),
        rows,
    )


def _rule_table(rescorings: Mapping[str, Rescoring]) -> Table:
    rows = []
    for name, (source, holds) in SETS.items():
        by_rule = zip(*(row.by_rule for row in rescorings[source].ruled), strict=True)
        groups = [Moments.of(list(filter(holds, scores))) for scores in by_rule]
        if groups:
            cells = (f"{moments.text} ({moments.count})" for moments in groups)
            rows.append((name.replace("R*", "score"), *cells))
    return Table(
        "By the rules of the reference implementation",
        f"{NOTE} It covers up to {RESCORED:,} inputs of each source, evenly spaced among "
        "those that are not volatile, and executed again. The number in brackets is the size of "
        "the set. It differs because each rule splits the inputs at 0.5 by its own scores.",
        ("set", *RULES),
        rows,
    )
