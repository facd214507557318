"""How far a budgeted estimate is from the exact score, by budget and number of arguments.

Section 4.2 of the paper, with every estimator instead of one. The exact scores come from executing
all sub-inputs; estimates are replayed on what was executed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shioenv.experiments.exact import SETS, Collection, Known, collect, wanted
from shioenv.experiments.replay import Cell, Outcome, cells, replayed
from shioenv.experiments.results import Findings, check_libraries, write
from shioenv.experiments.results import Outcome as Result
from shioenv.experiments.setting import Setting
from shioenv.irreducibility.estimators import ESTIMATORS
from shioenv.report.means import Mean, Spread
from shioenv.report.tables import Table
from shioenv.report.text import fixed, share

NAME = "sampling-efficiency"
COUNT = 60
"""Inputs of each length from 8 arguments on, at full size."""
LONGEST = 12
REPLAYS = 20
"""Estimates of each input by each estimator at each budget."""
BUDGETS = (4, 8, 16, 32, 64, 128)


def run(
    setting: Setting, *, count: int = COUNT, longest: int = LONGEST, replays: int = REPLAYS
) -> Result:
    """Executes `count` inputs of each length from 8 arguments on and four times as many shorter
    ones, replays every estimator `replays` times on each, and writes what came out.

    Errors: MissingExtraError before anything is executed; those of `collect` and `write`.
    """
    check_libraries()
    from shioenv.experiments import charts

    started = time.monotonic()
    collected = collect(setting, wanted(count, longest))
    found = replayed(
        collected.inputs,
        BUDGETS,
        replays=replays,
        seed=setting.seed,
        executor=setting.executor,
        report=setting.report,
    )
    by_length = {n: cells([one for one in found if one.n == n]) for n in wanted(count, longest)}
    findings = Findings(
        title="Sampling efficiency: estimates against exact scores",
        data={"errors": error_columns(found), "inputs": input_columns(collected.inputs)},
        tables=(
            *(_error_table(name, by_length) for name in ESTIMATORS),
            _score_table(collected.inputs),
        ),
        chart=charts.sampling_efficiency(by_length, len(collected.inputs), replays),
        counts=counts(collected),
        parameters={
            "inputs of each length from 8": count,
            "longest": longest,
            "replays": replays,
            "budgets": list(BUDGETS),
        },
        summary=_summary(by_length[longest]),
    )
    return write(setting, NAME, findings, started=started)


def counts(collected: Collection) -> dict[str, Any]:
    """How many inputs there are of each length, and how many were passed over."""
    lengths = Counter(known.n for known in collected.inputs)
    return {
        "inputs": len(collected.inputs),
        "by number of arguments": {str(n): lengths[n] for n in sorted(lengths)},
        "sub-inputs": sum((1 << known.n) - 2 for known in collected.inputs),
        "executed by an earlier call": collected.reused,
        **{f"passed over as {why}": number for why, number in collected.passed.items()},
    }


def error_columns(found: Sequence[Outcome]) -> dict[str, list[Any]]:
    """Outcomes as columns."""
    names = ("number", "n", "estimator", "budget", "absolute_error", "error", "executions")
    return {name: [getattr(one, name) for one in found] for name in names}


def input_columns(inputs: Sequence[Known]) -> dict[str, list[Any]]:
    """Inputs with everything their scores rest on; bit m of `differs` is bit m % 8 of its byte
    m // 8, and stands for the sub-input of mask m.
    """
    sizes = [(1 << known.n) + 7 >> 3 for known in inputs]
    plain = ("number", "cwd", "exit_code", "noise_threshold", "seconds")
    scores = ("irreducibility", "irreducibility_strict")
    return {
        **{name: [getattr(known, name) for known in inputs] for name in plain},
        "n_arguments": [known.n for known in inputs],
        "input": [known.input.text for known in inputs],
        "input_args": [known.input.input_args for known in inputs],
        **{name: [getattr(known, name) for known in inputs] for name in scores},
        **{
            name: [
                getattr(known, name).to_bytes(size, "little")
                for known, size in zip(inputs, sizes, strict=True)
            ]
            for name in SETS
        },
    }


def _error_table(name: str, by_length: Mapping[int, Mapping[tuple[str, int], Cell]]) -> Table:
    note = "Mean absolute error (95% interval over inputs) by budget M; 0 where M covers all."
    if name == "paper":
        note += " The paper says 0.03 at M = 32 and 0.02 at M = 64 for its longest inputs."
    return Table(
        f"Estimator `{name}`",
        note,
        ("arguments", "inputs", *(f"M = {budget}" for budget in BUDGETS)),
        [
            (
                str(n),
                str(found[name, BUDGETS[0]].error.count),
                *(_shown(found[name, budget].error) for budget in BUDGETS),
            )
            for n, found in by_length.items()
        ],
    )


def _shown(error: Mean) -> str:
    if not error.high:
        return "0"
    return f"{error.value:.4f} ({error.low:.4f} to {error.high:.4f})"


def _by_length(inputs: Sequence[Known]) -> Iterator[tuple[int, list[Known]]]:
    for n in sorted({known.n for known in inputs}):
        yield n, [known for known in inputs if known.n == n]


def _score_table(inputs: Sequence[Known]) -> Table:
    rows = []
    for n, group in _by_length(inputs):
        spread = Spread.of([known.irreducibility for known in group])
        assert spread is not None
        rows.append(
            (
                str(n),
                str(len(group)),
                spread.text,
                fixed(_mean([known.irreducibility_strict for known in group])),
                share(sum(known.exit_code != 0 for known in group), len(group), 0),
            )
        )
    return Table(
        "The exact scores",
        "Mean (± standard deviation) of R*, and mean of the strict score.",
        ("arguments", "inputs", "R*", "strict", "inputs that fail"),
        rows,
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _summary(found: Mapping[tuple[str, int], Cell]) -> dict[str, Any]:
    """Mean absolute errors of the longest inputs."""
    return {
        f"{cell.estimator}, M = {cell.budget}": round(cell.error.value, 5)
        for cell in found.values()
    }
