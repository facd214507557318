"""The uncertainty of an estimate: its standard error and interval, from the estimate's sample."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from shioenv.irreducibility.estimators import Kept, SamplePart, Weighted

Z = 1.959963984540054
"""Half the width of a 95% interval, in standard errors."""

Counted: TypeAlias = Mapping[Kept, tuple[float, int]]
"""The weight and number of the draws of each kept set."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The uncertainty of an estimate."""

    standard_error: float | None
    """None if a part has a single draw; 0 if all draws of each part agree."""
    interval: tuple[float, float]
    """The 95% interval (Wilson's). Its width is above 0 even if all draws agree."""

    @property
    def doubt(self) -> float:
        """The standard error, at least that implied by the interval; 1 if it is None."""
        if self.standard_error is None:
            return 1.0
        low, high = self.interval
        return max(self.standard_error, (high - low) / (2 * Z))


def pooled(samples: Sequence[Sequence[SamplePart]]) -> list[SamplePart]:
    """Combine independent samples into one, each weighed by its number of draws.

    Populations that were taken completely do not count as draws, because they are the same in each
    sample.
    """
    if len(samples) == 1:
        return list(samples[0])
    sizes = [
        max(sum(len(part.drawn) for part in sample if not part.whole), 1) for sample in samples
    ]
    parts = []
    for size, sample in zip(sizes, samples, strict=True):
        weight = math.fsum(item.weight for part in sample for item in part.drawn)
        scale = size / sum(sizes) / weight
        for part in sample:
            drawn = [replace(item, weight=item.weight * scale) for item in part.drawn]
            parts.append(replace(part, drawn=drawn))
    return parts


def together(drawn: Iterable[Weighted]) -> dict[Kept, tuple[float, int]]:
    """Return the weight and number of each set's draws, in the order of first draws.

    A set of weight 0 is omitted, because it need not be run.
    """
    counted: dict[Kept, tuple[float, int]] = {}
    for item in drawn:
        if item.weight:
            weight, draws = counted.get(item.kept, (0.0, 0))
            counted[item.kept] = (weight + item.weight, draws + 1)
    return counted


def spread(parts: Sequence[SamplePart], differs: Callable[[Kept], bool]) -> Spread:
    """Return the spread of the weighted mean over all parts, which were sampled independently."""
    pieces = [_piece(part, differs) for part in parts]
    total = math.fsum(piece.weight for piece in pieces)
    errors = [piece.variance for piece in pieces]
    known = [error for error in errors if error is not None]
    standard_error = math.sqrt(math.fsum(known)) / total if len(known) == len(errors) else None
    if len(pieces) == 1:
        return Spread(standard_error, pieces[0].interval)
    value = math.fsum(piece.weight * piece.value for piece in pieces) / total
    low, high = (
        math.hypot(*(piece.weight * (piece.interval[side] - piece.value) for piece in pieces))
        for side in (0, 1)
    )
    return Spread(standard_error, (max(0.0, value - low / total), min(1.0, value + high / total)))


@dataclass(frozen=True, slots=True)
class _Piece:
    """The estimate of one part."""

    weight: float
    value: float
    variance: float | None
    """Variance of the product of value and weight."""
    interval: tuple[float, float]


def _piece(part: SamplePart, differs: Callable[[Kept], bool]) -> _Piece:
    counted = together(part.drawn)
    weight = math.fsum(weight for weight, _ in counted.values())
    value = math.fsum(weight for kept, (weight, _) in counted.items() if differs(kept)) / weight
    if part.whole:
        return _Piece(weight, value, 0.0, (value, value))
    draws = len(part.drawn)
    squares = math.fsum(
        (weight * (differs(kept) - value)) ** 2 / times for kept, (weight, times) in counted.items()
    )
    plain = squares * draws / (draws - 1) if draws > 1 else None
    variance, gain = plain, 1.0
    if part.balanced and plain:
        variance = min(plain, _unexplained(part, counted, differs, value, squares))
        gain = plain / variance if variance > 0 else 1.0
    size = gain * weight**2 / math.fsum(w**2 / times for w, times in counted.values())
    return _Piece(weight, value, variance, _wilson(size, value))


def _unexplained(
    part: SamplePart,
    counted: Counted,
    differs: Callable[[Kept], bool],
    value: float,
    squares: float,
) -> float:
    """Return the residual variance after a regression on the effects of single arguments.

    In a balanced sample, effects of single arguments cancel. Most effects of pairs and triples
    cancel too, so the result overestimates the true variance. Infinite if there are too few draws.
    """
    draws = len(part.drawn)
    freedom = draws - 1 - len(part.balanced)
    if freedom < 1:
        return math.inf
    explained = math.fsum(
        math.fsum(
            (1 if index in kept else -1) * weight * (differs(kept) - value)
            for kept, (weight, _) in counted.items()
        )
        ** 2
        / draws
        for index in part.balanced
    )
    return max(squares - explained, 0.0) * draws / freedom


def _wilson(size: float, value: float) -> tuple[float, float]:
    """Return Wilson's 95% interval for a share; `size` is the effective number of draws."""
    shrunk = 1 + Z * Z / size
    middle = (value + Z * Z / (2 * size)) / shrunk
    variance = value * (1 - value) / size + Z * Z / (4 * size * size)
    reach = Z / shrunk * math.sqrt(variance)
    return max(0.0, min(value, middle - reach)), min(1.0, max(value, middle + reach))
