"""Deviation of budgeted estimates from the exact score, by budget and number of arguments.

This is Section 4.2 of the paper, with every estimator instead of one. Exact scores come from
executing all sub-inputs. Estimates are replayed on these executions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any

from shioenv.irreducibility.estimators import ESTIMATORS
from shioenv.text import fixed, share
from shioenv_eval.report.markup import Table, grouped
from shioenv_eval.report.means import Mean, Moments
from shioenv_paper.estimator_replay import Accuracy, Cells, cells, replayed
from shioenv_paper.exact import Collection, KnownInput, collect_exact_inputs, wanted_by_length
from shioenv_paper.experiment_output import Findings, columns, experiment
from shioenv_paper.setting import ExperimentSetting

NAME = "sampling-efficiency"
COUNT = 60
"""Number of inputs of each length (number of arguments) from 8 on, at full size."""
LONGEST = 12
REPLAYS = 20
"""Number of estimates of each input by each estimator at each budget."""
BUDGETS = (4, 8, 16, 32, 64, 128)


@experiment(NAME)
def run_sampling_efficiency(
    setting: ExperimentSetting,
    *,
    count: int = COUNT,
    longest: int = LONGEST,
    replays: int = REPLAYS,
) -> Findings:
    """Execute inputs with all their sub-inputs, replay every estimator, and write the results.

    Each length from 8 to `longest` arguments gets `count` inputs, each from 2 to 7 four times as
    many. Every estimator is replayed `replays` times on each input at each of `BUDGETS`. Errors:
    those of `experiment` and `collect_exact_inputs`.
    """
    from shioenv_paper import experiment_charts

    lengths = wanted_by_length(count, longest)
    collected = collect_exact_inputs(setting, lengths)
    accuracies = replayed(collected.inputs, BUDGETS, replays, setting)
    by_length = {n: cells(accuracy for accuracy in accuracies if accuracy.n == n) for n in lengths}
    return Findings(
        title="Sampling efficiency: estimates against exact scores",
        data={"errors": error_columns(accuracies), "inputs": input_columns(collected.inputs)},
        tables=(
            *(_error_table(name, by_length) for name in ESTIMATORS),
            _score_table(collected.inputs),
        ),
        chart=experiment_charts.draw_sampling_efficiency(by_length, len(collected.inputs), replays),
        counts=count_by_length(collected),
        parameters={
            "inputs of each length from 8": count,
            "longest": longest,
            "replays": replays,
            "budgets": list(BUDGETS),
        },
        summary={
            f"{cell.estimator}, M = {cell.budget}": round(cell.error.value, 5)
            for cell in by_length[longest].values()
        },
    )


def count_by_length(collected: Collection) -> dict[str, Any]:
    """Count the inputs of each length, and the skipped ones by reason."""
    lengths = Counter(known.n for known in collected.inputs)
    return {
        "inputs": len(collected.inputs),
        "by number of arguments": {str(n): lengths[n] for n in sorted(lengths)},
        "sub-inputs": sum((1 << known.n) - 2 for known in collected.inputs),
        "executed by an earlier call": collected.reused,
        **{f"skipped as {why}": number for why, number in collected.passed.items()},
    }


def error_columns(accuracies: Sequence[Accuracy]) -> dict[str, list[Any]]:
    """Return accuracies as columns."""
    return columns(accuracies, *(item.name for item in fields(Accuracy)))


def input_columns(inputs: Sequence[KnownInput]) -> dict[str, list[Any]]:
    """Return columns of inputs with all data for their scores.

    Sets of sub-inputs are bit arrays as in `KnownInput`.
    """
    return columns(
        inputs,
        *("number", "cwd", "exit_code", "noise_threshold", "seconds"),
        n_arguments="n",
        input="input.text",
        input_args="input_args",
        irreducibility="irreducibility",
        irreducibility_strict="irreducibility_strict",
        necessary="necessary",
        differs="differs",
        differs_strict="differs_strict",
    )


def _error_table(name: str, by_length: Mapping[int, Cells]) -> Table:
    note = (
        "The table has the mean absolute error (95% interval over inputs) if at most M sub-inputs "
        "are executed. It is 0 if M covers all sub-inputs."
    )
    if name == "paper":
        note += " The paper reports 0.03 at M = 32 and 0.02 at M = 64 for its longest inputs."
    rows = []
    for n, group in by_length.items():
        errors = [group[name, budget].error for budget in BUDGETS]
        rows.append((str(n), str(errors[0].count), *map(_shown, errors)))
    headers = ("arguments", "inputs", *(f"M = {budget}" for budget in BUDGETS))
    return Table(f"Estimator `{name}`", note, headers, rows)


def _shown(error: Mean) -> str:
    if not error.high:
        return "0"
    return f"{error.value:.4f} ({error.low:.4f} to {error.high:.4f})"


def _score_table(inputs: Sequence[KnownInput]) -> Table:
    groups = grouped(inputs, attrgetter("n"))
    return Table.of(
        "The exact scores",
        "R* is the mean (± standard deviation) of the irreducibility, *strict* its mean if outputs "
        "must have equal bytes. *Necessary* is the mean (± standard deviation) of the share of "
        "arguments whose omission alone changes the behavior.",
        {
            "arguments": lambda group: str(group[0].n),
            "inputs": lambda group: str(len(group)),
            "R*": lambda group: Moments.of([known.irreducibility for known in group]).text,
            "strict": lambda group: fixed(
                sum(known.irreducibility_strict for known in group) / len(group)
            ),
            "necessary": lambda group: Moments.of([known.necessary for known in group]).text,
            "inputs that fail": lambda group: share(
                sum(known.exit_code != 0 for known in group), len(group), 0
            ),
        },
        (groups[n] for n in sorted(groups)),
    )
