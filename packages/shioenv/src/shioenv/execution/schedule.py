"""The schedule of a job: the order of tasks, their retries, and the window of open tasks."""

from __future__ import annotations

import heapq
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

from shioenv import errors
from shioenv.errors import GenerationError, ShioenvError

T = TypeVar("T")

ATTEMPTS = 5
"""Attempts at a task; if the last one fails, the job ends with an error."""

STARTS = 3
"""Number of consecutive workers that die before their sandbox is open, after which the job ends."""

WINDOW = 4096
"""The maximum distance, in task numbers, between the newest and the oldest open task. A slow task
(`ping`, 64 times) takes two minutes, and thousands of others finish in this time."""


class Schedule(Generic[T]):
    """The unfinished tasks of a job, drawn from a stream as capacity permits.

    `retried` counts retries of tasks. `what` is the noun for a task in messages. `batch` is the
    number of tasks drawn at a time.
    """

    def __init__(
        self, tasks: Iterable[tuple[int, T]] = (), *, what: str = "task", batch: int = 1
    ) -> None:
        self._stream = iter(tasks)
        self.what = what
        self._unfinished: dict[int, T] = {}
        self._oldest: list[int] = []  # a heap; may contain finished ones
        self._waiting: list[int] = []  # a heap
        self._attempts: Counter[int] = Counter()
        self._newest = -1
        self.window = WINDOW
        self._batch = batch
        self.retried = 0

    @property
    def unfinished(self) -> bool:
        """Whether a drawn task is unfinished."""
        return bool(self._unfinished)

    @property
    def left(self) -> bool:
        """Whether there are unfinished tasks; draws one if all drawn tasks are finished."""
        return self.unfinished or self._draw()

    def add(self, number: int, task: T) -> None:
        """Add a task to the waiting ones."""
        self._unfinished[number] = task
        self._newest = max(self._newest, number)
        heapq.heappush(self._oldest, number)
        heapq.heappush(self._waiting, number)

    def take(self, *, beside: bool = False) -> tuple[int, T] | None:
        """Return the next task to start; None if there is none for now.

        A worker with other tasks (`beside`) gets no task that must run alone.
        """
        if not self._waiting:
            self._draw_batch()
        if not self._waiting:
            return None
        if beside and self.alone(self._waiting[:1]):
            return None
        number = heapq.heappop(self._waiting)
        return number, self._unfinished[number]

    def alone(self, numbers: Iterable[int]) -> bool:
        """Whether one of the tasks failed before, so that it must be a worker's only task.

        So a task that always kills its worker does no harm to other tasks.
        """
        return any(number in self._attempts for number in numbers)

    def done(self, number: int) -> None:
        """Mark the task as finished."""
        del self._unfinished[number]
        self._attempts.pop(number, None)

    def back(self, number: int) -> None:
        """Take back a task that was handed out but not started."""
        heapq.heappush(self._waiting, number)

    def again(self, number: int, why: object) -> None:
        """Take back a failed task for a retry. GenerationError after the last attempt."""
        self._attempts[number] += 1
        self.retried += 1
        if self._attempts[number] >= ATTEMPTS:
            raise GenerationError(
                f"{self.what} {number} failed in {ATTEMPTS} attempts: {why}",
                hint=f"its input: {self._shown(number)}",
            )
        self.back(number)

    def failed(self, number: int, failure: Failure) -> ShioenvError:
        """Return the error that ends the job after a task failed permanently."""
        return failure.error(f"{self.what} {number} failed ({self._shown(number)}): ")

    def _shown(self, number: int) -> str:
        return str(self._unfinished[number])[:2000]

    def _draw(self) -> bool:
        for number, task in self._stream:
            self.add(number, task)
            return True
        return False

    def _draw_batch(self) -> None:
        """Draw as many tasks as the batch and the window allow.

        If the stream fails after some tasks, these are still run: a later call raises the error.
        """
        while len(self._waiting) < self._batch and self._ahead() < self.window:
            try:
                if not self._draw():
                    return
            except Exception as error:
                if not self._waiting:
                    raise
                self._stream = _raising(error)
                return

    def _ahead(self) -> int:
        while self._oldest and self._oldest[0] not in self._unfinished:
            heapq.heappop(self._oldest)
        return self._newest - self._oldest[0] if self._oldest else 0


def _raising(error: Exception) -> Iterator[Any]:
    """Return a stream whose first step raises the error."""
    raise error
    yield


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception of another process, in a picklable form."""

    kind: str
    """The name of the exception's class in `errors`; "" if the exception is not a ShioenvError."""
    message: str
    hint: str | None

    @classmethod
    def of(cls, error: Exception) -> Self:
        """Convert an exception. If it is not a ShioenvError, its traceback is kept as text."""
        if isinstance(error, ShioenvError):
            return cls(type(error).__name__, error.message, error.hint)
        return cls("", "".join(traceback.format_exception(error)).rstrip(), None)

    def error(self, prefix: str = "") -> ShioenvError:
        """Restore the exception, with the prefix before its message."""
        kind = getattr(errors, self.kind, GenerationError)
        error: ShioenvError = kind.__new__(kind)
        ShioenvError.__init__(error, prefix + self.message, hint=self.hint)
        return error
