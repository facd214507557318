"""Lanes: sandboxes that are reopened after they break, and the scheduling of their executions.

Many inputs wait instead of computing (`ping`, a fifo, an input that times out). So a worker has
several sandboxes, called lanes. While an input waits in one lane, the worker continues in another.
Tasks in the lanes of a worker take turns. A task may also run exclusively, while no other task of
any worker runs.
"""

from __future__ import annotations

import fcntl
import heapq
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, Generic, TypeAlias, TypeVar, cast

from shioenv.behavior.sessions import SessionMachine
from shioenv.domain.behavior import Behavior
from shioenv.domain.context import Context
from shioenv.domain.runner import Built, Installed, State
from shioenv.errors import SandboxError
from shioenv.recording.effort import Effort
from shioenv.recording.execution_cache import ExecutionCache

LANES = 16
"""The maximum number of sandboxes of a worker (our choice, since in total, inputs wait ten times as
long as they compute). Each sandbox is opened on first use."""

WAITING_SECONDS = (0.005, 0.05)
"""Minimum and maximum seconds after which an unfinished execution counts as waiting, so that the
next execution may start in parallel.

Between these bounds, the time is twice the average of recent executions (our choice). On an idle
machine the average is 3 ms. On a busy machine a fixed time would start all lanes at once."""


Sandbox = TypeVar("Sandbox")
Answer = TypeVar("Answer")
Among: TypeAlias = Callable[[], AbstractContextManager[None]]


class Reopened(Generic[Sandbox]):
    """A sandbox that is opened on demand, and reopened after it was closed."""

    def __init__(self, opens: Callable[[], Sandbox]) -> None:
        self._opens = opens
        self._opened: Sandbox | None = None

    def open(self) -> Sandbox:
        """Return the sandbox, opening it if necessary. Errors: those of opening one."""
        if self._opened is None:
            self._opened = self._opens()
        return self._opened

    def repeat(self, action: Callable[[Sandbox], Answer]) -> Answer:
        """Return the result of `action`, retried once in a new sandbox if the first one breaks.

        After any other error, or if the second sandbox breaks, close the sandbox and raise the
        error.
        """
        try:
            try:
                return action(self.open())
            except SandboxError:
                self.close()
                return action(self.open())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the sandbox in any state; may be called repeatedly.

        Do nothing if no sandbox is open, or if it has no `close`.
        """
        close = getattr(self._opened, "close", None)
        self._opened = None
        if close is not None:
            with suppress(SandboxError, OSError):
                close()


class Lane(Reopened[Installed]):
    """A sandbox for one task at a time, with its effort and its cache of shared executions.

    The context `turn` is entered for every run, and `by_itself` for an exclusive run. Every method
    except `close` may raise the errors of opening a sandbox.
    """

    def __init__(
        self,
        opens: Callable[[], Installed],
        cache: ExecutionCache | None = None,
        turn: Among = nullcontext,
        by_itself: Among = nullcontext,
    ) -> None:
        super().__init__(opens)
        self.effort = Effort()
        self.cache = cache
        self._turn, self._by_itself = turn, by_itself
        self._alone = False

    def open(self) -> Installed:
        """Return the sandbox, opening it if necessary; `effort` includes the time for that."""
        if self._opened is not None:
            return self._opened
        began = time.perf_counter()
        opened = super().open()
        self.effort.opening_seconds += time.perf_counter() - began
        return opened

    @property
    def system(self) -> Built:
        """The system on which inputs run."""
        return self.open().system

    @property
    def seconds(self) -> float:
        """Total seconds that the open sandbox has spent on runs."""
        return self.open().seconds

    @property
    def waited(self) -> bool:
        """Whether the latest run of the open sandbox slept until its timeout."""
        return self.open().waited

    def context(self, cwd: str | None = None) -> Context:
        """Return the open sandbox's context for a start directory."""
        return self.open().context(cwd)

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        """Wait for the turn, then run the input and return its behavior."""
        return self.execute(shell_input, state)

    def execute(self, shell_input: str, state: State | None = None, **how: Any) -> Behavior:
        """Like `run`, with the further arguments `how` of the sandbox's `execute`."""
        return self._counted(1, lambda sandbox: sandbox.execute(shell_input, state, **how))

    @property
    def keeps_shells(self) -> bool:
        """Whether the open sandbox has resident shells, so that `run_rows` works."""
        return getattr(self.open(), "keeps_shells", False)

    def open_session(self, rows: Sequence[str], cwd: str, **how: Any) -> LaneSession:
        """Start a session's machine; see `SandboxRunner.open_session`."""
        machine = self._counted(
            0, lambda sandbox: cast("Any", sandbox).open_session(rows, cwd, **how)
        )
        return LaneSession(self, machine)

    def _counted(self, runs: int, action: Callable[[Installed], Answer]) -> Answer:
        """Wait for the turn, call `action`, which executes `runs` inputs, and add its effort."""
        asked = time.perf_counter()
        with nullcontext() if self._alone else self._turn():
            self.effort.lane_seconds -= time.perf_counter() - asked
            sandbox = self.open()
            before, began = sandbox.seconds, time.perf_counter()
            try:
                return action(sandbox)
            finally:
                own = sandbox.seconds - before
                self.effort.ran += runs
                self.effort.own_seconds += own
                self.effort.sandbox_seconds += time.perf_counter() - began - own

    def alone(self, run: Callable[[], Behavior]) -> Behavior:
        """Call `run` exclusively, while no other lane executes, and return its result.

        If the latest run slept until its timeout, it did not lack processor time. In that case,
        call `run` immediately, in parallel with other lanes.
        """
        if self._alone or self.open().waited:
            return run()
        asked = time.perf_counter()
        with self._by_itself():
            self.effort.lane_seconds -= time.perf_counter() - asked
            self._alone = True
            try:
                return run()
            finally:
                self._alone = False


