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
    lane_seconds: float = 0.0
    """How long records were in work, waiting for a turn left out: the same sum."""
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

    def to_json(self, seconds: float) -> dict[str, Any]:
        """For programs; `seconds` is how long the run took."""
        return {
            "executed": self.ran,
            "executed_per_second": round(self.ran / seconds, 2) if seconds else None,
            "in_commands": _share(self.own_seconds, self.lane_seconds),
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
