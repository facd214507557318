"""Irreducibility: the degree to which an input's behavior depends on its arguments.

R* = E[|O| Delta(s, s[O])] / E[|O|], O uniform over the proper subsets of the argument indices
(Section 3.3). This module is independent of the source of behaviors: `behave` may be a sandbox, a
table in a test, or a trained predictor.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Protocol, TypeAlias

from msgspec import to_builtins
from msgspec.structs import asdict

from shioenv.behavior.compare import Channel, Difference, Noise, differs
from shioenv.domain.behavior import Behavior
from shioenv.domain.inputs import Input
from shioenv.domain.record import Effect, ScoredSegment, share_necessary
from shioenv.errors import UsageError
from shioenv.irreducibility.estimators import Kept, SamplePart, exhaustive, leave_out, water_fill
from shioenv.irreducibility.scoring import Scoring
from shioenv.irreducibility.spread import pooled, spread, together
from shioenv.text import html_table, short_repr

Behave: TypeAlias = Callable[[str], Behavior]
"""Returns the behavior of a rendered input on the pristine system. Every call is a separate run."""


class Cache(Protocol):
    """Behaviors by rendered text, of one system, start directory and set of limits."""

    def get(self, text: str, /) -> Behavior | None:
        """Return the behavior of a text; None if it is unknown."""
        ...

    def update(self, behaviors: Mapping[str, Behavior], /) -> None:
        """Store executed behaviors."""
        ...


MOST_ARGUMENTS = 400
"""Maximum removable arguments of a scored command: a float can hold `(2 ** 400) ** 2`."""

_OF_SEGMENTS = tuple(
    name for name in ScoredSegment.__struct_fields__ if name not in {"arguments", "executed"}
)
"""Fields that a segment's score shares with its record."""
_OF_RECORDS = (
    "irreducibility", "irreducibility_strict", "necessary", "exact", "standard_error",
    "n_arguments", "n_executions", "noise_threshold",
)  # fmt: skip
"""Fields that an input's score shares with its record."""


@dataclass(frozen=True, slots=True)
class Contrast:
    """The comparison of one sub-input with its full input."""

    kept: Kept
    """The indices of the arguments that were kept."""
    text: str
    """The sub-input as it was run."""
    weight: float
    """The contrast's weight in the mean, over all its draws.

    The weight is 0 if the sub-input was run only for the explanation, or to decide what to draw.
    """
    difference: Difference | None
    """The difference under the noise threshold; None if the behaviors are the same."""
    strict: Difference | None
    """The difference under the strict threshold; None if the behaviors are the same."""
    draws: int
    """The number of times that the sub-input was drawn."""

    def to_json(self) -> dict[str, Any]:
        """Return kept indices, text, weight, the differing channel by threshold, and similarity."""
        return {
            "kept": list(self.kept),
            "input": self.text,
            "weight": self.weight,
            "differs": self.difference and self.difference.channel,
            "differs_strict": self.strict and self.strict.channel,
            "similarity": self.strict.similarity if self.strict else None,
        }


@dataclass(frozen=True, slots=True)
class ArgumentEffect:
    """The effect of one argument, estimated from the same executions as the score."""

    index: int
    """The argument's index among the arguments of its segment, from 0."""
    text: str
    """The argument with its no-space marks."""
    leave_one_out: bool | None
    """Whether leaving out this argument alone changes the behavior; None if that was not run."""
    channel: Channel | None
    """The channel that differs without this argument; None if none does, or that was not run."""
    contribution: float | None
    """Share of the sub-inputs without the argument that behave differently from the full input,
    minus this share among those with the argument: -1 to 1.

    Only drawn sub-inputs count, and if the score is exact also the full input. None if all of these
    have the argument, or none does.
    """

    def to_json(self) -> dict[str, Any]:
        """Return the effect as `shioenv score --json` shows it."""
        return {"index": self.index, "argument": self.text, **asdict(self.recorded)}

    @property
    def recorded(self) -> Effect:
        """The effect as stored in a record. The record's tokens identify the argument."""
        return Effect(
            leave_one_out=self.leave_one_out,
            channel=None if self.channel is None else str(self.channel),
            contribution=self.contribution,
        )


