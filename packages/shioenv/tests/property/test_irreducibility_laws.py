import random
import statistics
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from shioenv.domain.behavior import Behavior
from shioenv.domain.inputs import Argument, Input
from shioenv.irreducibility.estimators import (
    LEFT_FOR_BALANCE,
    Kept,
    leave_out,
    paper,
    proper_subsets,
    total_weight,
    water_fill,
)
from shioenv.irreducibility.score import Behave, estimate_irreducibility
from shioenv.irreducibility.scoring import Scoring


def line(n: int) -> Input:
    return Input.single("c", [Argument(f"a{index}") for index in range(n)])


def kept_in(text: str) -> Kept:
    return tuple(int(word[1:]) for word in text.split()[1:])


@st.composite
def differing(draw: st.DrawFn, min_size: int = 2, max_size: int = 6) -> tuple[int, set[Kept]]:
    """A number of arguments, and the proper sub-inputs that behave otherwise."""
    n = draw(st.integers(min_size, max_size))
    return n, draw(st.sets(st.sampled_from(list(proper_subsets(n)))))


def table(different: set[Kept]) -> Behave:
    return lambda text: Behavior(int(kept_in(text) in different), b"")


def exact(n: int, different: set[Kept]) -> float:
    return sum(len(kept) for kept in different) / total_weight(n)


@given(differing(), st.integers(0, 3), st.integers(0))
def test_the_estimate_is_exact_once_the_budget_covers_all(
    case: tuple[int, set[Kept]], more: int, seed: int
) -> None:
    n, different = case
    found = estimate_irreducibility(
        line(n), table(different), rng=random.Random(seed), scoring=Scoring(budget=2**n - 1 + more)
    )
    assert found.exact
    assert found.irreducibility is not None
    assert abs(found.irreducibility - exact(n, different)) < 1e-12


@given(differing(), st.integers(1, 80), st.integers(0))
def test_a_score_is_a_share_and_repeats_with_its_seed(
    case: tuple[int, set[Kept]], budget: int, seed: int
) -> None:
    n, different = case
    first, second = (
        estimate_irreducibility(
            line(n),
            table(different),
            rng=random.Random(seed),
            scoring=Scoring(budget=budget, noise_runs=1),
        )
        for _ in range(2)
    )
    assert first == second
    assert 0 <= (first.irreducibility or 0) <= 1
    assert (first.irreducibility or 0) <= (first.irreducibility_strict or 0)
    assert first.n_executions <= 1 + min(budget, 2**n - 2)
    if first.interval is not None:
        assert first.interval[0] <= (first.irreducibility or 0) <= first.interval[1]


@given(differing(5, 6), st.integers(0))
@settings(max_examples=15)
def test_the_estimate_converges_on_the_exact_score(case: tuple[int, set[Kept]], seed: int) -> None:
    n, different = case
    rng = random.Random(seed)
    weights = samples = 0.0
    for item in paper(n, 4000, rng):
        weights += item.weight
        samples += item.weight * (item.kept in different)
    assert abs(samples / weights - exact(n, different)) < 0.08


def test_the_expected_estimate_is_near_the_exact_score_over_all_samples() -> None:
    """Every sample of two draws from three arguments, each as likely as any other."""
    different: set[Kept] = {(0,), (1, 2)}
    subsets = list(proper_subsets(3))
    estimates = []
    for pair in product(subsets, repeat=2):
        weight = sum(map(len, pair))
        if weight:
            estimates.append(sum(len(kept) for kept in pair if kept in different) / weight)
    assert len(estimates) == 48
    # a ratio of means is biased at two draws, by less than a tenth here
    assert abs(statistics.fmean(estimates) - exact(3, different)) < 0.1


@given(differing(), st.integers(1, 140), st.integers(0))
def test_necessary_is_counted_from_the_omissions_of_one(
    case: tuple[int, set[Kept]], budget: int, seed: int
) -> None:
    """Every budget that determines it gives the same count; it is 1 where irreducibility is exactly
    1."""
    n, different = case
    found = estimate_irreducibility(
        line(n), table(different), rng=random.Random(seed), scoring=Scoring(budget=budget)
    )
    alone = [leave_out(n, index) in different for index in range(n)]
    known = [effect.leave_one_out for effect in found.segments[0].arguments]
    if None in known:
        assert found.necessary is None
        assert budget < n + LEFT_FOR_BALANCE
    else:
        assert known == alone
        assert found.necessary == sum(alone) / n
    if found.exact and found.irreducibility == 1.0:
        assert found.necessary == 1.0


def test_the_standard_error_is_the_spread_of_the_estimates() -> None:
    different = {kept for kept in proper_subsets(7) if 0 not in kept or 3 not in kept}
    found = [
        estimate_irreducibility(
            line(7),
            table(different),
            rng=random.Random(seed),
            scoring=Scoring(budget=48, noise_runs=1, estimator="paper"),
        )
        for seed in range(300)
    ]
    spread = statistics.stdev(score.irreducibility or 0 for score in found)
    claimed = statistics.fmean(score.standard_error or 0 for score in found)
    assert abs(claimed / spread - 1) < 0.15
    value = exact(7, different)
    inside = [low <= value <= high for low, high in (score.interval or (0, 0) for score in found)]
    assert 0.9 < sum(inside) / len(inside) <= 1


@given(st.lists(st.integers(0, 70), max_size=6), st.integers(1, 200))
def test_the_budget_is_spent_where_it_can_be(caps: list[int], budget: int) -> None:
    shares = water_fill(caps, budget)
    needy = sum(cap > 0 for cap in caps)
    assert all(0 <= share <= cap for share, cap in zip(shares, caps, strict=True))
    assert sum(shares) == max(min(budget, sum(caps)), needy)
    open_shares = [share for share, cap in zip(shares, caps, strict=True) if share < cap]
    assert not open_shares or max(shares) - min(open_shares) <= 1
