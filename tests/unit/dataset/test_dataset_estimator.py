"""The estimator and the target error belong to a dataset's plan."""

import json
import random
from types import SimpleNamespace
from typing import Any

import pytest
from dataset_fakes import FakeRunner, plan, sample

from shioenv.dataset import generate
from shioenv.dataset.generate import plan_of
from shioenv.dataset.manifest import Plan
from shioenv.dataset.verify import record_problems
from shioenv.domain.behavior import Behavior
from shioenv.domain.inputs import Input
from shioenv.errors import UsageError
from shioenv.irreducibility.score import estimate_irreducibility
from shioenv.irreducibility.scoring import Scoring
from shioenv.recording.session import SessionRecorder
from shioenv.synthesis.drawing import Drawing


@pytest.mark.parametrize(
    "made", [plan(), plan(estimator="balanced"), plan(estimator="pps", target_se=0.05)]
)
def test_a_plan_comes_back_from_its_manifest(made: Plan) -> None:
    again = Plan.from_json(made.to_json())
    assert again.scoring == made.scoring
    assert made.differences(again) == ()


def test_a_whole_number_as_the_error_comes_back_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate, "catalogue", lambda system, directory: {})
    system: Any = SimpleNamespace(name="fake", digest="d1935", packages={}, versions={})
    made = plan_of(
        system,
        (),
        drawing=Drawing(sampler="gcs", seed=0, start_directories=("/",)),
        scoring=Scoring(target_se=1),
    )
    assert Plan.from_json(json.loads(json.dumps(made.to_json()))) == made
    assert made.scoring == Scoring(target_se=1)


def test_the_papers_estimator_adds_nothing_to_a_manifest() -> None:
    assert not {"estimator", "target_standard_error"} & plan().to_json().keys()


def test_another_estimator_is_another_dataset() -> None:
    assert plan().differences(plan(estimator="balanced")) == (
        'estimator: "paper" in the dataset, "balanced" asked for',
    )
    assert plan(target_se=0.05).differences(plan()) == (
        "target_standard_error: 0.05 in the dataset, null asked for",
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"estimator": "balance"}, "balanced"), ({"target_se": 0.0}, "above 0")],
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
    assert found(target_se=0.05) <= 3 + 32


def test_a_score_that_stopped_early_need_not_be_exact() -> None:
    words = sample("echo", *(f"w{index}" for index in range(6)))
    scoring = Scoring(budget=80, estimator="pps", target_se=0.3)
    recorder = SessionRecorder(scoring=scoring)
    recorded = recorder.record(words.session, FakeRunner("fake"), random.Random(1))
    made = recorded.record(0, system="fake", sampler="gcs")
    assert not made.exact
    assert list(record_problems(made, scoring)) == []
    assert len(list(record_problems(made, Scoring(budget=80)))) == 1
