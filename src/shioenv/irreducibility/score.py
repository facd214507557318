"""Irreducibility: how much of an input its behavior depends on.

R* = E[|O| Delta(s, s[O])] / E[|O|], O uniform over the proper subsets of the argument indices
(Section 3.3). Nothing here knows where behaviors come from: `behave` may be a sandbox, a table in a
test, or a trained predictor.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from shioenv.behavior.compare import Channel, Difference, differs
from shioenv.behavior.noise import Noise
from shioenv.domain.behavior import Behavior
from shioenv.domain.inputs import Input
from shioenv.errors import UsageError
from shioenv.irreducibility.subsets import Drawer, Kept, Weighted, exhaustive, paper, water_fill

Behave: TypeAlias = Callable[[str], Behavior]
"""The behavior of a rendered input on the pristine system. Every call is a run of its own."""

Cache: TypeAlias = MutableMapping[str, Behavior]
"""Behaviors by rendered text, of one system, start directory and set of limits."""

BUDGET = 64
RUNS = 3


@dataclass(frozen=True, slots=True)
class Contrast:
    """One sub-input held against its full input."""

    kept: Kept
    """The indices that stayed."""
    text: str
    """The sub-input as it was run."""
    weight: float
    """What the contrast counts in the mean, all its draws together; 0 where it was run for the
    explanation only."""
    difference: Difference | None
    """What differed under the noise threshold; None where the behaviors are the same."""
    strict: Difference | None
    """What differed under the strict threshold."""
    draws: int
    """How often the set was drawn."""

    def to_json(self) -> dict[str, Any]:
        """Kept indices, text, weight, and the channel that differed, under both thresholds."""
        return {
            "kept": list(self.kept),
            "input": self.text,
            "weight": self.weight,
            "differs": _channel(self.difference),
            "differs_strict": _channel(self.strict),
            "similarity": self.strict.similarity if self.strict else None,
        }


@dataclass(frozen=True, slots=True)
class ArgumentEffect:
    """What one argument does, told from the same executions as the score."""

    index: int
    """Among its segment's arguments, from 0."""
    text: str
    """The argument with its no-space marks."""
    leave_one_out: bool | None
    """Whether leaving out it alone changes the behavior; None where that was not run."""
    channel: Channel | None
    """What changed then."""
    contribution: float | None
    """How much oftener the behavior differs without the argument than with it, -1 to 1, over the
    sub-inputs looked at (and the full input where the score is exact); None where they all have it,
    or none does."""

    def to_json(self) -> dict[str, Any]:
        """The effect as `shioenv score --json` shows it."""
        return {"index": self.index, "argument": self.text, **self.record_fields()}

    def record_fields(self) -> dict[str, Any]:
        """The effect as a record holds it, whose tokens say which argument it is of."""
        return {
            "leave_one_out": self.leave_one_out,
            "channel": None if self.channel is None else str(self.channel),
            "contribution": self.contribution,
        }


@dataclass(frozen=True, slots=True)
class SegmentScore:
    """The score of one command, those before it held constant."""

    command: str
    n_arguments: int
    irreducibility: float | None
    irreducibility_strict: float | None
    exact: bool
    standard_error: float | None
    interval: tuple[float, float] | None
    noise_threshold: float | None
    volatile: bool
    arguments: tuple[ArgumentEffect, ...] = ()
    contrasts: tuple[Contrast, ...] = ()
    """Every distinct sub-input looked at."""

    @property
    def mattered(self) -> tuple[Contrast, ...]:
        """The sub-inputs that did something else than the full input."""
        return tuple(contrast for contrast in self.contrasts if contrast.difference)

    def to_json(self) -> dict[str, Any]:
        """The segment as a record holds it: numbers, no contrasts."""
        return {
            "command": self.command,
            "n_arguments": self.n_arguments,
            "irreducibility": self.irreducibility,
            "irreducibility_strict": self.irreducibility_strict,
            "exact": self.exact,
            "standard_error": self.standard_error,
            "noise_threshold": self.noise_threshold,
            "volatile": self.volatile,
            "arguments": [argument.record_fields() for argument in self.arguments],
        }


