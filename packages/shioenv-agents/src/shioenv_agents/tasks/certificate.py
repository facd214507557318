"""What is known of a task beyond its proof: how often what passed, and of what it was found out."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any

from msgspec import Meta, Struct

Count = Annotated[int, Meta(ge=0)]


class JudgeCertificate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the judge, and what it sees by, stood the list of attacks."""

    judge: str
    """The digest of the judge: what compares, and the list of attacks."""
    channel: str
    """The digest of the channel of evidence: what sees from outside, down to the supervisor."""
    attacks: Count
    """Kinds of attacks that were tried on each task."""
    tasks: Count
    """Tasks on which they were tried."""
    forged: tuple[str, ...] = ()
    """Attacks that were paid, each as `TASK: KIND`."""


class Certificate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was found out about a task. Each run began on a pristine machine."""

    k: Annotated[int, Meta(ge=1)]
    """How often the solution was run, and how often nothing."""
    solved: Count
    """How many of the `k` runs of the solution passed."""
    idle: Count
    """How many of the `k` runs of nothing passed."""
    loaded: Count
    """How many of two runs of the solution passed while the processors had other work."""
    near_misses: tuple[str, ...]
    """Inputs that are nearly the solution, and do not reach the goal."""
    mistaken: tuple[str, ...]
    """Those of them that passed."""
    alternatives: tuple[str, ...]
    """Other inputs that reach the goal."""
    refused: tuple[str, ...]
    """Those of them that did not pass."""
    untold: tuple[str, ...]
    """Facts of the goal that the prompt neither names nor implies: the task is underspecified."""
    leaks: tuple[str, ...]
    """Where the solution can be read: `prompt`, or a file of the machine."""
    altered: tuple[str, ...] = ()
    """Files of a folder of Harbor that are not as the export writes them."""
    judged_by: JudgeCertificate
    goal: str
    """SHA-256 (hex) of the goal."""
    prompt: str
    """SHA-256 (hex) of the prompt."""
    system: str
    """The system's digest."""
    tests: str
    """SHA-256 (hex) of all that was run: solution, near misses, alternatives."""
    digest: str = ""
    """SHA-256 (hex) of the task, without its id and `solved_by`, and of every other field here."""

    @property
    def faults(self) -> tuple[str, ...]:
        """Why the task is not shipped, a line for each; empty where nothing is wrong."""
        lines = (
            (self.solved != self.k, f"the solution passed {self.solved} of {self.k} times"),
            (self.idle > 0, f"doing nothing passed {self.idle} of {self.k} times"),
            (self.loaded != 2, f"under load the solution passed {self.loaded} of 2 times"),
            (bool(self.mistaken), f"near misses pass: {_shown(self.mistaken)}"),
            (bool(self.refused), f"right answers fail: {_shown(self.refused)}"),
            (bool(self.untold), f"underspecified: {_shown(self.untold)}"),
            (bool(self.leaks), f"the solution can be read: {_shown(self.leaks)}"),
            (bool(self.altered), f"not as the export writes it: {_shown(self.altered)}"),
            (bool(self.judged_by.forged), f"rewards forged: {_shown(self.judged_by.forged)}"),
        )
        return tuple(text for wrong, text in lines if wrong)


def digest_of(document: Any) -> str:
    """SHA-256 (hex) of a document that JSON can hold; equal documents have equal digests."""
    text = json.dumps(document, ensure_ascii=True, separators=(",", ":"), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _shown(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
