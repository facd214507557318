"""Sandboxes that are opened again where they broke, and who may execute in them now.

Many inputs wait instead of working (`ping`, a fifo, what runs out of time). A worker has several
sandboxes for that, its lanes, and goes on in another one meanwhile. The lanes' tasks take turns,
and one task of all workers' may be alone.
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
"""Sandboxes of a worker at most (ours; inputs that wait take ten times as long, all together, as
those that work). Each opens when it is first needed."""

PATIENCE = (0.005, 0.05)
"""Seconds, at least and at most, after which an execution that is not done is taken to wait, so
that the next may begin beside it. They are twice what executions usually take (ours; 3 ms on a
machine that does nothing else). On a busy machine a fixed time would let all lanes begin at once.
"""


Sandbox = TypeVar("Sandbox")
Answer = TypeVar("Answer")
Among: TypeAlias = Callable[[], AbstractContextManager[None]]


class Reopened(Generic[Sandbox]):
    """A sandbox that is opened when it is needed; another one after it was closed."""

    def __init__(self, opens: Callable[[], Sandbox]) -> None:
        self._opens = opens
        self._opened: Sandbox | None = None

    def open(self) -> Sandbox:
        """The sandbox. Errors: those of opening one."""
        if self._opened is None:
            self._opened = self._opens()
        return self._opened

    def repeat(self, action: Callable[[Sandbox], Answer]) -> Answer:
        """What the action gives; where its sandbox breaks, it is done once more in a new one.

        After any other error, and the second one, the sandbox is closed, whatever state it is in.
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
        """Ends the sandbox, whatever state it is in, if it can be closed; any number of calls."""
        close = getattr(self._opened, "close", None)
        self._opened = None
        if close is not None:
            with suppress(SandboxError, OSError):
                close()


@dataclass(slots=True)
class _Share:
    seconds: float = 0.0


class _Crowd:
    """The executions of this process that run at once and hold each other up. What each is told to
    have taken is its share, so all together tell how long it took.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._many, self._each, self._last = 0, 0.0, 0.0

    @contextmanager
    def share(self) -> Iterator[_Share]:
        """Known at its end."""
        share = _Share()
        began = self._change(1)
        try:
            yield share
        finally:
            share.seconds = self._change(-1) - began

    def _change(self, more: int) -> float:
        """So many more of them: what one who was there all the time would have taken so far."""
        with self._lock:
            now = time.perf_counter()
            if self._many:
                self._each += (now - self._last) / self._many
            self._last = now
            self._many += more
            return self._each


_OPENING = _Crowd()


class Lane(Reopened[Installed]):
    """A sandbox that one task at a time is done in, what that took, and what it shares with others.

    `turn` is entered for every run, `by_itself` where nobody else may run. Errors of every use:
    those of opening a sandbox.
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
        """The sandbox; opening it is a part of what records take."""
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

    def context(self, cwd: str | None = None) -> Context:
        """Of the sandbox that is open."""
        return self.open().context(cwd)

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        """What the input does, when it is its turn."""
        return self.execute(shell_input, state)

    def execute(self, shell_input: str, state: State | None = None, **how: Any) -> Behavior:
        """The same below the seam; `how` is as the sandbox takes it."""
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
        """Runs while nobody else does, but for what slept until its time was over: that lacked no
        processor.
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
    """Lets one task at a time execute, and the next one as well where an execution takes long.

    A task keeps its turn from one execution to the next, unless a task that began before it waits.
    So tasks go through one sandbox, which is warm, one after the other. Another sandbox is begun
    beside them only while something waits. Of those that wait, only the first one watches the time,
    since every thread that wakes takes the interpreter from one that has work.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun = 0
        self._waiting: list[tuple[int, threading.Condition]] = []  # a heap
        self._holder: int | None = None
        self._since = 0.0
        self._usual = 0.0

    def begin(self) -> int:
        """The number of a task that may begin now, and has the turn: waits until then, behind all
        that have begun.
        """
        with self._lock:
            self._begun += 1
            self._take(task := self._begun)
            return task

    @contextmanager
    def turn(self, task: int) -> Iterator[None]:
        """Lets a task that has begun execute; waits until it may."""
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
        """Gives the turn to others where the task has it."""
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
        """Seconds until its turn, at the latest; None where others come first."""
        if self._waiting[0] is not me:
            return None
        if self._holder is None:
            return 0.0
        return self._since + self._patience() - time.monotonic()

    def _wake(self) -> None:
        """Lets the first one that waits look whether it is its turn, or when it will be."""
        if self._waiting:
            self._waiting[0][1].notify()

    def _patience(self) -> float:
        least, most = PATIENCE
        return min(most, max(least, 2 * self._usual))


class Lanes:
    """Lets any number execute, in any number of processes, or one that is alone.

    Each lane has one of its own over the same two files, whose locks end with their owner. `door`
    is closed by who wants to be alone, so that nobody else comes in while it waits for `room`.
    """

    def __init__(self, door: str, room: str) -> None:
        self._door = os.open(door, os.O_RDWR | os.O_CLOEXEC)
        self._room = os.open(room, os.O_RDWR | os.O_CLOEXEC)

    def close(self) -> None:
        """Gives its files back."""
        os.close(self._door)
        os.close(self._room)

    @contextmanager
    def among_others(self) -> Iterator[None]:
        """Waits while somebody is alone, or about to be."""
        with _locked(self._door, fcntl.LOCK_SH):
            fcntl.flock(self._room, fcntl.LOCK_SH)
        try:
            yield
        finally:
            fcntl.flock(self._room, fcntl.LOCK_UN)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Waits until nobody executes, and keeps everybody from it."""
        with _locked(self._door, fcntl.LOCK_EX), _locked(self._room, fcntl.LOCK_EX):
            yield


@contextmanager
def _locked(file: int, how: int) -> Iterator[None]:
    fcntl.flock(file, how)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)
