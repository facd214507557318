"""Scores by the rules of the reference implementation, from the same executions as ours.

It rewrites outputs before it compares them and allows them no difference where runs agree, takes
two failures with one exit code for the same, and counts one more in numerator and denominator
(SPEC I4 to I7, U2-3, U2-4, U2-8).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from shioenv.behavior.compare import Channel
from shioenv.behavior.similarity import compared, similarity
from shioenv.dataset.manifest import read_manifest
from shioenv.domain.behavior import Behavior
from shioenv.domain.inputs import Role
from shioenv.domain.runner import Runner, State
from shioenv.execution.job import Job
from shioenv.experiments.journal import Journal
from shioenv.experiments.scores import Score
from shioenv.experiments.setting import Setting
from shioenv.grammar.library import load_grammars
from shioenv.irreducibility.score import Behave, Contrast, SegmentScore, estimate_irreducibility
from shioenv.irreducibility.scoring import Scoring
from shioenv.seeding import generator
from shioenv.synthesis.sample import Sample, sample_on

RULES = ("R*", "rewritten", "strict", "failures", "smoothed", "all four")
"""The score, and what each of the rules makes of it, and all of them together."""

NOTE = (
    "Means of what its rules make of the same executions, one at a time and all together: "
    "outputs are compared in small letters, without empty lines, with one blank for any white "
    "space and an index and a length for each number (*rewritten*); where runs agree, outputs must "
    "be equal, not just similar by 0.95 (*strict*); sub-inputs that fail with the exit code of a "
    "failing whole are the same (*failures*); sub-inputs' weights are added up over the commands "
    "of an input with one more in numerator and denominator for each, so that an only argument "
    "always matters (*smoothed*)."
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


class Differs(NamedTuple):
    """Whether a sub-input does something else, or what those weigh together that do."""

    ours: float
    rewritten: float
    strict: float
    failures: float
    all_four: float


class Command(NamedTuple):
    """A command of an input, and what its sub-inputs weigh."""

    n: int
    """Arguments that can be removed, 1 at least."""
    total: float
    """All sub-inputs, whatever they do."""
    differing: Differs


def by_rule(commands: Sequence[Command], ranges: int) -> ByRule:
    """The scores of an input of these commands, at least one, in the order of `RULES`.

    Ours averages commands by number of arguments. The reference adds up what they weigh, with one
    more in numerator and denominator for each of its `ranges`: every command, also without an
    argument, and every target of a redirection. The command alone, the only sub-input where there
    is one argument, weighs nothing there.
    """
    arguments = sum(one.n for one in commands)

    def mean(weight: Callable[[Differs], float]) -> float:
        return math.fsum(one.n * weight(one.differing) / one.total for one in commands) / arguments

    def smoothed(weight: Callable[[Differs], float]) -> float:
        several = [one for one in commands if one.n > 1]
        hits = math.fsum(weight(one.differing) for one in several)
        return (ranges + hits) / (ranges + math.fsum(one.total for one in several))

    return (
        mean(lambda one: one.ours),
        mean(lambda one: one.rewritten),
        mean(lambda one: one.strict),
        mean(lambda one: one.failures),
        smoothed(lambda one: one.ours),
        smoothed(lambda one: one.all_four),
    )


class _Seen:
    """What sub-inputs did, as far as the rules look at it; gives a score its behaviors."""

    def __init__(self, behave: Behave) -> None:
        self._behave = behave
        self._codes: dict[str, int] = {}
        self._rewritten: dict[str, bytes] = {}

    def __call__(self, text: str) -> Behavior:
        """The behavior; the first one of a text is what is remembered."""
        behavior = self._behave(text)
        self._codes.setdefault(text, behavior.exit_code)
        self._rewritten.setdefault(text, rewritten(compared(behavior.output)))
        return behavior

    def differs(self, whole: str, contrast: Contrast, threshold: float) -> Differs:
        """By each rule, whether the sub-input does something else than the whole.

        Outputs are what behaviors are compared by last, so a difference in another channel
        remains whatever becomes of them.
        """
        found = contrast.difference
        elsewhere = found is not None and found.channel is not Channel.OUTPUT
        failure = self._codes[whole] != 0 and self._codes[contrast.text] == self._codes[whole]
        outputs = self._rewritten[whole], self._rewritten[contrast.text]
        return Differs(
            ours=found is not None,
            rewritten=elsewhere or similarity(*outputs) <= threshold,
            strict=contrast.strict is not None,
            failures=found is not None and not failure,
            all_four=not failure and (elsewhere or outputs[0] != outputs[1]),
        )


@dataclass(frozen=True, slots=True)
class Rescored:
    """A record's input, executed and scored again."""

    number: int
    scores: ByRule | None
    why: str | None = None
    """One of `REASONS`, where there are no scores."""

    def to_json(self) -> dict[str, Any]:
        """The input as a line of the journal."""
        return {"number": self.number, "scores": self.scores, "why": self.why}

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> Rescored:
        """The input of such a line. KeyError, TypeError, ValueError for none."""
        scores, why = line["scores"], line["why"]
        return cls(int(line["number"]), None if scores is None else tuple(map(float, scores)), why)


