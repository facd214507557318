"""How far long work has come, on standard error: a bar on a terminal, elsewhere a line at times."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from shioenv.cli import shared

PLAIN_SECONDS = 10.0
"""Between two lines of progress where there is no terminal."""

REDRAW_SECONDS = 0.05
"""Between two changes of a bar."""


def time_left(new: int, missing: int, seconds: float) -> str:
    """What `missing` more will take if `new` took so long, as the end of a line; else nothing."""
    if new <= 0 or missing <= 0:
        return ""
    minutes, rest = divmod(round(missing * seconds / new), 60)
    if minutes < 1:
        return f", {rest} s left"
    hours, minutes = divmod(minutes, 60)
    return f", {hours} h {minutes} min left" if hours else f", {minutes} min left"


@contextmanager
def counting(label: str) -> Iterator[Callable[[int, int], None]]:
    """A function that shows how many are done, of how many (0: unknown)."""
    terminal = sys.stderr.isatty()
    pause = REDRAW_SECONDS if terminal else PLAIN_SECONDS
    started = last = time.monotonic()
    kept: int | None = None

    def is_due(done: int, count: int) -> bool:
        nonlocal last
        now = time.monotonic()
        if now - last < pause and not (terminal and done == count):
            return False
        last = now
        return True

    if not terminal:

        def tell(done: int, count: int) -> None:
            nonlocal kept
            kept = done if kept is None else kept
            if is_due(done, count):
                left = time_left(done - kept, count - done, time.monotonic() - started)
                shared.note(f"{done}/{count} {label}{left}" if count else f"{done} {label}")

        yield tell
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = TextColumn(label), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=shared.console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)

        def draw(done: int, count: int) -> None:
            if is_due(done, count):
                bar.update(task, completed=done, total=count or None)

        yield draw
