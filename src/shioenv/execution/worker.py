"""A worker process: tasks in, answers out.

It ends when what started it does: a thread waits for the end of the connection all the time.
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

READY, DONE, BROKEN, FAILED = range(4)
"""What a worker says. READY: its sandbox is open. DONE: a task's number and answer. BROKEN: a
task's number and why its sandbox broke. FAILED: the number of a task, or None, and the `Failure`
after which the worker cannot go on.
"""

_LAST_WORDS_SECONDS = 8.0
"""How long a worker at rest may take to close its sandbox once what started it is gone."""


def main() -> None:
    """Works until the other end of the connection is closed, or gone."""
    _, _, connection, door, room = sys.argv
    os.set_inheritable(int(connection), False)
    worker = _Worker(Connection(int(connection)), door, room)
    threading.excepthook = _end_all
    threading.Thread(target=worker.listen, daemon=True).start()
    worker.work()


class _Place:
    """Where one task at a time is done: a lane, and the number of its task among the worker's."""

    lane: Lane

    def __init__(self, gate: Lanes) -> None:
        self.gate = gate
        self.number = 0
        self.tasks: queue.SimpleQueue[tuple[int, bytes] | None] = queue.SimpleQueue()


class _Worker:
    """The process: what arrives is handed to lanes, what they make is sent."""

    def __init__(self, connection: Connection[Any, Any], door: str, room: str) -> None:
        self._connection = connection
        self._gate = door, room
        self._turns = Turns()
        self._waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._sending = threading.Lock()
        self._idle: queue.LifoQueue[_Place] = queue.LifoQueue()
        self._given = self._answered = 0

    def listen(self) -> None:
        """Sorts what arrives; at the end of the connection ends this process.

        At rest it closes its sandboxes first. In the middle of a task it just ends: nobody waits
        for the answer, and a sandbox whose owner is gone ends itself.
        """
        with suppress(EOFError, OSError):
            while True:
                body = self._connection.recv_bytes()
                self._given += 1
                self._waiting.put(body)
        if self._given != self._answered:
            os._exit(1)
        self._waiting.put(None)
        last = threading.Timer(_LAST_WORDS_SECONDS, os._exit, [1])
        last.daemon = True
        last.start()

    def work(self) -> None:
        """Opens the first sandbox, then hands tasks to lanes until there are no more."""
        body = self._waiting.get()
        if body is None:
            return
        job: NumberedJob[Any, Any]
        opener: Opener
        job, opener, cache_bytes = pickle.loads(body)
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
        while (body := self._waiting.get()) is not None:
            number = self._turns.begin()
            place = self._idle.get()  # the one used last, whose sandbox is open
            place.tasks.put((number, body))
        for place in places:
            place.tasks.put(None)

    @contextmanager
    def _in_turn(self, place: _Place) -> Iterator[None]:
        with self._turns.turn(place.number), place.gate.among_others():
            yield

    def _send(self, kind: int, number: int | None, what: object) -> None:
        """Says something, and counts it as an answer."""
        with self._sending:
            self._connection.send((kind, number, what))
            self._answered += 1

    def _in_lane(self, job: NumberedJob[Any, Any], place: _Place) -> None:
        while (begun := place.tasks.get()) is not None:
            place.number, body = begun
            task = pickle.loads(body)
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
            self._send(DONE, task[0], answer)

    def _guarded(self, number: int | None, action: Callable[[], object]) -> None:
        """Tells what fails and ends the process; what another worker may do ends it only."""
        try:
            action()
        except (SandboxError, BrokenPipeError, ConnectionResetError):
            raise
        except Exception as error:
            self._send(FAILED, number, Failure.of(error))
            os._exit(1)


def _end_all(failed: threading.ExceptHookArgs) -> None:
    """A lane that fails ends all of them: their tasks go to another worker."""
    threading.__excepthook__(failed)
    os._exit(1)
