"""Predictors asked in processes of their own: one that hangs or dies costs one answer."""

from __future__ import annotations

import json
import os
import pickle
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import IO, Any

from shioenv.domain.runner import State, answer_of
from shioenv.errors import Abstained, AnswerError, HostError
from shioenv.evaluation.metrics import Level, Said, Status
from shioenv.evaluation.predictor import level_of, make_predictor, unable

REPLY_SECONDS = 30.0
"""In which an answer has to come, where nothing else is said."""

START_SECONDS = 900.0
"""In which a predictor has to be ready: what it has to install first takes minutes."""

TRIES = 3
"""Workers of a predictor that may fail to start before it is given up."""

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from shioenv.evaluation.asking import main; main()"
)
_CLOSING_SECONDS = 10.0

Task = tuple[str, State]


@dataclass(frozen=True, slots=True)
class Ready:
    """What a predictor says of itself once it can be asked."""

    version: str
    level: Level
    training: str = ""
    """What it was trained on; empty where it does not say."""


class Asking:
    """The processes that one predictor is asked in, a context manager; they begin at once.

    Errors: HostError where the predictor cannot be made here, with the reason.
    """

    def __init__(
        self, name: str, system: str, start: str, workers: int, timeout: float = REPLY_SECONDS
    ) -> None:
        self._given = pickle.dumps((name, system, start))
        self._name, self._timeout, self._wanted = name, timeout, workers
        self._workers: list[_Worker] = []
        self._failed = 0
        self.ready = self._first()

    def said(self, tasks: Sequence[tuple[int, Task]]) -> Iterator[tuple[int, Said]]:
        """The answer to each task with its number, in the order they come."""
        left = deque(tasks)
        busy = 0
        while left or busy:
            while len(self._workers) < min(self._wanted, len(left) + busy):
                self._workers.append(_Worker(self._given))
            for worker in self._workers:
                if left and worker.ready and worker.task is None:
                    worker.give(left.popleft(), self._timeout)
            yield from self._answers()
            busy = sum(worker.task is not None for worker in self._workers)

    def close(self) -> None:
        """Ends the processes and everything they started."""
        for worker in self._workers:
            worker.connection.close()
        for worker in self._workers:
            worker.end(_CLOSING_SECONDS)
        self._workers.clear()

    def __enter__(self) -> Asking:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _first(self) -> Ready:
        try:
            while True:
                if not self._workers:
                    self._workers.append(_Worker(self._given))
                list(self._answers())
                facts = self._workers[0].facts if self._workers else None
                if facts is not None:
                    return facts
        except BaseException:
            self.close()
            raise

    def _answers(self) -> Iterator[tuple[int, Said]]:
        """Waits until somebody says something or is too late."""
        now = time.monotonic()
        until = min(worker.deadline for worker in self._workers)
        open_ = [worker.connection for worker in self._workers if not worker.resting]
        said = wait(open_, max(0.0, until - now)) if open_ else []
        for worker in list(self._workers):
            if worker.connection in said:
                try:
                    what = worker.connection.recv()
                except (EOFError, OSError):
                    yield from self._lost(worker, Status.CRASHED)
                    continue
                if isinstance(what, Ready):
                    worker.facts = what
                    worker.rest()
                elif isinstance(what, Said):
                    number, _ = worker.task  # type: ignore[misc]
                    worker.rest()
                    yield number, what
                else:
                    raise HostError(f"{self._name} cannot run here: {what}")
            elif (
                not worker.resting
                and time.monotonic() >= worker.deadline
                and not worker.connection.poll()  # it came while the one before was taken
            ):
                yield from self._lost(worker, Status.TIMED_OUT)

    def _lost(self, worker: _Worker, status: Status) -> Iterator[tuple[int, Said]]:
        """A worker died, or is ended because it is late: what it was asked has no answer."""
        self._workers.remove(worker)
        words = worker.end(0.0)
        if worker.task is not None:
            late = f"no answer in {self._timeout:g} s"
            why = late if status is Status.TIMED_OUT else words
            yield worker.task[0], Said(status, milliseconds=round(worker.waited * 1e3, 3), why=why)
        if not worker.ready:
            self._failed += 1
            if self._failed >= TRIES:
                raise HostError(f"{self._name} cannot run here: {words}")


