"""A finished record on its way to the dataset, with the time and executions that it took.

The time and executions depend on the run, so they are not recorded.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(slots=True)
class Effort:
    """Counts of one record, or of many together."""

    ran: int = 0
    """Executions that really ran, not answered by another record's."""
    own_seconds: float = 0.0
    """Seconds that executed inputs took by themselves, from their start to the end of their last
    process, summed over all sandboxes."""
    sandbox_seconds: float = 0.0
    """Seconds that their executions took beyond `own_seconds`: to start inputs, to read what the
    inputs changed, and to make a behavior of that."""
    opening_seconds: float = 0.0
    """Seconds that it took to open sandboxes for the executions."""
    lane_seconds: float = 0.0
    """Seconds that records were in work, without waits for a turn, summed over all sandboxes."""
    drawing_seconds: float = 0.0
    """Seconds of processor time that drawing the samples took, which no other count has.

    One process draws. Its waits are not counted: others have the processors then.
    """
    asked: int = 0
    """Executions that were looked up, because another record might have made them."""
    found: int = 0
    """Executions that were not run, because another record had made them."""
    checked: int = 0
    """Executions that were kept already, and were run all the same."""
    differing: int = 0
    """Checked executions that did something else than what was kept; they are shared no more."""
    trouble: str | None = None
    """Why nothing is shared any more; None where sharing works."""

    def add(self, other: Effort) -> None:
        """Add the counts of another effort."""
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.trouble = self.trouble or other.trouble

    @property
    def places(self) -> dict[str, float]:
        """Where the time went, in seconds.

        It goes to the commands, to executing them, to opening sandboxes, to making records, and to
        drawing inputs.
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
        """The effort as JSON for programs; `seconds` is how long the run took."""
        return {
            "executed": self.ran,
            "executed_per_second": round(self.ran / seconds, 2) if seconds else None,
            "seconds_in": {name: round(spent, 3) for name, spent in self.places.items()},
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
    """A finished record as it is stored, with the numbers that a manifest sums up."""

    session_id: int
    content: bytes
    """The record as `domain.record.encode` gave it."""
    volatile: bool
    executions: int
    effort: Effort = field(default_factory=Effort)
    """The time and executions that the record took, which are not stored."""
