"""Error of every estimator against the number of executions, to guide the choice of an estimator.

This experiment is our addition. Inputs of `sampling_efficiency` are reused, and missing ones are
executed.
"""

from __future__ import annotations

import math
from itertools import product

from shioenv.irreducibility.estimators import ESTIMATORS
from shioenv.text import fixed, rounded
from shioenv_eval.report.markup import Table
from shioenv_paper.estimator_replay import Cells, cells, replayed
from shioenv_paper.exact import collect_exact_inputs, wanted_by_length
from shioenv_paper.experiment_output import Findings, experiment
from shioenv_paper.length_groups import PAPER_LENGTH
from shioenv_paper.sampling_efficiency import (
    COUNT,
    LONGEST,
    REPLAYS,
    count_by_length,
    error_columns,
)
from shioenv_paper.setting import ExperimentSetting

NAME = "estimators"
BUDGETS = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
SHORTEST = max(BUDGETS).bit_length()
"""From this number of arguments on, no budget covers all sub-inputs, so no estimate is exact."""
ERRORS = (0.1, 0.05, 0.03, 0.02, 0.01, 0.005)
"""Target mean absolute errors for the table."""


@experiment(NAME)
def run_estimator_errors(
    setting: ExperimentSetting,
    *,
    count: int = COUNT,
    longest: int = LONGEST,
    replays: int = REPLAYS,
) -> Findings:
    """Run like `run_sampling_efficiency`, with more budgets, and only on longer inputs.

    The inputs have at least `SHORTEST` arguments, or `longest` if that is less.
    """
    from shioenv_paper import experiment_charts

    collected = collect_exact_inputs(setting, wanted_by_length(count, longest))
    shortest = min(SHORTEST, longest)
    inputs = [known for known in collected.inputs if known.n >= shortest]
    accuracies = replayed(inputs, BUDGETS, replays, setting)
    longest_label = f"{longest} arguments"
    groups = {f"{shortest} to {longest_label}": cells(accuracies)} if shortest < longest else {}
    groups[longest_label] = cells(accuracy for accuracy in accuracies if accuracy.n == longest)
    return Findings(
        title="Estimators: error by number of executions",
        data={"errors": error_columns(accuracies)},
        tables=[
            *(_choice_table(label, group) for label, group in groups.items()),
            *(_budget_table(label, group) for label, group in groups.items()),
        ],
        chart=experiment_charts.draw_estimators(
            groups, longest_label if longest >= PAPER_LENGTH else None, len(inputs), replays
        ),
        counts={**count_by_length(collected), "inputs replayed": len(inputs)},
        parameters={
            "inputs of each length": count,
            "longest": longest,
            "replays": replays,
            "budgets": list(BUDGETS),
        },
        summary={
            label: {
                name: [rounded(spent(group, name, error)) for error in ERRORS]
                for name in ESTIMATORS
            }
            for label, group in groups.items()
        },
    )


def spent(group: Cells, estimator: str, error: float) -> float | None:
    """Return the executions needed for a mean absolute error of `error` or less, or None.

    Between two budgets, the error is interpolated linearly in log-log scale.
    """
    mine = (cell for cell in group.values() if cell.estimator == estimator)
    curve = sorted((cell.executions, cell.error.value) for cell in mine)
    for before, after in zip([None, *curve], curve, strict=False):
        if after[1] > error:
            continue
        if before is None or after[1] <= 0:
            return after[0]
        way = math.log(before[1] / error) / math.log(before[1] / after[1])
        return before[0] * math.exp(way * math.log(after[0] / before[0]))
    return None


def _choice_table(label: str, group: Cells) -> Table:
    return Table(
        f"Executions needed for a target error, {label}",
        "Each cell has the mean number of distinct sub-inputs executed to reach the column's mean "
        "absolute error, without the runs of the whole input; a dash if none does.",
        ("estimator", *(f"{error:g}" for error in ERRORS)),
        [
            (f"`{name}`", *(fixed(spent(group, name, error), 0) for error in ERRORS))
            for name in ESTIMATORS
        ],
    )


def _budget_table(label: str, group: Cells) -> Table:
    inputs = next(iter(group.values())).error.count
    return Table.of(
        f"Errors by budget, {label}",
        f"The 95% intervals are over the {inputs} inputs.",
        {
            "estimator": lambda cell: f"`{cell.estimator}`",
            "budget": lambda cell: str(cell.budget),
            "executed": lambda cell: f"{cell.executions:.1f}",
            "mean absolute error": lambda cell: f"{cell.error.value:.4f}",
            "interval": lambda cell: f"{cell.error.low:.4f} to {cell.error.high:.4f}",
            "bias": lambda cell: f"{cell.bias:+.4f}",
        },
        (group[place] for place in product(ESTIMATORS, BUDGETS)),
    )
