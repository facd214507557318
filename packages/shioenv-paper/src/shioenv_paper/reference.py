"""Scores by the rules of the reference implementation, from the same executions as ours.

The reference implementation has four additional rules (SPEC I4 to I7, U2-3, U2-4, U2-8):

- Outputs are normalised before they are compared.
- Outputs must be equal if runs agree.
- Two failures with the same exit code are equal.
- Numerator and denominator are increased by one.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from msgspec.json import Decoder

from shioenv.behavior.compare import Channel, compared, similarity
from shioenv.dataset.manifest import read_manifest
from shioenv.domain.behavior import Behavior
from shioenv.domain.inputs import Role
from shioenv.domain.runner import Runner
from shioenv.grammar.library import chosen_grammars, load_grammars
from shioenv.irreducibility.score import Behave, Contrast, SegmentScore
from shioenv.irreducibility.scoring import Scoring
from shioenv.seeding import generator
from shioenv.synthesis.sample import sample
from shioenv.synthesis.traces import Sample
from shioenv_paper.exact import SkippedInputError, scored, timely
from shioenv_paper.experiment_journal import InputJournal, Tried
from shioenv_paper.experiment_output import columns
from shioenv_paper.scores import ScoredRecord
from shioenv_paper.setting import ExperimentSetting, answers

RULES = ("R*", "rewritten", "strict", "failures", "smoothed", "all four")
"""The scores: by our rules, with each of the four rules, and with all four together."""

NOTE = (
    "The table has mean scores by each rule of the reference implementation alone, and by all "
    "four, from the same executions. *Rewritten*: outputs are compared in lower case, without "
    "empty lines, and with white space as one blank. Numbers are replaced by their order of first "
    "appearance and their length. *Strict*: if the runs of the full input agree, only equal "
    "outputs count as the same; our score requires a similarity above 0.95. *Failures*: if the "
    "full input fails, sub-inputs that fail with the same exit code count as the same. *Smoothed*: "
    "the score is one fraction for the whole input: the weight of the sub-inputs that differ, "
    "divided by the weight of all. Each command and each target of a redirection adds one to "
    "numerator and denominator. The command without arguments has weight 0, so an input with a "
    "single argument scores 1."
)

ByRule: TypeAlias = tuple[float, ...]
"""Scores of one input, 0 to 1, in the order of `RULES`."""

_NUMBER = re.compile(r"\b\d+\b")


def rewritten(output: bytes) -> bytes:
    """Normalise an output as the reference implementation does (SPEC I7 and U2-8).

    Letters become lowercase, empty lines are removed, and any white space becomes one blank. A
    separate number is replaced by an index and a length. The index, from 1, identifies the number
    among the output's distinct numbers; the length is its number of digits.
    """
    places: dict[str, int] = {}

    def token(number: re.Match[str]) -> str:
        return f"<num:{places.setdefault(number[0], len(places) + 1)}:{len(number[0])}>"

    text = _NUMBER.sub(token, output.decode("utf-8", "replace").lower())
    lines = (" ".join(line.split()) for line in text.splitlines())
    return "\n".join(filter(None, lines)).encode()


class Differs(NamedTuple):
    """For each rule, whether a sub-input differs, or the summed weight of those that differ."""

    ours: float
    rewritten: float
    strict: float
    failures: float
    all_four: float


class ScoredCommand(NamedTuple):
    """A command of an input, with the weights of its sub-inputs."""

    n: int
    """Number of arguments that can be removed, at least 1."""
    total: float
    """Weight of all sub-inputs."""
    differing: Differs
    """Weight of the sub-inputs that differ."""


def by_rule(commands: Sequence[ScoredCommand], ranges: int) -> ByRule:
    """Return the scores of an input with at least one of these commands, in the order of `RULES`.

    Our score averages the commands' scores by number of arguments. The reference adds up the
    weights of all commands' sub-inputs, and increases numerator and denominator by one for each of
    the `ranges`. A range is a command, with or without arguments, or the target of a redirection.
    If a command has one argument, its only sub-input is the command alone, with weight 0 in the
    reference.
    """
    arguments = sum(command.n for command in commands)
    several = [command for command in commands if command.n > 1]
    total = math.fsum(command.total for command in several)

    def mean(rule: str) -> float:
        weighed = (c.n * getattr(c.differing, rule) / c.total for c in commands)
        return math.fsum(weighed) / arguments

    def smoothed(rule: str) -> float:
        hits = math.fsum(getattr(command.differing, rule) for command in several)
        return (ranges + hits) / (ranges + total)

    averaged = (mean(rule) for rule in ("ours", "rewritten", "strict", "failures"))
    return (*averaged, smoothed("ours"), smoothed("all_four"))


class _Seen:
    """Provides behaviors for scoring, and records the data that the rules need."""

    def __init__(self, behave: Behave) -> None:
        self._behave = behave
        self._codes: dict[str, int] = {}
        self._rewritten: dict[str, bytes] = {}

    def __call__(self, text: str) -> Behavior:
        """Return the behavior of a text; the first of several is recorded."""
        behavior = self._behave(text)
        self._codes.setdefault(text, behavior.exit_code)
        self._rewritten.setdefault(text, rewritten(compared(behavior.output)))
        return behavior

    def differs(self, whole: str, contrast: Contrast, threshold: float) -> Differs:
        """Determine for each rule whether the sub-input differs from the whole.

        Behaviors are compared by their outputs last. A difference in another channel therefore
        remains, regardless of a rule's treatment of outputs.
        """
        difference = contrast.difference
        elsewhere = difference is not None and difference.channel is not Channel.OUTPUT
        failure = self._codes[whole] != 0 and self._codes[contrast.text] == self._codes[whole]
        outputs = self._rewritten[whole], self._rewritten[contrast.text]
        return Differs(
            ours=difference is not None,
            rewritten=elsewhere or similarity(*outputs) <= threshold,
            strict=contrast.strict is not None,
            failures=difference is not None and not failure,
            all_four=not failure and (elsewhere or outputs[0] != outputs[1]),
        )


class Rescored(Tried, frozen=True):
    """A record's input, executed and scored again."""

    scores: ByRule | None
    why: str | None = None
    """One of `REASONS` if there are no scores."""


