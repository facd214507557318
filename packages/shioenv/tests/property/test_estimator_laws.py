"""Every estimator is unbiased, deterministic by seed, within its budget, and estimates its
error."""

import random
import statistics
from collections import defaultdict
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shioenv.domain.behavior import Behavior
from shioenv.domain.inputs import Argument, Input
from shioenv.irreducibility.estimators import (
    ESTIMATORS,
    Kept,
    SamplePart,
    proper_subsets,
    total_weight,
)
from shioenv.irreducibility.score import Behave, Score, estimate_irreducibility
from shioenv.irreducibility.scoring import Scoring
from shioenv.irreducibility.spread import pooled
from support.nightly import LARGER, scaled

UNBIASED = [name for name in ESTIMATORS if name != "paper"]


def line(n: int) -> Input:
    return Input.single("c", [Argument(f"a{index}") for index in range(n)])


def table(different: set[Kept]) -> Behave:
    return lambda text: Behavior(
        int(tuple(int(word[1:]) for word in text.split()[1:]) in different), b""
    )


def exact(n: int, different: set[Kept]) -> float:
    return sum(len(kept) for kept in different) / total_weight(n)


def lacking(n: int, *groups: set[int]) -> set[Kept]:
    """Return the sub-inputs that lack a whole group: no further omission restores the behavior."""
    return {kept for kept in proper_subsets(n) if any(not group & set(kept) for group in groups)}


def anything(n: int, seed: int) -> set[Kept]:
    rng = random.Random(seed)
    return {kept for kept in proper_subsets(n) if rng.random() < 0.5}


class Looked:
    """Answers from a table, and records its questions."""

    def __init__(self, different: set[Kept]) -> None:
        self.different = different
        self.seen: set[Kept] = set()

    def __call__(self, kept: Kept) -> bool:
        self.seen.add(kept)
        return kept in self.different

    def known(self, kept: Kept) -> bool:
        return kept in self.seen


def sampled(name: str, n: int, budget: int, different: set[Kept], seed: int) -> list[SamplePart]:
    return list(ESTIMATORS[name](n, budget, random.Random(seed), Looked(different)))


def weights(parts: list[SamplePart]) -> dict[Kept, float]:
    """Return the weight of each set in the mean."""
    found: dict[Kept, float] = defaultdict(float)
    for part in parts:
        for item in part.drawn:
            found[item.kept] += item.weight
    total = sum(found.values())
    return {kept: weight / total for kept, weight in found.items()}


def score(name: str, n: int, different: set[Kept], budget: int, seed: int) -> Score:
    return estimate_irreducibility(
        line(n),
        table(different),
        rng=random.Random(seed),
        scoring=Scoring(budget=budget, noise_runs=1, estimator=name),
    )


BEHAVIORS = [
    (4, 9, lacking(4, {1})),
    (5, 12, anything(5, 1)),
    (5, 18, lacking(5, {0}, {1, 2})),
    (5, 24, lacking(5, {0, 1}, {3, 4})),
    (6, 20, anything(6, 2)),
    (6, 30, lacking(6, {2}, {4, 5})),
    (6, 41, set()),
    (6, 50, lacking(6, {0}, {1}, {2}, {3})),
]


@LARGER
@pytest.mark.parametrize("name", UNBIASED)
@pytest.mark.parametrize(("n", "budget", "different"), BEHAVIORS)
def test_each_sub_input_counts_what_it_weighs_on_average(
    name: str, n: int, budget: int, different: set[Kept]
) -> None:
    """This makes an estimate unbiased for any results of the sub-inputs.

    Over 1,000 samples (400 by day) the mean of each weight is within 5 standard errors, or a
    thousandth.
    """
    samples = [
        weights(sampled(name, n, budget, different, seed)) for seed in range(scaled(400, 1000))
    ]
    for kept in proper_subsets(n):
        found = [sample.get(kept, 0.0) for sample in samples]
        error = statistics.pstdev(found) / len(found) ** 0.5
        expected = len(kept) / total_weight(n)
        assert abs(statistics.fmean(found) - expected) <= 5 * error + 0.001, kept


def test_pps_is_unbiased_over_all_samples() -> None:
    """Every sample of two draws from three arguments, with its probability."""
    different: set[Kept] = {(0,), (1, 2)}
    subsets = [kept for kept in proper_subsets(3) if kept]
    mean = sum(
        len(one) * len(other) / total_weight(3) ** 2 * ((one in different) + (other in different))
        for one, other in product(subsets, repeat=2)
    )
    assert mean / 2 == pytest.approx(exact(3, different))


@st.composite
def differing(draw: st.DrawFn) -> tuple[int, set[Kept]]:
    """A number of arguments, and the proper sub-inputs with another behavior."""
    n = draw(st.integers(2, 7))
    return n, draw(st.sets(st.sampled_from(list(proper_subsets(n)))))