@dataclass(frozen=True, slots=True)
class SegmentScore:
    """The score of one command. The commands before it are held constant."""

    command: str
    n_arguments: int = 0
    irreducibility: float | None = None
    irreducibility_strict: float | None = None
    necessary: float | None = None
    exact: bool = True
    standard_error: float | None = None
    interval: tuple[float, float] | None = None
    noise_threshold: float | None = None
    volatile: bool = False
    arguments: tuple[ArgumentEffect, ...] = ()
    contrasts: tuple[Contrast, ...] = ()
    """Every distinct sub-input that was run."""

    @property
    def mattered(self) -> tuple[Contrast, ...]:
        """The sub-inputs that behaved differently from the full input."""
        return tuple(contrast for contrast in self.contrasts if contrast.difference)

    @property
    def recorded(self) -> ScoredSegment:
        """The segment as stored in a record: numbers, no contrasts."""
        shared = {name: getattr(self, name) for name in _OF_SEGMENTS}
        arguments = [argument.recorded for argument in self.arguments]
        return ScoredSegment(**shared, arguments=arguments)


@dataclass(frozen=True, slots=True)
class Score:
    """An input's irreducibility, with details of its estimate."""

    irreducibility: float | None
    """0 to 1 under the noise threshold; None if no argument can be removed."""
    irreducibility_strict: float | None
    """The same score if outputs must have equal bytes.

    If the noise runs have different outputs, Algorithm 1 decides, without its cap (D-2s).
    """
    necessary: float | None
    """Share of the arguments whose omission alone changes the behavior, 0 to 1.

    None if no argument can be removed, or if an argument's omission was not run. This measure is
    ours. A few necessary arguments make nearly every sub-input differ, so that irreducibility
    hardly depends on the others.
    """
    exact: bool
    """Whether every proper sub-input of nonzero weight was run; True if there is none."""
    standard_error: float | None
    """Standard error of `irreducibility`: 0 if exact, None if undefined or from one draw.

    It is also 0 if all draws agree; then `interval` shows the uncertainty. For `stratified` and
    `balanced` samples it is an upper estimate.
    """
    interval: tuple[float, float] | None
    """95% confidence interval (Wilson's, with the effective number of draws).

    Its width is 0 if the score is exact. None if the score is undefined.
    """
    n_arguments: int
    """Arguments that can be removed, over all segments."""
    n_executions: int
    """The number of runs that determine the score: the noise runs and each distinct sub-input. Runs
    that were taken from a cache count too, so the number is the same on every worker."""
    noise_threshold: float
    """The noise threshold of the full input."""
    volatile: bool
    """Whether runs of the full input, or of a prefix that was scored, disagree (D-2v)."""
    behavior: Behavior
    """The behavior of the full input's first run, with which sub-inputs are compared."""
    segments: tuple[SegmentScore, ...] = field(default=())

    def __repr__(self) -> str:
        names = ("irreducibility", "necessary", "exact", "n_arguments", "n_executions")
        return short_repr(self, {name: getattr(self, name) for name in names})

    def _repr_html_(self) -> str:
        """Return a table for notebooks: the score, the effect of each argument, the result."""
        from shioenv.domain.readable import outcome

        value = "undefined" if self.irreducibility is None else f"{self.irreducibility:.3f}"
        how = "exact" if self.exact else "estimate"
        words = {True: "changes the behavior", False: "does not", None: "not run"}
        effects = (
            f"without {one.text}: {words[one.leave_one_out]}"
            for segment in self.segments
            for one in segment.arguments
        )
        return html_table(
            {
                "irreducibility": f"{value} ({how}, {self.n_executions} executions)",
                "arguments": effects,
                "result": outcome(self.behavior),
                "output": self.behavior.text,
            }
        )

    def to_json(self, *, contrasts: bool = False) -> dict[str, Any]:
        """Return the score in the form of `shioenv score --json`.

        `contrasts` adds every sub-input run.
        """
        segments = []
        for segment in self.segments:
            document = to_builtins(segment.recorded)
            if contrasts:
                document["contrasts"] = [contrast.to_json() for contrast in segment.contrasts]
            segments.append(document)
        names = (name for name in _OF_RECORDS if name != "n_arguments")
        return {
            **{name: getattr(self, name) for name in (*names, "interval", "volatile")},
            "n_args": self.n_arguments,
            "arguments": [
                {"segment": number, "command": segment.command, **argument.to_json()}
                for number, segment in enumerate(self.segments)
                for argument in segment.arguments
            ],
            "segments": segments,
        }

    def record_fields(self) -> dict[str, Any]:
        """Return the record fields that a score fills, by name. The caller fills `volatile`."""
        shared = {name: getattr(self, name) for name in _OF_RECORDS}
        return {**shared, "segments": [segment.recorded for segment in self.segments]}


