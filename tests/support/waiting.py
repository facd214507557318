"""Waiting in tests: `make check` refuses `time.sleep` and `asyncio.sleep` in other test code."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE = 60.0
"""Time limit of any step on a busy machine, in seconds."""

_PAUSE = 0.01

T = TypeVar("T")


def wait_until(
    condition: Callable[[], T | None], what: str | Callable[[], str], *, seconds: float = PATIENCE
) -> T:
    """Return the first true value of `condition`, which is called repeatedly.

    Fails after `seconds` with `what` it waited for. A callable `what` is called then, so that it
    can show the state at that time.
    """
    end = time.monotonic() + seconds
    while True:
        is_late = time.monotonic() > end
        if found := condition():
            return found
        if is_late:
            awaited = what if isinstance(what, str) else what()
            raise AssertionError(f"waited {seconds:g} seconds in vain for {awaited}")
        time.sleep(_PAUSE)


def let_time_pass(seconds: float, reason: str) -> None:
    """Sleep, where a test is about time itself and no event can replace it; `reason` explains
    why."""
    assert reason
    time.sleep(seconds)


async def next_turn() -> None:
    """Let every other task that is ready run once."""
    await asyncio.sleep(0)


class Clock:
    """Replaces the module `time` of tested code; advances only where a test moves it."""

    def __init__(self) -> None:
        self._now = 0.0

    def monotonic(self) -> float:
        return self._now

    perf_counter = monotonic

    def move(self, seconds: float) -> None:
        self._now += seconds
