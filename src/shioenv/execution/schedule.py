"""Which task is begun next, how often, and how far ahead of the oldest one."""

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
"""How often a task is begun at most; past it the job ends with an error."""

STARTS = 3
"""Workers in a row that may die before their sandbox is open."""

WINDOW = 4096
"""How far the newest task in work may be ahead of the oldest. A task that waits (`ping`, 64 times)
takes two minutes, in which others are made by the thousand.
"""


class Schedule(Generic[T]):
    """The tasks of a job that are not finished, drawn from their stream as there is room.

    `retried` counts those that were begun again. `what` is what they are called; `batch` so many
    are drawn one after the other.
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
        """Whether a task that was drawn is not finished."""
        return bool(self._unfinished)

    @property
    def left(self) -> bool:
        """Whether a task is still to be finished; draws one where none is."""
        return self.unfinished or self._draw()

    def add(self, number: int, task: T) -> None:
        """One more to be done."""
        self._unfinished[number] = task
        self._newest = max(self._newest, number)
        heapq.heappush(self._oldest, number)
        heapq.heappush(self._waiting, number)

    def take(self, *, beside: bool = False) -> tuple[int, T] | None:
        """The next task to begin; None where there is none as yet.

        A worker that has others (`beside`) gets none that it has to do alone.
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
        """Whether one of the tasks was begun before. A worker does such a task alone, so a task
        that kills its worker takes no others with it every time.
        """
        return any(number in self._attempts for number in numbers)

    def done(self, number: int) -> None:
        """It is finished."""
        del self._unfinished[number]
        self._attempts.pop(number, None)

    def back(self, number: int) -> None:
        """It was not begun where it was given to."""
        heapq.heappush(self._waiting, number)

    def again(self, number: int, why: object) -> None:
        """It was begun and has to be begun again. GenerationError where that was the last time."""
        self._attempts[number] += 1
        self.retried += 1
        if self._attempts[number] >= ATTEMPTS:
            raise GenerationError(
                f"{self.what} {number} could not be made in {ATTEMPTS} attempts: {why}",
                hint=f"its input: {self._shown(number)}",
            )
        self.back(number)

    def failed(self, number: int, failure: Failure) -> ShioenvError:
        """What ends the job where a task failed."""
        return failure.error(f"{self.what} {number} failed ({self._shown(number)}): ")

    def _shown(self, number: int) -> str:
        return str(self._unfinished[number])[:2000]

    def _draw(self) -> bool:
        for number, task in self._stream:
            self.add(number, task)
            return True
        return False

    def _draw_batch(self) -> None:
        """Draws as many as there is room for. An error in between is raised by the next call, so
        that those before it are done.
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
    """An exception of another process, in a form that travels."""

    kind: str
    """Its class in `errors`; "" where it is a bug's."""
    message: str
    hint: str | None

    @classmethod
    def of(cls, error: Exception) -> Self:
        """Of an error; where it comes from is told of one that is none of ours."""
        if isinstance(error, ShioenvError):
            return cls(type(error).__name__, error.message, error.hint)
        return cls("", "".join(traceback.format_exception(error)).rstrip(), None)

    def error(self, prefix: str = "") -> ShioenvError:
        """The exception again, its message behind the prefix."""
        kind = getattr(errors, self.kind, GenerationError)
        error: ShioenvError = kind.__new__(kind)
        ShioenvError.__init__(error, prefix + self.message, hint=self.hint)
        return error
