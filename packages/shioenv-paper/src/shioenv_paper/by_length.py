"""Irreducibility by number of arguments, for inputs of the three samplers.

This is Section 4.3 of the paper. The inputs are single commands, with every number of arguments
equally often.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from shioenv.irreducibility.scoring import THE_PAPERS, Scoring
from shioenv.synthesis.drawing import Drawing
from shioenv.synthesis.policy import LENGTHS
from shioenv.text import count as counted
from shioenv.text import fixed, rounded, share
from shioenv_eval.report.markup import Table, grouped
from shioenv_eval.report.means import MeanDifference, Moments
from shioenv_paper.experiment_output import Findings, columns, experiment
from shioenv_paper.length_groups import (
    FEW,
    FEW_OF_A_COMMAND,
    GROUPS,
    PAPER_GAINS,
    PAPER_LENGTH,
    PAPER_MEANS,
    PAPER_PERFECT,
    RESCORED,
    Condition,
    LengthCell,
    by_place,
    cells_of,
    gains_by_command,
    gains_of,
    group_scores,
    to_rescore,
)
from shioenv_paper.reference import (
    NOTE,
    RULES,
    ByRule,
    Ruled,
    means_by_rule,
    rule_columns,
    scores_by_rule,
)
from shioenv_paper.scores import COLUMNS, NAMES, ScoredRecord, make_dataset, ones, values
from shioenv_paper.setting import ExperimentSetting

NAME = "irreducibility-by-length"
COUNT = 50_000
"""Inputs of each sampler at full size: at least 3,846 of each length from 1 to 12."""
PAPER_COUNT = 250_000
"""Inputs of each sampler in the paper."""


@experiment(NAME)
def run_by_length(
    setting: ExperimentSetting,
    *,
    count: int = COUNT,
    scoring: Scoring = THE_PAPERS,
    rules: bool = True,
) -> Findings:
    """Generate `count` inputs with each sampler, and write the results.

    With `rules`, some are executed again and scored by the reference rules. Errors: those of
    `experiment`, `make_dataset` and `scores_by_rule`.
    """
    from shioenv_paper import experiment_charts

    drawings = {
        sampler: Drawing(sampler=sampler, policy="lengths", composite_share=0.0)
        for sampler in NAMES
    }
    datasets = {
        sampler: make_dataset(setting, f"{sampler}-lengths", count, drawing, scoring)
        for sampler, drawing in drawings.items()
    }
    scores = [score for dataset in datasets.values() for score in dataset.scores]
    rescorings = {
        sampler: scores_by_rule(setting, dataset.directory, to_rescore(dataset.scores))
        for sampler, dataset in datasets.items()
        if rules
    }
    ruled = [row for rescoring in rescorings.values() for row in rescoring.ruled]
    cells = cells_of(scores)
    return Findings(
        title="Irreducibility by number of arguments",
        data={
            "scores": columns(scores, *COLUMNS),
            **({"rules": rule_columns(ruled)} if rules else {}),
        },
        tables=list(_tables(scores, cells, ruled if rules else None)),
        chart=experiment_charts.by_length(scores, cells, scoring.budget),
        counts={
            sampler: {
                **dataset.counts,
                "mean executions": round(
                    sum(score.n_executions for score in dataset.scores) / len(dataset.scores), 1
                ),
                **(rescorings[sampler].counts if rules else {}),
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
    gcs = values(group_scores(scores, "gcs", 0))
    return {
        "GCS minus UCS, minimum": rounded(min(gains, default=None)),
        "GCS minus UCS, maximum": rounded(max(gains, default=None)),
        f"means at length {PAPER_LENGTH}": {
            cell.sampler: rounded(cell.moments.mean)
            for cell in cells
            if (cell.group, cell.n) == ("all inputs", PAPER_LENGTH)
        },
        "share of GCS inputs at exactly 1": rounded(ones(gcs) / max(1, len(gcs))),
    }


def _tables(
    scores: Sequence[ScoredRecord], cells: Sequence[LengthCell], ruled: Sequence[Ruled] | None
) -> Iterator[Table]:
    """Yield all tables in reading order; those of the rules only if some inputs were `ruled`."""
    for group in GROUPS:
        yield _table(cells, group)
    yield _gain_table(scores, cells)
    yield _gain_command_table(scores)
    yield _distribution_table(scores)
    yield _operand_table(scores)
    yield _command_table(scores)
    if ruled is not None:
        yield _rule_table(ruled)
        yield _rule_length_table(ruled)


def _heads(names: Iterable[str], *said: str) -> list[str]:
    """Return headers: for each name a column of counts, then one for each entry of `said`."""
    return ["arguments", *(f"{name}{what}" for name in names for what in ("", *said))]


def _table(cells: Sequence[LengthCell], group: str) -> Table:
    places = by_place(cells, group)
    rows = []
    for n in sorted({n for _, n in places}):
        row = [str(n)]
        for name in NAMES.values():
            cell = places.get((name, n), LengthCell(name, n, group, Moments.of(()), 0))
            total = cell.moments.count
            row += [counted(total), cell.moments.text, share(cell.ones, total)]
        rows.append(row)
    return Table(
        f"By number of arguments, {group}",
        "Each sampler has its number of inputs, R* (mean ± standard deviation), and the share of "
        "scores that are exactly 1. With one argument, the score is 1 if the command alone behaves "
        "differently, else 0. Inputs without arguments have no score.",
        (*_heads(NAMES.values(), " R*", " at 1"),),
        rows,
    )


def _gain_table(scores: Sequence[ScoredRecord], cells: Sequence[LengthCell]) -> Table:
    groups = {**GROUPS, "inputs that are not volatile": lambda score: not score.volatile}
    means = {place: cell.moments.mean for place, cell in by_place(cells, "all inputs").items()}

    def relative(n: int) -> str:
        ucs, gcs = means[NAMES["ucs"], n], means[NAMES["gcs"], n]
        return f"{100 * (gcs / ucs - 1):+.0f}%" if ucs else "-"

    stated, other = PAPER_MEANS["gcs"], PAPER_MEANS["ucs"]
    gains = [gains_of(scores, holds) for holds in groups.values()]
    return Table(
        "Difference of GCS and UCS",
        "The table has GCS's mean score (grammar-constrained sampling) minus UCS's (unconstrained "
        "sampling), with a 95% interval, for numbers of arguments with at least "
        f"{FEW} inputs of both. The paper reports differences of +{PAPER_GAINS[0]} to "
        f"+{PAPER_GAINS[1]} for lengths from 2 to 12, which is 20% to 170% of the UCS mean. At "
        f"length {PAPER_LENGTH} the paper's means are {stated} (GCS) and {other} (UCS). The "
        "paper's lengths may count the command.",
        ("arguments", *groups, "all inputs, relative to UCS"),
        [(str(n), *texts, relative(n)) for n, texts in _gains(gains)],
    )


def _gain_command_table(scores: Sequence[ScoredRecord]) -> Table:
    gains = [gains_by_command(scores, holds) for holds in GROUPS.values()]
    return Table(
        "Difference of GCS and UCS, by command",
        "The table has the mean difference over commands, weighted by their number of UCS inputs, "
        f"with a 95% interval. Only commands with at least {FEW_OF_A_COMMAND} inputs of both "
        "samplers are included. Inputs that succeed and inputs that fail are distributed "
        "differently over the commands, so the columns are not averages over the same commands.",
        ("arguments", *GROUPS),
        [(str(n), *texts) for n, texts in _gains(gains)],
    )


def _gains(groups: Sequence[Mapping[int, MeanDifference]]) -> Iterator[tuple[int, list[str]]]:
    """Yield the gain of each group by length; a dash if a group has none."""
    for n in sorted(set().union(*groups)):
        yield n, [group[n].text if n in group else "-" for group in groups]


def _distribution_table(scores: Sequence[ScoredRecord]) -> Table:
    rows = []
    for sampler, name in NAMES.items():
        for least, label in ((0, "all with a score"), (2, "2 and more")):
            for group, holds in GROUPS.items():
                numbers = values(group_scores(scores, sampler, least), holds)
                total = len(numbers)
                below = (sum(number <= bound for number in numbers) for bound in (0, 0.5))
                shares = (share(part, total) for part in (*below, ones(numbers)))
                mean = fixed(sum(numbers) / total if total else None)
                rows.append((name, label, group, counted(total), mean, *shares))
    return Table(
        "Distributions",
        f"The paper reports that over {PAPER_PERFECT:.0%} of its GCS inputs have a score of "
        "exactly 1. With one argument the score is 0 or 1, so the table also has the shares "
        "without these inputs.",
        ("sampler", "arguments", "inputs", "number", "mean", "exactly 0", "up to 0.5", "exactly 1"),
        rows,
    )


OPERANDS: Mapping[str, Condition] = {
    "no operand": lambda score: not score.n_operands,
    "under half": lambda score: 0 < 2 * score.n_operands < score.n_arguments,
    "half and more": lambda score: 2 * score.n_operands >= score.n_arguments,
}
"""Conditions on the share of operands (arguments without a hyphen) among an input's arguments."""


