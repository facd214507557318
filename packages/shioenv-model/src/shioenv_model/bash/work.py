"""Work limits of one answer, in counted steps.

Steps, not seconds, bound an answer. So the same question has the same answer on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from shioenv.errors import Abstained

MOST_STEPS = 5_000_000
"""Maximum number of steps of one answer (our choice).

A step takes about a microsecond: a character is read, a name compared, or 50 bytes copied. Half of
the public suite's inputs take at most 5,500 steps, its longest loop 2,300,000.
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
    """Count all steps in the block as work of one answer, to the question `text`.

    Inside another answer, they count for the outer answer. Errors: Abstained past `MOST_STEPS`,
    even if this error was caught in the block. Abstained for a text that cannot be encoded as
    bytes, or that is nested too deeply.
    """
    if _open.get() is not None:
        yield
        return
    with aside(text):
        yield


@contextmanager
def aside(text: str) -> Iterator[None]:
    """Count the steps in the block, whose result is cached, separately from the current answer.

    Otherwise an answer's steps would depend on earlier questions. Errors: those of `answering`.
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
    """Do not count the steps in the block.

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
