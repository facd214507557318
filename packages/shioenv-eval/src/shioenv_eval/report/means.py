"""Means with confidence intervals, moments, differences and distribution functions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from shioenv.text import fixed

Z = NormalDist().inv_cdf(0.975)
"""Half the width of a 95% interval, in standard errors (about 1.96)."""

BOOTSTRAPPED = 2000
"""Number of resamples used by `bootstrapped`."""


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean of independent values and its 95% interval."""

    value: float
    low: float
    high: float
    count: int


def bootstrapped(values: Sequence[float]) -> Mean:
    """Return the mean with the BCa interval of 2,000 resamples (Efron 1987), for skewed errors.

    In simulations with 60 of our errors, the interval contained the mean of all errors in 94 to 95%
    of cases. An interval of plain percentiles did so in 92 to 93%. Deterministic. `values` must not
    be empty. If all are equal (up to rounding), the interval is that value.
    """
    from scipy.stats import bootstrap

    array = np.asarray(values, dtype=float)
    mean, low, high = (float(array.mean()),) * 3
    if np.ptp(array) > 1e-12:
        resampled = bootstrap((array,), np.mean, n_resamples=BOOTSTRAPPED, method="BCa", rng=0)
        low, high = map(float, resampled.confidence_interval)
    return Mean(mean, low, high, len(array))


def half_interval(values: Sequence[float]) -> float | None:
    """Return half the 95% interval of a mean of few values (Student's t); None below two values."""
    from scipy.stats import t

    if len(values) < 2:
        return None
    mean = math.fsum(values) / len(values)
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return float(t.ppf(0.975, len(values) - 1)) * math.sqrt(variance / len(values))


@dataclass(frozen=True, slots=True)
class Moments:
    """Mean and standard deviation of a group of scores."""

    count: int
    mean: float
    """NaN if there are no scores."""
    sd: float
    """Sample standard deviation; 0 for a single score, NaN for none."""

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Compute the moments of any number of scores."""
        if not values:
            return cls(0, math.nan, math.nan)
        array = np.asarray(values, dtype=float)
        return cls(len(array), float(array.mean()), float(array.std(ddof=min(1, len(array) - 1))))

    @property
    def text(self) -> str:
        """The moments in table format: `0.743 ± 0.265`, a dash if there are no scores."""
        return f"{fixed(self.mean)} ± {fixed(self.sd)}" if self.count else "-"

    @property
    def variance_of_mean(self) -> float:
        """The variance of the mean: the squared standard deviation divided by the count."""
        return self.sd**2 / self.count


@dataclass(frozen=True, slots=True)
class MeanDifference:
    """The difference of two means of independent values, and its standard error."""

    value: float
    error: float

    @classmethod
    def of(cls, upper: Moments, lower: Moments) -> Self:
        """Subtract the mean of `lower` from the mean of `upper`; neither group is empty."""
        error = math.sqrt(upper.variance_of_mean + lower.variance_of_mean)
        return cls(upper.mean - lower.mean, error)

    @property
    def low(self) -> float:
        """The lower end of the 95% interval."""
        return self.value - Z * self.error

    @property
    def high(self) -> float:
        """The upper end of the 95% interval."""
        return self.value + Z * self.error

    @property
    def text(self) -> str:
        """The difference in table format: `+0.212 (+0.200 to +0.223)`."""
        return f"{self.value:+.3f} ({self.low:+.3f} to {self.high:+.3f})"


def cumulative(values: Sequence[float], steps: int = 200) -> list[tuple[float, float]]:
    """Return points (x, share of values up to x) for x from 0 to 1, and one just below 1.

    The point just below 1 shows the step for values that are exactly 1. Empty if there are no
    values.
    """
    array = np.sort(np.asarray(values, dtype=float))
    places = [index / steps for index in range(steps)] + [1 - 1e-9, 1.0]
    if not len(array):
        return []
    reached = np.searchsorted(array, np.asarray(places) + 1e-12, side="right") / len(array)
    return list(zip(places, reached.tolist(), strict=True))


RESAMPLES = 1000
"""Resamples of the inputs, with replacement; the middle 95% of their means is the interval."""

SEED = 20_251_016

Estimate = list[float | None]
"""Value, low and high end of the 95% interval; all None if there are no values."""

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class DrawnMeans:
    """A mean over inputs, and the mean over each resample of these inputs."""

    value: float | None
    """None if there are no values."""
    means: Array
    """One for each resample; NaN if a resample has no values."""

    @property
    def estimate(self) -> Estimate:
        """The mean with its interval."""
        return _estimate(self.value, self.means)

    def less(self, other: DrawnMeans) -> Estimate:
        """Return the difference from another mean over the same resamples, with its interval."""
        if self.value is None or other.value is None:
            return [None, None, None]
        return _estimate(self.value - other.value, self.means - other.means)


class Resampled:
    """`RESAMPLES` resamples of `n` inputs: means that are compared use the same resamples."""

    def __init__(self, n: int) -> None:
        self.n = n
        rng = np.random.default_rng(SEED)
        self._chosen = rng.integers(n, size=(RESAMPLES, n)) if n else np.zeros((0, 0), int)
        counts = [np.bincount(row, minlength=n) for row in self._chosen]
        self._counts: Array = np.array(counts, dtype=np.float32).reshape(len(counts), n)

    def drawn(self, values: Sequence[float | None]) -> DrawnMeans:
        """Compute the mean over the inputs that have a value: in total and in each resample."""
        value, known = _split(values)
        whole = float(value.sum() / known.sum()) if known.any() else None
        return DrawnMeans(whole, _divided(self._counts @ value, self._counts @ known))

    def macro(
        self, values: Sequence[float | None], groups: Mapping[str, Sequence[int]]
    ) -> Estimate:
        """Return the mean over groups of the mean in each group.

        `groups` holds indices of inputs by name; an input may be in several groups.
        """
        value, known = _split(values)
        member = np.zeros((self.n, len(groups)), dtype=np.float32)
        for column, places in enumerate(groups.values()):
            member[list(places), column] = 1
        top, bottom = value[:, None] * member, known[:, None] * member
        if not bottom.sum():
            return [None, None, None]
        whole = np.nanmean(_divided(top.sum(0), bottom.sum(0)))
        drawn = np.nanmean(_divided(self._counts @ top, self._counts @ bottom), axis=1)
        return _estimate(float(whole), drawn)

    def percentile(self, values: Sequence[float], percent: float) -> Estimate:
        """Return the value below which `percent` (0 to 100) percent of all values lie."""
        if not self.n:
            return [None, None, None]
        whole = np.asarray(values, dtype=np.float64)
        drawn = np.percentile(whole[self._chosen], percent, axis=1)
        return _estimate(float(np.percentile(whole, percent)), drawn)


def _split(values: Sequence[float | None]) -> tuple[Array, Array]:
    """Return two arrays: the values with None as 0, and 1 for a value and 0 for None."""
    known = np.array([value is not None for value in values], dtype=np.float32)
    return np.array([value or 0.0 for value in values], dtype=np.float32), known


def _divided(top: Array, bottom: Array) -> Array:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(bottom > 0, top / bottom, np.nan))


def _estimate(value: float | None, drawn: Array) -> Estimate:
    if value is None:
        return [None, None, None]
    kept = drawn[~np.isnan(drawn)]
    low, high = np.percentile(kept, [2.5, 97.5]) if kept.size else (value, value)
    return [round(float(one), 4) for one in (value, low, high)]
