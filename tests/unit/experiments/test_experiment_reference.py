"""Scores by the rules of the reference implementation."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from experiment_fakes import HOME, SYSTEM, FakeExecutors, FakeObserver, sample, samples

from shioenv.errors import DatasetMismatchError
from shioenv.experiments import reference
from shioenv.experiments.exact import Known, executed
from shioenv.experiments.reference import (
    RULES,
    Rescored,
    Ruled,
    Weights,
    by_rule,
    means_by_rule,
    rescored,
    rewritten,
    rule_columns,
    scores_by_rule,
)
from shioenv.experiments.sampling_efficiency import weights
from shioenv.experiments.scores import Score
from shioenv.experiments.setting import Setting
from shioenv.irreducibility.subsets import total_weight
from shioenv.synthesis.sample import Sample


def weighing(n: int, differing: float) -> Weights:
    """A command whose sub-inputs differ under every rule or under none."""
    total = total_weight(n) or 1
    return Weights(n, total, differing, differing, differing, differing)


def rounded(*commands: Weights) -> list[float]:
    return [round(one, 4) for one in by_rule(commands)]


def test_outputs_are_rewritten_in_small_letters_with_numbers_told_apart_by_length() -> None:
    assert rewritten(b" Tab\tof 12\n\n12.3 7K 31") == b"\n".join(
        [b"tab of <num:1:2>", b"<num:1:2>.<num:2:1> 7k <num:3:2>"]
    )


def test_single_commands_score_as_known() -> None:
    assert rounded(weighing(2, 0)) == [0, 0, 0, 0.3333, 0.3333]  # a released row of no hit
    assert rounded(weighing(2, 1)) == [0.5, 0.5, 0.5, 0.6667, 0.6667]  # and one of one hit
    assert rounded(weighing(5, 52))[-1] == round(53 / 76, 4)  # and one of five arguments
    assert rounded(Weights(2, 2, 2, 1, 0, 0)) == [1, 0.5, 0, 1, 0.3333]
    assert rounded(weighing(1, 0)) == [0, 0, 0, 1, 1]  # an only argument always matters there


def test_commands_of_one_input_are_added_up_as_in_released_rows() -> None:
    assert rounded(weighing(2, 0), weighing(5, 0))[-1] == round(2 / 79, 4)  # grep and od
    assert rounded(weighing(1, 0), weighing(2, 1))[-1] == round(3 / 4, 4)
    assert rounded(weighing(1, 1), weighing(2, 0))[:2] == [0.3333, 0.3333]
    assert rounded(weighing(1, 1), weighing(2, 0))[-1] == 0.5  # basename and fold


@pytest.mark.parametrize(
    "input_args",
    [("needs", "x", "y"), ("fails", "x", "y", "z"), ("shouts", "x", "y"), ("shouts", "y", "x")],
)
def test_what_a_budget_covers_scores_as_an_input_executed_whole(
    input_args: tuple[str, ...],
) -> None:
    one = sample(*input_args)
    first: Any = FakeObserver()
    other: Any = FakeObserver()
    known = executed(first, (0, one))
    assert isinstance(known, Known)
    found = rescored(other, (0, one, 64, 0))
    assert found.scores == pytest.approx(by_rule([weights(known)]))
    assert found.scores is not None
    assert len(set(found.scores)) > 1


def test_commands_of_a_composite_are_held_against_their_own_prefixes() -> None:
    class Echo(FakeObserver):
        def run(self, text: str, *, cwd: str | None = None) -> Any:
            return super().run(text.rpartition("; ")[2], cwd=cwd)

    observer: Any = Echo()
    found = rescored(observer, (0, sample("needs", "x", "y", ";", "fails", "x", "y"), 64, 0))
    assert found.scores is not None
    assert found.scores[0] == 0.5
    assert found.scores[2] == 0.25  # where the second fails, so does what is left of it


def test_inputs_that_wait_or_are_volatile_have_no_scores() -> None:
    observer: Any = FakeObserver()
    assert rescored(observer, (3, sample("needs", "x", "waits"), 64, 0)) == Rescored(3, None)
    assert rescored(observer, (4, sample("needs", "x", "random"), 64, 0)) == Rescored(4, None)
    assert rescored(observer, (5, sample("needs"), 64, 0)) == Rescored(5, None)


def record(number: int) -> Score:
    return Score(number, "gcs", "needs", 2, 1, 0, False, True, 5, 0.5, 0.5)


class Plan:
    seed, budget = 3, 16

    def to_json(self) -> dict[str, int]:
        return {"seed": self.seed, "budget": self.budget}


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> type[FakeExecutors]:
    class Executors(FakeExecutors):
        pass

    def some(plan: Plan, system: object, grammars: object, count: int) -> list[Sample]:
        return [one for _, one in zip(range(count), samples(), strict=False)]

    monkeypatch.setattr(reference, "Executors", Executors)
    monkeypatch.setattr(reference, "read_manifest", lambda path: SimpleNamespace(plan=Plan()))
    monkeypatch.setattr(reference, "samples_of", some)
    monkeypatch.setattr(reference, "load_grammars", lambda versions: [])
    monkeypatch.setattr(Setting, "system", SYSTEM)
    return Executors


def test_records_are_scored_again_once(fakes: type[FakeExecutors], tmp_path: Path) -> None:
    setting = Setting(out=tmp_path, workers=1)
    wanted = [record(0), record(3), record(6)]  # the second is volatile
    found = scores_by_rule(setting, setting.data / "gcs", wanted[:2])
    assert found == [Ruled(wanted[0], by_rule([weighing(2, 1)]))]
    assert fakes.executed == 2
    more = scores_by_rule(setting, setting.data / "gcs", wanted)
    assert more[:1] == found
    assert [one.score.session_id for one in more] == [0, 6]
    assert fakes.executed == 3
    columns = rule_columns(more)
    assert columns["session_id"] == [0, 6]
    assert columns["R*"] == [0.5, 0.5]
    assert means_by_rule([one.by_rule for one in more]) == more[0].by_rule
    assert len(more[0].by_rule) == len(RULES)
    assert scores_by_rule(setting, setting.data / "gcs", []) == []


def test_those_of_another_plan_are_refused(
    fakes: type[FakeExecutors], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = Setting(out=tmp_path, workers=1)
    scores_by_rule(setting, setting.data / "gcs", [record(0)])
    monkeypatch.setattr(Plan, "budget", 8)
    with pytest.raises(DatasetMismatchError, match="budget: 16 there, 8 asked for"):
        scores_by_rule(setting, setting.data / "gcs", [record(0)])
    assert sample("needs").cwd == HOME
