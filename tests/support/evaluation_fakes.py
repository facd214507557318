"""Handmade cases and answers."""

from __future__ import annotations

from collections.abc import Mapping

from shioenv.dataset.questions import question_of
from shioenv.domain.behavior import Behavior
from shioenv.domain.patch import ContextPatch, Operation
from shioenv_eval.metrics import PredictorAnswer
from shioenv_eval.suite import Head, Suite, SuiteCase

ENTRY = {
    "perms": "-rw-r--r--", "links": 1, "owner": "root", "group": "root", "size": 0,
    "month": "Oct", "day": 16, "year": 2025, "time": "19:43",
}  # fmt: skip


def did(output: str | bytes = "", *operations: Operation, exit_code: int = 0) -> Behavior:
    """Return a behavior."""
    content = output.encode() if isinstance(output, str) else output
    return Behavior(exit_code, content, ContextPatch(operations))


def added(name: str, **attributes: object) -> Operation:
    """Return the operation that adds an empty file."""
    return ("a", f"/fs/{name}", {**ENTRY, **attributes})


def case(*runs: Behavior, text: str = "ls", moved: Mapping[str, object] | None = None) -> SuiteCase:
    """Return a case with this behavior."""
    return SuiteCase(question_of({"input": text, "id": text}, 1, "test"), runs, moved or {})


def said(*what: object, **how: object) -> PredictorAnswer:
    """Return the answer with the behavior `did` of the same arguments."""
    return PredictorAnswer(behavior=did(*what, **how))  # type: ignore[arg-type]


def suite_of(*cases: SuiteCase) -> Suite:
    """Return a suite without a particular system."""
    head = Head("test", "debian-12", "0" * 64, "/home/ubuntu", 5, 61.0, {}, "d" * 64)
    return Suite(head, cases)
