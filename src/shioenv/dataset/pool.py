"""Worker processes: kept busy, replaced when they die, ended with their generator."""

from __future__ import annotations

import heapq
import json
import os
import pickle
import selectors
import subprocess
import sys
import tempfile
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import IO, TypeAlias

from shioenv import errors
from shioenv.dataset import framing
from shioenv.dataset.store import Line
from shioenv.dataset.worker import Setup
from shioenv.errors import GenerationError, SandboxError, ShioenvError
from shioenv.synthesis.sample import Sample

Task: TypeAlias = tuple[int, Sample]

ATTEMPTS = 5
"""How often a record is begun at most; past it the run ends with an error."""

STARTS = 3
"""Workers in a row that may die before their sandbox is open."""

AHEAD = 2
"""Samples a worker is given before it has finished them, so that it never waits for the next."""

WINDOW = 512
"""How far the newest sample in work may be ahead of the oldest."""

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from shioenv.dataset.worker import main; main()"
)
_CLOSING_SECONDS = 10.0


class Pool:
    """Processes that turn samples into records; a context manager that leaves none behind.

    `retried` counts records that were begun again, `restarts` workers that were replaced.
    """

    def __init__(self, setup: Setup, workers: int) -> None:
        self._setup = pickle.dumps(setup)
        self._selector = selectors.DefaultSelector()
        self._workers: list[_Worker] = []
        self._wanted = workers
        self._waiting: list[Task] = []
        self._attempts: Counter[int] = Counter()
        self._dead_starts = 0
        self._newest = -1
        self.retried = 0
        self.restarts = 0

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def records(self, tasks: Iterator[Task]) -> Iterator[Line]:
        """The records of the samples, in the order they are finished.

        Errors: those of `take`.
        """
        while True:
            for task in islice(tasks, self.room):
                self.give(task)
            if not self.busy:
                return
            yield from self.take()

    @property
    def busy(self) -> bool:
        """Whether a record is still to come."""
        return bool(self._waiting) or any(one.tasks for one in self._workers)

    @property
    def room(self) -> int:
        """How many samples the workers would take at once; at least 1 where none is in work."""
        if not self.busy:
            return max(1, self._free)
        if any(one.wants_alone for one in self._workers):
            return 0
        oldest = min((one.tasks[0][0] for one in self._workers if one.tasks), default=self._newest)
        return max(0, min(self._free - len(self._waiting), WINDOW - (self._newest - oldest)))

    def give(self, task: Task) -> None:
        """Has a record made, as soon as a worker is free."""
        heapq.heappush(self._waiting, task)

    def start(self) -> None:
        """Opens a first sandbox. Errors: those of `take`."""
        while not any(one.ready for one in self._workers):
            self.take()

    def take(self) -> list[Line]:
        """Waits until workers say something; the records that are finished by it, perhaps none.

        Errors: GenerationError where a record or a worker fails every time; what kept a worker from
        opening its sandbox, as it was raised there.
        """
        self._start_missing()
        self._hand_out()
        self._give_way()
        lines = []
        for key, _ in self._selector.select():
            worker: _Worker = key.data
            data = os.read(worker.results, 1 << 20)
            for kind, body in worker.frames.feed(data):
                line = self._receive(worker, kind, body)
                if line is not None:
                    lines.append(line)
            if not data:
                self._bury(worker)
        return lines

    def close(self) -> None:
        """Ends all workers and waits for them."""
        for worker in self._workers:
            worker.hang_up()
        for worker in self._workers:
            worker.end(_CLOSING_SECONDS)
        self._workers.clear()
        self._selector.close()

    @property
    def _free(self) -> int:
        return sum(max(0, AHEAD - len(one.tasks)) for one in self._workers if one.ready)

    def _hand_out(self) -> None:
        if any(one.wants_alone for one in self._workers):
            return
        for depth in range(AHEAD):
            for worker in self._workers:
                if self._waiting and worker.ready and len(worker.tasks) == depth:
                    task = heapq.heappop(self._waiting)
                    worker.give(task)
                    self._newest = max(self._newest, task[0])

    def _start_missing(self) -> None:
        while len(self._workers) < self._wanted:
            worker = _Worker()
            self._workers.append(worker)
            self._selector.register(worker.results, selectors.EVENT_READ, worker)
            worker.send(framing.SETUP, self._setup)

    def _give_way(self) -> None:
        """Lets a worker run alone once all others have come to rest."""
        if any(one.alone for one in self._workers):
            return
        asking = [one for one in self._workers if one.wants_alone]
        if asking and all(one.wants_alone or not one.tasks for one in self._workers):
            asking[0].alone = True
            asking[0].send(framing.GO)

    def _receive(self, worker: _Worker, kind: int, body: bytes) -> Line | None:
        if kind == framing.READY:
            worker.ready = True
            self._dead_starts = 0
        elif kind == framing.RECORD:
            facts, content = framing.split_json(body)
            number = worker.tasks.popleft()[0]
            self._attempts.pop(number, None)
            return Line(number, content, facts["volatile"], facts["executions"])
        elif kind == framing.BROKEN:
            facts, _ = framing.split_json(body)
            self._again(worker.tasks.popleft(), SandboxError(facts["message"]))
        elif kind == framing.FAILED:
            facts, _ = framing.split_json(body)
            raise _failure(facts, worker)
        elif kind == framing.ALONE:
            worker.wants_alone = True
        elif kind == framing.DONE:
            worker.wants_alone = worker.alone = False
        return None

    def _again(self, task: Task, why: Exception) -> None:
        number, sample = task
        self._attempts[number] += 1
        self.retried += 1
        if self._attempts[number] >= ATTEMPTS:
            raise GenerationError(
                f"record {number} could not be made in {ATTEMPTS} attempts: {why}",
                hint=f"its input: {sample.input.text}",
            )
        heapq.heappush(self._waiting, task)

    def _bury(self, worker: _Worker) -> None:
        """A worker is gone: what it had goes to others."""
        self._selector.unregister(worker.results)
        self._workers.remove(worker)
        status = worker.end(_CLOSING_SECONDS)
        self.restarts += 1
        why = f"its worker ended with status {status}{worker.last_words()}"
        if not worker.ready:
            self._dead_starts += 1
            if self._dead_starts >= STARTS:
                raise GenerationError(f"{STARTS} workers in a row did not start: {why}")
        tasks = list(worker.tasks)
        for task in tasks[1:]:  # not begun
            heapq.heappush(self._waiting, task)
        if tasks:
            self._again(tasks[0], GenerationError(why))


