"""Irreducibility of GCS inputs by policy: `paper`, `people`, and `mixed`.

This experiment is our addition, since the paper has one policy. Inputs are generated as by `shioenv
generate`, with composites.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from shioenv.irreducibility.scoring import THE_PAPERS, Scoring
from shioenv.synthesis.drawing import Drawing
from shioenv.text import count as counted
from shioenv.text import fixed, rounded, share
from shioenv_eval.report.markup import Table
from shioenv_eval.report.means import Moments
from shioenv_paper.experiment_output import Findings, columns, experiment
from shioenv_paper.scores import COLUMNS, ScoredRecord, make_dataset, ones, values
from shioenv_paper.setting import ExperimentSetting
from shioenv_paper.training_sets import COMPOSITES

NAME = "policies"
COUNT = 2_000
"""Number of inputs of each policy at full size."""

POLICIES = ("paper", "people", "mixed")
LONGEST = 12
"""Inputs with more arguments form one group."""

STEPS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9)
"""Scores at which the distribution functions are shown."""


@experiment(NAME)
def run_policies(
    setting: ExperimentSetting, *, count: int = COUNT, scoring: Scoring = THE_PAPERS
) -> Findings:
    """Generate `count` inputs by each policy and write the results.

    Errors: those of `experiment` and `make_dataset`.
    """
    from shioenv_paper import experiment_charts

    datasets = {
        policy: make_dataset(
            setting,
            f"gcs-{policy}",
            count,
            Drawing(policy=policy, composite_share=COMPOSITES),
            scoring,
        )
        for policy in POLICIES
    }
    scores = {policy: dataset.scores for policy, dataset in datasets.items()}
    data = {f"scores-{policy}": columns(found, *COLUMNS) for policy, found in scores.items()}
    return Findings(
        title="Irreducibility by policy",
        data=data,
        tables=list(_tables(scores)),
        chart=experiment_charts.draw_policies(scores, scoring.budget),
        counts={policy: dataset.counts for policy, dataset in datasets.items()},
        parameters={
            "inputs of each policy": count,
            "budget": scoring.budget,
            "estimator": scoring.estimator,
            "share of composites": COMPOSITES,
        },
        summary={
            policy: {"mean": rounded(Moments.of(values(found)).mean), "ones": ones(values(found))}
            for policy, found in scores.items()
        },
    )


def length(score: ScoredRecord) -> int:
    """Return the number of arguments; `LONGEST + 1` for all above `LONGEST`."""
    return min(score.n_arguments, LONGEST + 1)


def _tables(scores: Mapping[str, Sequence[ScoredRecord]]) -> Iterator[Table]:
    rows = []
    for policy, found in scores.items():
        for least, label in ((0, "all with a score"), (2, "2 and more")):
            numbers = values(found, lambda score, least=least: score.n_arguments >= least)  # type: ignore[misc]
            total = len(numbers)
            steps = (share(sum(one <= step for one in numbers), total) for step in STEPS)
            rows.append(
                (
                    policy,
                    label,
                    counted(total),
                    Moments.of(numbers).text,
                    *steps,
                    share(ones(numbers), total),
                )
            )
    yield Table(
        "Distributions",
        "Columns *up to* have the share of inputs with at most that score. With one argument, the "
        "score is 0 or 1.",
        (
            *("policy", "arguments", "inputs", "R*"),
            *(f"up to {step:g}" for step in STEPS),
            "exactly 1",
        ),
        rows,
    )
    yield Table(
        "By number of arguments",
        "Each policy has its number of inputs, R* (mean ± standard deviation), and the share of "
        "scores that are exactly 1.",
        (
            "arguments",
            *(f"{policy}{what}" for policy in scores for what in ("", " R*", " at 1")),
        ),
        [
            (str(n) if n <= LONGEST else "more", *_cells(scores, n))
            for n in range(1, LONGEST + 2)
            if any(length(score) == n for found in scores.values() for score in found)
        ],
    )
    yield Table(
        "The inputs",
        "The shares include inputs without arguments and volatile ones.",
        ("policy", "inputs", "arguments, mean", "no argument", "exit 0", "volatile"),
        [
            (
                policy,
                counted(len(found)),
                fixed(sum(score.n_arguments for score in found) / max(1, len(found))),
                share(sum(not score.n_arguments for score in found), len(found)),
                share(sum(not score.exit_code for score in found), len(found)),
                share(sum(score.volatile for score in found), len(found)),
            )
            for policy, found in scores.items()
        ],
    )


def _cells(scores: Mapping[str, Sequence[ScoredRecord]], n: int) -> Iterator[str]:
    for found in scores.values():
        numbers = values(found, lambda score: length(score) == n)
        yield counted(len(numbers))
        yield Moments.of(numbers).text
        yield share(ones(numbers), len(numbers))
