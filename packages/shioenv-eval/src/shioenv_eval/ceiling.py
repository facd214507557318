"""The ceiling of a suite: the machine's own accuracy when it is evaluated as a predictor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import State
from shioenv.execution.job import NumberedJob
from shioenv.execution.lanes import LANES, Lane
from shioenv.execution.local import LocalExecutor
from shioenv.sandbox.base import limits_from
from shioenv_eval.mask import output_text_of
from shioenv_eval.metrics import PredictorAnswer, mark
from shioenv_eval.patches import changed_contents, operations, reconciled
from shioenv_eval.suite import Suite, SuiteCase
from shioenv_eval.suite_recorder import execute_input

AIM = 0.99
"""Minimum share of inputs that must match apart from what is volatile."""


@dataclass(frozen=True, slots=True)
class Miss:
    """An input that behaved differently from its gold runs, apart from what is volatile."""

    id: str
    input: str
    why: str
    """The channels that differ, each with its first difference (`why`)."""


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The accuracy of one more run of each of a suite's inputs."""

    inputs: int
    misses: tuple[Miss, ...]

    @property
    def right(self) -> int:
        """The number of inputs that behaved the same apart from what is volatile."""
        return self.inputs - len(self.misses)

    @property
    def ok(self) -> bool:
        """Whether the share of matching inputs reaches `AIM`."""
        return self.right >= AIM * self.inputs

    def to_json(self) -> dict[str, Any]:
        """Return the ceiling as a JSON object."""
        share = self.right / self.inputs if self.inputs else 1.0
        misses = [asdict(miss) for miss in self.misses]
        return {"inputs": self.inputs, "em_masked": round(share, 4), "misses": misses}


def ceiling(
    suite: Suite,
    *,
    workers: int | None = None,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> Ceiling:
    """Run every input of a suite once more on the suite's system, and compare with the gold runs.

    `report` is called with the number of inputs done and the total. Errors: those of `find_system`
    and sandboxes; SystemMismatchError if the suite was recorded on another build of its system.
    """
    job = NumberedJob(
        _executed,
        system=suite.head.system,
        limits=limits_from(suite.head.limits),
        digest=suite.head.system_digest,
        lanes=LANES,
        what="input",
        made="the suite",
    )
    tasks = [(case.question.input, case.state(suite.head.start)) for case in suite.cases]
    misses: dict[int, Miss] = {}
    with LocalExecutor(workers) as executor:
        for done, (number, behavior) in enumerate(executor.map(job, enumerate(tasks)), 1):
            case = suite.cases[number]
            said = PredictorAnswer(behavior=behavior)
            if not mark(case, said).em_masked:
                misses[number] = Miss(case.question.id, case.question.input, why(case, behavior))
            report(done, len(tasks))
    return Ceiling(len(tasks), tuple(misses[number] for number in sorted(misses)))


def _executed(lane: Lane, task: tuple[int, tuple[str, State]]) -> Behavior:
    return execute_input(lane, task[1])


def why(case: SuiteCase, behavior: Behavior) -> str:
    """Return the first difference of each channel between a behavior and the first gold run.

    If the mask does not match the output, the first differing line that the mask does not cover is
    named. Exit codes and operations are named even if they are volatile.
    """
    gold = case.gold[0]
    found = []
    if behavior.exit_code != gold.exit_code:
        found.append(f"exit code {behavior.exit_code} instead of {gold.exit_code}")
    before, now = (output_text_of(one.output).split("\n") for one in (gold, behavior))
    if before != now and not case.mask.fits(behavior.output):
        differing = (
            n for n, pair in enumerate(zip(before, now, strict=False)) if pair[0] != pair[1]
        )
        place = next(
            (n for n in differing if not case.mask.line_fits(n, now[n])),
            min(len(before), len(now)),
        )
        lines = [(one[place : place + 1] or ["nothing"])[0][:80] for one in (now, before)]
        found.append(f"line {place + 1} is {lines[0]!r} instead of {lines[1]!r}")
    old = operations(gold.patch, case.moved)
    new = operations(behavior.patch, case.moved, changed_contents(case.gold))
    old, new = reconciled(old, new), reconciled(new, old)
    for kind, rest in (("additional", new - old), ("missing", old - new)):
        if rest:
            code, path, _ = min(rest)
            found.append(f"{kind} {code} {path}" + (" and more" if len(rest) > 1 else ""))
    return "; ".join(found)
