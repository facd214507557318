"""Recording of suites: every input is run several times to find what varies."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

from shioenv.behavior.observe import open_sandbox
from shioenv.dataset.questions import Question
from shioenv.domain.answer_json import behavior_json, behavior_of
from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import State
from shioenv.errors import UsageError
from shioenv.execution.job import NumberedJob
from shioenv.execution.lanes import LANES, Lane
from shioenv.execution.local import LocalExecutor
from shioenv.files.unfinished import Parts, unfinished
from shioenv.protocols import EXECUTION
from shioenv.sandbox.base import Limits
from shioenv.system.store import find_system
from shioenv_eval.suite import (
    Head,
    Suite,
    SuiteCase,
    head_digest,
    moved_in,
    suite_inputs,
)

RUNS = 5
"""Runs of each input: all but the last in sequence in one sandbox, the last later in another."""

SECONDS_APART = 61.0
"""Minimum seconds between an input's first and last run, so that clocks show another minute."""

Report = Callable[[int, int], None]
Task = tuple[str, State]


@contextmanager
def recorded_suite(
    inputs: str | Path | Sequence[Question],
    *,
    system: str | None = None,
    limits: Limits | None = None,
    runs: int = RUNS,
    seconds_apart: float = SECONDS_APART,
    workers: int | None = None,
    report: Report = lambda done, total: None,
    waits: Callable[[float], object] = lambda seconds: None,
) -> Iterator[Suite]:
    """Record a suite from a file of inputs (`read_questions`), running each input `runs` times.

    `inputs` may also be questions, or the name of a frozen suite, whose inputs are then run again.

    After `runs - 1` runs of every input, there is a pause of `seconds_apart` seconds before the
    last runs. Runs are kept in the cache directory until the `with` block ends and the suite is
    written, so the same call resumes an interrupted one. `report` is called with the number of runs
    done and the total. `waits` is called with the seconds of a pause before it begins. Errors:
    those of `read_questions`, `find_system` and sandboxes; UsageError for fewer than two runs.
    """
    if runs < 2:
        raise UsageError("one run cannot detect volatile effects", hint="use at least 2 runs")
    questions = list(inputs) if not isinstance(inputs, str | Path) else suite_inputs(inputs)
    built = find_system(system)
    limits = limits or Limits()
    start = built.declaration.start_directory
    tasks = [(one.input, State(cwd=one.cwd or start, history=one.history)) for one in questions]
    bounds = asdict(limits)
    settings = {"runs": runs, "seconds_apart": seconds_apart, "limits": bounds}
    head = Head(
        name=Path(inputs).name if isinstance(inputs, str | Path) else "",
        system=built.name,
        system_digest=built.digest,
        start=start,
        runs=runs,
        seconds_apart=seconds_apart,
        limits=bounds,
        digest=head_digest(questions, built.digest, settings),
    )
    done: list[list[Behavior]] = [[] for _ in tasks]
    total = runs * len(tasks)
    plan = {"suite": head.digest, "tasks": len(tasks), "sources": EXECUTION}
    with (
        unfinished("suite", plan) as kept,
        Parts(kept, "runs", _Runs.to_json, _Runs.from_json) as parts,
    ):
        report(sum(len(one.behaviors) for one in parts.values.values()), total)
        ended = 0.0
        for times, part in ((runs - 1, "first"), (1, "last")):
            names = [f"{part} {number}" for number in range(len(tasks))]
            missing = [number for number, name in enumerate(names) if name not in parts.values]
            if part == "last" and missing:
                firsts = [parts.values[f"first {number}"].when for number in missing]
                newest = max(*firsts, ended)
                left = min(seconds_apart, max(0.0, newest + seconds_apart - time.time()))
                waits(left)
                time.sleep(left)
            job = NumberedJob(
                partial(_executed, times=times),
                system=system or built.name,
                limits=limits,
                digest=built.digest,
                lanes=LANES,
                what="input",
                made="the suite",
            )
            with LocalExecutor(workers) as executor:
                for number, behaviors in executor.map(job, ((n, tasks[n]) for n in missing)):
                    parts.add(names[number], _Runs(time.time(), behaviors))
                    report(sum(len(one.behaviors) for one in parts.values.values()), total)
            if missing:
                ended = time.time()
            for number, name in enumerate(names):
                done[number] += parts.values[name].behaviors
        suite = Suite(head, tuple(_cases(questions, done, tasks, system)))
        yield suite


@dataclass(frozen=True, slots=True)
class _Runs:
    """Runs of one input in one sandbox, and their end time in seconds since 1970."""

    when: float
    behaviors: list[Behavior]

    def to_json(self) -> Any:
        """Return the runs in the format of a suite."""
        return [self.when, [behavior_json(one) for one in self.behaviors]]

    @classmethod
    def from_json(cls, document: Any) -> Self:
        """Parse the output of `to_json`. Errors: ValueError, TypeError, AnswerError."""
        when, behaviors = document
        return cls(float(when), [behavior_of(one) for one in behaviors])


def _executed(lane: Lane, task: tuple[int, Task], times: int) -> list[Behavior]:
    return [execute_input(lane, task[1]) for _ in range(times)]


def execute_input(lane: Lane, task: Task) -> Behavior:
    """Run an input and return its behavior.

    An input that times out is run again while nothing else runs, and the second run counts (D-10).
    """
    behavior = lane.run(*task)
    return lane.alone(lambda: lane.run(*task)) if behavior.timed_out else behavior


def _cases(
    questions: Sequence[Question],
    done: Sequence[Sequence[Behavior]],
    tasks: Sequence[Task],
    system: str | None,
) -> Iterator[SuiteCase]:
    """Yield the cases; the previous contents of moved files are looked up in a sandbox."""
    moving = [any("m" in one[0] for run in runs for one in run.patch.operations) for runs in done]
    if not any(moving):
        for question, runs in zip(questions, done, strict=True):
            yield SuiteCase(question, tuple(runs))
        return
    with open_sandbox(system) as sandbox:
        for question, runs, (_, state), moves in zip(questions, done, tasks, moving, strict=True):
            moved = {}
            if moves:
                known = sandbox.state(state.cwd)
                for text in state.history:
                    known = known.after(text, sandbox.run(text, known))
                moved = moved_in(runs, known.before.document)
            yield SuiteCase(question, tuple(runs), moved)
