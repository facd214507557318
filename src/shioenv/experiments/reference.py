"""Scores by the rules of the reference implementation, from the same executions as ours.

It rewrites outputs before it compares them, takes two failures with one exit code for the same, and
counts one more in numerator and denominator (SPEC I5 to I7).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from shioenv.behavior.compare import Channel
from shioenv.behavior.observe import Observer
from shioenv.behavior.similarity import compared, similarity
from shioenv.dataset.generate import samples_of
from shioenv.dataset.manifest import read_manifest
from shioenv.domain.behavior import Behavior
from shioenv.experiments.journal import Journal
from shioenv.experiments.processes import Executors
from shioenv.experiments.scores import Score
from shioenv.experiments.setting import Setting
from shioenv.grammar.library import load_grammars
from shioenv.irreducibility.score import Behave, Contrast, SegmentScore, estimate_irreducibility
from shioenv.seeding import generator
from shioenv.synthesis.sample import Sample

RULES = ("R*", "rewritten", "failures", "smoothed", "all three")
"""The score, and what each of the rules makes of it, and all of them together."""

NOTE = (
    "Means of what its rules make of the same executions, one at a time and all together: "
    "outputs are compared in small letters, without columns and empty lines, and with an index "
    "and a length for each number (*rewritten*); "
    "sub-inputs that fail with the exit code of a failing whole are the same (*failures*); "
    "one more is counted in numerator and denominator (*smoothed*)."
)

ByRule: TypeAlias = tuple[float, ...]
"""Scores of one input, 0 to 1, in the order of `RULES`."""

_NUMBER = re.compile(r"\b\d+\b")


def rewritten(output: bytes) -> bytes:
    """An output as the reference implementation compares it: small letters, no empty lines, one
    blank for any number of them, and for each number that stands alone which of the output's
    different numbers it is and how many digits it has (SPEC I7 and U2-8).
    """
    places: dict[str, int] = {}

    def token(found: re.Match[str]) -> str:
        return f"<num:{places.setdefault(found[0], len(places) + 1)}:{len(found[0])}>"

    text = _NUMBER.sub(token, output.decode("utf-8", "replace").lower())
    lines = (" ".join(line.split()) for line in text.splitlines())
    return "\n".join(filter(None, lines)).encode()


@dataclass(frozen=True, slots=True)
class Weights:
    """What those sub-inputs of one command weigh that do something else, rule by rule."""

    n: int
    """Arguments that can be removed, 1 at least."""
    total: float
    """All sub-inputs, whatever they do."""
    differing: float
    rewritten: float
    failures: float
    both: float
    """Where outputs are rewritten and failures alike."""


def by_rule(commands: Sequence[Weights]) -> ByRule:
    """The scores of an input of these commands, at least one.

    Ours averages commands by number of arguments; the reference adds up what they weigh, one more
    in each, and an only argument always matters (SPEC I4, I5).
    """
    arguments = sum(one.n for one in commands)

    def mean(differing: Callable[[Weights], float]) -> float:
        return math.fsum(one.n * differing(one) / one.total for one in commands) / arguments

    def smoothed(differing: Callable[[Weights], float]) -> float:
        several = [one for one in commands if one.n > 1]
        return (len(commands) + math.fsum(map(differing, several))) / (
            len(commands) + math.fsum(one.total for one in several)
        )

    return (
        mean(lambda one: one.differing),
        mean(lambda one: one.rewritten),
        mean(lambda one: one.failures),
        smoothed(lambda one: one.differing),
        smoothed(lambda one: one.both),
    )


class Seen:
    """What sub-inputs did, as far as the rules look at it; gives a score its behaviors."""

    def __init__(self, behave: Behave) -> None:
        self._behave = behave
        self._codes: dict[str, int] = {}
        self._outputs: dict[str, bytes] = {}

    def __call__(self, text: str) -> Behavior:
        """The behavior; the first one of a text is what is remembered."""
        behavior = self._behave(text)
        self._codes.setdefault(text, behavior.exit_code)
        self._outputs.setdefault(text, compared(behavior.output))
        return behavior

    def same_failure(self, whole: str, contrast: Contrast) -> bool:
        """Whether the sub-input fails with the exit code that the whole one fails with."""
        return self._codes[whole] != 0 and self._codes[contrast.text] == self._codes[whole]

    def same_rewritten(self, whole: str, contrast: Contrast, threshold: float) -> bool:
        """Whether only outputs differ, and not once both are rewritten."""
        if contrast.difference is None or contrast.difference.channel is not Channel.OUTPUT:
            return False
        outputs = (rewritten(self._outputs[text]) for text in (whole, contrast.text))
        return similarity(*outputs) > threshold


@dataclass(frozen=True, slots=True)
class Rescored:
    """An input of a dataset with its scores."""

    number: int
    scores: ByRule | None
    """None where it has no argument, a run ran out of time, or runs of it disagree."""

    def to_json(self) -> dict[str, Any]:
        """The input as a line of the journal."""
        return {"number": self.number, "scores": self.scores}

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> Rescored:
        """The input of such a line. KeyError, TypeError, ValueError for none."""
        scores = line["scores"]
        return cls(int(line["number"]), None if scores is None else tuple(map(float, scores)))


Task: TypeAlias = tuple[int, Sample, int, int]
"""Number, sample, budget and seed."""


class _WaitsError(Exception):
    """A run does not end in time."""


def rescored(observer: Observer, task: Task) -> Rescored:
    """A sample scored with the paper's estimator, on the sub-inputs that its record was scored on
    where that was the paper's, too.

    Errors: those of the observer's `run`.
    """
    number, one, budget, seed = task

    def behave(text: str) -> Behavior:
        behavior = observer.run(text, cwd=one.cwd)
        if behavior.timed_out:
            raise _WaitsError
        return behavior

    seen = Seen(behave)
    rng = generator(seed, "score", number)
    try:
        found = estimate_irreducibility(one.input, seen, budget=budget, rng=rng)
    except _WaitsError:
        return Rescored(number, None)
    commands = [
        _weights(segment, one.input.through(index).text, seen)
        for index, segment in enumerate(found.segments)
        if segment.n_arguments
    ]
    return Rescored(number, by_rule(commands) if commands and not found.volatile else None)


def _weights(segment: SegmentScore, whole: str, seen: Seen) -> Weights:
    threshold = segment.noise_threshold
    assert threshold is not None  # it has arguments
    sums = dict.fromkeys(("total", "differing", "rewritten", "failures", "both"), 0.0)
    for contrast in segment.contrasts:
        sums["total"] += contrast.weight
        if contrast.difference is None:
            continue
        failure = seen.same_failure(whole, contrast)
        output = seen.same_rewritten(whole, contrast, threshold)
        sums["differing"] += contrast.weight
        sums["rewritten"] += contrast.weight * (not output)
        sums["failures"] += contrast.weight * (not failure)
        sums["both"] += contrast.weight * (not (output or failure))
    return Weights(segment.n_arguments, **sums)


@dataclass(frozen=True, slots=True)
class Ruled:
    """A record's score, and what the rules make of it."""

    score: Score
    by_rule: ByRule


