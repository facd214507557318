"""How much work one answer takes, in steps that are counted. So the same question has the same
answer on every machine, however fast the machine is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from shioenv.errors import Abstained

MOST_STEPS = 5_000_000
"""Steps of one answer at most (ours: of the public suite's inputs half take 5,500, and the longest
loop 2,300,000). A step takes about a microsecond: a character that is read, a name that is
compared, 50 bytes that are copied.
"""

COPIED = 50
"""Bytes that are copied, or searched, in one step."""


class _Work:
    """What is left for one answer."""

    __slots__ = ("left", "text")

    def __init__(self, text: str) -> None:
        self.text, self.left = text, MOST_STEPS

    def refusal(self) -> Abstained:
        return Abstained(
            f"{self.text!r:.60} takes more work to answer than {MOST_STEPS:,} steps",
            hint="ask about a shorter input, or about its commands one by one",
        )


_open: ContextVar[_Work | None] = ContextVar("work", default=None)


@contextmanager
def answering(text: str) -> Iterator[None]:
    """All that is done inside is work of one answer, to the question `text`; inside of another
    answer it is work of that one.

    Errors: Abstained past `MOST_STEPS` (even where that was caught inside), for a text that has no
    bytes and for what is nested too deeply.
    """
    if _open.get() is not None:
        yield
        return
    with aside(text):
        yield


@contextmanager
def aside(text: str) -> Iterator[None]:
    """What is done inside is an answer of its own, remembered for others: what these take would
    else depend on what was asked before. Errors: see `answering`.
    """
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise Abstained(f"{text!r:.60} has characters that are no text") from None
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
    """What is done inside is remembered too, and rests on a model's records alone, not on what is
    asked. So it is no work of an answer.
    """
    before = _open.set(None)
    try:
        yield
    finally:
        _open.reset(before)


def spend(steps: int) -> None:
    """Counts so many steps, before they are done. Errors: Abstained where no more are left."""
    work = _open.get()
    if work is None:
        return
    work.left -= steps
    if work.left < 0:
        raise work.refusal()
