"""The estimator and the target error belong to a dataset's plan."""

import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shioenv.dataset import generate
from shioenv.dataset.generate import plan_of
from shioenv.dataset.manifest import Plan, scoring_there
from shioenv.dataset.store import Store
from shioenv.dataset.verify import record_problems
from shioenv.domain.behavior import Behavior
from shioenv.domain.inputs import Input
from shioenv.errors import DatasetCorruptError, UsageError
from shioenv.irreducibility.estimators import LEFT_LATER, Kept, estimator_named, leave_out
from shioenv.irreducibility.score import estimate_irreducibility
from shioenv.irreducibility.scoring import USUAL, Scoring
from shioenv.recording.session import SessionRecorder
from shioenv.synthesis.drawing import Drawing
from support.dataset_fakes import FakeRunner, plan, sample


@pytest.mark.parametrize(
    "made", [plan(), plan(estimator="paper"), plan(estimator="pps", target_se=0.05)]
)
def test_a_plan_comes_back_from_its_manifest(made: Plan) -> None:
    again = Plan.from_json(made.to_json())
    assert again.scoring == made.scoring
    assert made.differences(again) == ()


def test_a_whole_number_as_the_error_comes_back_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate, "catalogue", lambda system, directory: {})
    system: Any = SimpleNamespace(name="fake", digest="d1935", packages={}, host_clock=False)
    made = plan_of(
        system,
        (),
        drawing=Drawing(sampler="gcs", seed=0, start_directories=("/",)),
        scoring=Scoring(target_se=1),
    )
    assert Plan.from_json(json.loads(json.dumps(made.to_json()))) == made
    assert made.scoring == Scoring(target_se=1)


def test_what_is_not_given_is_as_in_the_dataset_that_is_there(tmp_path: Path) -> None:
    assert scoring_there(tmp_path) == USUAL
    with Store(tmp_path, plan(estimator="paper", target_se=0.25), 3, kernel="6.1.0"):
        pass
    assert scoring_there(tmp_path) == Scoring(budget=8, estimator="paper", target_se=0.25)
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(DatasetCorruptError):
        scoring_there(tmp_path)


def test_a_manifest_names_the_estimator_and_no_target_where_there_is_none() -> None:
    document = plan().to_json()
    assert document["estimator"] == "balanced"
    assert "target_standard_error" not in document
    assert "process_budget" not in document
    bound = plan(process_budget=99)
    assert Plan.from_json(bound.to_json()) == bound


def test_a_manifest_that_names_no_estimator_is_of_the_papers() -> None:
    document = plan(estimator="paper").to_json()
    del document["estimator"]
    assert Plan.from_json(document).scoring == Scoring(budget=8, estimator="paper")


def test_another_estimator_is_another_dataset() -> None:
    assert plan(estimator="paper").differences(plan()) == (
        'estimator: "paper" in the dataset, "balanced" requested',
    )
    assert plan(process_budget=320).differences(plan()) == (
        "process_budget: 320 in the dataset, null requested",
    )
    assert plan(target_se=0.05).differences(plan()) == (
        "target_standard_error: 0.05 in the dataset, null requested",
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"estimator": "balance"}, "balanced"), ({"target_se": 0.0}, "more than 0")],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        Scoring(**changes)
    assert message in str(raised.value.hint)


def test_a_target_that_is_reached_saves_executions() -> None:
    shell_input = Input.from_marked(["c", *(f"a{index}" for index in range(10))])

    def found(**how: Any) -> int:
        score = estimate_irreducibility(
            shell_input,
            lambda text: Behavior(0, b""),
            Scoring(budget=2000, estimator="balanced", **how),
            rng=random.Random(1),
        )
        assert score.irreducibility == 0
        assert score.exact == (not how)
        return score.n_executions

    assert found() == 3 + 1022
    assert found(target_se=0.05) <= 3 + 21 + 11 + 22


@pytest.mark.parametrize(("n", "share"), [(6, 40), (8, 32), (10, 64), (12, 64), (40, 200)])
def test_the_first_batch_reaches_every_leave_one_out(n: int, share: int) -> None:
    looked: set[Kept] = set()

    class Look:
        def __call__(self, kept: Kept) -> bool:
            looked.add(kept)
            return False

        def known(self, kept: Kept) -> bool:
            return False

    for estimator in ("stratified", "balanced"):
        looked.clear()
        first, *further = Scoring(estimator=estimator, target_se=0.05).batches(n, share)
        assert first is not None
        parts = estimator_named(estimator)(n, first, random.Random(1), Look())
        looked |= {item.kept for part in parts for item in part.drawn}
        assert looked >= {leave_out(n, index) for index in range(n)}
        assert sum(size or 0 for size in (first, *further)) == share
        assert all(size is None or size >= LEFT_LATER for size in further)


def test_batches_of_independent_draws_double() -> None:
    for estimator in ("paper", "pps"):
        scoring = Scoring(estimator=estimator, target_se=0.05)
        assert list(scoring.batches(12, 100)) == [16, 16, 32, 36]
    assert list(Scoring().batches(12, 32)) == [32]
    assert list(Scoring().batches(5, 32)) == [None]


def test_a_score_that_stopped_early_need_not_be_exact() -> None:
    words = sample("echo", *(f"w{index}" for index in range(6)))
    scoring = Scoring(budget=80, estimator="pps", target_se=0.3)
    recorder = SessionRecorder(scoring=scoring)
    recorded = recorder.record(words.session, FakeRunner("fake"), random.Random(1))
    made = recorded.record(0, system="fake", sampler="gcs")
    assert not made.exact
    assert list(record_problems(made, scoring)) == []
    assert len(list(record_problems(made, Scoring(budget=80)))) == 1
