"""Inputs with all sub-inputs executed, saved so that estimators can be replayed on them.

Here a mask identifies a sub-input: bit i is set if argument i is kept.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any, Final

from msgspec import field
from msgspec.json import Decoder

from shioenv.domain.behavior import Behavior
from shioenv.domain.inputs import Input
from shioenv.domain.runner import Runner, State
from shioenv.irreducibility.estimators import Kept, kept_of, total_weight
from shioenv.irreducibility.score import Behave, estimate_irreducibility
from shioenv.irreducibility.score import Score as InputScore
from shioenv.irreducibility.scoring import Scoring
from shioenv.synthesis.drawing import Drawing
from shioenv.synthesis.traces import Sample
from shioenv.system.store import System
from shioenv_paper.experiment_journal import InputJournal, Tried
from shioenv_paper.setting import ExperimentSetting, Stream, stream_of

SLOW_SECONDS = 0.1
"""Seconds above which an input is skipped, since 4,094 sub-inputs would take minutes (our choice).

The limit applies to the faster of two runs, and to the average sub-input. Commands that do not wait
are much faster, so a busy machine skips the same inputs.
"""

FORMAT: Final = "shioenv-exact-2"
"""Format of the journal. Its number changes when the content of a line changes."""

REASONS = ("slow", "waiting", "volatile")
"""Reasons for skipping inputs. An input is `waiting` if one of its sub-inputs times out."""

DECLARED = "declared volatile"
"""Reason for not executing an input at all: a grammar declares it volatile."""

SHORTEST = 2
"""Minimum number of arguments of an input: with one argument there is nothing to estimate."""

LONG = 8
"""From this number of arguments on, there are fewer inputs, because each takes long."""

SHORT_TIMES = 4
"""Factor by which there are more inputs of each length below `LONG`."""


class SkippedInputError(Exception):
    """An input was skipped; the argument is the reason."""


def timely(runner: Runner, sample: Sample) -> Behave:
    """Return a function that runs a sample's sub-inputs; SkippedInputError on timeout."""
    state = State(cwd=sample.cwd)

    def behave(text: str) -> Behavior:
        behavior = runner.run(text, state)
        if behavior.timed_out:
            raise SkippedInputError("waiting")
        return behavior

    return behave


def scored(sample: Sample, behave: Behave, scoring: Scoring, rng: random.Random) -> InputScore:
    """Score a sample. Errors: SkippedInputError if it is volatile; those of `behave`."""
    score = estimate_irreducibility(sample.input, behave, scoring, rng=rng)
    if score.volatile:
        raise SkippedInputError("volatile")
    return score


class KnownInput(Tried, frozen=True, dict=True, tag_field="kind", tag="known"):
    """An input of one command with all sub-inputs executed.

    A set of sub-inputs is a bit array. The sub-input of mask m is in the set if bit m % 8 of byte m
    // 8 is set. Errors: InputError if `input_args` are not an input.
    """

    n: int = field(name="n_arguments")
    """Number of arguments that can be removed."""
    input_args: tuple[str, ...]
    cwd: str
    exit_code: int
    noise_threshold: float
    seconds: float
    """Seconds for executing and comparing all sub-inputs."""
    differs: bytes
    """The set of sub-inputs that behave differently from the whole input."""
    differs_strict: bytes
    """The set of sub-inputs that behave differently if outputs are compared as bytes (D-2s)."""

    def __post_init__(self) -> None:
        _ = self.input

    def __str__(self) -> str:
        return self.input.text

    @cached_property
    def input(self) -> Input:
        """The whole input."""
        return Input.from_marked(self.input_args)

    @property
    def irreducibility(self) -> float:
        """The exact irreducibility R*, 0 to 1."""
        return weighed(self.n, self.differs)

    @property
    def irreducibility_strict(self) -> float:
        """The exact strict score, 0 to 1."""
        return weighed(self.n, self.differs_strict)

    @property
    def necessary(self) -> float:
        """The share of arguments that change the behavior when only they are removed."""
        masks, full = masks_of(self.differs), (1 << self.n) - 1
        return sum(full ^ 1 << index in masks for index in range(self.n)) / self.n

    def texts(self) -> list[str]:
        """Return the text of each proper sub-input, by mask."""
        return [self.input.keep(kept_of(mask), 0).text for mask in range((1 << self.n) - 1)]


