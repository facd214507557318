"""Means, differences and their intervals."""

from __future__ import annotations

import pytest

from shioenv_eval.report.means import Resampled


def test_a_mean_is_over_those_that_have_a_value() -> None:
    value, low, high = (one or 0.0 for one in Resampled(4).drawn([1, 0, None, 1]).estimate)
    assert value == pytest.approx(2 / 3, abs=1e-4)
    assert 0 <= low < value < high <= 1
    assert Resampled(2).drawn([None, None]).estimate == [None, None, None]
    assert Resampled(0).drawn([]).estimate == [None, None, None]


def test_an_interval_is_as_wide_as_theory_says() -> None:
    n = 400
    estimate = Resampled(n).drawn([float(k % 4 == 0) for k in range(n)]).estimate
    value, low, high = (one or 0.0 for one in estimate)
    assert value == 0.25
    width = 2 * 1.96 * (0.25 * 0.75 / n) ** 0.5
    assert high - low == pytest.approx(width, rel=0.1)


def test_differences_are_paired() -> None:
    drawn = Resampled(100)
    first = drawn.drawn([float(k % 2) for k in range(100)])
    second = drawn.drawn([float(k % 2 and k > 1) for k in range(100)])
    value, low, high = first.less(second)
    assert value == pytest.approx(0.01, abs=1e-4)
    assert low == 0.0, "they differ in one input alone"
    assert high == pytest.approx(0.03, abs=0.011)
    assert first.less(first) == [0.0, 0.0, 0.0]
    assert first.less(drawn.drawn([None] * 100)) == [None, None, None]


def test_a_macro_mean_weighs_utilities_alike() -> None:
    # ls: 1, 1, 0; cat: 0 and the first again
    value, _, _ = Resampled(4).macro([1, 1, 0, 0], {"ls": [0, 1, 2], "cat": [0, 3]})
    assert value == pytest.approx((2 / 3 + 1 / 2) / 2, abs=1e-4)
    assert Resampled(1).macro([None], {"ls": [0]}) == [None, None, None]


def test_percentiles_and_repetition() -> None:
    times = [float(k) for k in range(101)]
    assert Resampled(101).percentile(times, 50)[0] == 50
    assert Resampled(101).percentile(times, 95)[0] == 95
    assert Resampled(101).percentile(times, 95) == Resampled(101).percentile(times, 95)
