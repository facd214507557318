"""A finished record before it is stored, with the time and executions that it took.

These differ between runs, so they are not stored.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(slots=True)
class Effort:
    """Times and counts for one record, or their sums over several."""

    ran: int = 0
    """Number of executions that were run, not taken from another record."""
    own_seconds: float = 0.0
    """Seconds that inputs ran, each from its start to the end of its last process, summed over all
    sandboxes."""
    sandbox_seconds: float = 0.0
    """Seconds that executions took beyond `own_seconds`: to start inputs, to read changes, and to
    convert results into behaviors."""
    opening_seconds: float = 0.0
    """Seconds for opening sandboxes for the executions."""
    lane_seconds: float = 0.0
    """Seconds spent on records, without waiting for other tasks, summed over all sandboxes."""
    drawing_seconds: float = 0.0
    """Seconds of processor time for drawing the samples, which no other count includes.

    Waiting time is not counted, because other processes then use the processors.
    """
    asked: int = 0
    """Number of executions that were looked up in the cache."""
    found: int = 0
    """Number of executions that were found in the cache, and not run."""
    checked: int = 0
    """Number of executions that were in the cache, but were run nevertheless as a check."""
    differing: int = 0
    """Number of checked executions that differed from the cached behavior. These are no longer
    shared."""
    trouble: str | None = None
    """The reason why the execution cache was disabled; None if it works."""
    repeated: Counter[str] = field(default_factory=Counter)
    """Number of rows of sessions for which the history had to be run again, by reason."""

    def add(self, other: Effort) -> None:
        """Add the counts of another effort."""
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))  # Counters, too
        self.trouble = self.trouble or other.trouble

    @property
    def places(self) -> dict[str, float]:
        """Return the seconds for each activity.

        These are the commands themselves, their execution in sandboxes, opening sandboxes, making
        records, and drawing inputs.
        """
        executing = self.own_seconds + self.sandbox_seconds + self.opening_seconds
        return {
            "commands": self.own_seconds,
            "sandbox": self.sandbox_seconds,
            "opening": self.opening_seconds,
            "recording": max(0.0, self.lane_seconds - executing),
            "drawing": self.drawing_seconds,
        }

    def to_json(self, seconds: float) -> dict[str, Any]:
        """Return the effort as JSON for programs; `seconds` is the duration of the run."""
        return {
            "executed": self.ran,
            "executed_per_second": round(self.ran / seconds, 2) if seconds else None,
            "seconds_in": {name: round(spent, 3) for name, spent in self.places.items()},
            "repeated": dict(self.repeated),
            "cache": {
                "asked": self.asked,
                "found": self.found,
                "hit_rate": _share(self.found, self.asked),
                "checked": self.checked,
                "differing": self.differing,
            },
        }


_COUNTS = tuple(item.name for item in fields(Effort) if item.name != "trouble")


def _share(part: float, whole: float) -> float | None:
    return round(part / whole, 4) if whole else None


@dataclass(frozen=True, slots=True)
class Line:
    """A finished record as it is stored, with the numbers that enter the manifest."""

    session_id: int
    content: bytes
    """The record as encoded by `domain.record.encode`."""
    volatile: bool
    executions: int
    effort: Effort = field(default_factory=Effort)
    """The time and executions of the record, which are not stored."""
