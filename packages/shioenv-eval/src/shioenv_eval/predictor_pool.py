"""Worker processes for predictors: a hang or a crash costs only one answer."""

from __future__ import annotations

import math
import os
import pickle
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from shioenv.domain.predictor import (
    REPLY_SECONDS,
    START_SECONDS,
    PatchLevel,
    Training,
    make_predictor,
)
from shioenv.domain.runner import State, answer_of
from shioenv.errors import Abstained, AnswerError, HostError, PredictorError, ShioenvError
from shioenv.execution.job import STARTING
from shioenv.execution.process import CLOSING_SECONDS, WorkerProcess
from shioenv.system import stopped
from shioenv_eval.metrics import PredictorAnswer, Status

READY_SECONDS = 900.0
"""Default time limit in seconds for a predictor to become ready.

Installing or training a predictor first can take minutes. Within this limit, a program has
`START_SECONDS` to answer its first line.
"""

OWN_SECONDS = 30.0
"""Time in seconds to import this package on a heavily loaded host (our choice)."""

TRIES = 3
"""Number of failed worker starts after which a predictor is abandoned."""

Task = tuple[str, State]


def active_seconds() -> float:
    """Return this process's CPU time plus this thread's time in the run queue, in seconds.

    Neither advances while the process is stopped. Both count the wait for a processor of a busy
    host. Returns NaN if the kernel does not report run queue times.
    """
    try:
        facts = Path("/proc/thread-self/schedstat").read_bytes().split()
        waited, turns = int(facts[1]), int(facts[2])
    except (OSError, ValueError, IndexError):
        return math.nan
    return time.process_time() + waited / 1e9 if turns else math.nan


@dataclass(frozen=True, slots=True)
class Ready:
    """Facts that a predictor reports once it is ready."""

    version: str
    level: PatchLevel
    training: str | Training | None = None
    """The predictor's training data; None if it does not report any."""
    install: str = ""
    """A shell command that installs exactly this version; empty if unknown."""
    shell: str = ""
    """The shell words that run it; the input is appended as the last word.

    It works in the current directory of a real file system. Empty if it cannot be run this way.
    """
    at_once: int = 1
    """Maximum number of questions that a worker is given in one batch."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Time limits of a predictor, in seconds."""

    answer: float = REPLY_SECONDS
    """Time limit for each answer."""
    start: float | None = None
    """Time limit for becoming ready; it does not count towards any answer.

    None: `READY_SECONDS`, within which a program has `START_SECONDS` to answer its first line.
    """

    @property
    def ready(self) -> float:
        """Time limit from the start of a worker until its predictor is ready.

        An explicit `start` is extended by `OWN_SECONDS`, the allowance for our own process.
        """
        return READY_SECONDS if self.start is None else self.start + OWN_SECONDS

    @property
    def program(self) -> float:
        """Time limit for a program to answer its first line."""
        return START_SECONDS if self.start is None else self.start


