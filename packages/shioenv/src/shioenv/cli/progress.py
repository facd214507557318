"""Progress of long work on standard error: a bar on a terminal, else periodic lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from shioenv.cli import printing

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from shioenv.dataset.generate import Progress

PLAIN_SECONDS = 10.0
"""Minimum seconds between two lines of progress, if there is no bar."""

REDRAW_SECONDS = 0.05
"""Minimum seconds between two updates of a bar."""


def time_left(new: int, missing: int, seconds: float) -> str:
    """Format the remaining time, given that `new` items took `seconds` and `missing` are left.

    The result is empty if `new` or `missing` is not above 0.
    """
    if new <= 0 or missing <= 0:
        return ""
    minutes, rest = divmod(round(missing * seconds / new), 60)
    if minutes < 1:
        return f", {rest} s left"
    hours, minutes = divmod(minutes, 60)
    return f", {hours} h {minutes} min left" if hours else f", {minutes} min left"


class Meter:
    """A context manager that shows the progress of work on one or several kinds of items.

    `lasting` is for long work: start, end and speed are shown, and the bar remains at the end.
    `stopped` is the line that is printed when Ctrl-C ends the work.
    """

    def __init__(self, label: str = "", *, lasting: bool = False, stopped: str = "") -> None:
        self._lasting, self._stopped = lasting, stopped
        self._bar: Bar | None = None
        self._kept: int | None
        self._shown: int | None
        self._started: float
        self._last: float
        self._begin(label)

    def __enter__(self) -> Meter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, *trace: object
    ) -> None:
        if self._bar:
            self._bar.stop()
        if isinstance(error, KeyboardInterrupt) and self._stopped:
            printing.note(self._stopped)
            error.add_note(self._stopped)  # the command line prints nothing more

    def update(
        self,
        label: str,
        done: int,
        count: int = 0,
        kept: int | None = None,
        seconds: float | None = None,
    ) -> None:
        """Show that `done` of `count` items are done (`count` 0: unknown).

        `kept` items were done at the start (default: the first value of `done`). The work started
        `seconds` ago (default: with the first call for this label). A call too soon after the last
        update shows nothing.
        """
        if label != self._label:
            self._begin(label)
        self._kept = self._kept if self._kept is not None else done if kept is None else kept
        now = time.monotonic()
        ended = done == count != self._shown and (self._lasting or self._bar is not None)
        if now - self._last < (REDRAW_SECONDS if self._bar else PLAIN_SECONDS) and not ended:
            return
        self._last, self._shown = now, done
        new = done - self._kept
        seconds = now - self._started if seconds is None else seconds
        speed = f"{new / seconds:.1f}" if self._lasting and new and seconds else ""
        if self._bar:
            (task,) = self._bar.task_ids
            rate = speed and f"{speed}/s"
            self._bar.update(task, completed=done, total=count or None, rate=rate)
            return
        reused = f" ({self._kept} reused)" if self._lasting and self._kept else ""
        rate = speed and f", {speed} {label}/s"
        of = f"/{count}" if count else ""
        printing.note(f"{done}{of} {label}{reused}{rate}{time_left(new, count - done, seconds)}")

    def print_note(self, text: str) -> None:
        """Print a line on standard error, above the bar if there is one."""
        (self._bar.console.print if self._bar else printing.note)(text)

    def report(self, progress: Progress) -> None:
        """Show the progress of a dataset, or only its note if it has one."""
        if progress.note:
            self.print_note(progress.note)
            return
        kept, seconds = progress.kept, progress.seconds
        self.update("records", progress.done, progress.count, kept=kept, seconds=seconds)

    def _begin(self, label: str) -> None:
        self._label = label
        self._kept = self._shown = None
        self._started = time.monotonic()
        self._last = -PLAIN_SECONDS if self._lasting else self._started
        if label and sys.stderr.isatty():
            self._bar = self._bar or self._new_bar()
            for task in self._bar.task_ids:
                self._bar.remove_task(task)
            self._bar.add_task(label, total=None, rate="")

    def _new_bar(self) -> Bar:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            console=printing.console(stderr=True),
            transient=not self._lasting,
        )
        bar.start()
        return bar


@contextmanager
def counting(label: str) -> Iterator[Callable[..., None]]:
    """Provide a function that shows progress with this label, given `done` and `count`."""
    with Meter(label) as meter:
        yield partial(meter.update, label)