class _Worker:
    """One process; `task` is what it was asked, `deadline` when it has to have said something."""

    def __init__(self, given: bytes) -> None:
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long
        self._scratch = tempfile.mkdtemp(prefix="shioenv-asked-")
        self.connection, theirs = Pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _BOOT, json.dumps(sys.path), str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=self._stderr,
            stderr=self._stderr,
            pass_fds=[theirs.fileno()],
            env={**os.environ, "TMPDIR": self._scratch},  # who is killed cannot tidy up
            start_new_session=True,  # it ends with all that it started; Ctrl-C is for who asks
        )
        theirs.close()
        self.task: tuple[int, Task] | None = None
        self.facts: Ready | None = None
        self._began = time.monotonic()
        self.deadline = self._began + START_SECONDS
        with suppress(OSError):
            self.connection.send_bytes(given)

    @property
    def ready(self) -> bool:
        return self.facts is not None

    @property
    def resting(self) -> bool:
        return self.ready and self.task is None

    @property
    def waited(self) -> float:
        return time.monotonic() - self._began

    def give(self, task: tuple[int, Task], timeout: float) -> None:
        self.task = task
        self._began = time.monotonic()
        self.deadline = self._began + timeout
        with suppress(OSError):  # it is dead: that is seen when its answer is waited for
            self.connection.send_bytes(pickle.dumps(task[1]))

    def rest(self) -> None:
        self.task = None
        self.deadline = float("inf")

    def end(self, patience: float) -> str:
        """Ends the process and its group; its last words, or how it ended."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(patience)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        status = self._process.wait()
        shutil.rmtree(self._scratch, ignore_errors=True)
        self.connection.close()
        self._stderr.seek(0)
        words = self._stderr.read()[-2000:].decode("utf-8", "replace").strip().splitlines()
        self._stderr.close()
        return f"its process ended with status {status}" + (f": {words[-1]}" if words else "")


def main() -> None:
    """A worker: makes the predictor it is told and answers until the connection is closed."""
    connection: Connection[Any, Any] = Connection(int(sys.argv[2]))
    busy = threading.Event()
    threading.Thread(target=_end_with, args=(connection.fileno(), busy), daemon=True).start()
    name, system, start = pickle.loads(connection.recv_bytes())
    try:
        predictor = make_predictor(name, system, start)
        level = level_of(predictor)
    except Exception as error:
        connection.send(unable(error))
        return
    training = str(getattr(predictor, "training", ""))
    connection.send(Ready(str(getattr(predictor, "version", "")), level, training))
    try:
        with suppress(EOFError):
            while True:
                text, state = pickle.loads(connection.recv_bytes())
                busy.set()
                try:
                    said: Said | str = said_of(predictor, text, state)
                except HostError as error:
                    said = unable(error)
                busy.clear()
                connection.send(said)
    finally:
        close = getattr(predictor, "close", None)
        if close is not None:
            close()


def _end_with(connection: int, busy: threading.Event) -> None:
    """Ends this process, and what it started, where who asked is gone before it has an answer."""
    hangup = select.poll()
    hangup.register(connection, select.POLLRDHUP)
    hangup.poll()
    if busy.is_set():
        shutil.rmtree(os.environ["TMPDIR"], ignore_errors=True)
        os.killpg(0, signal.SIGKILL)


def said_of(predictor: Any, text: str, state: State) -> Said:
    """What a predictor says of one input; whatever it raises is a kind of wrong answer, but for
    what the host lacks. Errors: HostError.
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
    """What the newest answer took of a predictor that counts tokens, and what they cost."""
    return getattr(predictor, "tokens", (0, 0)), getattr(predictor, "cost", 0.0)
