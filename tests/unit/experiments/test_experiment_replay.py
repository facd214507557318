"""A replayed estimate is the estimate that executing would have given."""

from __future__ import annotations

import random

import pytest
from experiment_fakes import at_random, known, needing

from shioenv.domain.behavior import Behavior
from shioenv.execution.local import LocalExecutor, SerialExecutor
from shioenv.experiments.exact import Known
from shioenv.experiments.replay import Replay, outcomes, replayed
from shioenv.experiments.setting import silent
from shioenv.irreducibility.estimators import ESTIMATORS
from shioenv.irreducibility.score import estimate_irreducibility
from shioenv.irreducibility.scoring import Scoring

INPUTS = [
    needing(2, 1),
    needing(6, 0, 3),
    needing(9),
    at_random(7, seed=1),
    known(["a", "b", "a", "a", "c", "b"], lambda mask: mask.bit_count() < 3),
]


def by_executing(one: Known, estimator: str, budget: int, seed: int) -> tuple[float, int]:
    """The estimate with a stand-in for the sandbox, and the sub-inputs it ran."""
    texts = one.texts()
    differing = {text for mask, text in enumerate(texts) if one.differs >> mask & 1}
    found = estimate_irreducibility(
        one.input,
        lambda text: Behavior(int(text in differing), b""),
        rng=random.Random(seed),
        scoring=Scoring(budget=budget, noise_runs=1, estimator=estimator),
    )
    assert found.irreducibility is not None
    return found.irreducibility, found.n_executions - 1


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("one", INPUTS, ids=lambda one: one.input.text)
def test_a_replay_is_what_executing_gives(estimator: str, one: Known) -> None:
    replay = Replay(one)
    for budget in (1, 4, 16, 32, 600):
        for seed in range(4):
            value, looked = replay.estimate(estimator, budget, random.Random(seed))
            expected = by_executing(one, estimator, budget, seed)
            if (1 << one.n) - 1 <= budget:  # exact: rounded differently
                assert value == pytest.approx(expected[0])
                assert looked == expected[1]
            else:
                assert (value, looked) == expected


def test_a_budget_that_covers_everything_has_no_error() -> None:
    found = list(outcomes(at_random(4, seed=2), (15, 16), replays=3, seed=0))
    assert [one.absolute_error for one in found] == [0.0] * 2 * len(ESTIMATORS)
    assert {one.executions for one in found} == {14}


def test_outcomes_are_the_same_for_any_number_of_workers() -> None:
    inputs = [at_random(5, seed=3, number=1), needing(4, 2, number=9)]
    seen: list[tuple[str, int, int]] = []

    def report(what: str, done: int, total: int) -> None:
        seen.append((what, done, total))

    two = replayed(inputs, (4, 8), replays=2, seed=5, executor=LocalExecutor(2), report=report)
    assert two == replayed(
        inputs, (4, 8), replays=2, seed=5, executor=SerialExecutor(), report=silent
    )
    assert two == [one for known in inputs for one in outcomes(known, (4, 8), 2, 5)]
    assert seen[-1] == ("inputs replayed", 2, 2)
    assert two != replayed(
        inputs, (4, 8), replays=2, seed=6, executor=SerialExecutor(), report=silent
    )
