"""A worker process: samples in through one pipe, records out through another.

It ends when its generator does: a thread waits for the end of the first pipe all the time.
"""

from __future__ import annotations

import importlib
import os
import pickle
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, cast

from shioenv.domain.behavior import Behavior
from shioenv.domain.record import Record, encode
from shioenv.domain.runner import Built, Installed, State
from shioenv.errors import SandboxError, ShioenvError
from shioenv.execution import framing
from shioenv.execution.lanes import LANES, Gate, Turns
from shioenv.irreducibility.scoring import Scoring
from shioenv.recording.cache import ExecutionCache
from shioenv.recording.effort import Effort
from shioenv.recording.session import SessionRecorder
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
    scoring: Scoring
    cache_bytes: int = 0
    """How large the file of shared executions grows; 0 for none."""


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
    worker = _Worker(tasks, results, sys.argv[2], sys.argv[3])
    threading.Thread(target=worker.listen, daemon=True).start()
    worker.work()


class _Worker:
    """The process: what arrives is handed to lanes, what they make is sent."""

    def __init__(self, tasks: int, results: int, door: str, room: str) -> None:
        self._tasks, self._results = tasks, results
        self._gate = door, room
        self._waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._turns = Turns()
        self._sending = threading.Lock()
        self._given = self._finished = 0

    def listen(self) -> None:
        """Sorts what arrives; at the end of the pipe ends this process.

        At rest it closes its sandboxes first. In the middle of a record it just ends: nobody waits
        for the record, and a sandbox whose owner is gone ends itself.
        """
        frames = framing.Frames()
        while data := os.read(self._tasks, 1 << 16):
            for _, body in frames.feed(data):
                self._given += 1
                self._waiting.put(body)
        if self._given != self._finished:
            os._exit(1)
        for _ in range(LANES):
            self._waiting.put(None)
        last = threading.Timer(_LAST_WORDS_SECONDS, os._exit, [1])
        last.daemon = True
        last.start()

    def work(self) -> None:
        """Opens the first sandbox, then starts the lanes and waits for their end."""
        body = self._waiting.get()
        if body is None:
            return
        setup = pickle.loads(body)
        lanes = [_Lane(setup, Gate(*self._gate), self._turns) for _ in range(LANES)]
        self._guarded(None, lanes[0].open)
        self.send(framing.READY, {})
        threads = [threading.Thread(target=self._in_lane, args=[lane]) for lane in lanes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def send(self, kind: int, facts: dict[str, Any], rest: bytes = b"") -> None:
        """Tells the generator, and counts it as an answer."""
        with self._sending:
            framing.send_json(self._results, kind, facts, rest)
            self._finished += 1

    def _in_lane(self, lane: _Lane) -> None:
        while (body := self._waiting.get()) is not None:
            number, sample = pickle.loads(body)
            self._guarded(number, lambda: self._record(lane, number, sample))  # noqa: B023
        self._guarded(None, lane.close)

    def _record(self, lane: _Lane, number: int, sample: Sample) -> None:
        try:
            made, effort = lane.record(number, sample)
        except SandboxError as error:
            lane.close()
            self.send(framing.BROKEN, {"session_id": number, "message": str(error)})
            return
        facts = {
            "session_id": number,
            "volatile": made.volatile,
            "executions": made.n_executions,
            "effort": asdict(effort),
        }
        self.send(framing.RECORD, facts, encode(made))

    def _guarded(self, number: int | None, action: Callable[[], object]) -> None:
        """Ends the whole process where the action fails, whatever thread it is in."""
        try:
            action()
        except BrokenPipeError:
            os._exit(1)
        except SandboxError:  # another worker takes over
            traceback.print_exc()
            os._exit(1)
        except Exception as error:
            traceback.print_exc()
            with suppress(BrokenPipeError):
                self.send(framing.FAILED, _described(number, error))
            os._exit(1)


class _Lane:
    """A sandbox of a worker, used by one thread: it opens itself when it is needed."""

    def __init__(self, setup: Setup, gate: Gate, turns: Turns) -> None:
        self._setup, self._gate, self._turns = setup, gate, turns
        self._observer: Installed | None = None
        self._alone = False
        self._effort = Effort()
        self._cache = (
            ExecutionCache(setup.digest, setup.limits, max_bytes=setup.cache_bytes)
            if setup.cache_bytes
            else None
        )

    @property
    def system(self) -> Built:
        """Where inputs run."""
        return self.open().system

    @property
    def seconds(self) -> float:
        """Of the sandbox that is open."""
        return self.open().seconds

    @property
    def waited(self) -> bool:
        """Of the sandbox that is open."""
        return self.open().waited

    def open(self) -> Installed:
        """The sandbox. ShioenvError where its system is not the one that is recorded."""
        if self._observer is None:
            setup = self._setup
            observer = cast("Installed", find(setup.opener)(setup.system, setup.limits))
            self._observer = observer
            if observer.system.digest != setup.digest:
                raise ShioenvError(
                    f"the system {setup.system} was built anew while records were made, or is "
                    f"another one on this host: its digest is {observer.system.digest}, the "
                    f"dataset's {setup.digest}",
                    hint="generate into another directory, or copy the system here from where it "
                    "was built: docs/how-to/cluster.md",
                )
        return self._observer

    def close(self) -> None:
        """Ends the sandbox; the next run opens another one."""
        observer, self._observer = self._observer, None
        if observer is not None:
            observer.close()

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        """What the input does, when it is this lane's turn."""
        return self.execute(shell_input, state)

    def execute(self, shell_input: str, state: State | None = None, **how: Any) -> Behavior:
        """What the input does, when it is this lane's turn."""
        if self._alone:
            return self._run(shell_input, state, **how)
        asked = time.perf_counter()
        with self._turns.turn(), self._gate.among_others():
            self._effort.lane_seconds -= time.perf_counter() - asked
            return self._run(shell_input, state, **how)

    def record(self, number: int, sample: Sample) -> tuple[Record, Effort]:
        """The sample executed and scored, and what that took."""
        setup, cache = self._setup, self._cache
        self._effort = effort = Effort()
        if cache is not None:
            cache.use = effort
        began = time.perf_counter()
        recorder = SessionRecorder(
            scoring=setup.scoring,
            alone=self._run_alone,
            cache=None if cache is None else cache.of(sample.cwd),
        )
        rng = generator(setup.seed, "score", number)
        recorded = recorder.record(sample.session, self, rng, volatile=sample.volatile)
        made = recorded.record(number, system=self.system.name, sampler=setup.sampler)
        effort.lane_seconds += time.perf_counter() - began
        effort.trouble = None if cache is None else cache.trouble
        return made, effort

    def _run(self, shell_input: str, state: State | None, **how: Any) -> Behavior:
        observer = self.open()
        before = observer.seconds
        try:
            return observer.execute(shell_input, state, **how)
        finally:
            self._effort.ran += 1
            self._effort.own_seconds += observer.seconds - before

    def _run_alone(self, run: Callable[[], Behavior]) -> Behavior:
        """Runs while nobody else does, but for what slept until its time was over: that lacked no
        processor.
        """
        if self.open().waited:
            return run()
        with self._gate.alone():
            self._alone = True
            try:
                return run()
            finally:
                self._alone = False


def _described(number: int | None, error: Exception) -> dict[str, Any]:
    ours = isinstance(error, ShioenvError)
    return {
        "session_id": number,
        "kind": type(error).__name__ if ours else None,
        "message": error.message if isinstance(error, ShioenvError) else str(error),
        "hint": error.hint if isinstance(error, ShioenvError) else None,
        "traceback": "" if ours else "".join(traceback.format_exception(error)),
    }