class Passed(Tried, frozen=True, tag_field="kind", tag="passed"):
    """A skipped input: not all of its sub-inputs were executed."""

    n: int = field(name="n_arguments")
    why: str
    """One of `REASONS`."""


def weighed(n: int, differing: bytes) -> float:
    """Return R* of an input of n arguments, at least 1, given the set of differing sub-inputs."""
    masks = masks_of(differing)
    if n == 1:
        return float(0 in masks)
    return sum(mask.bit_count() for mask in masks) / total_weight(n)


def masks_of(sub_inputs: bytes) -> set[int]:
    """Return the masks of the sub-inputs in a set."""
    bits = int.from_bytes(sub_inputs, "little")
    return {mask for mask in range(bits.bit_length()) if bits >> mask & 1}


def sub_input_set(masks: Iterable[int], n: int) -> bytes:
    """Return the set of sub-inputs for distinct masks; the input has n arguments."""
    return sum(1 << mask for mask in masks).to_bytes((1 << n) + 7 >> 3, "little")


def execute_sub_inputs(runner: Runner, task: tuple[int, Sample]) -> KnownInput | Passed:
    """Execute all sub-inputs of a sample; return the result or the reason for skipping it.

    Errors: those of the runner.
    """
    number, sample = task
    shell_input, state = sample.input, State(cwd=sample.cwd)
    n = shell_input.n_arguments

    def seconds() -> float:
        """Measure a run of the whole input in seconds, up to its time limit."""
        started = time.perf_counter()
        runner.run(shell_input.text, state)
        return time.perf_counter() - started

    if seconds() > SLOW_SECONDS and seconds() > SLOW_SECONDS:
        return Passed(number, n, "slow")
    started, every, run = time.perf_counter(), 1 << n, timely(runner, sample)

    def behave(text: str) -> Behavior:
        if time.perf_counter() - started > SLOW_SECONDS * every:
            raise SkippedInputError("slow")
        return run(text)

    try:
        score = scored(sample, behave, Scoring(budget=every), random.Random(0))
    except SkippedInputError as error:
        return Passed(number, n, str(error))
    contrasts = score.segments[0].contrasts
    return KnownInput(
        number=number,
        n=n,
        input_args=tuple(shell_input.input_args),
        cwd=sample.cwd,
        exit_code=score.behavior.exit_code,
        noise_threshold=score.noise_threshold,
        seconds=round(time.perf_counter() - started, 3),
        differs=sub_input_set((mask_of(c.kept) for c in contrasts if c.difference), n),
        differs_strict=sub_input_set((mask_of(c.kept) for c in contrasts if c.strict), n),
    )


def mask_of(kept: Kept) -> int:
    """Return the mask of a sub-input: the bits of the kept indices."""
    return sum(1 << index for index in kept)


_LINE: Decoder[Any] = Decoder(KnownInput | Passed)


@dataclass(frozen=True, slots=True)
class Collection:
    """The result of `collect_exact_inputs`."""

    inputs: tuple[KnownInput, ...]
    """Sorted by number of arguments, then by position in the stream."""
    passed: Mapping[str, int]
    """Number of skipped inputs by reason: each of `REASONS`, and `DECLARED`."""
    reused: int
    """Number of inputs reused from an earlier call."""