class _Worker:
    """One process with its pipes."""

    def __init__(self) -> None:
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long
        self.process = subprocess.Popen(
            [sys.executable, "-c", _BOOT, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            bufsize=0,
            start_new_session=True,  # Ctrl-C is the generator's to handle
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._input = self.process.stdin
        self._output = self.process.stdout
        self.results = self._output.fileno()
        self.frames = framing.Frames()
        self.tasks: deque[Task] = deque()
        self.ready = self.wants_alone = self.alone = False

    def give(self, task: Task) -> None:
        self.tasks.append(task)
        self.send(framing.TASK, pickle.dumps(task))

    def send(self, kind: int, body: bytes = b"") -> None:
        with suppress(BrokenPipeError):  # it is dead: the end of its other pipe says so
            framing.send(self._input.fileno(), kind, body)

    def hang_up(self) -> None:
        with suppress(OSError):
            self._input.close()

    def end(self, seconds: float) -> int:
        self.hang_up()
        self._output.close()
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def last_words(self) -> str:
        self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, self._stderr.tell() - 2000))
        text = self._stderr.read().decode("utf-8", "replace").strip()
        return f":\n{text}" if text else ""


def raised_elsewhere(name: str, message: str, hint: str | None) -> ShioenvError:
    """The exception that another process raised, of the class of this name."""
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, ShioenvError)):
        kind = GenerationError
    error = kind.__new__(kind)
    ShioenvError.__init__(error, message, hint=hint)
    return error


def _failure(facts: dict[str, object], worker: _Worker) -> ShioenvError:
    """What went wrong in a worker, as an exception of this process."""
    message, hint = str(facts["message"]), facts["hint"]
    if facts["session_id"] is None and facts["kind"] is not None:
        return raised_elsewhere(str(facts["kind"]), message, None if hint is None else str(hint))
    what = "a worker could not start"
    if facts["session_id"] is not None:
        sample = worker.tasks[0][1] if worker.tasks else None
        what = f"record {facts['session_id']} failed"
        what += f" ({sample.input.text})" if sample else ""
    return GenerationError(f"{what}: {facts['traceback'] or message}".rstrip())