def estimate_irreducibility(
    shell_input: Input | Sequence[Input],
    behave: Behave,
    scoring: Scoring = Scoring(),
    *,
    rng: random.Random,
    explain: bool = False,
    cache: Cache | None = None,
) -> Score:
    """Return the score of an input, or of a session's rows.

    The score is exact if 2^n - 1 <= budget. Otherwise it is estimated from at most `scoring.budget`
    sub-inputs, chosen by the scoring's estimator.

    With a `target_se`, sub-inputs are run in batches:

    - The first batch has 16 sub-inputs. If the estimator begins with every leave-one-out, the first
      batch has all of these and some more.
    - Each later batch has as many sub-inputs as were drawn before.
    - A segment's batches end once its standard error is at most the target, and its interval is no
      wider than the target error implies.
    - The score is exact only if all sub-inputs were run; a sufficient budget is not enough.
    - Each batch is an independent sample. So if all batches are needed, the estimate is slightly
      less precise than without a target.
    - Batches end early if draws happen to agree, so the estimate is not quite unbiased.

    Each segment is scored on the prefix of the input that ends with it, with separate noise runs
    and a separate threshold. Rows before the segment are held constant. The mean of the scores is
    weighted by number of arguments. The budget is divided among the segments (D-2, I13); a segment
    with arguments gets at least one sub-input. With one argument, the score is Delta against the
    command alone. Without an argument there is no score, but the full input is run all the same.

    With a `process_budget`, fewer sub-inputs are run if the input's first run started many
    processes (`Scoring.within`).

    `noise_runs` executions of each scored prefix determine the noise threshold. These executions
    are never taken from the cache. Sub-inputs are compared with the first execution. Sub-inputs of
    a segment with the same rendered text are executed once. With `cache`, executions are also
    shared between segments and calls. Executions of a volatile input never enter the cache.

    With `explain`, each argument is also left out alone if the budget did not suffice for that.
    These runs do not change the estimate.

    Scores are deterministic for `behave` and the generator's state. Exceptions of `behave` are not
    caught, so no score is based on a failed execution. Errors: UsageError for a session without
    rows, a budget of 0, or a command of more than `MOST_ARGUMENTS` arguments.
    """
    rows = (shell_input,) if isinstance(shell_input, Input) else tuple(shell_input)
    if not rows:
        raise UsageError("a session without rows cannot be scored", hint="give at least one row")
    if not scoring.budget:
        raise UsageError("cannot score with a budget of 0", hint="give at least 1")
    runs = scoring.noise_runs
    targets = [target for number in range(len(rows)) for target in _targets(rows, number)]
    if (most := max((target.n for target in targets), default=0)) > MOST_ARGUMENTS:
        raise UsageError(
            f"a command of {most:,} arguments cannot be scored",
            hint=f"the maximum is {MOST_ARGUMENTS}; shioenv run executes it without a score",
        )
    whole = _Trial(behave, "\n".join(row.text for row in rows), runs, cache)
    scoring = scoring.within(whole.full.processes)
    caps = [min((1 << target.n) - 1, scoring.budget) for target in targets]
    shares = water_fill(caps, scoring.budget)
    scores = []
    n_executions, volatile = runs, whole.noise.volatile
    for target, share in zip(targets, shares, strict=True):
        if not target.n:
            unscored = SegmentScore(target.command)
            if target.text() == whole.text:
                noise = whole.noise
                unscored = replace(
                    unscored, noise_threshold=noise.threshold, volatile=noise.volatile
                )
            scores.append(unscored)
            continue
        trial = whole
        if target.text() != whole.text:
            trial = _Trial(behave, target.text(), runs, cache)
            n_executions += runs
            volatile = volatile or trial.noise.volatile
        scores.append(_score(target, trial, share, rng, scoring, explain=explain))
        n_executions += len(trial.seen)
    return Score(
        **_pooled(scores),
        necessary=_necessary(effect for score in scores for effect in score.arguments),
        exact=all(score.exact for score in scores),
        n_arguments=sum(target.n for target in targets),
        n_executions=n_executions,
        noise_threshold=whole.noise.threshold,
        volatile=volatile,
        behavior=whole.full,
        segments=tuple(scores),
    )


