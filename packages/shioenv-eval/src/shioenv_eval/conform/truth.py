"""Ground truth: the machine's behavior for each case, executed once and cached on disk."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, TypeAlias, TypeVar

from shioenv.dataset.questions import Question
from shioenv.domain.answer_json import behavior_json, behavior_of
from shioenv.domain.behavior import Behavior
from shioenv.domain.inputs import Input, Session
from shioenv.domain.runner import State
from shioenv.errors import UsageError
from shioenv.execution.job import NumberedJob
from shioenv.execution.lanes import LANES, Lane
from shioenv.execution.local import LocalExecutor
from shioenv.files.durable import cache_directory, locked, storage_errors
from shioenv.files.unfinished import Parts
from shioenv.irreducibility.scoring import Scoring
from shioenv.protocols import EXECUTION
from shioenv.recording.execution_cache import sources_digest
from shioenv.recording.session import SessionRecorder
from shioenv.sandbox.base import LIMITS
from shioenv.system.store import System
from shioenv_eval.conform.cases import CaseStream, DrawnCase, given_cases

RUNS = Scoring(budget=0, noise_runs=2)
"""Each case runs at least twice, once with separate pipes for output and errors; nothing is
scored."""

FORMAT = 3
"""Version of the cached lines; lines of another version are not read."""

Report = Callable[[int, int], None]
"""Callback with the number of cases done and the total."""


@dataclass(frozen=True, slots=True)
class CaseInput:
    """An input with the state in which both sides are asked."""

    cwd: str
    history: tuple[str, ...]
    input: Input

    @property
    def key(self) -> tuple[str, tuple[str, ...], str]:
        """The case's identity; arguments count only as text."""
        return self.cwd, self.history, self.input.text

    @property
    def task(self) -> tuple[str, State]:
        """The question for a predictor."""
        return self.input.text, State(cwd=self.cwd, history=self.history)

    def __str__(self) -> str:
        return self.input.text


@dataclass(frozen=True, slots=True)
class TruthCase:
    """A drawn case with the machine's behavior."""

    drawn: DrawnCase
    behavior: Behavior | None
    """None if the machine's own runs disagree, so that there is no ground truth.

    If something was written to standard error, `stderr` holds it and `stdout` holds the rest;
    otherwise both are None.
    """

    @property
    def asked(self) -> CaseInput:
        """The question for both sides."""
        return CaseInput(self.drawn.cwd, self.drawn.history, self.drawn.input)


Did = TypeVar("Did")
Tasks: TypeAlias = Iterable[tuple[int, CaseInput]]


class CaseMachine:
    """Executes inputs on a pristine system in worker processes; a context manager."""

    def __init__(self, system: System, workers: int | None = None) -> None:
        self.system = system
        self._executor = LocalExecutor(workers)
        # worker processes are reused only for tasks of the same job
        self._behavior = self._job(_behavior)
        self._single_run = self._job(_single_run)

    def behaviors(self, tasks: Tasks) -> Iterator[tuple[int, Behavior | None]]:
        """Yield the number of each task with the machine's behavior, in order of completion.

        The behavior is None if the runs disagree or reach a limit. Errors: those of executors.
        """
        return self._executor.map(self._behavior, tasks)

    def single_runs(self, tasks: Tasks) -> Iterator[tuple[int, Behavior]]:
        """Like `behaviors`, but with a single run each, so that variation is not detected.

        A run that reached a limit is repeated once, with no other run at the same time.
        """
        return self._executor.map(self._single_run, tasks)

    def _job(self, does: Callable[[Lane, tuple[int, CaseInput]], Did]) -> NumberedJob[Any, Did]:
        return NumberedJob(
            does,
            system=self.system.name,
            limits=LIMITS,
            digest=self.system.digest,
            lanes=LANES,
            what="case",
            made="the truth",
        )

    def __enter__(self) -> CaseMachine:
        return self

    def __exit__(self, *exception: object) -> None:
        self._executor.close()


def _behavior(lane: Lane, task: tuple[int, CaseInput]) -> Behavior | None:
    asked = task[1]
    recorder = SessionRecorder(scoring=RUNS, alone=lane.alone)
    session = Session(asked.cwd, (asked.input,), asked.history)
    did = recorder.record(session, lane, Random(0)).behavior
    return None if did.volatile or did.output_truncated or did.patch_truncated else did


