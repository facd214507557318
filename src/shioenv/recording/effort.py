"""What records took to make; none of it is recorded, it depends on the run."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any


@dataclass(slots=True)
class Effort:
    """Counts of one record, or of many together."""

    ran: int = 0
    """Executions that really ran."""
    own_seconds: float = 0.0
    """How long the executed inputs themselves took, from their start to the end of their last
    process: added up over all sandboxes."""
    sandbox_seconds: float = 0.0
    """How long their executions took beside that: inputs started, what they changed read and put
    into a behavior."""
    opening_seconds: float = 0.0
    """How long it took to open sandboxes for them."""
    lane_seconds: float = 0.0
    """How long records were in work, waiting for a turn left out: the same sum."""
    drawing_seconds: float = 0.0
    """How much of a processor it took to draw them, beside all of that. This process draws, and
    only waits where others have the processors.
    """
    asked: int = 0
    """Executions that another record might have shared."""
    found: int = 0
    """Those that were not run because it did."""
    checked: int = 0
    """Those that were shared before and run all the same."""
    differing: int = 0
    """Those of the checked ones that did something else; they are shared no more."""
    trouble: str | None = None
    """Why nothing is shared any more."""

    def add(self, other: Effort) -> None:
        """Counts another's in."""
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.trouble = self.trouble or other.trouble

    @property
    def places(self) -> dict[str, float]:
        """Where the time went, in seconds: the commands, what executes them, what opens sandboxes,
        what makes records, and what draws inputs.
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
        """For programs; `seconds` is how long the run took."""
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
