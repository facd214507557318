"""What the page shows of a dataset, counted in one pass; memory does not grow with the records."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from shioenv.dataset.manifest import Manifest, read_manifest
from shioenv.dataset.read import read_records
from shioenv.domain.inputs import Input
from shioenv.domain.patch import ContextPatch
from shioenv.domain.pointer import keys
from shioenv.domain.record import Record
from shioenv.report.samples import Samples, command_of
from shioenv.report.stats import Statistics, statistics_of

STEPS = 200
"""Scores are rounded to 1/200 for quartiles, so that these need no more memory than counts."""

EXPENSIVE = 10
"""Inputs listed for the executions they took."""

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
"""What an input may change; one input may do several of them."""

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
class Spread:
    """Records that have something in common, and how their irreducibility spreads."""

    records: int
    scored: int
    """Records with a score; the others have no argument to remove."""
    mean: float | None
    quartiles: tuple[float, float, float] | None
    """Lower, middle, upper: the smallest score, in steps of 1/200, that as large a share of the
    scored records reaches or stays below."""


@dataclass(frozen=True, slots=True)
class Expensive:
    """An input whose score took many executions."""

    session_id: int
    input: str
    executions: int
    irreducibility: float | None


@dataclass(frozen=True, slots=True)
class Aggregates:
    """A dataset in the numbers of the page."""

    statistics: Statistics
    by_arguments: dict[int, Spread]
    """By number of removable arguments."""
    by_command: dict[str, Spread]
    """By the first command, the most frequent first."""
    by_composition: dict[str, Spread]
    """By the kinds of operators in an input (`one command` for none), the most frequent first."""
    effects: dict[str, int]
    """Records that changed something of this kind, in the order of `EFFECTS`."""
    output_sizes: dict[int, int]
    """Records by size of their output in bytes: the lower bound of a class (0, then powers of 4;
    each class ends where the next begins)."""
    expensive: tuple[Expensive, ...]
    """The inputs that took most executions, the most first."""

    def to_json(self) -> dict[str, Any]:
        """The numbers for programs."""
        return asdict(self)


def collect(
    directory: str | Path, *, report: Callable[[int, int], None] = lambda done, total: None
) -> tuple[Manifest, Aggregates, Samples]:
    """Everything the page is made of, from one pass over the finished shards.

    `report` is told after each record how many are read, and of how many. Errors: those of
    `read_records` that checks.
    """
    manifest = read_manifest(directory)
    plan, counts, samples = manifest.plan, _Counts(), Samples()

    def passing() -> Iterator[Record]:
        for number, record in enumerate(read_records(directory, check=True), 1):
            counts.add(record)
            samples.add(record)
            report(number, manifest.records)
            yield record

    found = statistics_of(
        passing(),
        sampler=plan.drawing.sampler,
        seed=plan.drawing.seed,
        budget=plan.scoring.budget if plan.scoring else 0,
        system=plan.system,
    )
    return manifest, counts.aggregates(found), samples


def composition(shell_input: Input) -> str:
    """The kinds of operators in an input: `one command`, `pipe`, `pipe + redirection`."""
    kinds = {_KINDS.get(operator, "redirection") for operator in shell_input.operators}
    return " + ".join(kind for kind in _ORDER if kind in kinds) or "one command"


def effects_of(record: Record) -> frozenset[str]:
    """The kinds of `EFFECTS` that a record shows; never none of them."""
    found = set()
    on_files = False
    for operation in ContextPatch.from_json(record.context_patch).operations:
        code = operation[0]
        area, *rest = keys(operation[1]) or [""]
        if area == "fs":
            on_files = True
            whole = {"a": "added", "r": "removed", "m": "moved"}.get(code, "changed")
            found.add(f"files {whole if len(rest) == 1 else 'changed'}")
        else:
            found.add(_AREAS.get(area, "other"))
    if record.content_digests and not on_files:
        found.add("files changed")
    return frozenset(found or {"nothing"})


def size_class(size: int) -> int:
    """The lower bound of the class an output of this many bytes is in: 0, 1, 4, 16, 64, ..."""
    return 4 ** ((size.bit_length() - 1) // 2) if size else 0


class _Scores:
    """Scores, rounded and counted."""

    def __init__(self) -> None:
        self.records = self.scored = 0
        self._total = 0.0
        self._steps: dict[int, int] = {}

    def add(self, score: float | None) -> None:
        self.records += 1
        if score is not None:
            self.scored += 1
            self._total += score
            step = round(score * STEPS)
            self._steps[step] = self._steps.get(step, 0) + 1

    def spread(self) -> Spread:
        if not self.scored:
            return Spread(self.records, 0, None, None)
        lower, middle, upper = (self._reached(share) for share in (0.25, 0.5, 0.75))
        return Spread(self.records, self.scored, self._total / self.scored, (lower, middle, upper))

    def _reached(self, share: float) -> float:
        waiting = share * self.scored
        for step in sorted(self._steps):
            waiting -= self._steps[step]
            if waiting <= 0:
                break
        return step / STEPS


class _Counts:
    """Counts what `statistics_of` does not."""

    def __init__(self) -> None:
        self._passed = 0
        self._arguments: dict[int, _Scores] = {}
        self._commands: dict[str, _Scores] = {}
        self._compositions: dict[str, _Scores] = {}
        self._effects = dict.fromkeys(EFFECTS, 0)
        self._sizes: dict[int, int] = {}
        self._expensive: list[tuple[int, int, Expensive]] = []

    def add(self, record: Record) -> None:
        score = record.irreducibility
        shell_input = Input.from_marked(record.input_args)
        for group in (
            self._arguments.setdefault(record.n_arguments, _Scores()),
            self._commands.setdefault(command_of(record), _Scores()),
            self._compositions.setdefault(composition(shell_input), _Scores()),
        ):
            group.add(score)
        for effect in effects_of(record):
            self._effects[effect] += 1
        size = size_class(len(record.output_bytes))
        self._sizes[size] = self._sizes.get(size, 0) + 1
        self._rank(record)

    def _rank(self, record: Record) -> None:
        self._passed += 1
        rank = (record.n_executions, -self._passed)
        if len(self._expensive) == EXPENSIVE and rank <= self._expensive[0][:2]:
            return
        one = Expensive(record.session_id, record.input, record.n_executions, record.irreducibility)
        heapq.heappush(self._expensive, (*rank, one))
        if len(self._expensive) > EXPENSIVE:
            heapq.heappop(self._expensive)

    def aggregates(self, found: Statistics) -> Aggregates:
        return Aggregates(
            statistics=found,
            by_arguments={n: self._arguments[n].spread() for n in sorted(self._arguments)},
            by_command=_ranked(self._commands),
            by_composition=_ranked(self._compositions),
            effects=self._effects,
            output_sizes=dict(sorted(self._sizes.items())),
            expensive=tuple(
                one for *_, one in sorted(self._expensive, key=lambda item: item[:2], reverse=True)
            ),
        )


def _ranked(groups: dict[str, _Scores]) -> dict[str, Spread]:
    names = sorted(groups, key=lambda name: (-groups[name].records, name))
    return {name: groups[name].spread() for name in names}
