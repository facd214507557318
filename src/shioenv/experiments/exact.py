"""Inputs all of whose sub-inputs were executed, kept so that estimators can be replayed on them.

A kept-index set is a mask here: bit i is set where argument i stays.
"""

from __future__ import annotations

import base64
import random
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from shioenv.domain.behavior import Behavior
from shioenv.domain.inputs import Input
from shioenv.domain.runner import Runner, State
from shioenv.execution.job import Job
from shioenv.experiments.journal import Journal
from shioenv.experiments.setting import Setting, Stream, stream_of
from shioenv.irreducibility.score import Contrast, estimate_irreducibility
from shioenv.irreducibility.scoring import Scoring
from shioenv.irreducibility.subsets import Kept, kept_of, total_weight
from shioenv.synthesis.drawing import Drawing
from shioenv.synthesis.sample import Sample
from shioenv.system.store import System

SLOW_SECONDS = 0.1
"""Of the faster of two runs, or of a sub-input on average, from which on an input is passed over:
4,094 sub-inputs would take minutes. Far above what commands take that do not wait, so that a busy
machine passes over the same ones (ours)."""

REASONS = ("slow", "waiting", "volatile")
"""Why inputs are passed over: `waiting` are those of which a sub-input runs out of time."""

DECLARED = "declared volatile"
"""Why inputs are not even tried: their grammar says so."""

SHORTEST = 2
"""Arguments at least: with one argument there is nothing to estimate."""

LONG = 8
"""From this number of arguments on inputs are few, because each takes long."""

SHORT_TIMES = 4
"""So many times more inputs of the shorter lengths."""


class _PassedOverError(Exception):
    """An input is not executed to its end; the argument says why."""


@dataclass(frozen=True, slots=True)
class Known:
    """An input all of whose sub-inputs were executed; a single command.

    The sets of sub-inputs are numbers whose bit m is set where the sub-input of mask m belongs.
    """

    number: int
    """Its place in the stream of samples."""
    input: Input
    cwd: str
    exit_code: int
    noise_threshold: float
    differs: int
    """Those that do something else."""
    differs_strict: int
    """Those that do something else where outputs must be equal bytes (D-2s)."""
    seconds: float
    """That executing and comparing them took."""

    def __str__(self) -> str:
        return self.input.text

    @property
    def n(self) -> int:
        """Arguments that can be removed."""
        return self.input.n_arguments

    @property
    def irreducibility(self) -> float:
        """R*, exactly."""
        return weighed(self.n, self.differs)

    @property
    def irreducibility_strict(self) -> float:
        """The strict score, exactly."""
        return weighed(self.n, self.differs_strict)

    def texts(self) -> list[str]:
        """What each sub-input is called, by mask."""
        return [self.input.keep(kept_of(mask), 0).text for mask in range((1 << self.n) - 1)]

    def to_json(self) -> dict[str, Any]:
        """The input as a line of the journal."""
        size = (1 << self.n) + 7 >> 3
        return {
            "number": self.number,
            "n_arguments": self.n,
            "input_args": self.input.input_args,
            "cwd": self.cwd,
            "exit_code": self.exit_code,
            "noise_threshold": self.noise_threshold,
            "seconds": self.seconds,
            **{
                name: base64.b64encode(getattr(self, name).to_bytes(size, "little")).decode()
                for name in SETS
            },
        }

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> Known:
        """The input of such a line. KeyError, TypeError, ValueError for none."""
        return cls(
            number=line["number"],
            input=Input.from_marked(line["input_args"]),
            cwd=line["cwd"],
            exit_code=line["exit_code"],
            noise_threshold=line["noise_threshold"],
            seconds=line["seconds"],
            **{name: int.from_bytes(base64.b64decode(line[name]), "little") for name in SETS},
        )


SETS = ("differs", "differs_strict")
"""The sets of sub-inputs that are known of an input."""


def weighed(n: int, differing: int) -> float:
    """R* where these sub-inputs of n arguments do something else; n is at least 1."""
    if n == 1:
        return float(differing & 1)
    return weight_of(differing) / total_weight(n)


def weight_of(masks: int) -> int:
    """The arguments kept, summed over a set of sub-inputs."""
    total = 0
    while masks:
        lowest = masks & -masks
        total += (lowest.bit_length() - 1).bit_count()
        masks ^= lowest
    return total


@dataclass(frozen=True, slots=True)
class Passed:
    """An input that was not executed whole."""

    number: int
    n: int
    why: str
    """One of `REASONS`."""

    def to_json(self) -> dict[str, Any]:
        """The input as a line of the journal."""
        return {"number": self.number, "n_arguments": self.n, "passed": self.why}


def executed(runner: Runner, task: tuple[int, Sample]) -> Known | Passed:
    """A sample with all its sub-inputs executed, or why it was passed over.

    Errors: those of the runner.
    """
    number, one = task
    n = one.input.n_arguments
    if _seconds(runner, one) > SLOW_SECONDS and _seconds(runner, one) > SLOW_SECONDS:
        return Passed(number, n, "slow")
    started = time.perf_counter()

    def behave(text: str) -> Behavior:
        if time.perf_counter() - started > SLOW_SECONDS * every:
            raise _PassedOverError("slow")
        behavior = runner.run(text, State(cwd=one.cwd))
        if behavior.timed_out:
            raise _PassedOverError("waiting")
        return behavior

    every = 1 << n
    try:
        found = estimate_irreducibility(
            one.input, behave, Scoring(budget=every), rng=random.Random(0)
        )
    except _PassedOverError as error:
        return Passed(number, n, str(error))
    if found.volatile:
        return Passed(number, n, "volatile")
    contrasts = found.segments[0].contrasts
    return Known(
        number=number,
        input=one.input,
        cwd=one.cwd,
        exit_code=found.behavior.exit_code,
        noise_threshold=found.noise_threshold,
        differs=_set(contrast for contrast in contrasts if contrast.difference),
        differs_strict=_set(contrast for contrast in contrasts if contrast.strict),
        seconds=round(time.perf_counter() - started, 3),
    )