@dataclass(frozen=True, slots=True)
class _Target:
    """A segment with the prefix that ends with it. `earlier` is the text of the rows before."""

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
    """A prefix with its noise runs, and the differences of its sub-inputs by rendered text."""

    def __init__(self, behave: Behave, text: str, runs: int, cache: Cache | None) -> None:
        behaviors = [behave(text) for _ in range(runs)]
        self.text = text
        self.full = behaviors[0]
        self.noise = Noise.of(behaviors)
        self.seen: dict[str, tuple[Difference | None, Difference | None]] = {}
        self._behave = behave
        self._cache = None if self.noise.volatile else cache
        if self._cache is not None:
            self._cache.update({text: self.full})

    def contrast(self, text: str) -> tuple[Difference | None, Difference | None]:
        """Return Delta of the prefix and a sub-input, under the noise and the strict threshold."""
        if text not in self.seen:
            self.seen[text] = self._compare(self._behavior(text))
        return self.seen[text]

    def _behavior(self, text: str) -> Behavior:
        if self._cache is None:
            return self._behave(text)
        behavior = self._cache.get(text)
        if behavior is None:
            behavior = self._behave(text)
            if not behavior.volatile:
                self._cache.update({text: behavior})
        return behavior

    def _compare(self, reduced: Behavior) -> tuple[Difference | None, Difference | None]:
        noise = self.noise
        difference = differs(self.full, reduced, noise.threshold, ignore=noise.ignored)
        if difference is not None:  # the strict threshold is never below the noise threshold
            return difference, difference
        strict = differs(self.full, reduced, noise.strict_threshold, ignore=noise.ignored)
        return None, strict


class _Looked:
    """Sub-inputs that were run, as contrasts with a weight of 0."""

    def __init__(self, target: _Target, trial: _Trial) -> None:
        self.contrasts: dict[Kept, Contrast] = {}
        self._target, self._trial = target, trial

    def __call__(self, kept: Kept) -> bool:
        return self.contrast(kept).difference is not None

    def known(self, kept: Kept) -> bool:
        return self._target.text(kept) in self._trial.seen

    def contrast(self, kept: Kept) -> Contrast:
        if kept not in self.contrasts:
            text = self._target.text(kept)
            difference, strict = self._trial.contrast(text)
            self.contrasts[kept] = Contrast(kept, text, 0.0, difference, strict, 0)
        return self.contrasts[kept]


