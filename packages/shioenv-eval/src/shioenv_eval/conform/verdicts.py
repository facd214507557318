"""Verdicts: whether an answer equals the machine's behavior, and how it differs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from shioenv.domain.behavior import Behavior
from shioenv.domain.context import pointer
from shioenv.domain.predictor import PatchLevel
from shioenv_eval.conform.truth import TruthCase
from shioenv_eval.mask import output_text_of
from shioenv_eval.metrics import PredictorAnswer, Status
from shioenv_eval.patches import (
    changed_contents,
    changed_files,
    moves,
    operations,
    reconciled,
)


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
