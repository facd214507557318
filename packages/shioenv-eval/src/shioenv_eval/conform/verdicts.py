"""Verdicts: whether an answer is what the machine did, and where it differs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from shioenv.domain.behavior import Behavior
from shioenv.domain.pointer import pointer
from shioenv.domain.predictor import PatchLevel
from shioenv_eval.conform.truth import TruthCase
from shioenv_eval.mask import text_of
from shioenv_eval.metrics import Said, Status
from shioenv_eval.patches import (
    changed_contents,
    changed_files,
    moves,
    operations,
    reconciled,
)


class DifferenceClass(StrEnum):
    """Where an answer differs from what the machine did."""

    ANSWER = "answer"
    """There is none: the other side hung, died, declined, or said nonsense."""
    EXIT_CODE = "exit code"
    OUTPUT = "output"
    STANDARD_ERROR = "standard error"
    """The output differs, and all that the machine wrote on standard output stands in it.

    What differs then stands in the place of what the machine wrote on standard error."""
    PATCH = "patch"


Classes = frozenset[DifferenceClass]


@dataclass(frozen=True, slots=True)
class CaseVerdict:
    """A case, what the other side said of it, and where that differs."""

    case: TruthCase
    said: Said
    classes: Classes

    @property
    def right(self) -> bool:
        """Whether the other side did what the machine did."""
        return not self.classes


def classes_of(truth: Behavior, said: Said, level: PatchLevel) -> Classes:
    """Where an answer differs from what the machine did; empty where nowhere.

    Outputs are compared as texts with CR LF as LF, nothing stripped. Directories that a patch tells
    of and times count at the level `full` alone. At this level contents of files count too, where
    the answer says their digests.
    """
    behavior = said.behavior
    if behavior is None or said.status is not Status.ANSWERED:
        return frozenset({DifferenceClass.ANSWER})
    found = set()
    if behavior.exit_code != truth.exit_code:
        found.add(DifferenceClass.EXIT_CODE)
    if text_of(behavior.output) != text_of(truth.output):
        found.add(_class_of_output(truth, behavior))
    if _patches_differ(truth, behavior, level):
        found.add(DifferenceClass.PATCH)
    return frozenset(found)


def _class_of_output(truth: Behavior, behavior: Behavior) -> DifferenceClass:
    """Standard error where the machine wrote there, and its standard output is there line by line.

    The channels of an answer are not known. What is known is which lines of the machine's output
    came through standard error: those that its standard output lacks.
    """
    if truth.stdout is None or truth.stdout == truth.output:
        return DifferenceClass.OUTPUT
    said = iter(text_of(behavior.output).splitlines())
    there = all(line in said for line in text_of(truth.stdout).splitlines())
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
    return _digests(truth, behavior) != _digests(behavior, truth)


def _digests(one: Behavior, other: Behavior) -> dict[str, str]:
    """The digests of one side, without those of files that the other side moves as they are.

    A move needs no digest at its target. The removal and the addition that it equals have one.
    """
    targets = {operation[2] for operation in moves(other.patch)}
    known = other.content_digests
    return {
        name: digest
        for name, digest in one.content_digests.items()
        if name in known or pointer("fs", name) not in targets
    }
