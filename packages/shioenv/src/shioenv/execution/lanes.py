"""Sandboxes that are opened again after they broke, and the turns in which they execute.

Many inputs wait instead of working (`ping`, a fifo, an input that runs out of time). So a worker
has several sandboxes, its lanes. While an input waits in one lane, the worker goes on in another.
The tasks in the lanes of a worker take turns. A task may also run alone, while no other task of any
worker runs.
"""

from __future__ import annotations

import fcntl
import heapq
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from shioenv.domain.behavior import Behavior
from shioenv.domain.context import Context
from shioenv.domain.runner import Built, Installed, State
from shioenv.errors import SandboxError
from shioenv.recording.cache import ExecutionCache
from shioenv.recording.effort import Effort

LANES = 16
"""Sandboxes of a worker at most (ours: inputs that wait take ten times as long, all together, as
inputs that work). Each sandbox opens when it is first needed."""

PATIENCE = (0.005, 0.05)
"""Seconds, at least and at most, after which an unfinished execution is taken to wait, so that the
next one may begin beside it.

Between these bounds the time is twice what executions usually take (ours). Usual are 3 ms on a
machine that does nothing else. On a busy machine a fixed time would let all lanes begin at once."""


Sandbox = TypeVar("Sandbox")
Answer = TypeVar("Answer")
Among: TypeAlias = Callable[[], AbstractContextManager[None]]


class Reopened(Generic[Sandbox]):
    """A sandbox that is opened when it is needed, and opened anew after it was closed."""

    def __init__(self, opens: Callable[[], Sandbox]) -> None:
        self._opens = opens
        self._opened: Sandbox | None = None

    def open(self) -> Sandbox:
        """The sandbox. Errors: those of opening one."""
        if self._opened is None:
            self._opened = self._opens()
        return self._opened

    def repeat(self, action: Callable[[Sandbox], Answer]) -> Answer:
        """The result of `action`, which is done once more in a new sandbox where the first breaks.

        After any other error, or where the second sandbox breaks, the sandbox is closed, whatever
        state it is in. The error passes through.
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
        """Close the sandbox, whatever state it is in; any number of calls.

        Nothing is done where no sandbox is open, or where it has no `close`.
        """
        close = getattr(self._opened, "close", None)
        self._opened = None
        if close is not None:
            with suppress(SandboxError, OSError):
                close()


@dataclass(slots=True)
class _Share:
    seconds: float = 0.0


class _Crowd:
    """Threads of this process that do the same at once and so hold each other up.

    Each thread is told only its share of the time. The sum of the shares is the time that passed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._many, self._each, self._last = 0, 0.0, 0.0

    @contextmanager
    def share(self) -> Iterator[_Share]:
        """The share of the thread that enters; its seconds are set at the end."""
        share = _Share()
        began = self._change(1)
        try:
            yield share
        finally:
            share.seconds = self._change(-1) - began

    def _change(self, more: int) -> float:
        """Counts `more` threads in; the share so far of a thread that was there all the time."""
        with self._lock:
            now = time.perf_counter()
            if self._many:
                self._each += (now - self._last) / self._many
            self._last = now
            self._many += more
            return self._each


_OPENING = _Crowd()


