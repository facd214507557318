"""Means over inputs with their intervals, by resampling inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
from numpy.typing import NDArray

RESAMPLES = 1000
"""Resamples of the inputs, with replacement; the middle 95% of their means is the interval."""

SEED = 20_251_016

Estimate = list[float | None]
"""Value, low and high end of the 95% interval; all None where nothing can be averaged."""

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class DrawnMeans:
    """A mean over inputs, and the mean over each resample of these inputs."""

    value: float | None
    """None where there is nothing to take a mean of."""
    means: Array
    """One for each resample; NaN where a resample has nothing to take a mean of."""

    @property
    def estimate(self) -> Estimate:
        """The mean with its interval."""
        return _estimate(self.value, self.means)

    def less(self, other: DrawnMeans) -> Estimate:
        """The difference to another mean over the same resamples, with its interval."""
        if self.value is None or other.value is None:
            return [None, None, None]
        return _estimate(self.value - other.value, self.means - other.means)


class Resampled:
    """`RESAMPLES` resamples of `n` inputs: means that are compared use the same resamples."""

    def __init__(self, n: int) -> None:
        self.n = n
        rng = numpy.random.default_rng(SEED)
        self._chosen = rng.integers(n, size=(RESAMPLES, n)) if n else numpy.zeros((0, 0), int)
        counts = [numpy.bincount(row, minlength=n) for row in self._chosen]
        self._counts: Array = numpy.array(counts, dtype=numpy.float32).reshape(len(counts), n)

    def drawn(self, values: Sequence[float | None]) -> DrawnMeans:
        """The mean over the inputs that have a value: in the whole and in each resample."""
        value, known = _split(values)
        whole = float(value.sum() / known.sum()) if known.any() else None
        return DrawnMeans(whole, _divided(self._counts @ value, self._counts @ known))

    def macro(
        self, values: Sequence[float | None], groups: Mapping[str, Sequence[int]]
    ) -> Estimate:
        """The mean over groups of the mean in each group.

        `groups` are places of inputs by name; an input may be in several groups.
        """
        value, known = _split(values)
        member = numpy.zeros((self.n, len(groups)), dtype=numpy.float32)
        for column, places in enumerate(groups.values()):
            member[list(places), column] = 1
        top, bottom = value[:, None] * member, known[:, None] * member
        if not bottom.sum():
            return [None, None, None]
        whole = numpy.nanmean(_divided(top.sum(0), bottom.sum(0)))
        drawn = numpy.nanmean(_divided(self._counts @ top, self._counts @ bottom), axis=1)
        return _estimate(float(whole), drawn)

    def percentile(self, values: Sequence[float], percent: float) -> Estimate:
        """The value below which `percent` (0 to 100) percent of all values lie."""
        if not self.n:
            return [None, None, None]
        whole = numpy.asarray(values, dtype=numpy.float64)
        drawn = numpy.percentile(whole[self._chosen], percent, axis=1)
        return _estimate(float(numpy.percentile(whole, percent)), drawn)


def _split(values: Sequence[float | None]) -> tuple[Array, Array]:
    """Two arrays: the values, 0 for None; and 1 for a value, 0 for None."""
    known = numpy.array([value is not None for value in values], dtype=numpy.float32)
    return numpy.array([value or 0.0 for value in values], dtype=numpy.float32), known


def _divided(top: Array, bottom: Array) -> Array:
    with numpy.errstate(invalid="ignore", divide="ignore"):
        return numpy.asarray(numpy.where(bottom > 0, top / bottom, numpy.nan))


def _estimate(value: float | None, drawn: Array) -> Estimate:
    if value is None:
        return [None, None, None]
    kept = drawn[~numpy.isnan(drawn)]
    low, high = numpy.percentile(kept, [2.5, 97.5]) if kept.size else (value, value)
    return [round(float(one), 4) for one in (value, low, high)]
