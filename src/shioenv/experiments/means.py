"""Means with their intervals, and numbers as people read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 2000
"""Of a bootstrap."""

Z = 1.959963984540054
"""Half the width of a 95% interval, in standard errors."""


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean of independent values and its 95% interval."""

    value: float
    low: float
    high: float
    count: int


def bootstrapped(values: Sequence[float]) -> Mean:
    """The mean with the percentile interval of 2,000 resamples: errors are skewed.

    Deterministic. `values` are not empty; of one value the interval is that value.
    """
    array = np.asarray(values, dtype=float)
    picks = np.random.default_rng(0).integers(len(array), size=(RESAMPLES, len(array)))
    low, high = np.percentile(array[picks].mean(axis=1), [2.5, 97.5])
    return Mean(float(array.mean()), float(low), float(high), len(array))


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and standard deviation of a group of scores."""

    count: int
    mean: float
    sd: float
    """0 of a single score."""

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread | None:
        """None of no scores."""
        if not values:
            return None
        array = np.asarray(values, dtype=float)
        return cls(len(array), float(array.mean()), float(array.std(ddof=min(1, len(array) - 1))))

    @property
    def variance_of_mean(self) -> float:
        """The mean's own variance."""
        return self.sd**2 / self.count


def cumulative(values: Sequence[float], steps: int = 200) -> list[tuple[float, float]]:
    """Points (x, share of the values that are at most x) for x from 0 to 1, and one just below 1.

    The one below 1 shows the step of those that are exactly 1.
    """
    array = np.sort(np.asarray(values, dtype=float))
    places = [index / steps for index in range(steps)] + [1 - 1e-9, 1.0]
    if not len(array):
        return []
    reached = np.searchsorted(array, np.asarray(places) + 1e-12, side="right") / len(array)
    return list(zip(places, reached.tolist(), strict=True))


def fixed(value: float | None, digits: int = 3) -> str:
    """`0.034`, or a dash for nothing."""
    return "-" if value is None else f"{value:.{digits}f}"


def rounded(value: float | None) -> float | None:
    """Four digits, for programs that show it."""
    return None if value is None else round(value, 4)