class Lane(Reopened[Installed]):
    """A sandbox in which one task at a time is done, with its effort and its shared executions.

    `turn` is entered for every run, `by_itself` for a run while nobody else may run. Every method
    but `close` may raise the errors of opening a sandbox.
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
        """The sandbox; the time to open it is counted in `effort`."""
        if self._opened is not None:
            return self._opened
        began = time.perf_counter()
        with _OPENING.share() as share:
            opened = super().open()
        self.effort.opening_seconds += share.seconds
        self.effort.lane_seconds -= time.perf_counter() - began - share.seconds
        return opened

    @property
    def system(self) -> Built:
        """The system on which inputs run."""
        return self.open().system

    @property
    def seconds(self) -> float:
        """The `seconds` of the open sandbox."""
        return self.open().seconds

    @property
    def waited(self) -> bool:
        """The `waited` of the open sandbox."""
        return self.open().waited

    def context(self, cwd: str | None = None) -> Context:
        """The context that the open sandbox gives for a start directory."""
        return self.open().context(cwd)

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        """Wait for the turn, then run the input; its behavior."""
        return self.execute(shell_input, state)

    def execute(self, shell_input: str, state: State | None = None, **how: Any) -> Behavior:
        """As `run`, below the `Runner` seam; `how` is as the sandbox's `execute` takes it."""
        asked = time.perf_counter()
        with nullcontext() if self._alone else self._turn():
            self.effort.lane_seconds -= time.perf_counter() - asked
            sandbox = self.open()
            before, began = sandbox.seconds, time.perf_counter()
            try:
                return sandbox.execute(shell_input, state, **how)
            finally:
                own = sandbox.seconds - before
                self.effort.ran += 1
                self.effort.own_seconds += own
                self.effort.sandbox_seconds += time.perf_counter() - began - own

    def alone(self, run: Callable[[], Behavior]) -> Behavior:
        """The result of `run`, called while nobody else executes.

        Where the newest run slept until its time was over, it lacked no processor. Then `run` is
        called at once, beside others.
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


class Turns:
    """Lets one task at a time execute, and the next task as well where an execution takes long.

    A task keeps its turn from one execution to the next, unless a task that began earlier waits for
    a turn. So tasks go one after the other through one warm sandbox. Another task is begun beside
    them only while an execution waits. Of the tasks that wait for a turn only the first watches the
    time. Every thread that wakes takes the interpreter from a thread that has work.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun = 0
        self._waiting: list[tuple[int, threading.Condition]] = []  # a heap
        self._holder: int | None = None
        self._since = 0.0
        self._usual = 0.0

    def begin(self) -> int:
        """Wait behind all tasks that have begun; the number of a new task, which has the turn."""
        with self._lock:
            self._begun += 1
            self._take(task := self._begun)
            return task

    @contextmanager
    def turn(self, task: int) -> Iterator[None]:
        """Wait until a task that has begun may execute, and let it."""
        with self._lock:
            if self._holder != task:
                self._take(task)
            began = self._since = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                now = time.monotonic()
                took = min(now - began, self._patience())
                self._usual += (took - self._usual) / 32
                if self._holder == task:
                    self._since = now
                    if self._waiting and self._waiting[0][0] < task:
                        self._release()

    def end(self, task: int) -> None:
        """Give the turn to others if the task has it."""
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
        """Seconds until the turn of `me`, at the latest; None where others come first."""
        if self._waiting[0] is not me:
            return None
        if self._holder is None:
            return 0.0
        return self._since + self._patience() - time.monotonic()

    def _wake(self) -> None:
        """Wakes the first that waits, to see whether its turn has come, or when it will."""
        if self._waiting:
            self._waiting[0][1].notify()

    def _patience(self) -> float:
        least, most = PATIENCE
        return min(most, max(least, 2 * self._usual))


class Lanes:
    """Lets any number of lanes execute at once, in any number of processes, or one lane alone.

    Each lane has a `Lanes` of its own over the same two files. The locks on these files end with
    their owner. Whoever wants to be alone locks `door` first, so that nobody else comes in during
    the wait for `room`.
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
        """Wait while somebody is alone or waits to be, then execute beside others."""
        with _locked(self._door, fcntl.LOCK_SH):
            fcntl.flock(self._room, fcntl.LOCK_SH)
        try:
            yield
        finally:
            fcntl.flock(self._room, fcntl.LOCK_UN)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Wait until nobody executes, then keep everybody else from executing."""
        with _locked(self._door, fcntl.LOCK_EX), _locked(self._room, fcntl.LOCK_EX):
            yield


@contextmanager
def _locked(file: int, how: int) -> Iterator[None]:
    fcntl.flock(file, how)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)
