"""A replayed estimate equals the estimate by execution."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from shioenv.domain.behavior import Behavior
from shioenv.execution.local import LocalExecutor, SerialExecutor
from shioenv.irreducibility.estimators import ESTIMATORS
from shioenv.irreducibility.score import estimate_irreducibility
from shioenv.irreducibility.scoring import Scoring
from shioenv_paper.estimator_replay import InputReplay, accuracies, replayed
from shioenv_paper.exact import KnownInput, masks_of
from shioenv_paper.setting import ExperimentSetting
from support.experiment_fakes import at_random, known, needing

INPUTS = [
    needing(2, 1),
    needing(6, 0, 3),
    needing(9),
    at_random(7, seed=1),
    known(["a", "b", "a", "a", "c", "b"], lambda mask: mask.bit_count() < 3),
]


def by_executing(known: KnownInput, estimator: str, budget: int, seed: int) -> tuple[float, int]:
    """Return the estimate with a fake sandbox, and the sub-inputs that it ran."""
    texts = known.texts()
    differing = {texts[mask] for mask in masks_of(known.differs)}
    score = estimate_irreducibility(
        known.input,
        lambda text: Behavior(int(text in differing), b""),
        rng=random.Random(seed),
        scoring=Scoring(budget=budget, noise_runs=1, estimator=estimator),
    )
    assert score.irreducibility is not None
    return score.irreducibility, score.n_executions - 1


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("one", INPUTS, ids=lambda one: one.input.text)
def test_a_replay_is_what_executing_gives(estimator: str, one: KnownInput) -> None:
    replay = InputReplay(one)
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
    exact = list(accuracies(at_random(4, seed=2), (15, 16), replays=3, seed=0))
    assert [accuracy.absolute_error for accuracy in exact] == [0.0] * 2 * len(ESTIMATORS)
    assert {accuracy.executions for accuracy in exact} == {14}


def test_accuracies_are_the_same_for_any_number_of_workers(tmp_path: Path) -> None:
    inputs = [at_random(5, seed=3, number=1), needing(4, 2, number=9)]
    told: list[tuple[str, int, int]] = []

    def report(what: str, done: int, total: int) -> None:
        told.append((what, done, total))

    two = ExperimentSetting(out=tmp_path, seed=5, executor=LocalExecutor(2), report=report)
    alone, other = (
        ExperimentSetting(out=tmp_path, seed=n, executor=SerialExecutor()) for n in (5, 6)
    )
    expected = [accuracy for known in inputs for accuracy in accuracies(known, (4, 8), 2, 5)]
    assert replayed(inputs, (4, 8), 2, two) == replayed(inputs, (4, 8), 2, alone) == expected
    assert told[-1] == ("inputs replayed", 2, 2)
    assert replayed(inputs, (4, 8), 2, other) != expected