@dataclass(frozen=True, slots=True)
class Score:
    """An input's irreducibility, with how it was found."""

    irreducibility: float | None
    """0 to 1 under the noise threshold; None where no argument can be removed."""
    irreducibility_strict: float | None
    """0 to 1 where outputs must be equal bytes, as far as the runs allow (D-2s)."""
    exact: bool
    """Every proper sub-input that weighs anything was run (also where there is none)."""
    standard_error: float | None
    """Of `irreducibility` as an estimate: 0 where exact, None where undefined or from one draw. It
    is 0 as well where every draw says the same: `interval` is the honest one there."""
    interval: tuple[float, float] | None
    """95% confidence interval (Wilson's, with the weights' effective sample size)."""
    n_arguments: int
    """How many arguments can be removed, over all segments."""
    n_executions: int
    """How many runs the score rests on: the noise runs and each distinct sub-input. It does not
    shrink where a cache had some of them, so it is the same on every worker."""
    noise_threshold: float
    """Of the full input."""
    volatile: bool
    """Runs of the full input, or of a prefix that was scored, disagree (D-2v)."""
    behavior: Behavior
    """The full input's first run, the one all others are held against."""
    segments: tuple[SegmentScore, ...] = field(default=())

    def to_json(self, *, contrasts: bool = False) -> dict[str, Any]:
        """The score as `shioenv score --json` shows it; `contrasts` adds every sub-input run."""
        segments = []
        for segment in self.segments:
            document = segment.to_json()
            if contrasts:
                document["contrasts"] = [contrast.to_json() for contrast in segment.contrasts]
            segments.append(document)
        return {
            "irreducibility": self.irreducibility,
            "irreducibility_strict": self.irreducibility_strict,
            "exact": self.exact,
            "standard_error": self.standard_error,
            "interval": None if self.interval is None else list(self.interval),
            "n_args": self.n_arguments,
            "n_executions": self.n_executions,
            "noise_threshold": self.noise_threshold,
            "volatile": self.volatile,
            "arguments": [
                {"segment": number, "command": segment.command, **argument.to_json()}
                for number, segment in enumerate(self.segments)
                for argument in segment.arguments
            ],
            "segments": segments,
        }

    def record_fields(self) -> dict[str, Any]:
        """The record fields that a score fills, by name; `volatile` is the caller's to combine."""
        return {
            "irreducibility": self.irreducibility,
            "irreducibility_strict": self.irreducibility_strict,
            "exact": self.exact,
            "standard_error": self.standard_error,
            "n_arguments": self.n_arguments,
            "n_executions": self.n_executions,
            "noise_threshold": self.noise_threshold,
            "segments": [segment.to_json() for segment in self.segments],
        }


def estimate_irreducibility(
    shell_input: Input | Sequence[Input],
    behave: Behave,
    *,
    budget: int = BUDGET,
    rng: random.Random,
    runs: int = RUNS,
    explain: bool = False,
    draw: Drawer = paper,
    cache: Cache | None = None,
) -> Score:
    """The score of an input, or of a session's rows (earlier ones held constant).

    Exact where 2^n - 1 <= budget, else estimated by `draw` from `budget` sub-inputs. An input of
    several segments scores each on the prefix that ends with it, with noise runs and a threshold of
    its own; the scores are averaged by number of arguments, and the budget is spread over the
    segments (D-2, I13). One argument: Delta against the command alone. None: no score, but the full
    input is run all the same.

    `runs` executions of each scored prefix, never cached, give the noise threshold; the first is
    what sub-inputs are held against. Sub-inputs with the same rendered text share one execution.
    `cache` shares them between calls too: nothing that a volatile input did enters it. `explain`
    also runs each argument's leave-one-out where the budget left it out; they do not enter the
    estimate. Deterministic for `behave` and the generator's state; whatever `behave` raises passes
    through, so no score rests on a failed execution. Errors: UsageError for a budget or runs below
    1, or a session without rows.
    """
    rows = (shell_input,) if isinstance(shell_input, Input) else tuple(shell_input)
    if budget < 1 or runs < 1 or not rows:
        raise UsageError(
            f"cannot score {len(rows)} inputs with a budget of {budget} and {runs} runs",
            hint="each is at least 1",
        )
    targets = [target for number in range(len(rows)) for target in _targets(rows, number)]
    caps = [min((1 << target.n) - 1, budget) for target in targets]
    shares = water_fill(caps, budget)
    whole = _Trial(behave, "\n".join(row.text for row in rows), runs, cache)
    scores = []
    n_executions, volatile = runs, whole.noise.volatile
    for target, share in zip(targets, shares, strict=True):
        if not target.n:
            scores.append(_unscored(target, whole if target.text() == whole.text else None))
            continue
        trial = whole
        if target.text() != whole.text:
            trial = _Trial(behave, target.text(), runs, cache)
            n_executions += runs
            volatile = volatile or trial.noise.volatile
        scores.append(_score(target, trial, share, rng, draw, explain=explain))
        n_executions += len(trial.seen)
    pooled = _pool(scores)
    return Score(
        irreducibility=pooled.irreducibility,
        irreducibility_strict=pooled.strict,
        exact=all(score.exact for score in scores),
        standard_error=pooled.standard_error,
        interval=pooled.interval,
        n_arguments=sum(target.n for target in targets),
        n_executions=n_executions,
        noise_threshold=whole.noise.threshold,
        volatile=volatile,
        behavior=whole.full,
        segments=tuple(scores),
    )


