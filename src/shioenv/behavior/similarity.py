"""How alike two outputs are."""

from __future__ import annotations

from rapidfuzz.distance import Indel

COMPARED_CHARACTERS = 8192
"""How much of each output takes part; the cost grows with its square."""


def similarity(a: bytes, b: bytes) -> float:
    """Normalised edit similarity of two outputs, 0 to 1; symmetric, 1 where both are empty.

    The indel ratio 2 m / (len(a) + len(b)), m the length of the longest common subsequence. It is
    of the raw text: no case folding, no collapsing of blanks or digits. Section C.3 says
    "normalized edit similarity"; the ratio is ours, because the common libraries mean it by that.
    Text is the first 8,192 characters decoded as UTF-8; an undecodable byte counts as a character
    of its own. Outputs that differ only after that have similarity 1.
    """
    if a == b:
        return 1.0
    return Indel.normalized_similarity(_text(a), _text(b))


def compared(output: bytes) -> bytes:
    """The beginning of an output, behind which nothing is looked at: 32 KiB at most."""
    return output[: 4 * COMPARED_CHARACTERS]


def _text(output: bytes) -> str:
    return compared(output).decode("utf-8", "surrogateescape")[:COMPARED_CHARACTERS]
