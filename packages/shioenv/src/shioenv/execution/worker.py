"""The worker process: it receives tasks and sends answers.

The worker ends with the process that started it: a thread always waits for the end of the
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
"""The kinds of messages from a worker. A message has a kind, a task's number and a content.

READY: the sandbox is open. DONE: the number is None, the content has task numbers with answers.
BROKEN: the content is the reason why the task's sandbox broke. FAILED: the number may be None; the
content is the `Failure` that ends the worker."""

_LAST_WORDS_SECONDS = 8.0
"""Seconds that an idle worker has to close its sandboxes after the end of its connection."""


def main() -> None:
    """Run tasks until the other end of the connection is closed.

    With a processor as argument, this process and its children are pinned to that processor.
    """
    _, _, connection, door, room, *processor = sys.argv
    os.set_inheritable(int(connection), False)
    wake_at_end_of_caller()
    if processor:
        with suppress(OSError):  # the processor may be unavailable by now
            os.sched_setaffinity(0, set(map(int, processor)))
    worker = _Worker(Connection(int(connection)), door, room)
    threading.excepthook = _end_all
    threading.Thread(target=worker.listen, daemon=True).start()
    worker.work()


class _Place:
    """A lane (one of the worker's sandboxes), the number of its task in `Turns`, and its queue."""

    lane: Lane

    def __init__(self, gate: Lanes) -> None:
        self.gate = gate
        self.number = 0
        self.tasks: queue.SimpleQueue[tuple[int, tuple[int, Any]] | None] = queue.SimpleQueue()


class _Worker:
    """Hands arriving tasks to lanes, and sends their answers.

    Answers are sent in batches, when at most `_few` tasks wait. So the parent process wakes up
    rarely, and this process gets new tasks before it has none.
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
        """Receive the job, then tasks; end this process at the end of the connection.

        An idle process closes its sandboxes before it ends. During a task the process ends at once,
        because the answer is no longer needed, and sandboxes end with the process that opened them.
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
        """Return the next message; None at the end of the connection."""
        with suppress(EOFError, OSError):
            return self._connection.recv_bytes()
        return None

    def work(self) -> None:
        """Open the first sandbox, then hand tasks to lanes until there are no more."""
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
            place = self._idle.get()  # the most recently used place, whose sandbox is open
            place.tasks.put((number, task))
        for place in places:
            place.tasks.put(None)

    @contextmanager
    def _in_turn(self, place: _Place) -> Iterator[None]:
        with self._turns.turn(place.number), place.gate.among_others():
            yield

    def _send(self, kind: int, number: int | None, what: object) -> None:
        """Send a message, and count it as an answer."""
        with self._sending:
            self._connection.send((kind, number, what))
            self._answered += 1

    def _send_answers(self, *answers: tuple[int, Any]) -> None:
        """Queue these answers, and send all queued ones if few tasks wait."""
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
        """Run `action`; if it fails, send the error and end the process.

        A broken sandbox or connection is not reported: it ends the process, and another worker may
        run the task.
        """
        try:
            action()
        except (SandboxError, BrokenPipeError, ConnectionResetError):
            raise
        except Exception as error:
            self._send(FAILED, number, Failure.of(error))
            os._exit(1)


def _end_all(failed: threading.ExceptHookArgs) -> None:
    """End the process because a lane failed; the tasks of all lanes go to another worker."""
    threading.__excepthook__(failed)
    os._exit(1)
