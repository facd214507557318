"""The texts of one collection that are most like those of another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy
from rapidfuzz.distance import Indel
from rapidfuzz.process import cdist

BLOCK = 1024
"""Texts compared with as many others at once: 8 MB of similarities."""

COMPARED_CHARACTERS = 1024
"""How much of each text takes part; the cost grows with its square."""

_CLOSE = 1e-9
_SLACK = 0.05
"""The cut-off only saves time: at the threshold itself the library may take 0.8 for less."""


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
