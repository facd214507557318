"""How alike two outputs are."""

from __future__ import annotations

from rapidfuzz.distance import Indel

COMPARED_CHARACTERS = 8192
"""Characters of each output that are compared; the cost grows with the square of that number."""


def similarity(a: bytes, b: bytes) -> float:
    """Normalised edit similarity of two outputs, 0 to 1; symmetric, 1 where both are empty.

    This is the indel ratio 2 m / (len(a) + len(b)), with m the length of the longest common
    subsequence. The text is compared raw: no case folding, no collapsing of blanks or digits.
    Section C.3 says "normalized edit similarity". The ratio is ours, because common libraries mean
    it by that name. The text is the first 8,192 characters decoded as UTF-8; an undecodable byte
    counts as a character of its own. Outputs that differ only behind them have similarity 1.
    """
    if a == b:
        return 1.0
    return Indel.normalized_similarity(_text(a), _text(b))


def compared(output: bytes) -> bytes:
    """The beginning of an output that holds all characters that are compared: 32 KiB at most."""
    return output[: 4 * COMPARED_CHARACTERS]


def _text(output: bytes) -> str:
    return compared(output).decode("utf-8", "surrogateescape")[:COMPARED_CHARACTERS]
