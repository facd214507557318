"""The tables of irreducibility by number of arguments."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence

from shioenv.experiments import quoted
from shioenv.experiments.length_groups import (
    FEW,
    FEW_OF_A_COMMAND,
    GROUPS,
    RESCORED,
    LengthCell,
    by_place,
    gains_by_command,
    gains_of,
    scores_of,
)
from shioenv.experiments.reference import NOTE, RULES, ByRule, Ruled, means_by_rule
from shioenv.experiments.scores import NAMES, Score, values
from shioenv.report.means import Difference, Spread
from shioenv.report.tables import Table
from shioenv.report.text import count, fixed, share
from shioenv.synthesis.policy import LENGTHS


def tables_of(
    scores: Sequence[Score], found: Sequence[LengthCell], ruled: Sequence[Ruled]
) -> Iterator[Table]:
    """All of them, in the order in which they are read."""
    for group in GROUPS:
        yield _table(found, group)
    yield _gain_table(scores, found)
    yield _gain_command_table(scores)
    yield _distribution_table(scores)
    yield _operand_table(scores)
    yield _command_table(scores)
    yield _rule_table(ruled)
    yield _rule_length_table(ruled)


def _table(found: Sequence[LengthCell], group: str) -> Table:
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
                count(spread.count),
                spread.text,
                share(cell.ones, spread.count),
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


def _gain_table(scores: Sequence[Score], found: Sequence[LengthCell]) -> Table:
    groups = {**GROUPS, "inputs that are not volatile": lambda score: not score.volatile}
    gains = [gains_of(scores, holds) for holds in groups.values()]
    cells = by_place(found, "all inputs")
    rows = []
    for n in _lengths(gains):
        ucs, gcs = cells[NAMES["ucs"], n].spread.mean, cells[NAMES["gcs"], n].spread.mean
        relative = f"{100 * (gcs / ucs - 1):+.0f}%" if ucs else "-"
        rows.append((str(n), *_gains_at(gains, n), relative))
    said, other = quoted.MEANS["gcs"], quoted.MEANS["ucs"]
    return Table(
        "GCS above UCS",
        f"Difference of the means with its 95% interval, where both have {FEW} inputs. The paper "
        f"says +{quoted.GAINS[0]} to +{quoted.GAINS[1]} for lengths from 2 to 12 (about 20% to "
        f"170%), and {said} against {other} (+{said - other:.3f}) at length {quoted.LENGTH}, which "
        "may count the command.",
        ("arguments", *groups, "relative, all inputs"),
        rows,
    )


def _gain_command_table(scores: Sequence[Score]) -> Table:
    gains = [gains_by_command(scores, holds) for holds in GROUPS.values()]
    return Table(
        "GCS above UCS, command by command",
        "Mean of the commands' differences, weighted by their numbers of UCS inputs, with its 95% "
        f"interval, of commands with {FEW_OF_A_COMMAND} inputs of both samplers: what succeeds or "
        "fails is not of the same commands.",
        ("arguments", *GROUPS),
        [(str(n), *_gains_at(gains, n)) for n in _lengths(gains)],
    )


def _lengths(gains: Sequence[Mapping[int, Difference]]) -> list[int]:
    return sorted({n for one in gains for n in one})


def _gains_at(gains: Sequence[Mapping[int, Difference]], n: int) -> list[str]:
    return [one[n].text if n in one else "-" for one in gains]


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


OPERANDS: Mapping[str, Callable[[Score], bool]] = {
    "no operand": lambda one: not one.n_operands,
    "under half": lambda one: 0 < 2 * one.n_operands < one.n_arguments,
    "half and more": lambda one: 2 * one.n_operands >= one.n_arguments,
}
"""Inputs by how many of their arguments are operands: what begins with no hyphen."""


def _operand_table(scores: Sequence[Score]) -> Table:
    mine = scores_of(scores, "gcs", 2)
    rows = []
    for n in sorted({one.n_arguments for one in mine}):
        here = [one for one in mine if one.n_arguments == n]
        row = [str(n)]
        for holds in OPERANDS.values():
            spread = Spread.of(values(here, holds))
            row += ["0", "-"] if spread is None else [count(spread.count), fixed(spread.mean)]
        rows.append(row)
    return Table(
        "GCS by operands",
        "Number of inputs and mean, by how many of the arguments are operands: those that neither "
        "begin with a hyphen nor continue a bundle of options. What `find` tests is no operand "
        "here, what `dd`, `ip` and `ethtool` are told is.",
        ("arguments", *(f"{name}{what}" for name in OPERANDS for what in ("", " R*"))),
        rows,
    )


def _command_table(scores: Sequence[Score]) -> Table:
    groups: dict[str, list[Score]] = defaultdict(list)
    for one in scores_of(scores, "gcs", 2):
        groups[one.command].append(one)
    rows = []
    for command, group in groups.items():
        numbers = values(group)
        spread = Spread.of(numbers)
        if spread is not None:
            ones = share(sum(one >= 1 for one in numbers), spread.count, 0)
            fail = share(sum(one.exit_code != 0 for one in group), spread.count, 0)
            rows.append((command, count(spread.count), spread.text, ones, fail))
    return Table(
        "GCS by command",
        "Inputs with 2 and more arguments: number, mean ± standard deviation, share that is "
        "exactly 1 and share that fails; the lowest mean first.",
        ("command", "inputs", "R*", "at 1", "fail"),
        sorted(rows, key=lambda row: row[2]),
    )


def _rule_table(ruled: Sequence[Ruled]) -> Table:
    return Table(
        "By the rules of the reference implementation",
        f"{NOTE} Of up to {RESCORED} inputs of each sampler and number of arguments, evenly spaced "
        "among those that are not volatile, executed again.",
        ("sampler", "arguments", "inputs", *RULES),
        [
            (name, f"{least} and more", count(len(group)), *map(fixed, means_by_rule(group)))
            for sampler, name in NAMES.items()
            for least in (1, 2)
            if (group := _of(ruled, sampler, LENGTHS[least:]))
        ],
    )


def _rule_length_table(ruled: Sequence[Ruled]) -> Table:
    rows = []
    for n in sorted({one.score.n_arguments for one in ruled}):
        row = [str(n)]
        ends: dict[str, tuple[Spread | None, Spread | None]] = {}
        for sampler in NAMES:
            group = _of(ruled, sampler, (n,))
            ours, by_rules = (Spread.of([one[place] for one in group]) for place in (0, -1))
            ends[sampler] = ours, by_rules
            means = (None if one is None else one.mean for one in (ours, by_rules))
            row += [str(len(group)), *map(fixed, means)]
        for gcs, ucs in zip(ends["gcs"], ends["ucs"], strict=True):
            row.append("-" if gcs is None or ucs is None else Difference.of(gcs, ucs).text)
        rows.append(row)
    return Table(
        "By the rules of the reference implementation, by number of arguments",
        "The same inputs: how many, R*, and the score by all rules; then GCS above UCS by both, "
        "with 95% intervals.",
        (
            "arguments",
            *(f"{name}{what}" for name in NAMES.values() for what in ("", " R*", " by rules")),
            "GCS above UCS, R*",
            "GCS above UCS by rules",
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
    whole = len(numbers)
    return (
        count(whole),
        fixed(sum(numbers) / whole),
        share(sum(number <= 0 for number in numbers), whole),
        share(sum(number <= 0.5 for number in numbers), whole),
        share(sum(number >= 1 for number in numbers), whole),
    )