names = st.sampled_from(list(ESTIMATORS))


@given(names, differing(), st.integers(0, 3), st.integers(0))
def test_it_is_exact_once_the_budget_covers_all(
    name: str, case: tuple[int, set[Kept]], more: int, seed: int
) -> None:
    n, different = case
    found = score(name, n, different, 2**n - 1 + more, seed)
    assert found.exact
    assert found.standard_error == 0
    assert found.irreducibility == pytest.approx(exact(n, different))


@given(names, differing(), st.integers(1, 140), st.integers(0))
@settings(max_examples=scaled(60, 200))
def test_a_score_keeps_to_its_budget_and_repeats(
    name: str, case: tuple[int, set[Kept]], budget: int, seed: int
) -> None:
    n, different = case
    found, again = (score(name, n, different, budget, seed) for _ in range(2))
    assert found == again
    value = found.irreducibility
    assert value is not None
    assert found.interval is not None
    assert 0 <= found.interval[0] <= value <= found.interval[1] <= 1
    assert found.n_executions <= 1 + min(budget, 2**n - 2)
    assert found.exact == (2**n - 1 <= budget)
    assert value <= (found.irreducibility_strict or 0)


@given(names, differing(), st.integers(1, 140), st.floats(0.001, 0.5), st.integers(0))
def test_a_target_is_met_or_the_budget_spent(
    name: str, case: tuple[int, set[Kept]], budget: int, target: float, seed: int
) -> None:
    n, different = case
    found = estimate_irreducibility(
        line(n),
        table(different),
        rng=random.Random(seed),
        scoring=Scoring(budget=budget, noise_runs=1, estimator=name, target_se=target),
    )
    assert found.n_executions <= 1 + min(budget, 2**n - 2)
    looked = {contrast.kept for contrast in found.segments[0].contrasts if contrast.kept}
    assert not found.exact or len(looked) == 2**n - 2
    low, high = interval(found)
    if found.standard_error is None or max(found.standard_error, (high - low) / 3.92) > target:
        spent = estimate_irreducibility(
            line(n),
            table(different),
            rng=random.Random(seed),
            scoring=Scoring(budget=budget, noise_runs=1, estimator=name, target_se=1e-9),
        )
        assert found == spent


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize(
    ("different", "budget"),
    [
        (lacking(7, {0}, {3}), 48),
        (lacking(7, {0}, {3, 4}, {5, 6}), 32),
        (lacking(7, {1, 2}, {2, 3, 4}), 40),
        (anything(7, 3), 64),
    ],
)
def test_the_interval_holds_the_exact_score(name: str, different: set[Kept], budget: int) -> None:
    """At least nine times in ten, over 200 seeds; the standard error is at least 0.8 of the
    estimates' spread."""
    found = [score(name, 7, different, budget, seed) for seed in range(200)]
    value = exact(7, different)
    held = [low <= value + 1e-9 and value <= high + 1e-9 for low, high in map(interval, found)]
    assert sum(held) / len(held) >= 0.9
    estimates = [one.irreducibility or 0.0 for one in found]
    claimed = statistics.fmean(one.standard_error or 0.0 for one in found)
    assert claimed >= 0.8 * statistics.pstdev(estimates) - 1e-9
    if name in {"paper", "pps"}:
        assert claimed <= 1.2 * statistics.pstdev(estimates)


def interval(found: Score) -> tuple[float, float]:
    assert found.interval is not None
    return found.interval


def test_balanced_is_exact_where_few_arguments_matter_by_themselves() -> None:
    """An argument that matters alone: 32 draws of 12 arguments make the estimate exact."""
    different = lacking(12, {4})
    for seed in range(5):
        found = score("balanced", 12, different, 32, seed)
        assert found.irreducibility == pytest.approx(exact(12, different))
        assert not found.exact


def test_samples_count_by_their_draws() -> None:
    one, two = (
        [SamplePart(part.drawn) for part in sampled("pps", 5, size, set(), 1)] for size in (8, 4)
    )
    together = pooled([one, two])
    shares = [sum(item.weight for item in part.drawn) for part in together]
    assert shares == pytest.approx([2 / 3, 1 / 3])


@pytest.mark.parametrize("name", ESTIMATORS)
def test_what_an_argument_contributes_does_not_depend_on_how_draws_are_chosen(name: str) -> None:
    """Within a tenth on average: the increase of differing behaviors without the argument."""
    different = lacking(9, {0}, {3}, {5, 6})

    def effects(budget: int, seed: int) -> list[float | None]:
        arguments = score(name, 9, different, budget, seed).segments[0].arguments
        return [effect.contribution for effect in arguments]

    truth = effects(511, 0)
    found = [effects(64, seed) for seed in range(20)]
    for index, expected in enumerate(truth):
        mean = statistics.fmean(one[index] or 0.0 for one in found)
        assert mean == pytest.approx(expected, abs=0.1)
