"""Metrics: pure functions of a case and a predictor's answer.

Output is compared as text, with CR LF converted to LF and nothing stripped. It is right if it
equals the output of any gold run. The paper gives no formulas; every choice is explained in
`docs/design/evaluation.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from shioenv.behavior.compare import similarity
from shioenv.domain.behavior import Behavior
from shioenv.domain.predictor import PatchLevel
from shioenv_eval.mask import output_text_of
from shioenv_eval.patches import (
    Entries,
    Operations,
    changed_contents,
    changed_files,
    jaccard,
    leaves,
    operation_paths,
    operations,
    reconciled,
)
from shioenv_eval.suite import SuiteCase


class Status(StrEnum):
    """The outcome of asking a predictor about one input."""

    ANSWERED = "answered"
    ABSTAINED = "abstained"
    """The predictor declined."""
    INVALID = "invalid"
    """The reply was not a valid answer; the readable part is kept."""
    TIMED_OUT = "timed_out"
    """No answer came in time."""
    CRASHED = "crashed"
    """The predictor raised another exception, or its process ended."""


@dataclass(frozen=True, slots=True)
class PredictorAnswer:
    """A predictor's answer to one input."""

    status: Status = Status.ANSWERED
    behavior: Behavior | None = None
    """The answer; the readable part of an invalid answer; None if there is nothing."""
    confidence: float | None = None
    """0 to 1; None if the predictor gave none."""
    milliseconds: float = 0.0
    why: str = ""
    """The source of the answer, or the reason why there is none."""
    tokens: tuple[int, int] = (0, 0)
    """Tokens of a model's prompt and reply; 0 if tokens are not counted."""
    cost: float = 0.0
    """The cost of these tokens in dollars; 0 if no price is known."""


@dataclass(frozen=True, slots=True)
class Marks:
    """The value of each metric for one answer, 0 to 1, or None if it does not apply."""

    em: float
    """Output and patch as in one of the gold runs, the patch at the predictor's level."""
    em_masked: float
    """`em` apart from what is volatile."""
    em_exit: float
    """`em`, and the exit code of the same run."""
    em_files: float
    """Output and changed files as in one of the gold runs, regardless of the predictor's level."""
    em_output: float
    """The output alone as in one of the gold runs."""
    em_patch: float
    """The patch alone as in one of the gold runs, at the predictor's level."""
    exit_code: float
    """The exit code alone as in one of the gold runs."""
    o_es: float
    """Similarity of outputs, the highest among the gold runs."""
    djs: float | None
    """Jaccard similarity of the sets of operations in both patches, at the predictor's level.

    The highest among the gold runs; None if both a gold patch and the answer's patch are empty.
    """
    djs_all: float
    """`djs`, but 1 if both patches are empty."""
    djs_path: float | None
    """`djs` without the values of operations."""
    djs_leaf: float | None
    """`djs` with entries split into their fields; None at the level of files."""
    djs_files: float | None
    """`djs` at the level of files."""

    def to_json(self) -> dict[str, float | None]:
        """Return the marks by name."""
        return {name: getattr(self, name) for name in self.__slots__}


METRICS = tuple(Marks.__slots__)


@dataclass(frozen=True, slots=True)
class _View:
    """A behavior in the form in which it is compared."""

    output: str
    exit_code: int
    changes: Operations
    files: frozenset[tuple[str, str]] = field(default_factory=frozenset)

    @classmethod
    def of(
        cls,
        behavior: Behavior,
        moved: Mapping[str, Any],
        silent: Entries | None = None,
        gold: _View | None = None,
    ) -> _View:
        """Build the view of a behavior; `gold` is the view it is compared with."""
        changes = operations(behavior.patch, moved, silent)
        if gold is not None:
            changes = reconciled(changes, gold.changes)
        return cls(
            output_text_of(behavior.output), behavior.exit_code, changes, changed_files(changes)
        )


def mark(case: SuiteCase, said: PredictorAnswer, level: PatchLevel = PatchLevel.FULL) -> Marks:
    """Score an answer.

    Without an answer, all metrics are 0: the output is not similar to any gold output, and the
    patches share nothing. An invalid answer has no patch, so all joint metrics are 0. Its output
    and exit code are scored as received.
    """
    behavior = said.behavior
    if behavior is None:
        return _nothing(case, level)
    gold = [_View.of(run, case.moved) for run in case.gold]
    silent = changed_contents(case.gold)
    views = [(run, _View.of(behavior, case.moved, silent, run)) for run in gold]
    outputs = [run.output == view.output for run, view in views]
    exits = [run.exit_code == view.exit_code for run, view in views]
    likeness = max(_likeness(run, view) for run, view in views)
    if said.status is not Status.ANSWERED:
        return replace(
            _nothing(case, level),
            em_output=float(any(outputs)),
            exit_code=float(any(exits)),
            o_es=likeness,
        )
    full = level is PatchLevel.FULL

    def patch_of(one: _View) -> frozenset[Any]:
        return one.changes if full else one.files

    def share(of: Callable[[_View], frozenset[Any]]) -> float | None:
        found = [jaccard(of(run), of(view)) for run, view in views]
        # a gold run without changes is matched by an answer without changes
        return None if None in found else max(one for one in found if one is not None)

    patches = [patch_of(run) == patch_of(view) for run, view in views]
    files = [run.files == view.files for run, view in views]
    joint = [output and patch for output, patch in zip(outputs, patches, strict=True)]
    djs = share(patch_of)
    return Marks(
        em=float(any(joint)),
        em_masked=float(_masked(case, views, behavior.output, full)),
        em_exit=float(any(one and code for one, code in zip(joint, exits, strict=True))),
        em_files=float(any(one and file for one, file in zip(outputs, files, strict=True))),
        em_output=float(any(outputs)),
        em_patch=float(any(patches)),
        exit_code=float(any(exits)),
        o_es=likeness,
        djs=djs,
        djs_all=1.0 if djs is None else djs,
        djs_path=share(lambda one: operation_paths(one.changes) if full else one.files),
        djs_leaf=share(lambda one: leaves(one.changes)) if full else None,
        djs_files=share(lambda one: one.files),
    )


def _masked(
    case: SuiteCase, views: Sequence[tuple[_View, _View]], output: bytes, full: bool
) -> bool:
    mask = case.mask
    if not (mask.fits(output) or any(run.output == view.output for run, view in views)):
        return False
    if full:
        return any(
            mask.operations(run.changes) == mask.operations(view.changes) for run, view in views
        )
    return any(mask.changes(run.files) == mask.changes(view.files) for run, view in views)


def _likeness(run: _View, view: _View) -> float:
    first, second = (one.output.encode("utf-8", "surrogateescape") for one in (run, view))
    return similarity(first, second)


def _nothing(case: SuiteCase, level: PatchLevel) -> Marks:
    """Return the marks of a missing answer: 0, or None for shares if a gold run changed nothing."""
    gold = [_View.of(run, case.moved) for run in case.gold]
    changed = 0.0 if all(run.changes for run in gold) else None
    files = 0.0 if all(run.files for run in gold) else None
    full = level is PatchLevel.FULL
    own = changed if full else files
    zeros = dict.fromkeys(METRICS, 0.0)
    shares = {"djs": own, "djs_path": own, "djs_leaf": changed if full else None}
    return Marks(**{**zeros, **shares, "djs_files": files})  # type: ignore[arg-type]