REASONS = ("waiting", "volatile")
"""Reasons for leaving inputs out: a sub-input times out, or runs of the whole input disagree."""


def rescored(runner: Runner, task: tuple[int, Sample], *, seed: int, scoring: Scoring) -> Rescored:
    """Score an input with at least one argument on the sub-inputs of its record's score.

    `seed` and `scoring` are those of the record's dataset. Noise runs are as by default, and no
    target standard error ends scoring early. Errors: those of the runner.
    """
    number, sample = task
    seen, shell_input = _Seen(timely(runner, sample)), sample.input
    scoring = replace(scoring, noise_runs=Scoring().noise_runs, target_se=None)
    try:
        score = scored(sample, seen, scoring, generator(seed, "score", number))
    except SkippedInputError as error:
        return Rescored(number, None, str(error))
    commands = [
        _command(segment, shell_input.through(index).text, seen)
        for index, segment in enumerate(score.segments)
        if segment.n_arguments
    ]
    targets = sum(token.role is Role.TARGET for token in shell_input.tokens)
    return Rescored(number, by_rule(commands, len(score.segments) + targets))


def _command(segment: SegmentScore, whole: str, seen: _Seen) -> ScoredCommand:
    threshold = segment.noise_threshold
    assert threshold is not None  # it has arguments
    weights = [contrast.weight for contrast in segment.contrasts]
    differing = (seen.differs(whole, contrast, threshold) for contrast in segment.contrasts)
    sums = (math.fsum(compress(weights, differs)) for differs in zip(*differing, strict=True))
    return ScoredCommand(segment.n_arguments, math.fsum(weights), Differs(*sums))


@dataclass(frozen=True, slots=True)
class Ruled:
    """A record's score, and its scores by each rule."""

    score: ScoredRecord
    by_rule: ByRule


@dataclass(frozen=True, slots=True)
class Rescoring:
    """The result of `scores_by_rule`."""

    ruled: Sequence[Ruled]
    left_out: Mapping[str, int]
    """Number of records without scores, by reason."""

    @property
    def counts(self) -> dict[str, Any]:
        """The counts for `run.json`."""
        return {"scored by other rules": len(self.ruled), "not so scored": dict(self.left_out)}


def evenly(scores: Sequence[ScoredRecord], count: int) -> list[ScoredRecord]:
    """Select up to `count` of the records that have an argument and are not volatile.

    They are evenly spaced, since later inputs of a stream are longer once short ones are exhausted.
    """
    usable = [score for score in scores if score.n_arguments and not score.volatile]
    count = min(count, len(usable))
    return [usable[place * len(usable) // count] for place in range(count)]


def scores_by_rule(
    setting: ExperimentSetting, directory: Path, scores: Sequence[ScoredRecord]
) -> Rescoring:
    """Execute the inputs of a dataset's records again and score them by the rules.

    Inputs from earlier calls are not executed again: `rules`, in the dataset's directory, keeps
    them. Errors: those of `InputJournal` and of the executor.
    """
    plan, system = read_manifest(directory).plan, setting.system
    wanted = {score.session_id for score in scores}
    grammars = load_grammars(chosen_grammars(plan.drawing.commands), host_clock=system.host_clock)
    described = {"format": "shioenv-rules", **plan.to_json()}
    with InputJournal(directory / "rules", described, Decoder(Rescored).decode) as journal:
        missing = wanted - journal.tried.keys()
        count = max(missing, default=-1) + 1
        samples = sample(plan.drawing, system=system, count=count, grammars=grammars)
        for _, answer in answers(
            setting.executor,
            setting.job(
                partial(rescored, seed=plan.drawing.seed, scoring=plan.scoring or Scoring())
            ),
            [task for task in enumerate(samples) if task[0] in missing],
            lambda done: setting.report(
                f"{directory.name} inputs by other rules", done, len(wanted)
            ),
            done=len(wanted) - len(missing),
        ):
            journal.add(answer)
        tried = [(score, journal.tried[score.session_id]) for score in scores]
    reasons = Counter(answer.why for _, answer in tried)
    return Rescoring(
        [Ruled(score, answer.scores) for score, answer in tried if answer.scores is not None],
        {why: reasons[why] for why in REASONS},
    )


def means_by_rule(scores: Sequence[ByRule]) -> ByRule:
    """Return the mean score by each rule, in the order of `RULES`; `scores` must not be empty."""
    return tuple(math.fsum(values) / len(scores) for values in zip(*scores, strict=True))


def rule_columns(ruled: Sequence[Ruled]) -> dict[str, list[Any]]:
    """Return columns that identify each record, and its score by each rule."""
    names = ("sampler", "session_id", "n_arguments")
    return {
        **columns([row.score for row in ruled], *names),
        **{rule: [row.by_rule[place] for row in ruled] for place, rule in enumerate(RULES)},
    }
