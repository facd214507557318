"""Means with intervals, spreads and distribution functions."""

from __future__ import annotations

import math

import pytest

from shioenv_eval.report.means import Moments, bootstrapped, cumulative


def test_the_interval_of_a_mean_holds_it_and_narrows() -> None:
    few = bootstrapped([0.0, 1.0] * 5)
    many = bootstrapped([0.0, 1.0] * 500)
    for mean in (few, many):
        assert mean.low < mean.value == 0.5 < mean.high
    assert few.high - few.low > 5 * (many.high - many.low)
    assert few == bootstrapped([0.0, 1.0] * 5)
    assert (few.count, many.count) == (10, 1000)


def test_the_interval_of_one_value_is_that_value() -> None:
    one = bootstrapped([0.25])
    assert (one.low, one.value, one.high) == (0.25, 0.25, 0.25)


def test_the_interval_of_skewed_values_reaches_further_up() -> None:
    mean = bootstrapped([0.0] * 55 + [0.2, 0.3, 0.4, 0.5, 0.9])
    assert mean.high - mean.value > 1.3 * (mean.value - mean.low)


def test_equal_values_leave_no_interval() -> None:
    mean = bootstrapped([0.5] * 30)
    assert (mean.low, mean.high) == (0.5, 0.5)
    nearly = bootstrapped([0.25] * 5 + [math.nextafter(0.25, 1)])
    assert nearly.low == nearly.value == nearly.high


def test_moments_are_those_of_a_sample() -> None:
    moments = Moments.of([0.0, 1.0])
    assert (moments.count, moments.mean) == (2, 0.5)
    assert moments.sd == pytest.approx(0.5**0.5)
    assert moments.variance_of_mean == pytest.approx(0.25)
    assert Moments.of([0.5]) == Moments(1, 0.5, 0.0)
    nothing = Moments.of([])
    assert (nothing.count, nothing.text, math.isnan(nothing.mean)) == (0, "-", True)


def test_a_distribution_function_rises_to_one_and_shows_the_step_there() -> None:
    points = cumulative([0.0, 0.5, 1.0, 1.0])
    reached = dict(points)
    assert (reached[0.0], reached[0.5], reached[1.0]) == (0.25, 0.5, 1.0)
    assert points[-2][1] == 0.5
    assert [share for _, share in points] == sorted(share for _, share in points)
    assert cumulative([]) == []