REASONS = ("waiting", "volatile")
"""Why inputs are left out: a sub-input runs out of time, or this time the runs disagree."""


class _WaitsError(Exception):
    """A run does not end in time."""


def rescored(runner: Runner, task: tuple[int, Sample], *, seed: int, scoring: Scoring) -> Rescored:
    """An input, with an argument at least, scored on the sub-inputs that its record was scored on.

    `seed` and `scoring` are its dataset's. Errors: those of the runner.
    """
    number, one = task

    def behave(text: str) -> Behavior:
        behavior = runner.run(text, State(cwd=one.cwd))
        if behavior.timed_out:
            raise _WaitsError
        return behavior

    seen = _Seen(behave)
    try:
        found = estimate_irreducibility(
            one.input,
            seen,
            replace(scoring, noise_runs=Scoring().noise_runs, target_se=None),
            rng=generator(seed, "score", number),
        )
    except _WaitsError:
        return Rescored(number, None, "waiting")
    if found.volatile:
        return Rescored(number, None, "volatile")
    commands = [
        _command(segment, one.input.through(index).text, seen)
        for index, segment in enumerate(found.segments)
        if segment.n_arguments
    ]
    targets = sum(token.role is Role.TARGET for token in one.input.tokens)
    return Rescored(number, by_rule(commands, len(found.segments) + targets))


def _command(segment: SegmentScore, whole: str, seen: _Seen) -> Command:
    threshold = segment.noise_threshold
    assert threshold is not None  # it has arguments
    weighed = [(one.weight, seen.differs(whole, one, threshold)) for one in segment.contrasts]
    sums = [
        math.fsum(weight for weight, differs in weighed if differs[place])
        for place in range(len(Differs._fields))
    ]
    return Command(segment.n_arguments, math.fsum(weight for weight, _ in weighed), Differs(*sums))


@dataclass(frozen=True, slots=True)
class Ruled:
    """A record's score, and what the rules make of it."""

    score: Score
    by_rule: ByRule


@dataclass(frozen=True, slots=True)
class Rescoring:
    """What `scores_by_rule` gives."""

    ruled: Sequence[Ruled]
    left_out: Mapping[str, int]
    """How many records have no scores, by reason."""

    @property
    def counts(self) -> dict[str, Any]:
        """As `run.json` shows it."""
        return {"scored by other rules": len(self.ruled), "not so scored": dict(self.left_out)}


def evenly(scores: Sequence[Score], count: int) -> list[Score]:
    """At most `count` of the records that have an argument and are not volatile, evenly spaced:
    later inputs of a stream are longer, because short ones run out.
    """
    usable = [one for one in scores if one.n_arguments and not one.volatile]
    count = min(count, len(usable))
    return [usable[place * len(usable) // count] for place in range(count)]


def scores_by_rule(setting: Setting, directory: Path, scores: Sequence[Score]) -> Rescoring:
    """The inputs of these records of a dataset, executed again.

    What an earlier call executed is used; it lies in the dataset's directory. Errors: those of
    `Journal` and of the executor.
    """
    plan = read_manifest(directory).plan
    system = setting.system
    wanted = {one.session_id for one in scores}
    grammars = load_grammars(versions=system.packages)
    described = {"format": "shioenv-rules", **plan.to_json()}
    with Journal(directory / "rules", described, Rescored.from_json) as journal:
        missing = wanted - journal.tried.keys()
        count = max(missing, default=-1) + 1
        samples = sample_on(system, plan.drawing, count, grammars=grammars)
        tasks = [(number, one) for number, one in enumerate(samples) if number in missing]
        kept = len(wanted) - len(missing)
        score = partial(rescored, seed=plan.drawing.seed, scoring=plan.scoring or Scoring())
        job = Job(score, system=setting.system_name or system.name, what="input")
        with setting.executor as executor:
            for done, (_, found) in enumerate(executor.map(job, tasks), kept + 1):
                journal.add(found)
                setting.report(f"{directory.name} inputs by other rules", done, len(wanted))
        tried = [(one, journal.tried[one.session_id]) for one in scores]
    reasons = Counter(found.why for _, found in tried)
    return Rescoring(
        [Ruled(one, found.scores) for one, found in tried if found.scores is not None],
        {why: reasons[why] for why in REASONS},
    )


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
