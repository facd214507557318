"""A worker process: samples in through one pipe, records out through another.

It ends when its generator does: a thread waits for the end of the first pipe all the time.
"""

from __future__ import annotations

import importlib
import os
import pickle
import queue
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from shioenv.dataset import framing
from shioenv.dataset.recording import Observer, record
from shioenv.domain.behavior import Behavior
from shioenv.domain.record import encode
from shioenv.errors import SandboxError, ShioenvError
from shioenv.sandbox.base import Limits
from shioenv.seeding import generator
from shioenv.synthesis.sample import Sample

_LAST_WORDS_SECONDS = 8.0
"""How long a worker at rest may take to close its sandbox once its generator is gone."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What a worker has to know before its first sample."""

    opener: str
    """`module:name` of what is called with the system and the limits and returns an observer."""
    system: str
    """Name or file, as `open_sandbox` takes it."""
    digest: str
    """What the system's digest has to be."""
    limits: Limits
    sampler: str
    seed: int
    budget: int
    runs: int


def named(function: Callable[..., Any]) -> str:
    """`module:name` of a function, under which another process finds it. ValueError for none."""
    name = f"{function.__module__}:{function.__qualname__}"
    if function.__module__ == "__main__" or find(name) is not function:
        raise ValueError(f"{name} is not importable, so worker processes cannot call it")
    return name


def find(name: str) -> Any:
    """What `named` named."""
    module, _, path = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


def main() -> None:
    """Works until the generator closes its end, or is gone."""
    tasks, results = os.dup(0), os.dup(1)  # nothing started from here inherits them
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)
    worker = _Worker(tasks, results)
    threading.Thread(target=worker.listen, daemon=True).start()
    try:
        worker.work()
    except BrokenPipeError:
        pass
    finally:
        worker.close()


class _Worker:
    def __init__(self, tasks: int, results: int) -> None:
        self._tasks, self._results = tasks, results
        self._waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._go = threading.Event()
        self._observer: Observer | None = None
        self._given = self._finished = 0
        self._setup: Setup

    def listen(self) -> None:
        """Sorts what arrives; at the end of the pipe ends this process.

        At rest it closes its sandbox first. In the middle of a record it just ends: nobody waits
        for the record, and a sandbox whose owner is gone ends itself.
        """
        frames = framing.Frames()
        while data := os.read(self._tasks, 1 << 16):
            for kind, body in frames.feed(data):
                if kind == framing.GO:
                    self._go.set()
                else:
                    self._given += 1
                    self._waiting.put(body)
        if self._given != self._finished:
            os._exit(1)
        self._waiting.put(None)
        last = threading.Timer(_LAST_WORDS_SECONDS, os._exit, [1])
        last.daemon = True
        last.start()

    def close(self) -> None:
        """Ends the sandbox."""
        observer, self._observer = self._observer, None
        if observer is not None:
            observer.close()

    def work(self) -> None:
        """Opens the sandbox, then makes one record after the other."""
        body = self._waiting.get()
        if body is None:
            return
        self._setup = pickle.loads(body)
        number: int | None = None
        try:
            self._open()
            framing.send(self._results, framing.READY)
            self._finished += 1
            while (body := self._waiting.get()) is not None:
                number, sample = pickle.loads(body)
                self._record(number, sample)
                self._finished += 1
        except (BrokenPipeError, SandboxError):
            raise  # another worker takes over
        except Exception as error:
            framing.send_json(self._results, framing.FAILED, _described(number, error))
            raise

    def _open(self) -> None:
        setup = self._setup
        self._observer = cast("Observer", find(setup.opener)(setup.system, setup.limits))
        if self._observer.system.digest != setup.digest:
            raise ShioenvError(
                f"the system {setup.system} was built anew while records were made, or is another "
                f"one on this host: its digest is {self._observer.system.digest}, the dataset's "
                f"{setup.digest}",
                hint="generate into another directory, or copy the system here from where it was "
                "built: docs/how-to/cluster.md",
            )

    def _record(self, number: int, sample: Sample) -> None:
        assert self._observer is not None
        setup = self._setup
        try:
            made = record(
                sample,
                number,
                self._observer,
                setup.budget,
                generator(setup.seed, "score", number),
                sampler=setup.sampler,
                runs=setup.runs,
                alone=self._alone,
            )
        except SandboxError as error:
            framing.send_json(
                self._results, framing.BROKEN, {"session_id": number, "message": str(error)}
            )
            observer, self._observer = self._observer, None
            observer.close()
            self._open()
            return
        facts = {
            "session_id": number,
            "volatile": made.volatile,
            "executions": made.n_executions,
        }
        framing.send_json(self._results, framing.RECORD, facts, encode(made))

    def _alone(self, run: Callable[[], Behavior]) -> Behavior:
        self._go.clear()
        framing.send(self._results, framing.ALONE)
        self._go.wait()
        try:
            return run()
        finally:
            framing.send(self._results, framing.DONE)


def _described(number: int | None, error: Exception) -> dict[str, Any]:
    ours = isinstance(error, ShioenvError)
    return {
        "session_id": number,
        "kind": type(error).__name__ if ours else None,
        "message": error.message if isinstance(error, ShioenvError) else str(error),
        "hint": error.hint if isinstance(error, ShioenvError) else None,
        "traceback": "" if ours else "".join(traceback.format_exception(error)),
    }