class LaneSession:
    """A session's machine, whose runs wait for the turn of its lane."""

    def __init__(self, lane: Lane, machine: SessionMachine) -> None:
        self._lane, self._machine = lane, machine
        self.why = machine.why
        self.passed = machine.passed

    def row(self, number: int) -> Behavior | None:
        """See `SessionMachine.row`."""
        return self._lane._counted(1, lambda _: self._machine.row(number))

    def run(self, number: int, text: str, **how: Any) -> Behavior | None:
        """See `SessionMachine.run`."""
        return self._lane._counted(1, lambda _: self._machine.run(number, text, **how))

    def close(self) -> None:
        """See `SessionMachine.close`."""
        self._machine.close()


class Turns:
    """Schedules tasks one at a time, and starts the next task while an execution waits.

    A task keeps its turn between executions, unless a task that started earlier waits for a turn.
    So tasks pass one after the other through one warm sandbox. Another task is started only while
    an execution waits. Only the first of the waiting tasks waits with a timeout, because every
    thread that wakes up takes the interpreter from a working thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun = 0
        self._waiting: list[tuple[int, threading.Condition]] = []  # a heap
        self._holder: int | None = None
        self._since = 0.0
        self._usual = 0.0

    def begin(self) -> int:
        """Wait until earlier tasks let a new task start; give it the turn and return its number."""
        with self._lock:
            self._begun += 1
            self._take(task := self._begun)
            return task

    @contextmanager
    def turn(self, task: int) -> Iterator[None]:
        """Wait until a started task may execute, and hold its turn during the block."""
        with self._lock:
            if self._holder != task:
                self._take(task)
            began = self._since = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                now = time.monotonic()
                took = min(now - began, self._waiting_seconds())
                self._usual += (took - self._usual) / 32
                if self._holder == task:
                    self._since = now
                    if self._waiting and self._waiting[0][0] < task:
                        self._release()

    def end(self, task: int) -> None:
        """Release the turn if the task has it."""
        with self._lock:
            if self._holder == task:
                self._release()

    def _take(self, task: int) -> None:
        if self._holder is not None or (self._waiting and self._waiting[0][0] < task):
            me = task, threading.Condition(self._lock)
            heapq.heappush(self._waiting, me)
            while (left := self._left(me)) is None or left > 0:
                me[1].wait(left)
            heapq.heappop(self._waiting)
        self._holder, self._since = task, time.monotonic()
        self._wake()

    def _release(self) -> None:
        self._holder = None
        self._wake()

    def _left(self, me: tuple[int, threading.Condition]) -> float | None:
        """Return the seconds after which `me` may take the turn; None if it is not the first."""
        if self._waiting[0] is not me:
            return None
        if self._holder is None:
            return 0.0
        return self._since + self._waiting_seconds() - time.monotonic()

    def _wake(self) -> None:
        """Wake the first waiting task, so that it checks the time of its turn again."""
        if self._waiting:
            self._waiting[0][1].notify()

    def _waiting_seconds(self) -> float:
        least, most = WAITING_SECONDS
        return min(most, max(least, 2 * self._usual))


class Lanes:
    """A lock between lanes of several processes, for shared or exclusive execution.

    Each lane has its own `Lanes` object with the same two files. The kernel releases the file locks
    when their owner ends. An exclusive lane locks the file `door` first, so that no other lane
    enters while it waits for the file `room`.
    """

    def __init__(self, door: str, room: str) -> None:
        self._door = os.open(door, os.O_RDWR | os.O_CLOEXEC)
        self._room = os.open(room, os.O_RDWR | os.O_CLOEXEC)

    def close(self) -> None:
        """Close the two files."""
        os.close(self._door)
        os.close(self._room)

    @contextmanager
    def among_others(self) -> Iterator[None]:
        """Wait until no lane executes exclusively or waits for that, then execute in parallel."""
        with _locked(self._door, fcntl.LOCK_SH):
            fcntl.flock(self._room, fcntl.LOCK_SH)
        try:
            yield
        finally:
            fcntl.flock(self._room, fcntl.LOCK_UN)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Wait until no lane executes, and block all others during the block."""
        with _locked(self._door, fcntl.LOCK_EX), _locked(self._room, fcntl.LOCK_EX):
            yield


@contextmanager
def _locked(file: int, how: int) -> Iterator[None]:
    fcntl.flock(file, how)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)
