"""Predictors are asked in processes of their own: a hang or a death costs one answer."""

from __future__ import annotations

import os
import pickle
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from shioenv.domain.predictor import (
    REPLY_SECONDS,
    START_SECONDS,
    PatchLevel,
    Training,
    level_of,
    make_predictor,
    unable,
)
from shioenv.domain.runner import State, answer_of
from shioenv.errors import Abstained, AnswerError, HostError
from shioenv.execution.job import STARTING
from shioenv.execution.process import CLOSING_SECONDS, WorkerProcess
from shioenv.system import stopped
from shioenv_eval.metrics import Said, Status

READY_SECONDS = 900.0
"""Seconds in which a predictor has to be ready by default.

What a predictor has to install or learn first takes minutes. Within these seconds a program has
`START_SECONDS` to answer its first line.
"""

OWN_SECONDS = 30.0
"""Seconds in which a process has imported this package on the busiest machine (ours)."""

TRIES = 3
"""A predictor is given up once so many of its workers failed to start."""

Task = tuple[str, State]


@dataclass(frozen=True, slots=True)
class Ready:
    """What a predictor says of itself once it can be asked."""

    version: str
    level: PatchLevel
    training: str | Training | None = None
    """What the predictor was trained on; None where it does not say."""
    install: str = ""
    """A line of shell that installs just this version; empty where it does not say."""
    shell: str = ""
    """The shell's words that run it, to which an input is added as the last one.

    It works in the current directory of a real file system. Empty where it cannot be run so."""
    at_once: int = 1
    """Questions that a worker is given at once, at most."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The seconds that a predictor has."""

    answer: float = REPLY_SECONDS
    """Seconds for each answer."""
    start: float | None = None
    """Seconds to be ready, which count for no answer.

    None: `READY_SECONDS`, within which a program has `START_SECONDS` to answer its first line.
    """

    @property
    def ready(self) -> float:
        """Seconds from the start of a worker until its predictor is ready.

        A `start` that is given is lengthened by what our own process takes, `OWN_SECONDS`.
        """
        return READY_SECONDS if self.start is None else self.start + OWN_SECONDS

    @property
    def program(self) -> float:
        """Seconds that a program has to answer its first line."""
        return START_SECONDS if self.start is None else self.start


class PredictorPool:
    """The worker processes that one predictor is asked in; a context manager.

    Making a pool starts the first worker and waits until it is ready. `ready` is what that worker
    says of its predictor; `seconds` is the time that this took. Workers, and all that they started,
    end with this process. Errors: HostError where the predictor cannot be made here, or not in
    time, with the reason.
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

    def said(self, tasks: Sequence[tuple[int, Task]]) -> Iterator[tuple[int, Said]]:
        """The number of each task with its answer, in the order in which answers come.

        A worker is given as many at once as the predictor takes. The seconds of an answer are for
        all of them. Where these are late or lost, each is asked again by itself.
        Errors: HostError where the predictor cannot run here.
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
        """What a worker is given next; each worker gets its share of what is left."""
        if self._alone:
            return [self._alone.popleft()]
        share = -(-len(left) // self._wanted)
        return [left.popleft() for _ in range(min(share, self.ready.at_once))]

    def close(self) -> None:
        """Ends the workers and all that they started; workers at rest may end by themselves."""
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

    def _answers(self) -> Iterator[tuple[int, Said]]:
        """Waits until a worker says something or is too late; the answers that came."""
        until = min(worker.deadline for worker in self._workers)
        open_ = [worker.connection for worker in self._workers if not worker.resting]
        said = self._wait(open_, until) if open_ else []
        for worker in list(self._workers):
            if worker.connection in said:
                try:
                    what = worker.connection.recv()
                except Exception:  # its end, or what cannot be read
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
                and not worker.connection.poll()  # it spoke while another's answer was taken
            ):
                yield from self._lost(worker, Status.TIMED_OUT)

    def _wait(self, connections: list[Connection[Any, Any]], until: float) -> list[Any]:
        """The connections that say something until then, or within a second.

        The time in which this process was stopped (Ctrl-Z) counts for no answer: the workers may
        have been stopped too. The time in which the host was busy counts, since a worker may keep
        it busy.
        """
        began, active = time.monotonic(), stopped.active_seconds()
        patience = min(stopped.LOOK_SECONDS, max(0.0, until - began))
        said = wait(connections, patience)
        late = time.monotonic() - began - patience
        if late > stopped.LOOK_SECONDS:
            late -= stopped.active_seconds() - active
        if late > stopped.LOOK_SECONDS:
            for worker in self._workers:
                worker.deadline += late
        return said

    def _lost(self, worker: _Worker, status: Status) -> Iterator[tuple[int, Said]]:
        """Removes a worker that died or is late: the input that it was asked has no answer."""
        self._workers.remove(worker)
        ended, last_words = worker.end(0.0)
        words = f"its process ended with status {ended}"
        if last_words:
            words += f": {last_words.splitlines()[-1]}"
        late = status is Status.TIMED_OUT
        if len(worker.tasks) > 1:
            self._alone.extend(worker.tasks)
        elif worker.tasks:
            why = f"no answer in {self._bounds.answer:g} s" if late else words
            yield (
                worker.tasks[0][0],
                Said(status, milliseconds=round(worker.waited * 1e3, 3), why=why),
            )
        if not worker.ready:
            self._failed += 1
            if late:
                raise HostError(
                    f"{self._name} cannot run here: it was not ready in {self._bounds.ready:g} s",
                    hint="--start-timeout SECONDS gives it longer; what it installs or learns "
                    "first can be made ahead: shioenv evaluate prepare",
                )
            if self._failed >= TRIES:
                raise HostError(f"{self._name} cannot run here: {words}")


