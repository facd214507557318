"""What is in a dataset, counted in one pass."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from shioenv.dataset.manifest import read_manifest
from shioenv.dataset.read import read_records
from shioenv.domain.inputs import SEPARATORS, Input
from shioenv.domain.record import Record

BINS = 20
"""Of the distribution of irreducibility, equally wide; 1 itself is counted in the last."""


@dataclass(frozen=True, slots=True)
class Group:
    """Records that have something in common."""

    records: int
    failed: int
    """Exit code other than 0."""
    mean_irreducibility: float | None
    """Over the records that have a score."""
    sd_irreducibility: float | None
    """Sample standard deviation; None below two scores."""
    mean_arguments: float | None


@dataclass(frozen=True, slots=True)
class Scores:
    """How irreducibility is distributed."""

    scored: int
    """Records with a score."""
    mean: float | None
    sd: float | None
    mean_strict: float | None
    exact: int
    """Scores from every sub-input."""
    mean_standard_error: float | None
    """Over the estimated ones."""
    zero: int
    one: int
    bins: tuple[int, ...]
    """Records in each twentieth of 0 to 1."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """A dataset in numbers. Every mapping is sorted, the most frequent first where it counts."""

    records: int
    sampler: str
    seed: int
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
    by_command: dict[str, Group] = field(default_factory=dict)
    """By the first command."""
    by_arguments: dict[int, Group] = field(default_factory=dict)
    """By number of removable arguments of the whole input."""
    by_segments: dict[int, Group] = field(default_factory=dict)
    """By number of commands."""
    by_composition: dict[str, Group] = field(default_factory=dict)
    """By the operators in an input: `none`, or such as `| >`."""
    by_exit_code: dict[int, int] = field(default_factory=dict)
    limits_hit: dict[str, int] = field(default_factory=dict)
    """Records that reached a limit, by its name."""

    def to_json(self) -> dict[str, Any]:
        """The numbers for programs."""
        return asdict(self)


def statistics(directory: str | Path) -> Statistics:
    """The finished shards of a dataset in numbers. Errors: those of `read_records` that checks."""
    plan = read_manifest(directory).plan
    return statistics_of(
        read_records(directory, check=True),
        sampler=plan.drawing.sampler,
        seed=plan.drawing.seed,
        budget=plan.scoring.budget if plan.scoring else 0,
        system=plan.system,
    )


def statistics_of(
    records: Iterable[Record], *, sampler: str, seed: int, budget: int, system: str
) -> Statistics:
    """Any records in numbers, read once."""
    whole = _Tally()
    commands: dict[str, _Tally] = {}
    arguments: dict[int, _Tally] = {}
    segments: dict[int, _Tally] = {}
    compositions: dict[str, _Tally] = {}
    exits: Counter[int] = Counter()
    flags: Counter[str] = Counter()
    limits: Counter[str] = Counter()
    executions = output_bytes = 0
    strict, errors = _Moments(), _Moments()
    bins = [0] * BINS
    for record in records:
        shell_input = Input.from_marked(record.input_args)
        command = record.input_args[0] if record.input_args else ""
        composition = " ".join(shell_input.operators) or "none"
        n_segments = 1 + sum(one in SEPARATORS for one in shell_input.operators)
        for tally in (
            whole,
            commands.setdefault(command, _Tally()),
            arguments.setdefault(record.n_arguments, _Tally()),
            segments.setdefault(n_segments, _Tally()),
            compositions.setdefault(composition, _Tally()),
        ):
            tally.add(record)
        exits[record.exit_code] += 1
        limits.update(record.limits_hit)
        for name in ("volatile", "timed_out", "output_truncated", "patch_truncated", "exact"):
            flags[name] += getattr(record, name) and (name != "exact" or record.n_arguments > 0)
        flags["changed"] += record.context_patch != "[]"
        executions += record.n_executions
        output_bytes += len(record.output_bytes)
        score = record.irreducibility
        if score is not None:
            bins[min(int(score * BINS), BINS - 1)] += 1
            flags["zero"] += score == 0
            flags["one"] += score == 1
        if record.irreducibility_strict is not None:
            strict.add(record.irreducibility_strict)
        if record.standard_error is not None and not record.exact:
            errors.add(record.standard_error)
    count = whole.records
    return Statistics(
        records=count,
        sampler=sampler,
        seed=seed,
        budget=budget,
        system=system,
        failed=whole.failed,
        volatile=flags["volatile"],
        timed_out=flags["timed_out"],
        output_truncated=flags["output_truncated"],
        patch_truncated=flags["patch_truncated"],
        changed=flags["changed"],
        mean_executions=executions / count if count else None,
        mean_arguments=whole.arguments.mean,
        mean_output_bytes=output_bytes / count if count else None,
        irreducibility=Scores(
            scored=whole.scores.count,
            mean=whole.scores.mean,
            sd=whole.scores.sd,
            mean_strict=strict.mean,
            exact=flags["exact"],
            mean_standard_error=errors.mean,
            zero=flags["zero"],
            one=flags["one"],
            bins=tuple(bins),
        ),
        by_command={name: commands[name].group() for name in sorted(commands)},
        by_arguments={n: arguments[n].group() for n in sorted(arguments)},
        by_segments={n: segments[n].group() for n in sorted(segments)},
        by_composition={
            name: compositions[name].group()
            for name in sorted(compositions, key=lambda one: (-compositions[one].records, one))
        },
        by_exit_code=dict(sorted(exits.items(), key=lambda item: (-item[1], item[0]))),
        limits_hit=dict(sorted(limits.items(), key=lambda item: (-item[1], item[0]))),
    )


class _Moments:
    """Mean and standard deviation in one pass (Welford)."""

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
    def __init__(self) -> None:
        self.records = self.failed = 0
        self.scores, self.arguments = _Moments(), _Moments()

    def add(self, record: Record) -> None:
        self.records += 1
        self.failed += record.exit_code != 0
        self.arguments.add(record.n_arguments)
        if record.irreducibility is not None:
            self.scores.add(record.irreducibility)

    def group(self) -> Group:
        return Group(
            self.records, self.failed, self.scores.mean, self.scores.sd, self.arguments.mean
        )
