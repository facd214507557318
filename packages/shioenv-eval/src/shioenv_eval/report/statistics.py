"""Statistics of a dataset, counted in one pass; memory does not grow with the number of records."""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

from shioenv.dataset.manifest import Plan, read_manifest
from shioenv.dataset.record_reader import read_records
from shioenv.domain.context import keys
from shioenv.domain.inputs import SEPARATORS, Input
from shioenv.domain.patch import ContextPatch
from shioenv.domain.record import Record
from shioenv.recording.session import ROW_END

FLAGS = ("volatile", "timed_out", "output_truncated", "patch_truncated")
"""Flags of a record that are counted."""

BINS = 20
"""Number of equally wide bins of irreducibility from 0 to 1; 1 itself is in the last."""

STEPS = 200
"""Number of steps from 0 to 1 to which scores are rounded for quartiles, so that counting
suffices."""

EXPENSIVE = 10
"""Number of listed inputs with the most executions."""

EFFECTS = (
    "files added",
    "files changed",
    "files removed",
    "files moved",
    "working directory",
    "environment",
    "shell options and settings",
    "functions and aliases",
    "limits and umask",
    "network",
    "other",
    "nothing",
)
"""Kinds of changes that an input may make; one input may make several."""

_AREAS = {
    "cwd": "working directory",
    "env": "environment",
    "shell_options": "shell options and settings",
    "settings": "shell options and settings",
    "functions": "functions and aliases",
    "aliases": "functions and aliases",
    "limits": "limits and umask",
    "umask": "limits and umask",
    "network": "network",
    "firewall": "network",
}

_KINDS = {
    "|": "pipe",
    "|&": "pipe",
    "&&": "and-or",
    "||": "and-or",
    ";": "sequence",
    "&": "sequence",
}
_ORDER = ("pipe", "and-or", "sequence", "redirection")


@dataclass(frozen=True, slots=True)
class GroupStatistics:
    """Statistics of a group of records."""

    records: int
    failed: int
    """Records with a nonzero exit code."""
    scored: int
    """Records with a score. Records without an argument to remove have none."""
    mean_irreducibility: float | None
    """Mean over the records that have a score."""
    sd_irreducibility: float | None
    """Sample standard deviation; None below two scores."""
    mean_necessary: float | None
    """Mean over the records with a known `necessary`."""
    quartiles: tuple[float, ...]
    """Lower, middle and upper quartile; empty if no record has a score.

    A quartile is the smallest score, in steps of 1/200, that a quarter (half, three quarters) of
    the scored records do not exceed.
    """
    mean_arguments: float | None
    """Mean number of removable arguments of an input."""


@dataclass(frozen=True, slots=True)
class Scores:
    """The distribution of irreducibility."""

    scored: int
    """Records with a score."""
    mean: float | None
    sd: float | None
    mean_strict: float | None
    necessary_known: int
    """Records with a known `necessary`: the effect of leaving out each argument alone."""
    mean_necessary: float | None
    """Mean over these records of the share of arguments whose omission alone matters."""
    exact: int
    """Records with arguments whose score covers every sub-input."""
    mean_standard_error: float | None
    """Mean over the estimated scores."""
    zero: int
    """Records with a score of exactly 0."""
    one: int
    """Records with a score of exactly 1."""
    bins: tuple[int, ...]
    """Number of records in each of the `BINS` bins."""


@dataclass(frozen=True, slots=True)
class Expensive:
    """An input whose score took many executions."""

    session_id: int
    input: str
    executions: int
    irreducibility: float | None


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of a dataset.

    Mappings by a number are sorted by the number, other mappings by descending frequency, unless
    their docstrings differ.
    """

    records: int
    sampler: str
    seed: int | None
    """None if the seed is unknown."""
    budget: int
    system: str
    failed: int
    volatile: int
    timed_out: int
    output_truncated: int
    patch_truncated: int
    changed: int
    """Records whose context patch is not empty."""
    mean_executions: float | None
    mean_arguments: float | None
    mean_output_bytes: float | None
    irreducibility: Scores
    by_command: Mapping[str, GroupStatistics]
    """By the input's first command."""
    by_arguments: Mapping[int, GroupStatistics]
    """By the number of removable arguments of the whole input."""
    by_segments: Mapping[int, GroupStatistics]
    """By the number of commands of the input."""
    by_composition: Mapping[str, GroupStatistics]
    """By the kinds of operators in an input: `one command` for none, or `pipe + redirection`."""
    by_exit_code: Mapping[int, int]
    """Records by exit code, the most frequent first."""
    limits_hit: Mapping[str, int]
    """Records that reached a limit, by the limit's name."""
    mistakes: Mapping[str, int]
    """Records with a deliberate mistake, by the mistake's class."""
    histories: Mapping[int, int]
    """Records by the length of their history."""
    effects: Mapping[str, int]
    """Records that made a change, by its kind, in the order of `EFFECTS`."""
    output_sizes: Mapping[int, int]
    """Records by the size class of their output: the lower bound of the class in bytes.

    The bounds are 0, then powers of 4; each class ends where the next begins.
    """
    expensive: tuple[Expensive, ...]
    """The `EXPENSIVE` inputs with the most executions, in descending order."""

    def to_json(self) -> dict[str, Any]:
        """Return the statistics as JSON for programs."""
        return asdict(self)


