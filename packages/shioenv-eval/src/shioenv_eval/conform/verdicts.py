"""Verdicts: whether an answer equals the machine's behavior, or an input does what another does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

from shioenv.behavior.compare import NoisyNames
from shioenv.behavior.observe import SandboxRunner
from shioenv.domain.answer_json import behavior_json
from shioenv.domain.behavior import Behavior
from shioenv.domain.context import pointer
from shioenv.domain.predictor import PatchLevel
from shioenv.domain.runner import State
from shioenv_eval.conform.truth import TruthCase
from shioenv_eval.mask import Mask, output_text_of
from shioenv_eval.metrics import PredictorAnswer, Status
from shioenv_eval.patches import (
    changed_contents,
    changed_files,
    moves,
    operations,
    reconciled,
)
from shioenv_eval.suite import moved_in


class DifferenceClass(StrEnum):
    """The part in which an answer differs from the machine's behavior."""

    ANSWER = "answer"
    """No valid answer: the other side hung, crashed, abstained, or sent something invalid."""
    EXIT_CODE = "exit code"
    OUTPUT = "output"
    STANDARD_ERROR = "standard error"
    """The output differs, but contains all that the machine wrote to standard output.

    Only the lines that the machine wrote to standard error differ.
    """
    PATCH = "patch"


Classes = frozenset[DifferenceClass]


@dataclass(frozen=True, slots=True)
class CaseVerdict:
    """A case, the other side's answer, and the classes in which it differs."""

    case: TruthCase
    said: PredictorAnswer
    classes: Classes

    @property
    def right(self) -> bool:
        """Whether the other side behaved as the machine did."""
        return not self.classes


def classes_of(truth: Behavior, said: PredictorAnswer, level: PatchLevel) -> Classes:
    """Return the classes in which an answer differs from the machine's behavior.

    Empty if it agrees. Outputs are compared as text, with CR LF converted to LF and nothing
    stripped. Directories and times in a patch count only at the level `full`. At this level
    contents of files count too if the answer has their digests.
    """
    behavior = said.behavior
    if behavior is None or said.status is not Status.ANSWERED:
        return frozenset({DifferenceClass.ANSWER})
    found = set()
    if behavior.exit_code != truth.exit_code:
        found.add(DifferenceClass.EXIT_CODE)
    if output_text_of(behavior.output) != output_text_of(truth.output):
        found.add(_class_of_output(truth, behavior))
    if _patches_differ(truth, behavior, level):
        found.add(DifferenceClass.PATCH)
    return frozenset(found)


def _class_of_output(truth: Behavior, behavior: Behavior) -> DifferenceClass:
    """Return `STANDARD_ERROR` if the answer contains each line of the machine's standard output.
    The lines must be in order. Return `OUTPUT` otherwise, or if the machine wrote nothing to
    standard error. An answer does not separate the two streams.
    """
    if truth.stdout is None or truth.stdout == truth.output:
        return DifferenceClass.OUTPUT
    said = iter(output_text_of(behavior.output).splitlines())
    there = all(line in said for line in output_text_of(truth.stdout).splitlines())
    return DifferenceClass.STANDARD_ERROR if there else DifferenceClass.OUTPUT


def _patches_differ(truth: Behavior, behavior: Behavior, level: PatchLevel) -> bool:
    if level is PatchLevel.OUTPUT:
        return False
    ours = operations(truth.patch)
    theirs = operations(behavior.patch, silent=changed_contents([truth]))
    ours, theirs = reconciled(ours, theirs), reconciled(theirs, ours)
    if level is PatchLevel.FILES:
        return changed_files(ours) != changed_files(theirs)
    if ours != theirs:
        return True
    if not behavior.content_digests:
        return False
    return compared_digests(truth, behavior) != compared_digests(behavior, truth)


def compared_digests(one: Behavior, other: Behavior) -> dict[str, str]:
    """Return the digests of one side, without those of files that the other side moves unchanged.

    A move has no digest for its target, but the equivalent removal and addition have one.
    """
    targets = {operation[2] for operation in moves(other.patch)}
    known = other.content_digests
    return {
        name: digest
        for name, digest in one.content_digests.items()
        if name in known or pointer("fs", name) not in targets
    }


RUNS = 3
"""Runs of each input, which show what varies."""

CHANNELS = ("output", "exit_code", "patch", "contents")


@dataclass(frozen=True)
class EffectsComparison:
    """The runs of two inputs from one state."""

    first: tuple[Behavior, ...]
    second: tuple[Behavior, ...]
    moved: Mapping[str, Any]
    """Values before the runs at the source paths of move operations, by path."""

    @cached_property
    def masks(self) -> tuple[Mask, Mask]:
        """The variation between the runs of each input."""
        return Mask.of(self.first, self.moved), Mask.of(self.second, self.moved)

    @cached_property
    def differs(self) -> tuple[str, ...]:
        """The channels of `CHANNELS` in which the inputs differ.

        A channel is the same if a run of one input agrees with a run of the other, apart from the
        masks.
        """
        pairs = [(one, other) for one in self.first for other in self.second]
        same = (self._same_output, _same_exit, self._same_patch, self._same_contents)
        return tuple(
            name
            for name, is_same in zip(CHANNELS, same, strict=True)
            if not any(is_same(one, other) for one, other in pairs)
        )

    def _same_output(self, one: Behavior, other: Behavior) -> bool:
        first, second = self.masks
        equal = output_text_of(one.output) == output_text_of(other.output)
        return equal or first.fits(other.output) or second.fits(one.output)

    def _same_patch(self, one: Behavior, other: Behavior) -> bool:
        sides = [operations(run.patch, self.moved, frozenset()) for run in (one, other)]
        for mask in self.masks:
            sides = [mask.operations(side) for side in sides]
        return sides[0] == sides[1]

    def _same_contents(self, one: Behavior, other: Behavior) -> bool:
        varies = [
            NoisyNames.of([run.content_digests for run in runs])
            for runs in (self.first, self.second)
        ]
        first, second = (
            {name: digest for name, digest in digests.items()
             if not any(name in names for names in varies)}
            for digests in (compared_digests(one, other), compared_digests(other, one))
        )  # fmt: skip
        return first == second

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as a JSON object, with the first run of each input."""
        return {
            "same": not self.differs,
            "differs": list(self.differs),
            "varies": [list(mask.channels) for mask in self.masks],
            "runs": len(self.first),
            "behaviors": [behavior_json(runs[0]) for runs in (self.first, self.second)],
        }


def _same_exit(one: Behavior, other: Behavior) -> bool:
    return one.exit_code == other.exit_code and one.timed_out == other.timed_out


def compare_effects(
    sandbox: SandboxRunner, inputs: Sequence[str], state: State, runs: int = RUNS
) -> EffectsComparison:
    """Run two inputs from one state, `runs` times each. Errors: those of the sandbox."""
    first, second = (tuple(sandbox.run(text, state) for _ in range(runs)) for text in inputs)
    return EffectsComparison(first, second, moved_in(first + second, state.before.document))
