"""Work limits of one answer, in counted steps.

Steps, not seconds, bound an answer. So the same question has the same answer on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from shioenv.errors import Abstained

MOST_STEPS = 5_000_000
"""Maximum steps of one answer, our own limit.

Half of the public suite's inputs take at most 5,500 steps, its longest loop 2,300,000. A step takes
about a microsecond. It is a character read, a name compared, or 50 bytes copied.
"""

COPIED = 50
"""Bytes copied or searched in one step."""


class _Work:
    """The steps left for one answer."""

    __slots__ = ("left", "text")

    def __init__(self, text: str) -> None:
        self.text, self.left = text, MOST_STEPS

    def refusal(self) -> Abstained:
        return Abstained(
            f"{self.text!r:.60} takes more work to answer than {MOST_STEPS:,} steps",
            hint="use a shorter input, or its commands separately",
        )


_open: ContextVar[_Work | None] = ContextVar("work", default=None)


@contextmanager
def answering(text: str) -> Iterator[None]:
    """Count all steps inside as work of one answer, to the question `text`.

    Nested inside another answer, they count for that answer. Errors: Abstained past `MOST_STEPS`,
    even where the error was caught inside. Abstained for a text that cannot be encoded as bytes, or
    that is nested too deeply.
    """
    if _open.get() is not None:
        yield
        return
    with aside(text):
        yield


@contextmanager
def aside(text: str) -> Iterator[None]:
    """Count all steps inside separately from the current answer, because the result is cached.

    Otherwise the steps of other answers would depend on earlier questions. Errors: those of
    `answering`.
    """
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise Abstained(f"{text!r:.60} has characters that are not text") from None
    work = _Work(text)
    before = _open.set(work)
    try:
        yield
    except RecursionError:
        raise Abstained(f"{text!r:.60} is nested too deeply to be answered") from None
    except Abstained:
        if work.left < 0:
            raise work.refusal() from None
        raise
    finally:
        _open.reset(before)
    if work.left < 0:
        raise work.refusal()


@contextmanager
def uncounted() -> Iterator[None]:
    """Do not count the steps inside.

    This is for cached results that depend only on a model's records, not on the question.
    """
    before = _open.set(None)
    try:
        yield
    finally:
        _open.reset(before)


def spend(steps: int) -> None:
    """Count steps before they are done. Errors: Abstained if too few are left."""
    work = _open.get()
    if work is None:
        return
    work.left -= steps
    if work.left < 0:
        raise work.refusal()