def wanted_by_length(count: int, longest: int) -> dict[int, int]:
    """Return the number of inputs by length: `count`, or `SHORT_TIMES` as many below `LONG`."""
    lengths = range(SHORTEST, longest + 1)
    return {n: count if n >= LONG else SHORT_TIMES * count for n in lengths}


def stream(system: System, seed: int) -> Stream:
    """Return the single commands of a dataset with this seed, with each length equally frequent."""
    return stream_of(system, Drawing(seed=seed, policy="lengths", composite_share=0.0), sys.maxsize)


def collect_exact_inputs(setting: ExperimentSetting, counts: Mapping[int, int]) -> Collection:
    """Collect inputs with all sub-inputs executed: `counts[n]` of n arguments, for each n.

    Results of earlier calls are reused. Samples are taken in stream order, except those that a
    grammar declares volatile. Which samples are slow may depend on the machine, but the decision is
    saved in the setting's data.

    Errors: those of the executor and of `InputJournal`, such as DatasetMismatchError if existing
    data have another seed, system, grammar, version or limit.
    """
    drawn = stream(setting.system, setting.seed)
    plan = {"format": FORMAT, **drawn.origin, **setting.origin}
    job, directory = setting.job(execute_sub_inputs), setting.data / "exact"
    setting.check(directory, setting.executor)
    with InputJournal(directory, plan, _LINE.decode) as journal, setting.executor:
        candidates = _Candidates(drawn.samples)
        tried: dict[int, list[KnownInput | Passed]] = {n: [] for n in counts}
        there = set(journal.tried)

        def known(n: int) -> list[KnownInput]:
            return [answer for answer in tried[n] if isinstance(answer, KnownInput)]

        def untried(n: int) -> list[tuple[int, Sample]]:
            """Return new samples for inputs of n arguments that earlier results do not provide."""
            samples: list[tuple[int, Sample]] = []
            while len(known(n)) + len(samples) < counts[n]:
                number, sample = candidates.next(n)
                if number in journal.tried:
                    tried[n].append(journal.tried[number])
                else:
                    samples.append((number, sample))
            return samples

        def report() -> None:
            accepted = sum(len(known(n)) for n in counts)
            setting.report("inputs executed whole", accepted, sum(counts.values()))

        while tasks := sorted(chain.from_iterable(map(untried, counts)), key=itemgetter(0)):
            report()
            for _, answer in setting.executor.map(job, tasks):
                journal.add(answer)
                tried[answer.n].append(answer)
                report()
        report()
    accepted = [answer for n in counts for answer in sorted(known(n), key=attrgetter("number"))]
    every = chain.from_iterable(tried.values())
    reasons = Counter(answer.why for answer in every if isinstance(answer, Passed))
    last = {n: max((answer.number for answer in tried[n]), default=-1) for n in counts}
    declared = sum(candidates.declared(n, last[n]) for n in counts)
    return Collection(
        inputs=tuple(accepted),
        passed={**{why: reasons[why] for why in REASONS}, DECLARED: declared},
        reused=sum(answer.number in there for answer in accepted),
    )


class _Candidates:
    """The samples of a stream by number of arguments, with their positions."""

    def __init__(self, samples: Iterator[Sample]) -> None:
        self._samples = enumerate(samples)
        self._waiting: dict[int, deque[tuple[int, Sample]]] = defaultdict(deque)
        self._declared: dict[int, list[int]] = defaultdict(list)

    def next(self, n: int) -> tuple[int, Sample]:
        """Return the next sample with n arguments, and its position.

        Samples that a grammar declares volatile are skipped.
        """
        while not self._waiting[n]:
            number, sample = next(self._samples)
            if sample.volatile:
                self._declared[sample.input.n_arguments].append(number)
            else:
                self._waiting[sample.input.n_arguments].append((number, sample))
        return self._waiting[n].popleft()

    def declared(self, n: int, last: int) -> int:
        """Count the samples before `last` that have n arguments and are declared volatile."""
        return sum(number < last for number in self._declared[n])
