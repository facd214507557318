"""Delta: whether a sub-input still does what the full input did, and if not, what differs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from shioenv.behavior.noise import NOTHING, Ignored, NoisyNames
from shioenv.behavior.similarity import similarity
from shioenv.domain.behavior import Behavior
from shioenv.domain.patch import ContextPatch, Operation


class Channel(StrEnum):
    """Where two behaviors can differ, in the order in which the channels are looked at."""

    EXIT_CODE = "exit_code"
    TIMED_OUT = "timed_out"
    OUTPUT_TRUNCATED = "output_truncated"
    PATCH = "patch"
    CONTENT = "content"
    OUTPUT = "output"


@dataclass(frozen=True, slots=True)
class Difference:
    """The first channel in which two behaviors differ."""

    channel: Channel
    similarity: float | None = None
    """The similarity of the outputs, 0 to 1, where the channel is `OUTPUT`; else None."""


def differs(
    full: Behavior, reduced: Behavior, noise_threshold: float, *, ignore: Ignored = NOTHING
) -> Difference | None:
    """Delta(full, reduced): the first difference, or None where the behaviors count as the same.

    Behaviors are the same where exit codes and context patches are equal and the outputs'
    similarity exceeds the threshold. A similarity equal to the threshold is not enough (Section
    C.3). Equal bytes are the same under any threshold, so a threshold of 1 asks for equal bytes.
    Whether the time or output limit was reached, and the content of files, have to be equal as well
    (ours, because they are effects too). What `ignore` names takes no part.
    """
    if full.exit_code != reduced.exit_code and not ignore.exit_code:
        return Difference(Channel.EXIT_CODE)
    if not ignore.flags:
        if full.timed_out != reduced.timed_out:
            return Difference(Channel.TIMED_OUT)
        if full.output_truncated != reduced.output_truncated:
            return Difference(Channel.OUTPUT_TRUNCATED)
    if _operations(full.patch, ignore.paths) != _operations(reduced.patch, ignore.paths) or (
        full.patch_digest != reduced.patch_digest and not ignore.patch_digest
    ):
        return Difference(Channel.PATCH)
    contents = _contents(full.content_digests, ignore.contents)
    if contents != _contents(reduced.content_digests, ignore.contents):
        return Difference(Channel.CONTENT)
    if full.output == reduced.output:
        return None
    likeness = similarity(full.output, reduced.output)
    return None if likeness > noise_threshold else Difference(Channel.OUTPUT, likeness)


def _operations(patch: ContextPatch, ignore: NoisyNames) -> tuple[Operation, ...]:
    if not ignore:
        return patch.operations
    return tuple(operation for operation in patch.operations if operation[1] not in ignore)


def _contents(digests: Mapping[str, str], ignore: NoisyNames) -> Mapping[str, str]:
    if not ignore:
        return digests
    return {name: digest for name, digest in digests.items() if name not in ignore}