def _seconds(runner: Runner, one: Sample) -> float:
    """How long it takes, or has taken until its time was over."""
    started = time.perf_counter()
    runner.run(one.input.text, State(cwd=one.cwd))
    return time.perf_counter() - started


def _set(contrasts: Iterable[Contrast]) -> int:
    return sum(1 << mask_of(one.kept) for one in contrasts)


def mask_of(kept: Kept) -> int:
    """The number whose bits are the indices."""
    return sum(1 << index for index in kept)


@dataclass(frozen=True, slots=True)
class Collection:
    """What `collect` gives."""

    inputs: tuple[Known, ...]
    """Ordered by number of arguments, then by place in the stream."""
    passed: Mapping[str, int]
    """How many were passed over, by reason: those of `REASONS`, and `DECLARED`."""
    reused: int
    """Those of the inputs that an earlier call executed."""


def wanted(count: int, longest: int) -> dict[int, int]:
    """Inputs of each length: `count` of those from `LONG` on, more of the shorter ones."""
    lengths = range(SHORTEST, longest + 1)
    return {n: count if n >= LONG else SHORT_TIMES * count for n in lengths}


def stream(system: System, seed: int) -> Stream:
    """Single commands that a dataset of this seed would have, each length equally often."""
    return stream_of(system, Drawing(seed=seed, policy="lengths", composite_share=0.0), sys.maxsize)


def collect(setting: Setting, counts: Mapping[int, int]) -> Collection:
    """So many executed inputs of each number of arguments; what an earlier call executed is used.

    Samples are taken in the order of their stream, those that a grammar declares volatile left
    out. Which are passed over as slow may depend on the machine; what is decided stays so in
    this directory. Errors: DatasetMismatchError where other seeds, systems, grammars or versions
    were used there, those of `Journal` and of the executor.
    """
    system = setting.system
    directory = setting.data / "exact"
    drawn = stream(system, setting.seed)
    plan = {"format": "shioenv-exact", **drawn.origin}
    with Journal(directory, plan, _read) as journal:
        candidates = _Candidates(drawn.samples)
        lengths = {n: _Length(n, count) for n, count in counts.items()}
        there = set(journal.tried)
        total = sum(counts.values())
        job = Job(executed, system=setting.system_name or system.name, what="input")
        with setting.executor as executor:
            while True:
                done = sum(length.accepted for length in lengths.values())
                setting.report("inputs executed whole", done, total)
                untried = [
                    task
                    for length in lengths.values()
                    for task in length.untried(candidates, journal.tried)
                ]
                if not untried:
                    break
                for _, found in executor.map(job, sorted(untried, key=itemgetter(0))):
                    journal.add(found)
                    lengths[found.n].found.append(found)
                    done += isinstance(found, Known)
                    setting.report("inputs executed whole", done, total)
    accepted = [one for length in lengths.values() for one in length.inputs]
    passed = [one.why for length in lengths.values() for one in length.passed]
    declared = sum(candidates.declared(length.n, length.last) for length in lengths.values())
    return Collection(
        inputs=tuple(accepted),
        passed={**{why: passed.count(why) for why in REASONS}, DECLARED: declared},
        reused=sum(one.number in there for one in accepted),
    )


class _Candidates:
    """The samples of a stream by number of arguments, with their places."""

    def __init__(self, samples: Iterator[Sample]) -> None:
        self._samples = enumerate(samples)
        self._waiting: dict[int, deque[tuple[int, Sample]]] = {}
        self._declared: dict[int, list[int]] = {}

    def next(self, n: int) -> tuple[int, Sample]:
        """The next one with n arguments that is not declared volatile."""
        own = self._waiting.setdefault(n, deque())
        while not own:
            number, one = next(self._samples)
            if one.volatile:
                self._declared.setdefault(one.input.n_arguments, []).append(number)
            else:
                self._waiting.setdefault(one.input.n_arguments, deque()).append((number, one))
        return own.popleft()

    def declared(self, n: int, last: int) -> int:
        """How many with n arguments, before this place, were left out as declared volatile."""
        return sum(number < last for number in self._declared.get(n, ()))


@dataclass(slots=True)
class _Length:
    """The inputs of one number of arguments that were tried."""

    n: int
    wanted: int
    found: list[Known | Passed] = field(default_factory=list)

    def untried(
        self, candidates: _Candidates, tried: Mapping[int, Known | Passed]
    ) -> list[tuple[int, Sample]]:
        """The next samples, as many as inputs are missing; what was tried before is taken."""
        samples: list[tuple[int, Sample]] = []
        while self.accepted + len(samples) < self.wanted:
            task = candidates.next(self.n)
            known = tried.get(task[0])
            if known is None:
                samples.append(task)
            else:
                self.found.append(known)
        return samples

    @property
    def accepted(self) -> int:
        return sum(isinstance(one, Known) for one in self.found)

    @property
    def inputs(self) -> list[Known]:
        known = [one for one in self.found if isinstance(one, Known)]
        return sorted(known, key=lambda one: one.number)

    @property
    def passed(self) -> list[Passed]:
        return [one for one in self.found if isinstance(one, Passed)]

    @property
    def last(self) -> int:
        """The place of the last one that was looked at; -1 of none."""
        return max((one.number for one in self.found), default=-1)


def _read(line: Mapping[str, Any]) -> Known | Passed:
    if "passed" in line:
        return Passed(line["number"], line["n_arguments"], line["passed"])
    return Known.from_json(line)