def _operand_table(scores: Sequence[ScoredRecord]) -> Table:
    rows = []
    for n, group in sorted(
        grouped(group_scores(scores, "gcs", 2), lambda s: s.n_arguments).items()
    ):
        groups = [Moments.of(values(group, holds)) for holds in OPERANDS.values()]
        cells = ((counted(moments.count), fixed(moments.mean)) for moments in groups)
        rows.append((str(n), *chain.from_iterable(cells)))
    return Table(
        "GCS by operands",
        "The columns group inputs by the share of operands, arguments that are not options. (In a "
        "cluster such as `-la`, `-l` and `a` are two options.) The tests of `find` are not "
        "operands here; the keywords of `dd`, `ip` and `ethtool` are.",
        (*_heads(OPERANDS, " R*"),),
        rows,
    )


def _command_table(scores: Sequence[ScoredRecord]) -> Table:
    rows = []
    for command, group in grouped(group_scores(scores, "gcs", 2), lambda s: s.command).items():
        if numbers := values(group):
            total = len(numbers)
            fails = sum(score.exit_code != 0 for score in group)
            shares = (share(part, total, 0) for part in (ones(numbers), fails))
            rows.append((command, counted(total), Moments.of(numbers).text, *shares))
    return Table(
        "GCS by command",
        "The table covers inputs with 2 and more arguments. R* is the mean ± standard deviation, "
        "*at 1* the share of scores that are exactly 1. The lowest mean comes first.",
        ("command", "inputs", "R*", "at 1", "fail"),
        sorted(rows, key=lambda row: row[2]),
    )