def _single_run(lane: Lane, task: tuple[int, CaseInput]) -> Behavior:
    def run() -> Behavior:
        return lane.execute(*task[1].task)

    did = run()
    return lane.alone(run) if did.limits_hit else did


@dataclass(frozen=True, slots=True)
class Choice:
    """A selection of cases."""

    commands: tuple[str, ...] = ()
    """Names of grammars; if empty, all."""
    count: int = 2000
    """Number of cases, at least 1, from the beginning of the stream."""
    seed: int = 0
    given: tuple[Question, ...] = ()
    """Inputs to use instead; the other fields have no effect."""

    def __post_init__(self) -> None:
        if self.count < 1:
            raise UsageError(f"count {self.count}: expected at least 1")


def truth_of(
    machine: CaseMachine, choice: Choice, report: Report = lambda done, total: None
) -> list[TruthCase]:
    """Return the chosen cases with ground truth; fewer if the stream ends early.

    Results in the cache directory are reused; missing ones are executed and added. The cache key is
    the system, the code that draws and executes, the commands and the seed. Errors: those of
    `CaseStream` and executors; DatasetStorageError.
    """
    directory = _directory(machine.system, choice)
    with storage_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
        with locked(directory, wait=True), Parts(directory, "cases", _encoded, _decoded) as parts:
            return _completed(parts, machine, choice, report)


def _completed(
    parts: Parts[TruthCase], machine: CaseMachine, choice: Choice, report: Report
) -> list[TruthCase]:
    drawn = given_cases(machine.system, choice.given)
    known, names = parts.values, [str(number) for number in range(len(drawn) or choice.count)]
    if any(name not in known for name in names):
        stream = CaseStream(machine.system, choice.commands, choice.seed)
        drawn = drawn or list(islice(stream, len(names)))
        names = names[: len(drawn)]
        missing = [number for number, name in enumerate(names) if name not in known]
        tasks = ((number, TruthCase(drawn[number], None).asked) for number in missing)
        for done, (number, behavior) in enumerate(machine.behaviors(tasks), 1):
            parts.add(names[number], TruthCase(drawn[number], behavior))
            report(len(names) - len(missing) + done, len(names))
    return [known[name] for name in names]


def _directory(system: System, choice: Choice) -> Path:
    drawing: list[Any] = [
        choice.commands,
        choice.seed,
        sources_digest("shioenv.grammar", "shioenv.synthesis"),
    ]
    if choice.given:
        drawing.append([question.to_json() for question in choice.given])
    about = [FORMAT, system.digest, asdict(LIMITS), asdict(RUNS), EXECUTION, drawing]
    digest = hashlib.sha256(json.dumps(about).encode()).hexdigest()
    return cache_directory() / "truths" / digest[:24]


def truth_json(behavior: Behavior | None) -> dict[str, Any]:
    """Return the machine's behavior as JSON; if it wrote to standard error, with both streams."""
    document = {"behavior": None if behavior is None else behavior_json(behavior)}
    if behavior is not None and behavior.stderr and behavior.stdout is not None:
        channels = behavior.stdout, behavior.stderr
        return {**document, "channels": [base64.b64encode(one).decode() for one in channels]}
    return document


def behavior_of_truth(document: Mapping[str, Any]) -> Behavior | None:
    """Parse the output of `truth_json`. Errors: KeyError, ValueError, TypeError, AnswerError."""
    said = document["behavior"]
    behavior = None if said is None else behavior_of(said)
    if behavior is not None and "channels" in document:
        stdout, stderr = map(base64.b64decode, document["channels"])
        behavior = replace(behavior, stdout=stdout, stderr=stderr)
    return behavior


def _encoded(case: TruthCase) -> dict[str, Any]:
    drawn, behavior = case.drawn, case.behavior
    return {
        "kind": drawn.kind,
        "command": drawn.command,
        "input_args": drawn.input.input_args,
        "cwd": drawn.cwd,
        "options": drawn.options,
        "history": drawn.history,
        **truth_json(behavior),
    }


def _decoded(document: Mapping[str, Any]) -> TruthCase:
    """Parse the output of `_encoded`. Errors: ValueError, KeyError, TypeError, ShioenvError."""
    drawn = DrawnCase(
        document["kind"],
        document["command"],
        Input.from_marked(document["input_args"]),
        document["cwd"],
        tuple(document["options"]),
        tuple(document["history"]),
    )
    return TruthCase(drawn, behavior_of_truth(document))
