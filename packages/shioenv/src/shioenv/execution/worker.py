"""A worker process: tasks in, answers out.

The worker ends when the process that started it ends: a thread always waits for the end of the
connection.
"""

from __future__ import annotations

import os
import pickle
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from shioenv.errors import SandboxError
from shioenv.execution.job import NumberedJob, Opener
from shioenv.execution.lanes import Lane, Lanes, Turns
from shioenv.execution.schedule import Failure
from shioenv.execution.supervised import wake_at_end_of_caller

READY, DONE, BROKEN, FAILED = range(4)
"""The kinds of messages that a worker sends, each with a number and a content.

READY: the sandbox is open. DONE: None, and the numbers of tasks with their answers. BROKEN: a
task's number and why its sandbox broke. FAILED: a task's number, or None, and the `Failure` that
ends the worker."""

_LAST_WORDS_SECONDS = 8.0
"""Seconds in which a worker at rest may close its sandboxes after the end of its connection."""


def main() -> None:
    """Do tasks until the other end of the connection is closed or gone.

    Where a processor is named, everything that this process starts stays there too.
    """
    _, _, connection, door, room, *processor = sys.argv
    os.set_inheritable(int(connection), False)
    wake_at_end_of_caller()
    if processor:
        with suppress(OSError):  # the processor may have been taken away meanwhile
            os.sched_setaffinity(0, set(map(int, processor)))
    worker = _Worker(Connection(int(connection)), door, room)
    threading.excepthook = _end_all
    threading.Thread(target=worker.listen, daemon=True).start()
    worker.work()


class _Place:
    """A lane, and the number of the task in it; tasks of a worker are numbered as they begin."""

    lane: Lane

    def __init__(self, gate: Lanes) -> None:
        self.gate = gate
        self.number = 0
        self.tasks: queue.SimpleQueue[tuple[int, tuple[int, Any]] | None] = queue.SimpleQueue()


class _Worker:
    """The process: hands arriving tasks to lanes, and sends the answers of the lanes.

    Answers are sent together, once no more than `_few` tasks wait. So the process that gave the
    tasks seldom wakes, and this one gets new tasks while it still has some.
    """

    def __init__(self, connection: Connection[Any, Any], door: str, room: str) -> None:
        self._connection = connection
        self._gate = door, room
        self._turns = Turns()
        self._waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._few = 0
        self._answers: list[tuple[int, Any]] = []
        self._sending = threading.Lock()
        self._idle: queue.LifoQueue[_Place] = queue.LifoQueue()
        self._given = self._answered = 0

    def listen(self) -> None:
        """Receives the job, then tasks; ends this process at the end of the connection.

        A process at rest closes its sandboxes first. In the middle of a task the process ends at
        once: nobody waits for the answer, and a sandbox whose owner is gone ends itself.
        """
        while (body := self._received()) is not None:
            given = pickle.loads(body)
            self._given += len(given)
            for each in given:
                self._waiting.put(each)
        if self._given != self._answered:
            os._exit(1)
        self._waiting.put(None)
        last = threading.Timer(_LAST_WORDS_SECONDS, os._exit, [1])
        last.daemon = True
        last.start()

    def _received(self) -> bytes | None:
        """The next message; None at the end of the connection."""
        with suppress(EOFError, OSError):
            return self._connection.recv_bytes()
        return None

    def work(self) -> None:
        """Opens the first sandbox, then hands tasks to lanes until there are no more."""
        given = self._waiting.get()
        if given is None:
            return
        job: NumberedJob[Any, Any]
        opener: Opener
        job, opener, cache_bytes = given
        self._few = job.lanes // 2
        places = [_Place(Lanes(*self._gate)) for _ in range(job.lanes)]
        for place in places:
            turn = partial(self._in_turn, place)
            cache = job.cache(cache_bytes)
            place.lane = Lane(partial(job.opened, opener), cache, turn, place.gate.alone)
        if job.system:
            self._guarded(None, places[0].lane.open)
        self._send(READY, None, None)
        threads = [threading.Thread(target=self._in_lane, args=[job, place]) for place in places]
        for thread in threads:
            thread.start()
        for place in reversed(places):
            self._idle.put(place)
        while (task := self._waiting.get()) is not None:
            self._send_answers()
            number = self._turns.begin()
            place = self._idle.get()  # the place used last, whose sandbox is open
            place.tasks.put((number, task))
        for place in places:
            place.tasks.put(None)

    @contextmanager
    def _in_turn(self, place: _Place) -> Iterator[None]:
        with self._turns.turn(place.number), place.gate.among_others():
            yield

    def _send(self, kind: int, number: int | None, what: object) -> None:
        """Sends a message, and counts it as an answer."""
        with self._sending:
            self._connection.send((kind, number, what))
            self._answered += 1

    def _send_answers(self, *answers: tuple[int, Any]) -> None:
        """Sends these answers, and those that were not sent yet, where few tasks wait."""
        with self._sending:
            self._answers += answers
            if self._answers and self._waiting.qsize() <= self._few:
                self._connection.send((DONE, None, self._answers))
                self._answered += len(self._answers)
                self._answers = []

    def _in_lane(self, job: NumberedJob[Any, Any], place: _Place) -> None:
        while (begun := place.tasks.get()) is not None:
            place.number, task = begun
            self._guarded(task[0], partial(self._do, job, place.lane, task))
            self._idle.put(place)
            self._turns.end(begun[0])
        place.lane.close()

    def _do(self, job: NumberedJob[Any, Any], lane: Lane, task: tuple[int, Any]) -> None:
        try:
            answer = job.do(lane, task)
        except SandboxError as error:
            lane.close()
            self._send(BROKEN, task[0], str(error))
        else:
            self._send_answers((task[0], answer))

    def _guarded(self, number: int | None, action: Callable[[], object]) -> None:
        """Does `action`; an error of it is sent, then ends the process.

        A broken sandbox or connection ends the process unsent: another worker may do the task.
        """
        try:
            action()
        except (SandboxError, BrokenPipeError, ConnectionResetError):
            raise
        except Exception as error:
            self._send(FAILED, number, Failure.of(error))
            os._exit(1)


def _end_all(failed: threading.ExceptHookArgs) -> None:
    """Ends the process because a lane failed; the tasks of all lanes go to another worker."""
    threading.__excepthook__(failed)
    os._exit(1)
