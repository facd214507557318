"""Irreducibility by number of arguments, of inputs that the three samplers write.

Section 4.3 of the paper. Single commands, every number of arguments equally often.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

from shioenv.experiments import quoted
from shioenv.experiments.length_chart import chart_of
from shioenv.experiments.length_groups import (
    FEW,
    GROUPS,
    Cell,
    by_place,
    cells_of,
    gains_of,
    scores_of,
)
from shioenv.experiments.means import Z, fixed, rounded
from shioenv.experiments.reference import (
    NOTE,
    RULES,
    ByRule,
    Ruled,
    means_by_rule,
    rule_columns,
    scores_by_rule,
)
from shioenv.experiments.results import Findings, Outcome, Table, check_libraries, write
from shioenv.experiments.scores import NAMES, Made, Score, columns, made, values
from shioenv.experiments.setting import Setting
from shioenv.irreducibility.score import BUDGET, ESTIMATOR
from shioenv.synthesis.policy import LENGTHS

NAME = "irreducibility-by-length"
COUNT = 50_000
"""Inputs of each sampler at full size: 3,846 of each length from 0 to 12."""
PAPER_COUNT = 250_000
"""Inputs of each sampler in the paper."""
RESCORED = 100
"""Inputs of each sampler and length that are also scored as the reference implementation does."""


def run(
    setting: Setting, *, count: int = COUNT, budget: int = BUDGET, estimator: str = ESTIMATOR
) -> Outcome:
    """Generates `count` inputs with each sampler and writes what came out.

    Errors: MissingExtraError before anything is executed; those of `made` and `write`.
    """
    check_libraries()
    started = time.monotonic()
    datasets = {
        sampler: made(
            setting, f"{sampler}-lengths", sampler, count,
            budget=budget, estimator=estimator, policy="lengths", composite_share=0.0,
        )
        for sampler in NAMES
    }  # fmt: skip
    scores = [score for one in datasets.values() for score in one.scores]
    ruled = [
        row
        for one in datasets.values()
        for row in scores_by_rule(setting, one.directory, _first(one.scores))
    ]
    found = cells_of(scores)
    findings = Findings(
        title="Irreducibility by number of arguments",
        data={"scores": columns(scores), "rules": rule_columns(ruled)},
        tables=[
            *(_table(found, group) for group in GROUPS),
            _gain_table(found),
            _distribution_table(scores),
            _rule_table(ruled),
            _rule_length_table(ruled),
        ],
        chart=chart_of(scores, found, budget),
        counts=_counts(datasets),
        parameters={"inputs of each sampler": count, "budget": budget, "estimator": estimator},
        summary=_summary(scores, found),
    )
    return write(setting, NAME, findings, started=started)


def _first(scores: Sequence[Score]) -> list[Score]:
    """The first of each number of arguments that can be scored and do the same again."""
    groups: dict[int, list[Score]] = defaultdict(list)
    for one in scores:
        if one.n_arguments and not one.volatile:
            groups[one.n_arguments].append(one)
    return [one for group in groups.values() for one in group[:RESCORED]]


def _table(found: Sequence[Cell], group: str) -> Table:
    cells = by_place(found, group)
    lengths = sorted({n for _, n in cells})
    rows = []
    for n in lengths:
        row = [str(n)]
        for name in NAMES.values():
            cell = cells.get((name, n))
            if cell is None:
                row += ["0", "-", "-"]
                continue
            spread = cell.spread
            row += [
                f"{spread.count:,}",
                f"{spread.mean:.3f} ± {spread.sd:.3f}",
                f"{100 * cell.ones / spread.count:.1f}%",
            ]
        rows.append(row)
    return Table(
        f"By number of arguments, {group}",
        "Number of inputs, mean ± standard deviation, share of those that are exactly 1. With one "
        "argument the score is whether it matters; with none there is no score.",
        (
            "arguments",
            *(f"{name}{what}" for name in NAMES.values() for what in ("", " R*", " at 1")),
        ),
        rows,
    )


def _gain_table(found: Sequence[Cell]) -> Table:
    gains = {group: gains_of(found, group) for group in GROUPS}
    cells = by_place(found, "all inputs")
    rows = []
    for n in sorted({n for one in gains.values() for n in one}):
        ucs, gcs = cells[NAMES["ucs"], n].spread.mean, cells[NAMES["gcs"], n].spread.mean
        rows.append(
            (
                str(n),
                *(_interval(one.get(n)) for one in gains.values()),
                f"{100 * (gcs / ucs - 1):+.0f}%" if ucs else "-",
            )
        )
    said, other = quoted.MEANS["gcs"], quoted.MEANS["ucs"]
    return Table(
        "GCS above UCS",
        f"Difference of the means with its 95% interval, where both have {FEW} inputs. The paper "
        f"says +{quoted.GAINS[0]} to +{quoted.GAINS[1]} for lengths from 2 to 12 (about 20% to "
        f"170%), and {said} against {other} (+{said - other:.3f}) at length {quoted.LENGTH}, which "
        "may count the command.",
        ("arguments", *GROUPS, "relative, all inputs"),
        rows,
    )


def _interval(gain: tuple[float, float] | None) -> str:
    if gain is None:
        return "-"
    value, error = gain
    return f"{value:+.3f} ({value - Z * error:+.3f} to {value + Z * error:+.3f})"


def _distribution_table(scores: Sequence[Score]) -> Table:
    rows = []
    for sampler, name in NAMES.items():
        for least, label in ((0, "all with a score"), (2, "2 and more")):
            for group, holds in GROUPS.items():
                numbers = values(scores_of(scores, sampler, least), holds)
                rows.append((name, label, group, *_quantiles(numbers)))
    return Table(
        "Distributions",
        f"The paper says that over {quoted.PERFECT:.0%} of its GCS inputs are exactly 1. With one "
        "argument a score is 0 or 1, so shares without those are given too.",
        ("sampler", "arguments", "inputs", "number", "mean", "exactly 0", "up to 0.5", "exactly 1"),
        rows,
    )


def _rule_table(ruled: Sequence[Ruled]) -> Table:
    return Table(
        "As the reference implementation scores",
        f"{NOTE} Of the first {RESCORED} inputs of each sampler and number of arguments that are "
        "not volatile, executed again.",
        ("sampler", "arguments", "inputs", *RULES),
        [
            (name, f"{least} and more", f"{len(group):,}", *map(fixed, means_by_rule(group)))
            for sampler, name in NAMES.items()
            for least in (1, 2)
            if (group := _of(ruled, sampler, LENGTHS[least:]))
        ],
    )


def _rule_length_table(ruled: Sequence[Ruled]) -> Table:
    rows = []
    for n in sorted({one.score.n_arguments for one in ruled}):
        row = [str(n)]
        ends = {}
        for sampler in NAMES:
            group = _of(ruled, sampler, (n,))
            ours, *_, all_three = means_by_rule(group) if group else (None, None)
            ends[sampler] = all_three
            row += [str(len(group)), fixed(ours), fixed(all_three)]
        gcs, ucs = ends["gcs"], ends["ucs"]
        rows.append([*row, "-" if gcs is None or ucs is None else f"{gcs - ucs:+.3f}"])
    return Table(
        "As the reference implementation scores, by number of arguments",
        "The same inputs: how many, R*, and the score by all three rules; then GCS above UCS by "
        "these rules.",
        (
            "arguments",
            *(f"{name}{what}" for name in NAMES.values() for what in ("", " R*", " by rules")),
            "GCS above UCS",
        ),
        rows,
    )


def _of(ruled: Sequence[Ruled], sampler: str, lengths: Container[int]) -> list[ByRule]:
    """Those of a sampler that have one of these numbers of arguments."""
    mine = [one for one in ruled if one.score.sampler == sampler]
    return [one.by_rule for one in mine if one.score.n_arguments in lengths]


def _quantiles(numbers: Sequence[float]) -> tuple[str, ...]:
    if not numbers:
        return "0", "-", "-", "-", "-"
    count = len(numbers)

    def share(holds: Callable[[float], bool]) -> str:
        return f"{100 * sum(map(holds, numbers)) / count:.1f}%"

    return (
        f"{count:,}",
        f"{sum(numbers) / count:.3f}",
        share(lambda number: number <= 0),
        share(lambda number: number <= 0.5),
        share(lambda number: number >= 1),
    )


def _counts(datasets: Mapping[str, Made]) -> dict[str, Any]:
    return {
        sampler: {
            "inputs": len(one.scores),
            "executed by an earlier call": len(one.scores) - min(one.new, len(one.scores)),
            "volatile": sum(score.volatile for score in one.scores),
            "fail": sum(score.exit_code != 0 for score in one.scores),
            "mean executions": round(
                sum(score.n_executions for score in one.scores) / len(one.scores), 1
            ),
        }
        for sampler, one in datasets.items()
    }


def _summary(scores: Sequence[Score], found: Sequence[Cell]) -> dict[str, Any]:
    gains = {n: gain for n, (gain, _) in gains_of(found, "all inputs").items() if n > 1}
    cells = by_place(found, "all inputs")
    at = {
        name: rounded(cells[name, quoted.LENGTH].spread.mean)
        for name in NAMES.values()
        if (name, quoted.LENGTH) in cells
    }
    gcs = values(scores, lambda one: one.sampler == "gcs")
    ones = sum(one >= 1 for one in gcs) / max(1, len(gcs))
    return {
        "GCS above UCS, least": rounded(min(gains.values(), default=None)),
        "GCS above UCS, most": rounded(max(gains.values(), default=None)),
        f"means at length {quoted.LENGTH}": at,
        "share of GCS inputs at exactly 1": rounded(ones),
    }