def _score(
    target: _Target,
    trial: _Trial,
    share: int,
    rng: random.Random,
    scoring: Scoring,
    *,
    explain: bool,
) -> SegmentScore:
    look = _Looked(target, trial)
    samples: list[Sequence[SamplePart]] = []
    for size in scoring.batches(target.n, share):
        exact = size is None
        if size is None:
            samples = [[SamplePart(exhaustive(target.n), whole=True)]]
        else:
            samples.append(scoring.estimate(target.n, size, rng, look))
        parts = pooled(samples)
        error = spread(parts, look)
        if scoring.target_se is not None and error.doubt <= scoring.target_se:
            break
    contrasts = {
        kept: replace(look.contrast(kept), weight=weight, draws=draws)
        for kept, (weight, draws) in together(item for part in parts for item in part.drawn).items()
    }
    if explain:
        for index in range(target.n):
            look.contrast(leave_out(target.n, index))
    for kept, contrast in look.contrasts.items():
        contrasts.setdefault(kept, contrast)
    shown = tuple(contrasts.values())
    total = math.fsum(contrast.weight for contrast in shown)
    score = _mean(shown, total, lambda contrast: contrast.difference is not None)
    arguments = tuple(
        _effect(index, text, target.n, contrasts, exact=exact)
        for index, text in enumerate(target.arguments)
    )
    return SegmentScore(
        command=target.command,
        n_arguments=target.n,
        irreducibility=score,
        irreducibility_strict=_mean(shown, total, lambda contrast: contrast.strict is not None),
        necessary=_necessary(arguments),
        exact=exact,
        standard_error=error.standard_error,
        interval=(score, score) if exact else error.interval,
        noise_threshold=trial.noise.threshold,
        volatile=trial.noise.volatile,
        arguments=arguments,
        contrasts=shown,
    )


def _mean(contrasts: Sequence[Contrast], total: float, counts: Callable[[Contrast], bool]) -> float:
    differing = math.fsum(contrast.weight for contrast in contrasts if counts(contrast))
    return min(differing / total, 1.0)


def _effect(
    index: int, text: str, n: int, contrasts: Mapping[Kept, Contrast], *, exact: bool
) -> ArgumentEffect:
    alone = contrasts.get(leave_out(n, index))
    drawn = [
        (contrast.weight / contrast.draws / max(len(contrast.kept), 1), contrast)
        for contrast in contrasts.values()
        if contrast.draws
    ]
    without = [(weight, other.difference) for weight, other in drawn if index not in other.kept]
    within = [(weight, other.difference) for weight, other in drawn if index in other.kept]
    if exact:
        within.append((1.0, None))  # the full input itself
    return ArgumentEffect(
        index=index,
        text=text,
        leave_one_out=None if alone is None else alone.difference is not None,
        channel=None if alone is None or alone.difference is None else alone.difference.channel,
        contribution=_share(without) - _share(within) if without and within else None,
    )


def _necessary(arguments: Iterable[ArgumentEffect]) -> float | None:
    return share_necessary(argument.recorded for argument in arguments)


def _share(weighed: Sequence[tuple[float, Difference | None]]) -> float:
    """Return the share of the sub-inputs that differ, each counted by its weight."""
    differing = math.fsum(weight for weight, difference in weighed if difference is not None)
    return differing / math.fsum(weight for weight, _ in weighed)


def _pooled(scores: Sequence[SegmentScore]) -> dict[str, Any]:
    """Average the segments' scores by their number of arguments (D-2), as fields of a `Score`."""
    scored = [score for score in scores if score.n_arguments]
    total = sum(score.n_arguments for score in scored)
    names = ("irreducibility", "irreducibility_strict", "standard_error", "interval")
    if not total:
        return dict.fromkeys(names)
    mean = _by_arguments(scored, lambda score: score.irreducibility)
    strict = _by_arguments(scored, lambda score: score.irreducibility_strict)
    variance = low = high = 0.0
    known = True
    for score in scored:
        share = score.n_arguments / total
        value, interval = score.irreducibility or 0.0, score.interval or (0.0, 1.0)
        known = known and score.standard_error is not None
        variance += (share * (score.standard_error or 0.0)) ** 2
        low += (share * (value - interval[0])) ** 2
        high += (share * (interval[1] - value)) ** 2
    bounds = (max(0.0, mean - math.sqrt(low)), min(1.0, mean + math.sqrt(high)))
    error = math.sqrt(variance) if known else None
    return dict(zip(names, (mean, strict, error, bounds), strict=True))


def _by_arguments(
    scores: Sequence[SegmentScore], value: Callable[[SegmentScore], float | None]
) -> float:
    """Return the mean weighted by arguments, rounded once: exactly 1 if all values are 1."""
    total = sum(score.n_arguments for score in scores)
    return float(sum(score.n_arguments * Fraction(value(score) or 0.0) for score in scores) / total)