@dataclass(frozen=True, slots=True)
class _Target:
    """One segment, on the prefix that ends with it; `earlier` is the text of the rows before."""

    earlier: str
    prefix: Input
    segment: int
    command: str
    arguments: tuple[str, ...]

    @property
    def n(self) -> int:
        return len(self.arguments)

    def text(self, kept: Kept | None = None) -> str:
        shell_input = self.prefix if kept is None else self.prefix.keep(kept, self.segment)
        return self.earlier + shell_input.text


def _targets(rows: Sequence[Input], number: int) -> Iterator[_Target]:
    earlier = "".join(f"{row.text}\n" for row in rows[:number])
    for index, segment in enumerate(rows[number].segments):
        arguments = tuple(argument.marked for argument in segment.arguments)
        yield _Target(earlier, rows[number].through(index), index, segment.command, arguments)


class _Trial:
    """A prefix with its noise runs, and its sub-inputs' behaviors by rendered text."""

    def __init__(self, behave: Behave, text: str, runs: int, cache: Cache | None) -> None:
        behaviors = [behave(text) for _ in range(runs)]
        self.text = text
        self.full = behaviors[0]
        self.noise = Noise.of(behaviors)
        self.seen: dict[str, tuple[Difference | None, Difference | None]] = {}
        self._behave = behave
        self._cache = None if self.noise.volatile else cache
        if self._cache is not None:
            self._cache[text] = self.full

    def contrast(self, text: str) -> tuple[Difference | None, Difference | None]:
        """Delta of the prefix and a sub-input, under the noise threshold and under the strict."""
        found = self.seen.get(text)
        if found is None:
            found = self.seen[text] = self._compare(self._behavior(text))
        return found

    def _behavior(self, text: str) -> Behavior:
        stored = None if self._cache is None else self._cache.get(text)
        if stored is not None:
            return stored
        behavior = self._behave(text)
        if self._cache is not None and not behavior.volatile:
            self._cache[text] = behavior
        return behavior

    def _compare(self, reduced: Behavior) -> tuple[Difference | None, Difference | None]:
        noise = self.noise
        difference = differs(self.full, reduced, noise.threshold, ignore=noise.ignored)
        if difference is not None:  # the strict threshold is never lower
            return difference, difference
        strict = differs(self.full, reduced, noise.strict_threshold, ignore=noise.ignored)
        return None, strict


def _unscored(target: _Target, trial: _Trial | None) -> SegmentScore:
    return SegmentScore(
        command=target.command,
        n_arguments=0,
        irreducibility=None,
        irreducibility_strict=None,
        exact=True,
        standard_error=None,
        interval=None,
        noise_threshold=None if trial is None else trial.noise.threshold,
        volatile=False if trial is None else trial.noise.volatile,
    )


def _score(
    target: _Target,
    trial: _Trial,
    share: int,
    rng: random.Random,
    draw: Drawer,
    *,
    explain: bool,
) -> SegmentScore:
    exact = (1 << target.n) - 1 <= share
    drawn = exhaustive(target.n) if exact else draw(target.n, share, rng)
    draws = len(drawn)
    contrasts = {}
    for kept, (weight, times) in _together(drawn).items():
        contrasts[kept] = _contrast(target, trial, kept, weight, times)
    if explain:
        for index in range(target.n):
            kept = tuple(other for other in range(target.n) if other != index)
            if kept not in contrasts:
                contrasts[kept] = _contrast(target, trial, kept, 0.0, 0)
    found = tuple(contrasts.values())
    total = math.fsum(contrast.weight for contrast in found)
    score = _mean(found, total, lambda contrast: contrast.difference is not None)
    return SegmentScore(
        command=target.command,
        n_arguments=target.n,
        irreducibility=score,
        irreducibility_strict=_mean(found, total, lambda contrast: contrast.strict is not None),
        exact=exact,
        standard_error=0.0 if exact else _standard_error(found, total, score, draws),
        interval=(score, score) if exact else _wilson(found, total, score),
        noise_threshold=trial.noise.threshold,
        volatile=trial.noise.volatile,
        arguments=tuple(
            _effect(index, text, target.n, contrasts, exact=exact)
            for index, text in enumerate(target.arguments)
        ),
        contrasts=found,
    )


