import random

import pytest

from shioenv.errors import UsageError
from shioenv.irreducibility.estimators import (
    exhaustive,
    paper,
    proper_subsets,
    total_weight,
    water_fill,
)


@pytest.mark.parametrize(("n", "weight"), [(2, 2), (3, 9), (5, 75), (8, 1016), (11, 11253)])
def test_proper_subsets_have_their_closed_forms(n: int, weight: int) -> None:
    subsets = list(proper_subsets(n))
    assert len(set(subsets)) == len(subsets) == 2**n - 1
    assert sum(map(len, subsets)) == weight == total_weight(n)


def test_no_argument_has_no_proper_subset() -> None:
    assert list(proper_subsets(0)) == []
    assert total_weight(0) == 0
    assert total_weight(12) == 24564


def test_a_lone_argument_is_held_against_the_command_alone() -> None:
    assert [(item.kept, item.weight) for item in exhaustive(1)] == [((), 1.0)]


def test_draws_repeat_with_their_seed() -> None:
    assert paper(9, 40, random.Random(1)) == paper(9, 40, random.Random(1))
    assert len(paper(9, 40, random.Random(1))) == 40


def test_draws_are_proper_and_uniform() -> None:
    counts: dict[tuple[int, ...], int] = {}
    for item in paper(3, 70_000, random.Random(0)):
        counts[item.kept] = counts.get(item.kept, 0) + 1
        assert item.weight == len(item.kept)
    assert set(counts) == set(proper_subsets(3))
    assert all(abs(count - 10_000) < 400 for count in counts.values())


def test_draws_that_are_all_empty_are_drawn_again() -> None:
    for seed in range(50):
        assert any(item.weight for item in paper(2, 1, random.Random(seed)))


def test_nothing_to_draw_is_refused() -> None:
    for n, budget in ((1, 4), (4, 0)):
        with pytest.raises(UsageError):
            paper(n, budget, random.Random(0))


@pytest.mark.parametrize(
    ("caps", "budget", "shares"),
    [
        ([7], 64, [7]),
        ([63, 63], 64, [32, 32]),
        ([3, 63], 64, [3, 61]),
        ([63, 0, 1], 64, [63, 0, 1]),
        ([63, 63], 7, [4, 3]),
        ([63, 63, 63], 1, [1, 1, 1]),
        ([], 5, []),
    ],
)
def test_the_budget_is_spread_like_water(caps: list[int], budget: int, shares: list[int]) -> None:
    assert water_fill(caps, budget) == shares