class PredictorPool:
    """A pool of worker processes for one predictor; a context manager.

    The constructor starts the first worker and waits until it is ready. `ready` holds the facts
    that this worker reported; `seconds` is the time that the start took. Workers and their
    descendants end with this process. Errors: HostError, with the reason, if the predictor cannot
    be created here or is not ready in time.
    """

    def __init__(
        self, name: str, system: str, start: str, workers: int, bounds: Bounds = Bounds()
    ) -> None:
        self._given = pickle.dumps((name, system, start, bounds.program))
        self._name, self._bounds, self._wanted = name, bounds, workers
        self._workers: list[_Worker] = []
        self._alone: deque[tuple[int, Task]] = deque()
        self._failed = 0
        began = time.monotonic()
        self.ready = self._first()
        self.seconds = time.monotonic() - began

    def said(self, tasks: Sequence[tuple[int, Task]]) -> Iterator[tuple[int, PredictorAnswer]]:
        """Yield the number of each task with its answer, in order of completion.

        A worker gets as many tasks at once as the predictor accepts; the answer's time limit covers
        the whole batch. If a batch times out or is lost, each of its tasks is retried separately.
        Errors: HostError if the predictor cannot run here.
        """
        left = deque(tasks)
        busy = 0
        while left or self._alone or busy:
            wanted = min(self._wanted, len(left) + len(self._alone) + busy)
            starting = sum(not worker.ready for worker in self._workers)
            for _ in range(min(wanted - len(self._workers), STARTING - starting)):
                self._workers.append(_Worker(self._given, self._bounds.ready))
            for worker in self._workers:
                if worker.resting and (given := self._next(left)):
                    worker.give(given, self._bounds.answer)
            yield from self._answers()
            busy = sum(len(worker.tasks) for worker in self._workers)

    def _next(self, left: deque[tuple[int, Task]]) -> list[tuple[int, Task]]:
        """Take a worker's next batch: an equal share of the remaining tasks, at most `at_once`."""
        if self._alone:
            return [self._alone.popleft()]
        share = -(-len(left) // self._wanted)
        return [left.popleft() for _ in range(min(share, self.ready.at_once))]

    def close(self) -> None:
        """Terminate the workers and all that they started; idle workers may exit by themselves."""
        for worker in self._workers:
            worker.connection.close()
        for worker in self._workers:
            worker.end(CLOSING_SECONDS if worker.resting else 0.0)
        self._workers.clear()

    def __enter__(self) -> PredictorPool:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _first(self) -> Ready:
        try:
            while True:
                if not self._workers:
                    self._workers.append(_Worker(self._given, self._bounds.ready))
                list(self._answers())
                facts = self._workers[0].facts if self._workers else None
                if facts is not None:
                    return facts
        except BaseException:
            self.close()
            raise

    def _answers(self) -> Iterator[tuple[int, PredictorAnswer]]:
        """Wait until a worker sends a message or times out; yield the answers received."""
        until = min(worker.deadline for worker in self._workers)
        open_ = [worker.connection for worker in self._workers if not worker.resting]
        said = self._wait(open_, until) if open_ else []
        for worker in list(self._workers):
            if worker.connection in said:
                try:
                    what = worker.connection.recv()
                except Exception:  # the connection's end, or an unreadable message
                    yield from self._lost(worker, Status.CRASHED)
                    continue
                if isinstance(what, Ready):
                    worker.rest(what)
                elif isinstance(what, list):
                    numbers = [number for number, _ in worker.tasks]
                    worker.recover(self._bounds.ready)
                    yield from zip(numbers, what, strict=True)
                else:
                    raise HostError(f"{self._name} cannot run here: {what}")
            elif (
                not worker.resting
                and time.monotonic() >= worker.deadline
                and not worker.connection.poll()  # it may have answered in the meantime
            ):
                yield from self._lost(worker, Status.TIMED_OUT)

    def _wait(self, connections: list[Connection[Any, Any]], until: float) -> list[Any]:
        """Return the connections that are readable by `until`, or within a second.

        Time during which this process was stopped (Ctrl-Z) does not count towards time limits,
        since the workers may have been stopped too. Time during which the host was busy counts,
        since a worker may be the cause.
        """
        began, active = time.monotonic(), active_seconds()
        patience = min(stopped.LOOK_SECONDS, max(0.0, until - began))
        said = wait(connections, patience)
        late = time.monotonic() - began - patience
        if late > stopped.LOOK_SECONDS:
            late -= active_seconds() - active
        if late > stopped.LOOK_SECONDS:
            for worker in self._workers:
                worker.deadline += late
        return said

    def _lost(self, worker: _Worker, status: Status) -> Iterator[tuple[int, PredictorAnswer]]:
        """Remove a worker that crashed or timed out; several tasks are asked again one by one."""
        self._workers.remove(worker)
        ended, last_words = worker.end(0.0)
        words = f"its process ended with status {ended}"
        if last_words:
            words += f": {last_words.splitlines()[-1]}"
        late = status is Status.TIMED_OUT
        if len(worker.tasks) > 1:
            self._alone.extend(worker.tasks)
        elif worker.tasks:
            why = f"no answer within {self._bounds.answer:g} s" if late else words
            yield (
                worker.tasks[0][0],
                PredictorAnswer(status, milliseconds=round(worker.waited * 1e3, 3), why=why),
            )
        if not worker.ready:
            self._failed += 1
            if late:
                raise HostError(
                    f"{self._name} cannot run here: it did not start within "
                    f"{self._bounds.ready:g} s",
                    hint="use a longer --start-timeout SECONDS, or install and train it in "
                    "advance: shioenv evaluate prepare",
                )
            if self._failed >= TRIES:
                raise HostError(f"{self._name} cannot run here: {words}")


class _Worker(WorkerProcess):
    """One process, which holds one predictor.

    `tasks` are the unanswered tasks of the worker. `deadline` is the time by which it must send a
    message. `facts` are the facts about its predictor, None before it is ready. `resting` is
    whether the worker can accept a task.
    """

    def __init__(self, given: bytes, seconds: float) -> None:
        super().__init__("shioenv_eval.predictor_pool", programs=True)
        self.tasks: list[tuple[int, Task]] = []
        self.facts: Ready | None = None
        self.resting = False
        self._began = time.monotonic()
        self.deadline = self._began + seconds
        self.send(given)

    @property
    def ready(self) -> bool:
        """Whether the predictor has become ready."""
        return self.facts is not None

    @property
    def waited(self) -> float:
        return time.monotonic() - self._began

    def give(self, tasks: list[tuple[int, Task]], seconds: float) -> None:
        self.tasks, self.resting = tasks, False
        self._began = time.monotonic()
        self.deadline = self._began + seconds
        self.send(pickle.dumps([task for _, task in tasks]))

    def recover(self, seconds: float) -> None:
        """Record that the worker answered; it may have to restart a program before it is idle."""
        self.tasks = []
        self.deadline = time.monotonic() + seconds

    def rest(self, facts: Ready) -> None:
        self.facts, self.resting = facts, True
        self.deadline = float("inf")


def level_of(predictor: Any) -> PatchLevel:
    """Return a predictor's patch level; the default is `full`.

    Errors: PredictorError for a level other than `full` and `files`.
    """
    level = getattr(predictor, "patch_level", PatchLevel.FULL)
    if level not in (PatchLevel.FULL, PatchLevel.FILES):
        raise PredictorError(f"patch_level is {level!r}, not full or files")
    return PatchLevel(level)


def unable(error: BaseException) -> str:
    """Format an error as one text, with its hint if it has one."""
    if isinstance(error, ShioenvError):
        return f"{error.message}" + (f" ({error.hint})" if error.hint else "")
    return f"{type(error).__name__}: {error}"


def main() -> None:
    """Run a worker: create a predictor, and answer until the connection is closed."""
    file = int(sys.argv[2])
    os.set_inheritable(file, False)  # otherwise a child process could answer in its place
    connection: Connection[Any, Any] = Connection(file)
    name, system, start, seconds = pickle.loads(connection.recv_bytes())
    try:
        predictor = make_predictor(
            name, system, start, start_seconds=seconds, reply_seconds=float("inf")
        )
        level = level_of(predictor)
    except Exception as error:
        connection.send(unable(error))
        return
    training = getattr(predictor, "training", None)
    if not isinstance(training, Training):
        training = str(training or "") or None
    about = {name: str(getattr(predictor, name, "")) for name in ("install", "shell")}
    version, at_once = str(getattr(predictor, "version", "")), getattr(predictor, "at_once", 1)
    ready = Ready(version, level, training, **about, at_once=at_once)
    make_ready = getattr(predictor, "make_ready", lambda: None)
    try:
        with suppress(EOFError, OSError):
            while True:
                connection.send(ready)
                tasks = pickle.loads(connection.recv_bytes())
                try:
                    said: list[PredictorAnswer] | str = answer_together(predictor, tasks)
                except HostError as error:
                    said = unable(error)
                connection.send(said)
                make_ready()
    finally:
        close = getattr(predictor, "close", None)
        if close is not None:
            close()


def answer_together(predictor: Any, tasks: Sequence[Task]) -> list[PredictorAnswer]:
    """Return a predictor's answer to each input.

    Errors: HostError, and those of `together`. AnswerError if `together` does not return exactly
    one answer for each input.
    """

    def ask(task: Task) -> PredictorAnswer:
        return ask_predictor(predictor, *task)

    if len(tasks) > 1:
        together = list(predictor.together(ask, tasks))
        if len(together) != len(tasks) or not all(
            isinstance(said, PredictorAnswer) for said in together
        ):
            raise AnswerError(
                f"the predictor returned {len(together)} answers to {len(tasks)} questions"
            )
        return together
    return [ask(task) for task in tasks]


def ask_predictor(predictor: Any, text: str, state: State) -> PredictorAnswer:
    """Return a predictor's answer to one input.

    Errors: HostError if this machine lacks something. Any other exception of the predictor becomes
    a status without an answer.
    """
    began = time.perf_counter()

    def took() -> float:
        return round((time.perf_counter() - began) * 1e3, 3)

    try:
        answer = answer_of(predictor, text, state)
    except Abstained as error:
        return PredictorAnswer(Status.ABSTAINED, milliseconds=took(), why=error.message)
    except AnswerError as error:
        return PredictorAnswer(
            Status.INVALID, error.received, None, took(), error.message, *_spent(predictor)
        )
    except HostError:
        raise
    except Exception as error:
        return PredictorAnswer(Status.CRASHED, milliseconds=took(), why=unable(error))
    return PredictorAnswer(
        behavior=answer.behavior,
        confidence=answer.confidence,
        milliseconds=took(),
        why=answer.source,
        tokens=_spent(predictor)[0],
        cost=_spent(predictor)[1],
    )


def _spent(predictor: Any) -> tuple[tuple[int, int], float]:
    """Return the latest answer's tokens and their cost in dollars; 0 if tokens are not counted."""
    return getattr(predictor, "tokens", (0, 0)), getattr(predictor, "cost", 0.0)
