"""Executors for one machine: with worker processes that are replaced when they die, or serial."""

from __future__ import annotations

import os
import pickle
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from multiprocessing.connection import wait
from typing import Any, Final, Self, TypeVar, cast

from shioenv.behavior.observe import open_sandbox
from shioenv.errors import GenerationError, SandboxError, UsageError, did_you_mean
from shioenv.execution.job import (
    STARTING,
    Executor,
    NumberedJob,
    Opener,
    Tell,
    processes_here,
    processors_of_their_own,
    silent,
    surroundings_of,
)
from shioenv.execution.lanes import Lane
from shioenv.execution.process import CLOSING_SECONDS, WorkerProcess
from shioenv.execution.schedule import STARTS, Schedule
from shioenv.execution.worker import BROKEN, DONE, READY
from shioenv.guests import load_guest
from shioenv.system import stopped
from shioenv.system.host_checks import OPEN_FILES, allow_open_files

T = TypeVar("T")
A = TypeVar("A")

BATCH = 64
"""Tasks drawn at a time (our choice). After a wait for a worker, the code that draws tasks is no
longer in the processor's caches. So drawing tasks one by one takes a third longer."""

_FILES_OF_A_WORKER = 4  # open in this process: the worker's connection, its output


class SerialExecutor:
    """Runs jobs in this process, one task after the other, with one sandbox from `opener`.

    It is for few tasks, notebooks, and test doubles of a sandbox.
    """

    workers = 1

    def __init__(self, opener: Opener = open_sandbox) -> None:
        self._opener = opener
        self.kernels: frozenset[str] = frozenset()
        self.layers: frozenset[str] = frozenset()
        self.retried = self.restarts = 0

    def check(self, job: NumberedJob[Any, Any]) -> None:
        """See `Executor.check`. A sandbox that breaks is ignored, since the next one may open."""
        with suppress(SandboxError):
            job.opened(self._opener).close()

    def map(
        self, job: NumberedJob[T, A], tasks: Iterable[tuple[int, T]], tell: Tell = silent
    ) -> Iterator[tuple[int, A]]:
        """See `Executor.map`. A failed task is retried before later tasks."""
        schedule = Schedule(tasks, what=job.what)
        self.kernels, self.layers = surroundings_of(self._opener, job.system, job.limits)
        with closing(Lane(lambda: job.opened(self._opener))) as lane:
            while (task := schedule.take()) is not None:
                try:
                    answer = job.do(lane, task)
                except SandboxError as error:
                    lane.close()
                    schedule.again(task[0], error)
                    self.retried += 1
                else:
                    schedule.done(task[0])
                    yield task[0], answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        pass


