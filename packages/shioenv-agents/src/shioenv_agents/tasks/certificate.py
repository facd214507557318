"""Certificates of tasks: which inputs passed how often, with digests of everything involved."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

JUDGE: Final = 1
"""The protocol number of the judge of an agent's runs (see `shioenv.protocols`).

Certificates with another number are invalid.
"""

HARBOR_JUDGE: Final = 1
"""The protocol number of the judge of tasks exported to Harbor, with the same effect as `JUDGE`."""

Count = Annotated[int, Meta(ge=0)]


class JudgeCertificate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The result of the attacks against the judge and its evidence channel."""

    judge: str
    """The digest of the judge: the code that compares, and the list of attacks."""
    channel: str
    """The digest of the evidence channel: the code that observes, down to the supervisor."""
    attacks: Count
    """The number of kinds of attacks tried on each task."""
    tasks: Count
    """The number of attacked tasks."""
    forged: tuple[str, ...] = ()
    """Attacks that passed, each as `TASK: KIND`."""


class Certificate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The results for a task. Each run began on a pristine machine."""

    k: Annotated[int, Meta(ge=1)]
    """The number of runs of the solution, and of runs without any input."""
    solved: Count
    """How many of the `k` runs of the solution passed."""
    idle: Count
    """How many of the `k` runs without any input passed."""
    loaded: Count
    """How many of two runs of the solution passed while the processors had other work."""
    near_misses: tuple[str, ...]
    """Inputs that nearly equal the solution, and do not reach the goal."""
    mistaken: tuple[str, ...]
    """The near misses that passed."""
    alternatives: tuple[str, ...]
    """Other inputs that reach the goal."""
    refused: tuple[str, ...]
    """The alternatives that did not pass."""
    untold: tuple[str, ...]
    """Facts of the goal that the prompt neither names nor implies: the task is underspecified."""
    leaks: tuple[str, ...]
    """Places that reveal the solution: `prompt`, or a file of the machine."""
    altered: tuple[str, ...] = ()
    """Files of a Harbor folder that differ from the exported ones."""
    judged_by: JudgeCertificate
    goal: str
    """SHA-256 (hex) of the goal."""
    prompt: str
    """SHA-256 (hex) of the prompt."""
    system: str
    """The system's digest."""
    tests: str
    """SHA-256 (hex) of all inputs that were run: solution, near misses, alternatives."""
    digest: str = ""
    """SHA-256 (hex) of the task, without its id and `solved_by`, and of every other field here."""

    @property
    def faults(self) -> tuple[str, ...]:
        """The reasons not to ship the task, a line for each; empty if there are none."""
        lines = (
            (self.solved != self.k, f"the solution passed {self.solved} of {self.k} times"),
            (self.idle > 0, f"doing nothing passed {self.idle} of {self.k} times"),
            (self.loaded != 2, f"under load the solution passed {self.loaded} of 2 times"),
            (bool(self.mistaken), f"near misses pass: {_shown(self.mistaken)}"),
            (bool(self.refused), f"correct answers fail: {_shown(self.refused)}"),
            (bool(self.untold), f"underspecified: {_shown(self.untold)}"),
            (bool(self.leaks), f"the solution can be read: {_shown(self.leaks)}"),
            (bool(self.altered), f"changed since the export: {_shown(self.altered)}"),
            (bool(self.judged_by.forged), f"rewards forged: {_shown(self.judged_by.forged)}"),
        )
        return tuple(text for wrong, text in lines if wrong)


def digest_of(document: Any) -> str:
    """Return the SHA-256 (hex) of a JSON document; equal documents have equal digests."""
    text = json.dumps(document, ensure_ascii=True, separators=(",", ":"), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _shown(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