def statistics(directory: str | Path) -> Statistics:
    """Return statistics of the finished records of a dataset, records in journals included.

    Errors: those of `read_manifest`, and of `read_records` with `check`.
    """
    records = read_records(directory, check=True, unfinished=True)
    return statistics_of(records, read_manifest(directory).plan)


def statistics_of(records: Iterable[Record], plan: Plan) -> Statistics:
    """Return statistics of any records, read once; `plan` has sampler, seed, budget and system."""
    whole = _Tally()
    commands, compositions = defaultdict[str, _Tally](_Tally), defaultdict[str, _Tally](_Tally)
    arguments, segments = defaultdict[int, _Tally](_Tally), defaultdict[int, _Tally](_Tally)
    exits, sizes = Counter[int](), Counter[int]()
    totals, limits, effects = Counter[str](), Counter[str](), Counter(dict.fromkeys(EFFECTS, 0))
    mistakes = Counter[str]()
    histories = Counter[int]()
    strict, errors = _Moments(), _Moments()
    bins = [0] * BINS
    expensive: list[tuple[int, int, Expensive]] = []
    for record in records:
        operators = operators_of(record)
        for tally in (
            whole,
            commands[command_of(record)],
            arguments[record.n_arguments],
            segments[1 + sum(operator in SEPARATORS for operator in operators)],
            compositions[composition(operators)],
        ):
            tally.add(record)
        exits[record.exit_code] += 1
        sizes[size_class(len(record.output_bytes))] += 1
        limits.update(record.limits_hit)
        if record.mistake is not None:
            mistakes[record.mistake] += 1
        histories[len(record.history)] += 1
        effects.update(effects_of(record))
        totals.update(name for name in FLAGS if getattr(record, name))
        totals["exact"] += record.exact and record.n_arguments > 0
        totals["necessary known"] += record.necessary is not None
        totals["changed"] += record.context_patch != "[]"
        totals["executions"] += record.n_executions
        totals["output bytes"] += len(record.output_bytes)
        score = record.irreducibility
        if score is not None:
            bins[bin_of(score)] += 1
            totals["zero"] += score == 0
            totals["one"] += score == 1
        if record.irreducibility_strict is not None:
            strict.add(record.irreducibility_strict)
        if record.standard_error is not None and not record.exact:
            errors.add(record.standard_error)
        costly = Expensive(record.session_id, record.input, record.n_executions, score)
        heapq.heappush(expensive, (record.n_executions, -whole.records, costly))
        if len(expensive) > EXPENSIVE:
            heapq.heappop(expensive)
    total = whole.group()
    flagged: dict[str, Any] = {name: totals[name] for name in (*FLAGS, "changed")}
    return Statistics(
        records=total.records,
        sampler=plan.drawing.sampler,
        seed=None if plan.limits is None else plan.drawing.seed,
        budget=plan.scoring.budget if plan.scoring else 0,
        system=plan.system,
        failed=total.failed,
        **flagged,
        mean_executions=_mean(totals["executions"], total.records),
        mean_arguments=total.mean_arguments,
        mean_output_bytes=_mean(totals["output bytes"], total.records),
        irreducibility=Scores(
            scored=total.scored,
            mean=total.mean_irreducibility,
            sd=total.sd_irreducibility,
            mean_strict=strict.mean,
            necessary_known=totals["necessary known"],
            mean_necessary=total.mean_necessary,
            exact=totals["exact"],
            mean_standard_error=errors.mean,
            zero=totals["zero"],
            one=totals["one"],
            bins=tuple(bins),
        ),
        by_command=_most_first(_groups(commands), _records),
        by_arguments=_groups(arguments),
        by_segments=_groups(segments),
        by_composition=_most_first(_groups(compositions), _records),
        by_exit_code=_most_first(exits, int),
        limits_hit=_most_first(limits, int),
        mistakes=_most_first(mistakes, int),
        histories=dict(sorted(histories.items())),
        effects=dict(effects),
        output_sizes=dict(sorted(sizes.items())),
        expensive=tuple(costly for *_, costly in sorted(expensive, reverse=True)),
    )


