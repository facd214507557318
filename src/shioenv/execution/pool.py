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
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import IO, TypeAlias

from shioenv import errors
from shioenv.errors import GenerationError, SandboxError, ShioenvError
from shioenv.execution import framing
from shioenv.execution.lanes import LANES
from shioenv.execution.worker import Setup
from shioenv.recording.effort import Effort
from shioenv.recording.line import Line
from shioenv.synthesis.sample import Sample

Task: TypeAlias = tuple[int, Sample]

ATTEMPTS = 5
"""How often a record is begun at most; past it the run ends with an error."""

STARTS = 3
"""Workers in a row that may die before their sandbox is open."""

AHEAD = LANES + 1
"""Samples a worker is given before it has finished them, so that it never waits for the next."""

WINDOW = 4096
"""How far the newest sample in work may be ahead of the oldest: one that waits (`ping`, 64 times)
takes two minutes, in which others are made by the thousand."""

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from shioenv.execution.worker import main; main()"
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
        self._door, self._room = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
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
        oldest = min((min(one.tasks) for one in self._workers if one.tasks), default=self._newest)
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
        self._door.close()
        self._room.close()

    @property
    def _free(self) -> int:
        return sum(max(0, AHEAD - len(one.tasks)) for one in self._workers if self._open(one))

    def _open(self, worker: _Worker) -> bool:
        """Whether a worker takes more: one that has a sample a second time does that alone, so that
        a sample that kills its worker takes no others with it every time.
        """
        return worker.ready and not any(number in self._attempts for number in worker.tasks)

    def _hand_out(self) -> None:
        for depth in range(AHEAD):
            for worker in self._workers:
                if not self._waiting or not self._open(worker) or len(worker.tasks) != depth:
                    continue
                if depth and self._waiting[0][0] in self._attempts:
                    continue
                number, sample = heapq.heappop(self._waiting)
                worker.give(number, sample)
                self._newest = max(self._newest, number)

    def _start_missing(self) -> None:
        while len(self._workers) < self._wanted:
            worker = _Worker(self._door.fileno(), self._room.fileno())
            self._workers.append(worker)
            self._selector.register(worker.results, selectors.EVENT_READ, worker)
            worker.send(framing.SETUP, self._setup)

    def _receive(self, worker: _Worker, kind: int, body: bytes) -> Line | None:
        if kind == framing.READY:
            worker.ready = True
            self._dead_starts = 0
        elif kind == framing.RECORD:
            facts, content = framing.split_json(body)
            number = facts["session_id"]
            del worker.tasks[number]
            self._attempts.pop(number, None)
            effort = Effort(**facts["effort"])
            return Line(number, content, facts["volatile"], facts["executions"], effort)
        elif kind == framing.BROKEN:
            facts, _ = framing.split_json(body)
            number = facts["session_id"]
            self._again((number, worker.tasks.pop(number)), SandboxError(facts["message"]))
        elif kind == framing.FAILED:
            facts, _ = framing.split_json(body)
            raise _failure(facts, worker)
        return None

    def _again(self, task: Task, why: Exception) -> None:
        number, sample = task
        self._attempts[number] += 1
        self.retried += 1
        if self._attempts[number] >= ATTEMPTS:
            raise given_up(number, sample, why)
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
        tasks = list(worker.tasks.items())
        for task in tasks[LANES:]:  # not begun
            heapq.heappush(self._waiting, task)
        for task in tasks[:LANES]:
            self._again(task, GenerationError(why))


class _Worker:
    """One process with its pipes."""

    def __init__(self, *gate: int) -> None:
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long
        files = (f"/proc/{os.getpid()}/fd/{file}" for file in gate)
        self.process = subprocess.Popen(
            [sys.executable, "-c", _BOOT, json.dumps(sys.path), *files],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            bufsize=0,
            start_new_session=True,  # Ctrl-C is the generator's to handle
            env=os.environ | {"MALLOC_ARENA_MAX": "1"},  # lanes' threads would scatter memory
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._input = self.process.stdin
        self._output = self.process.stdout
        self.results = self._output.fileno()
        self.frames = framing.Frames()
        self.tasks: dict[int, Sample] = {}
        self.ready = False

    def give(self, number: int, sample: Sample) -> None:
        self.tasks[number] = sample
        self.send(framing.TASK, pickle.dumps((number, sample)))

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


def given_up(number: int, sample: Sample, why: object) -> GenerationError:
    """What ends a run whose record failed every time."""
    return GenerationError(
        f"record {number} could not be made in {ATTEMPTS} attempts: {why}",
        hint=f"its input: {sample.input.text}",
    )


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
        sample = worker.tasks.get(int(str(facts["session_id"])))
        what = f"record {facts['session_id']} failed"
        what += f" ({sample.input.text})" if sample else ""
    return GenerationError(f"{what}: {facts['traceback'] or message}".rstrip())