class LocalExecutor:
    """Runs jobs in `workers` processes on this machine (None: one per processor).

    `opener` opens the sandboxes in them, so it must be importable. Executions are shared with other
    processes and later runs through a file in the user's cache directory. The file has at most
    about `cache_bytes`; 0 disables sharing. Sharing does not change records
    (`docs/design/execution-cache.md`).

    Worker processes start with the first task and remain for later tasks of the same job. They end
    with this process, even if it is killed. Errors: UsageError for less than one process, or for
    more than fit into the memory.
    """

    def __init__(
        self, workers: int | None = None, *, opener: Opener = open_sandbox, cache_bytes: int = 0
    ) -> None:
        self.workers = processes_here(workers)
        self._opener, self._cache_bytes = opener, cache_bytes
        self._crew: Crew | None = None
        self.kernels: frozenset[str] = frozenset()
        self.layers: frozenset[str] = frozenset()
        self.retried = self.restarts = 0

    def check(self, job: NumberedJob[Any, Any]) -> None:
        """See `Executor.check`. The job later uses the worker processes that open the sandbox."""
        self._crew_of(job).start()

    def map(
        self, job: NumberedJob[T, A], tasks: Iterable[tuple[int, T]], tell: Tell = silent
    ) -> Iterator[tuple[int, A]]:
        """See `Executor.map`.

        Further errors: HostError if the limit on open files is too low. If workers do not start,
        the error that a worker reports, or a GenerationError with the end of a worker's output.
        """
        schedule = Schedule(tasks, what=job.what, batch=BATCH)
        if not schedule.left:
            return
        self.kernels, self.layers = surroundings_of(self._opener, job.system, job.limits)
        crew = self._crew_of(job)
        restarts = crew.restarts
        try:
            while schedule.left:
                yield from crew.take(schedule)
        finally:
            self.retried += schedule.retried
            self.restarts += crew.restarts - restarts
            if schedule.unfinished:  # so that no answer arrives later
                self.close()

    def _crew_of(self, job: NumberedJob[Any, Any]) -> Crew:
        """Return the processes for this job; end processes of another job first."""
        if self._crew is not None and self._crew.job is not job:
            self.close()
        if self._crew is None:
            allow_open_files(OPEN_FILES + _FILES_OF_A_WORKER * self.workers)
            own = processors_of_their_own(self._opener, job.system, job.limits, self.workers)
            self._crew = Crew(job, self._opener, self._cache_bytes, self.workers, own)
        return self._crew

    def close(self) -> None:
        """End the processes and wait for them."""
        crew, self._crew = self._crew, None
        if crew is not None:
            crew.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Crew:
    """The worker processes of one job; `restarts` counts processes that died.

    Each process is pinned to a processor of `own`, if given.
    """

    def __init__(
        self,
        job: NumberedJob[Any, Any],
        opener: Opener,
        cache_bytes: int,
        workers: int,
        own: Sequence[int] = (),
    ) -> None:
        self.job = job
        self._own = own
        self._given = pickle.dumps([(job, opener, cache_bytes)])
        self._wanted = workers
        self._workers: list[_Worker] = []
        self._dead_starts = 0
        self._door, self._room = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
        self._next_look = time.monotonic() + stopped.LOOK_SECONDS
        self.restarts = 0

    def start(self) -> None:
        """Open a first sandbox. Errors: those of `take`."""
        while not any(worker.ready for worker in self._workers):
            self.take(Schedule())

    def take(self, schedule: Schedule[Any]) -> list[tuple[int, Any]]:
        """Hand out tasks, wait at most a second for messages of workers, and return the answers.

        The result may be empty. A stopped worker is replaced.

        Errors: GenerationError if a task fails in every attempt, or several workers in a row do not
        start. ShioenvErrors of the job and of opening a sandbox.
        """
        starting = sum(not worker.ready for worker in self._workers)
        for _ in range(min(self._wanted - len(self._workers), STARTING - starting)):
            gate = self._door.fileno(), self._room.fileno()
            self._workers.append(_Worker(self._given, gate, self._free_processor()))
        self._hand_out(schedule)
        answers = []
        said = wait([worker.connection for worker in self._workers], stopped.LOOK_SECONDS)
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + stopped.LOOK_SECONDS
            for worker in self._workers:
                worker.kill_if_stopped()  # which ends its connection
        for worker in [worker for worker in self._workers if worker.connection in said]:
            try:
                kind, number, what = worker.connection.recv()
            except (EOFError, OSError):
                self._bury(worker, schedule)
                continue
            if kind == READY:
                worker.ready = True
                self._dead_starts = 0
            elif kind == DONE:
                for done, answer in what:
                    worker.tasks.remove(done)
                    schedule.done(done)
                    answers.append((done, answer))
            elif kind == BROKEN:
                worker.tasks.remove(number)
                schedule.again(number, what)
            else:
                raise what.error() if number is None else schedule.failed(number, what)
        return answers

    def close(self) -> None:
        """End all workers and wait for them."""
        for worker in self._workers:
            worker.connection.close()
        for worker in self._workers:
            worker.end(CLOSING_SECONDS)
        self._workers.clear()
        self._door.close()
        self._room.close()

    def _hand_out(self, schedule: Schedule[Any]) -> None:
        """Give each worker one task more than it has lanes, so that no worker waits for a task."""
        given: dict[_Worker, list[tuple[int, Any]]] = {}
        for depth in range(self.job.lanes + 1):
            for worker in self._workers:
                if not worker.ready or len(worker.tasks) != depth or schedule.alone(worker.tasks):
                    continue
                if (task := schedule.take(beside=depth > 0)) is not None:
                    worker.tasks.append(task[0])
                    given.setdefault(worker, []).append(task)
        for worker, tasks in given.items():
            worker.send(pickle.dumps(tasks))

    def _free_processor(self) -> int | None:
        """Return a processor to which no worker is pinned; None if workers are not pinned."""
        taken = {worker.processor for worker in self._workers}
        return next((one for one in self._own if one not in taken), None)

    def _bury(self, worker: _Worker, schedule: Schedule[Any]) -> None:
        """Remove a dead worker; its tasks go to other workers."""
        self._workers.remove(worker)
        status, words = worker.end(CLOSING_SECONDS)
        why = f"its worker ended with status {status}" + (f":\n{words}" if words else "")
        self.restarts += 1
        if not worker.ready:
            self._dead_starts += 1
            if self._dead_starts >= STARTS:
                raise GenerationError(f"{STARTS} consecutive workers failed to start: {why}")
        for number in worker.tasks[self.job.lanes :]:  # not started
            schedule.back(number)
        for number in worker.tasks[: self.job.lanes]:
            schedule.again(number, why)


class _Worker(WorkerProcess):
    """A worker process of the job; `tasks` are its unfinished tasks, in the order of handing out.

    The process is pinned to `processor`, unless that is None.
    """

    def __init__(self, given: bytes, gate: tuple[int, int], processor: int | None) -> None:
        files = [f"/proc/{os.getpid()}/fd/{file}" for file in gate]
        stays = [] if processor is None else [str(processor)]
        super().__init__("shioenv.execution.worker", [*files, *stays])
        self.processor = processor
        self.tasks: list[int] = []
        self.ready = False
        self.send(given)


ENGINES = ("local", "ray")
"""Names of executors: processes on this machine, or on the nodes of a Ray cluster."""

GROUP: Final = "shioenv.executors"
"""The entry-point group through which other packages provide the executors besides `local`."""


def executor_named(
    name: str, workers: int | None = None, address: str | None = None, *, cache_bytes: int = 0
) -> Executor:
    """Create the executor with a name from `ENGINES`.

    The other arguments are those of `LocalExecutor`; `address` is the address of a cluster. Errors:
    UsageError for another name, or for an address with another executor than `ray`.
    MissingExtraError if no installed package provides the executor. The errors of its class are
    raised too.
    """
    if name not in ENGINES:
        raise UsageError(f"unknown engine {name!r}", hint=did_you_mean(name, ENGINES))
    if name == "ray":
        kind = load_guest(GROUP, name, feature=f"--engine {name}", extra="backends")
        return cast("Executor", kind(workers, address=address, cache_bytes=cache_bytes))
    if address is not None:
        raise UsageError("--address needs --engine ray", hint="--engine ray --address ADDRESS")
    return LocalExecutor(workers, cache_bytes=cache_bytes)
