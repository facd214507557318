"""A finished record on its way to where it is kept."""

from __future__ import annotations

from dataclasses import dataclass, field

from shioenv.recording.effort import Effort


@dataclass(frozen=True, slots=True)
class Line:
    """A finished record as it is stored, with what the manifest counts of it."""

    session_id: int
    content: bytes
    """What `domain.record.encode` gave."""
    volatile: bool
    executions: int
    effort: Effort = field(default_factory=Effort)
    """What it took to make, which is not kept."""
