"""The schedule of a job: which task is begun next, how often, and how far ahead of the oldest."""

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
"""Attempts at a task; after the last one fails the job ends with an error."""

STARTS = 3
"""Workers that die in a row before their sandbox is open; at this number the job ends."""

WINDOW = 4096
"""How far the newest task in work may be ahead of the oldest, in task numbers. A task that waits
(`ping`, 64 times) takes two minutes, in which thousands of others are finished."""


class Schedule(Generic[T]):
    """The tasks of a job that are not finished, drawn from their stream as there is room.

    `retried` counts tasks that were begun again. `what` is the word for a task in messages. `batch`
    is the number of tasks drawn one after the other.
    """

    def __init__(
        self, tasks: Iterable[tuple[int, T]] = (), *, what: str = "task", batch: int = 1
    ) -> None:
        self._stream = iter(tasks)
        self.what = what
        self._unfinished: dict[int, T] = {}
        self._oldest: list[int] = []  # a heap, with some that are finished
        self._waiting: list[int] = []  # a heap
        self._attempts: Counter[int] = Counter()
        self._newest = -1
        self.window = WINDOW
        self._batch = batch
        self.retried = 0

    @property
    def unfinished(self) -> bool:
        """Whether a drawn task is not finished."""
        return bool(self._unfinished)

    @property
    def left(self) -> bool:
        """Whether a task is still to be finished; draws a task where no drawn one is."""
        return self.unfinished or self._draw()

    def add(self, number: int, task: T) -> None:
        """Adds a task to those that wait."""
        self._unfinished[number] = task
        self._newest = max(self._newest, number)
        heapq.heappush(self._oldest, number)
        heapq.heappush(self._waiting, number)

    def take(self, *, beside: bool = False) -> tuple[int, T] | None:
        """The next task to begin; None where there is none for now.

        A worker that has other tasks (`beside`) gets no task that has to be done alone.
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
        """Whether one of the tasks failed before, so that a worker has to do it alone.

        A task that kills its worker in every attempt thus takes no other tasks with it.
        """
        return any(number in self._attempts for number in numbers)

    def done(self, number: int) -> None:
        """Notes that the task is finished."""
        del self._unfinished[number]
        self._attempts.pop(number, None)

    def back(self, number: int) -> None:
        """Takes a task back that was handed out but not begun."""
        heapq.heappush(self._waiting, number)

    def again(self, number: int, why: object) -> None:
        """Takes a task back that was begun and failed. GenerationError after the last attempt."""
        self._attempts[number] += 1
        self.retried += 1
        if self._attempts[number] >= ATTEMPTS:
            raise GenerationError(
                f"{self.what} {number} could not be made in {ATTEMPTS} attempts: {why}",
                hint=f"its input: {self._shown(number)}",
            )
        self.back(number)

    def failed(self, number: int, failure: Failure) -> ShioenvError:
        """The error that ends the job after a task failed for good."""
        return failure.error(f"{self.what} {number} failed ({self._shown(number)}): ")

    def _shown(self, number: int) -> str:
        return str(self._unfinished[number])[:2000]

    def _draw(self) -> bool:
        for number, task in self._stream:
            self.add(number, task)
            return True
        return False

    def _draw_batch(self) -> None:
        """Draws as many tasks as there is room for.

        An error of the stream after some tasks is raised by a later call, so that these are done.
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
    """A stream that ends with an error."""
    raise error
    yield


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception of another process, in a form that can be pickled."""

    kind: str
    """The name of the exception's class in `errors`; "" where the exception shows a bug."""
    message: str
    hint: str | None

    @classmethod
    def of(cls, error: Exception) -> Self:
        """The failure of an exception; one that is no ShioenvError is kept with its traceback."""
        if isinstance(error, ShioenvError):
            return cls(type(error).__name__, error.message, error.hint)
        return cls("", "".join(traceback.format_exception(error)).rstrip(), None)

    def error(self, prefix: str = "") -> ShioenvError:
        """The exception again, with the prefix before its message."""
        kind = getattr(errors, self.kind, GenerationError)
        error: ShioenvError = kind.__new__(kind)
        ShioenvError.__init__(error, prefix + self.message, hint=self.hint)
        return error
