"""How alike texts are: outputs, inputs of two collections."""

from __future__ import annotations

from collections.abc import Sequence

import numpy
from rapidfuzz.distance import Indel
from rapidfuzz.process import cdist

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


BLOCK = 1024
"""Texts that are compared with as many other texts at once: 8 MB of similarities."""

NEAREST_CHARACTERS = 1024
"""Characters of each text that are compared; the cost grows with the square of that number."""

_CLOSE = 1e-9
_SLACK = 0.05
"""How far the library's cut-off lies below the threshold: at 0.8 it may take 0.8 for less."""


def nearest(
    texts: Sequence[str], others: Sequence[str], threshold: float
) -> list[tuple[float, int] | None]:
    """For each text the highest similarity to one of `others`, and the first index that has it.

    None where no other text reaches `threshold`. Similarity is the indel ratio of `similarity`, 0
    to 1, of the first 1,024 characters. Memory for similarities is bounded. Time grows with the
    product of the numbers of texts.
    """
    best: list[tuple[float, int] | None] = [None] * len(texts)
    cut = [text[:NEAREST_CHARACTERS] for text in others]
    for top in range(0, len(texts), BLOCK):
        rows = [text[:NEAREST_CHARACTERS] for text in texts[top : top + BLOCK]]
        for left in range(0, len(cut), BLOCK):
            scores = cdist(
                rows,
                cut[left : left + BLOCK],
                scorer=Indel.normalized_similarity,
                score_cutoff=max(0.0, threshold - _SLACK),
                dtype=numpy.float64,
            )
            columns = scores.argmax(axis=1)
            for row, column in enumerate(columns.tolist()):
                score = float(scores[row, column])
                known = best[top + row]
                if score >= threshold - _CLOSE and (known is None or score > known[0]):
                    best[top + row] = score, left + column
    return best