def command_of(record: Record) -> str:
    """Return the first token of a record's input; "" if the input has none."""
    return record.input_args[0] if record.input_args else ""


def operators_of(record: Record) -> list[str]:
    """Return the operators of a record's input, with `;` for the end of each row but the last."""
    first, *further = [row.operators for row in rows_of(record.input_args)] or [()]
    return [*first, *(operator for row in further for operator in (";", *row))]


def composition(operators: Iterable[str]) -> str:
    """Return the kinds of operators of an input: `one command`, `pipe`, `pipe + redirection`."""
    kinds = {_KINDS.get(operator, "redirection") for operator in operators}
    return " + ".join(kind for kind in _ORDER if kind in kinds) or "one command"


def effects_of(record: Record) -> frozenset[str]:
    """Return the kinds of `EFFECTS` of a record; at least one, which may be `nothing`."""
    shown = set()
    on_files = False
    for operation in ContextPatch.from_json(record.context_patch).operations:
        code = operation[0]
        area, *rest = keys(operation[1]) or [""]
        if area == "fs":
            on_files = True
            whole = {"a": "added", "r": "removed", "m": "moved"}.get(code, "changed")
            shown.add(f"files {whole if len(rest) == 1 else 'changed'}")
        else:
            shown.add(_AREAS.get(area, "other"))
    if record.content_digests and not on_files:
        shown.add("files changed")
    return frozenset(shown or {"nothing"})


def bin_of(score: float) -> int:
    """Return the number, from 0, of the bin of a score."""
    return min(int(score * BINS), BINS - 1)


def size_class(size: int) -> int:
    """Return the lower bound of the size class of an output: 0, 1, 4, 16, 64, ..."""
    return 4 ** ((size.bit_length() - 1) // 2) if size else 0


class _Moments:
    """Mean and sample standard deviation in one pass (Welford)."""

    def __init__(self) -> None:
        self.count = 0
        self._mean = self._squares = 0.0

    def add(self, value: float) -> None:
        self.count += 1
        delta = value - self._mean
        self._mean += delta / self.count
        self._squares += delta * (value - self._mean)

    @property
    def mean(self) -> float | None:
        return self._mean if self.count else None

    @property
    def sd(self) -> float | None:
        return math.sqrt(self._squares / (self.count - 1)) if self.count > 1 else None


class _Tally:
    """Counters of a group's records."""

    def __init__(self) -> None:
        self.records = self._failed = self._arguments = 0
        self._scores, self._necessary = _Moments(), _Moments()
        self._steps = Counter[int]()

    def add(self, record: Record) -> None:
        self.records += 1
        self._failed += record.exit_code != 0
        self._arguments += record.n_arguments
        if record.necessary is not None:
            self._necessary.add(record.necessary)
        if record.irreducibility is not None:
            self._scores.add(record.irreducibility)
            self._steps[round(record.irreducibility * STEPS)] += 1

    def group(self) -> GroupStatistics:
        return GroupStatistics(
            records=self.records,
            failed=self._failed,
            scored=self._scores.count,
            mean_irreducibility=self._scores.mean,
            sd_irreducibility=self._scores.sd,
            mean_necessary=self._necessary.mean,
            quartiles=tuple(map(self._reached, (0.25, 0.5, 0.75))) if self._steps else (),
            mean_arguments=_mean(self._arguments, self.records),
        )

    def _reached(self, share: float) -> float:
        waiting = share * self._scores.count
        for step in sorted(self._steps):
            waiting -= self._steps[step]
            if waiting <= 0:
                break
        return step / STEPS


Name = TypeVar("Name", str, int)
Value = TypeVar("Value")
_records = attrgetter("records")


def _groups(tallies: Mapping[Name, _Tally]) -> dict[Name, GroupStatistics]:
    return {name: tallies[name].group() for name in sorted(tallies)}


def _most_first(counted: Mapping[Name, Value], number: Callable[[Value], int]) -> dict[Name, Value]:
    return dict(sorted(counted.items(), key=lambda item: (-number(item[1]), item[0])))


def _mean(total: int, count: int) -> float | None:
    return total / count if count else None


def rows_of(input_args: Sequence[str]) -> list[Input]:
    """Return the rows of a record's `input_args`. Errors: InputError as by `Input.from_marked`."""
    parts = groupby(input_args, ROW_END.__eq__)
    return [Input.from_marked(list(row)) for is_end, row in parts if not is_end]