class _Worker(WorkerProcess):
    """One process, which holds one predictor.

    `tasks` are those that the worker was given and has not answered. `deadline` is the time by
    which it has to say something. `facts` is what its predictor says of itself, None before the
    predictor is ready. `resting` says whether the worker can be given a task.
    """

    def __init__(self, given: bytes, seconds: float) -> None:
        super().__init__("shioenv_eval.asking", programs=True)
        self.tasks: list[tuple[int, Task]] = []
        self.facts: Ready | None = None
        self.resting = False
        self._began = time.monotonic()
        self.deadline = self._began + seconds
        self.send(given)

    @property
    def ready(self) -> bool:
        """Whether the predictor was ever ready."""
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
        """Notes that the worker answered; it may have to start a program again before it rests."""
        self.tasks = []
        self.deadline = time.monotonic() + seconds

    def rest(self, facts: Ready) -> None:
        self.facts, self.resting = facts, True
        self.deadline = float("inf")


def main() -> None:
    """The program of a worker: makes a predictor, and answers until the connection is closed."""
    file = int(sys.argv[2])
    os.set_inheritable(file, False)  # or what it starts could answer for it
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
                    said: list[Said] | str = said_together(predictor, tasks)
                except HostError as error:
                    said = unable(error)
                connection.send(said)
                make_ready()
    finally:
        close = getattr(predictor, "close", None)
        if close is not None:
            close()


def said_together(predictor: Any, tasks: Sequence[Task]) -> list[Said]:
    """What a predictor says of each input.

    Errors: HostError, and what `together` raises. AnswerError where `together` gives anything else
    than one answer for each input.
    """

    def ask(task: Task) -> Said:
        return said_of(predictor, *task)

    if len(tasks) > 1:
        together = list(predictor.together(ask, tasks))
        if len(together) != len(tasks) or not all(isinstance(said, Said) for said in together):
            raise AnswerError(f"{len(tasks)} questions have {len(together)} answers")
        return together
    return [ask(task) for task in tasks]


def said_of(predictor: Any, text: str, state: State) -> Said:
    """What a predictor says of one input.

    Whatever the predictor raises becomes a status without an answer. Errors: HostError, which says
    that this machine lacks something.
    """
    began = time.perf_counter()

    def took() -> float:
        return round((time.perf_counter() - began) * 1e3, 3)

    try:
        answer = answer_of(predictor, text, state)
    except Abstained as error:
        return Said(Status.ABSTAINED, milliseconds=took(), why=error.message)
    except AnswerError as error:
        return Said(Status.INVALID, error.received, None, took(), error.message, *_spent(predictor))
    except HostError:
        raise
    except Exception as error:
        return Said(Status.CRASHED, milliseconds=took(), why=unable(error))
    return Said(
        behavior=answer.behavior,
        confidence=answer.confidence,
        milliseconds=took(),
        why=answer.source,
        tokens=_spent(predictor)[0],
        cost=_spent(predictor)[1],
    )


def _spent(predictor: Any) -> tuple[tuple[int, int], float]:
    """The tokens of the newest answer and their cost in dollars; 0 where no tokens are counted."""
    return getattr(predictor, "tokens", (0, 0)), getattr(predictor, "cost", 0.0)
