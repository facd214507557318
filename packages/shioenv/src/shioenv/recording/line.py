"""A finished record on its way to the dataset."""

from __future__ import annotations

from dataclasses import dataclass, field

from shioenv.recording.effort import Effort


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