def _rule_table(ruled: Sequence[Ruled]) -> Table:
    return Table(
        "By the rules of the reference implementation",
        f"{NOTE} It covers up to {RESCORED} inputs for each sampler and number of "
        "arguments, evenly spaced among those that are not volatile, and executed again.",
        ("sampler", "arguments", "inputs", *RULES),
        [
            (name, f"{least} and more", counted(len(group)), *map(fixed, means_by_rule(group)))
            for sampler, name in NAMES.items()
            for least in (1, 2)
            if (group := _of(ruled, sampler, LENGTHS[least:]))
        ],
    )


def _rule_length_table(ruled: Sequence[Ruled]) -> Table:
    rows = []
    for n in sorted({row.score.n_arguments for row in ruled}):
        of_sampler = {sampler: _of(ruled, sampler, (n,)) for sampler in NAMES}
        groups = {  # scores R*, and scores by all reference rules
            sampler: [Moments.of([scores[place] for scores in group]) for place in (0, -1)]
            for sampler, group in of_sampler.items()
        }
        row = [str(n)]
        for pair in groups.values():
            row += [str(pair[0].count), *(fixed(moments.mean) for moments in pair)]
        for gcs, ucs in zip(groups["gcs"], groups["ucs"], strict=True):
            row.append(MeanDifference.of(gcs, ucs).text if gcs.count and ucs.count else "-")
        rows.append(row)
    return Table(
        "By the rules of the reference implementation, by number of arguments",
        "The table has the same inputs. *By rules* is the score by all four rules. The differences "
        "have 95% intervals.",
        (
            *_heads(NAMES.values(), " R*", " by rules"),
            "GCS minus UCS, R*",
            "GCS minus UCS by rules",
        ),
        rows,
    )


def _of(ruled: Sequence[Ruled], sampler: str, lengths: Container[int]) -> list[ByRule]:
    """Return the scores by rule of a sampler's inputs with one of these numbers of arguments."""
    mine = (row for row in ruled if row.score.sampler == sampler)
    return [row.by_rule for row in mine if row.score.n_arguments in lengths]