def scores_by_rule(setting: Setting, directory: Path, scores: Sequence[Score]) -> list[Ruled]:
    """The inputs of these records of a dataset, executed again; those that have scores then.

    What an earlier call executed is used; it lies beside the dataset. Errors: those of `Journal`
    and `Executors`.
    """
    plan = read_manifest(directory).plan
    system = setting.system
    wanted = {one.session_id for one in scores}
    samples = samples_of(
        plan, system, load_grammars(versions=system.packages), max(wanted, default=-1) + 1
    )
    described = {"format": "shioenv-rules", **plan.to_json()}
    there = directory.with_name(f"{directory.name}-rules")
    with Journal(there, described, Rescored.from_json) as journal:
        tasks: list[Task] = [
            (number, one, plan.budget, plan.seed)
            for number, one in enumerate(samples)
            if number in wanted and number not in journal.tried
        ]
        kept = len(wanted) - len(tasks)
        with Executors(setting.system_name or system.name, setting.workers) as executors:
            for done, found in enumerate(executors.map(rescored, tasks), kept + 1):
                journal.add(found)
                setting.report(f"{directory.name} inputs by other rules", done, len(wanted))
        tried = [(one, journal.tried[one.session_id].scores) for one in scores]
    return [Ruled(one, found) for one, found in tried if found is not None]


def means_by_rule(scores: Sequence[ByRule]) -> ByRule:
    """Of one input at least."""
    return tuple(math.fsum(values) / len(scores) for values in zip(*scores, strict=True))


def rule_columns(ruled: Sequence[Ruled]) -> dict[str, list[Any]]:
    """As columns: which record, and its score by each rule."""
    return {
        "sampler": [one.score.sampler for one in ruled],
        "session_id": [one.score.session_id for one in ruled],
        "n_arguments": [one.score.n_arguments for one in ruled],
        **{rule: [one.by_rule[place] for one in ruled] for place, rule in enumerate(RULES)},
    }
