"""What a record tells to who learns from it."""

from __future__ import annotations

from shioenv.domain.behavior import Behavior
from shioenv.domain.patch import ContextPatch
from shioenv.domain.record import Record


def is_cut(record: Record) -> bool:
    """Whether something of what its input did is missing."""
    return record.timed_out or record.output_truncated or record.patch_truncated


def recorded_behavior(record: Record) -> Behavior:
    """What its input did. Errors: PatchError."""

    def data(text: str | None) -> bytes | None:
        return None if text is None else text.encode()

    return Behavior(
        exit_code=record.exit_code,
        output=record.output_bytes,
        patch=ContextPatch.from_json(record.context_patch),
        stdout=data(record.stdout),
        stderr=data(record.stderr),
        content_digests=dict(record.content_digests),
        volatile=record.volatile,
    )