def _together(drawn: Sequence[Weighted]) -> dict[Kept, tuple[float, int]]:
    """The weight and number of each set's draws, sets in the order they were first drawn.

    A set that weighs nothing is left out: it need not be run.
    """
    found: dict[Kept, tuple[float, int]] = {}
    for item in drawn:
        if not item.weight:
            continue
        weight, draws = found.get(item.kept, (0.0, 0))
        found[item.kept] = (weight + item.weight, draws + 1)
    return found


def _contrast(target: _Target, trial: _Trial, kept: Kept, weight: float, draws: int) -> Contrast:
    text = target.text(kept)
    difference, strict = trial.contrast(text)
    return Contrast(kept, text, weight, difference, strict, draws)


def _mean(contrasts: Sequence[Contrast], total: float, counts: Callable[[Contrast], bool]) -> float:
    return math.fsum(contrast.weight for contrast in contrasts if counts(contrast)) / total


def _standard_error(
    contrasts: Sequence[Contrast], total: float, score: float, draws: int
) -> float | None:
    """Of a ratio of means over independent draws, by linearisation; None for a single draw."""
    if draws < 2:
        return None
    squares = math.fsum(
        (contrast.weight * ((contrast.difference is not None) - score)) ** 2 / contrast.draws
        for contrast in contrasts
        if contrast.draws
    )
    return math.sqrt(squares * draws / (draws - 1)) / total


def _wilson(contrasts: Sequence[Contrast], total: float, score: float) -> tuple[float, float]:
    """Wilson's 95% interval for a weighted share, with the draws' effective number."""
    z = 1.959963984540054
    squares = math.fsum(c.weight**2 / c.draws for c in contrasts if c.draws)
    n = total**2 / squares
    middle = (score + z * z / (2 * n)) / (1 + z * z / n)
    reach = z / (1 + z * z / n) * math.sqrt(score * (1 - score) / n + z * z / (4 * n * n))
    return max(0.0, min(score, middle - reach)), min(1.0, max(score, middle + reach))


def _effect(
    index: int, text: str, n: int, contrasts: Mapping[Kept, Contrast], *, exact: bool
) -> ArgumentEffect:
    alone = contrasts.get(tuple(other for other in range(n) if other != index))
    drawn = [contrast for contrast in contrasts.values() if contrast.draws]
    without = [contrast.difference is not None for contrast in drawn if index not in contrast.kept]
    within = [contrast.difference is not None for contrast in drawn if index in contrast.kept]
    if exact:
        within.append(False)  # the full input itself
    known = without and within
    return ArgumentEffect(
        index=index,
        text=text,
        leave_one_out=None if alone is None else alone.difference is not None,
        channel=None if alone is None or alone.difference is None else alone.difference.channel,
        contribution=_share(without) - _share(within) if known else None,
    )


def _share(differing: Sequence[bool]) -> float:
    return sum(differing) / len(differing)


@dataclass(frozen=True, slots=True)
class _Pooled:
    irreducibility: float | None
    strict: float | None
    standard_error: float | None
    interval: tuple[float, float] | None


def _pool(scores: Sequence[SegmentScore]) -> _Pooled:
    """The segments' scores averaged by their number of arguments (D-2)."""
    scored = [score for score in scores if score.n_arguments]
    total = sum(score.n_arguments for score in scored)
    if not total:
        return _Pooled(None, None, None, None)
    mean = strict = variance = low = high = 0.0
    known = True
    for score in scored:
        share = score.n_arguments / total
        value, interval = score.irreducibility or 0.0, score.interval or (0.0, 1.0)
        mean += share * value
        strict += share * (score.irreducibility_strict or 0.0)
        known = known and score.standard_error is not None
        variance += (share * (score.standard_error or 0.0)) ** 2
        low += (share * (value - interval[0])) ** 2
        high += (share * (interval[1] - value)) ** 2
    mean, strict = min(mean, 1.0), min(strict, 1.0)
    bounds = (max(0.0, mean - math.sqrt(low)), min(1.0, mean + math.sqrt(high)))
    return _Pooled(mean, strict, math.sqrt(variance) if known else None, bounds)


def _channel(difference: Difference | None) -> str | None:
    return None if difference is None else str(difference.channel)
