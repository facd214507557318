"""Tests of `make test-nightly` alone: long cases, large counts, and races tried many times."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

SWITCH = "SHIOENV_TESTS_NIGHTLY"
"""The environment variable that enables the nightly layer in every process of the suite."""

NIGHTLY = pytest.mark.nightly
"""Marks a test, or a parameter of one, that runs at night alone."""

LARGER = pytest.mark.larger
"""Marks a test that runs by day and, with larger counts, at night."""


def scaled(day: T, night: T) -> T:
    """Return a test's size: `night` in the nightly layer. The test is marked `LARGER`."""
    return night if os.environ.get(SWITCH) else day


def by_day(
    cases: Sequence[T], every: int, ids: Iterable[object] | None = None, *, unpacked: bool = False
) -> list[Any]:
    """Return a test's parameters: each `every`-th runs by day, and the others at night.

    `unpacked`: each case is a tuple with a value for each of the test's parameters.
    """
    names = [None] * len(cases) if ids is None else [str(name) for name in ids]
    return [
        pytest.param(
            *(case if unpacked and isinstance(case, tuple) else (case,)),
            id=name,
            marks=[] if number % every == 0 else [NIGHTLY],
        )
        for number, (case, name) in enumerate(zip(cases, names, strict=True))
    ]
