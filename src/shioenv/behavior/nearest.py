"""The texts of one collection that are most like those of another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rapidfuzz.distance import Indel
from rapidfuzz.process import cdist

BLOCK = 1024
"""Texts compared with as many others at once: 4 MB of similarities."""

COMPARED_CHARACTERS = 1024
"""How much of each text takes part; the cost grows with its square."""


def nearest(
    texts: Sequence[str], others: Sequence[str], threshold: float
) -> list[tuple[float, int] | None]:
    """For each text the highest similarity to one of the others, and the first that has it.

    None where none reaches `threshold`. Similarity is the indel ratio of `similarity`, 0 to 1, of
    the first 1,024 characters. Memory is bounded whatever the numbers of texts; time grows with
    their product.
    """
    best: list[tuple[float, int] | None] = [None] * len(texts)
    cut = [text[:COMPARED_CHARACTERS] for text in others]
    for top in range(0, len(texts), BLOCK):
        rows = [text[:COMPARED_CHARACTERS] for text in texts[top : top + BLOCK]]
        for left in range(0, len(cut), BLOCK):
            scores: Any = cdist(
                rows,
                cut[left : left + BLOCK],
                scorer=Indel.normalized_similarity,
                score_cutoff=threshold,
            )
            columns = scores.argmax(axis=1)
            for row, column in enumerate(columns.tolist()):
                score = float(scores[row, column])
                known = best[top + row]
                if score >= threshold and (known is None or score > known[0]):
                    best[top + row] = score, left + column
    return best
