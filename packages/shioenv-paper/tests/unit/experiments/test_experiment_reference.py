"""Scores by the rules of the reference implementation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shioenv.domain.runner import State
from shioenv.errors import DatasetMismatchError
from shioenv.irreducibility.estimators import total_weight
from shioenv.irreducibility.scoring import Scoring
from shioenv.synthesis.drawing import Drawing
from shioenv.synthesis.traces import Sample
from shioenv_paper import reference
from shioenv_paper.experiment_journal import JOURNAL
from shioenv_paper.reference import (
    RULES,
    Differs,
    Rescored,
    ScoredCommand,
    by_rule,
    evenly,
    means_by_rule,
    rescored,
    rewritten,
    rule_columns,
    scores_by_rule,
)
from shioenv_paper.scores import ScoredRecord
from shioenv_paper.setting import ExperimentSetting
from support.experiment_fakes import HOME, SYSTEM, FakeExecutor, FakeRunner, sample, samples


def command(n: int, differing: float) -> ScoredCommand:
    """A command whose sub-inputs differ under every rule or under none."""
    return ScoredCommand(n, total_weight(n) or 1, Differs(*[differing] * 5))


def rounded(*commands: ScoredCommand, ranges: int | None = None) -> list[float]:
    return [round(one, 4) for one in by_rule(commands, ranges or len(commands))]


def scores(*input_args: str, observer: FakeRunner | None = None) -> dict[str, float]:
    """By rule, of what a budget of 64 covers."""
    runner: Any = observer or FakeRunner()
    found = rescored(runner, (0, sample(*input_args)), seed=0, scoring=Scoring())
    assert found.scores is not None
    return {rule: round(one, 4) for rule, one in zip(RULES, found.scores, strict=True)}


def test_outputs_are_rewritten_in_small_letters_with_numbers_told_apart_by_length() -> None:
    assert rewritten(b" Tab\tof 12\n\n12.3 7K 31") == b"\n".join(
        [b"tab of <num:1:2>", b"<num:1:2>.<num:2:1> 7k <num:3:2>"]
    )


def test_single_commands_score_as_known() -> None:
    assert rounded(command(2, 0)) == [0, 0, 0, 0, 0.3333, 0.3333]  # a released row of no hit
    assert rounded(command(2, 1))[3:] == [0.5, 0.6667, 0.6667]  # and one of one hit
    assert rounded(command(5, 52))[-1] == round(53 / 76, 4)  # and one of five arguments
    assert rounded(ScoredCommand(2, 2, Differs(2, 1, 0, 1, 0))) == [1, 0.5, 0, 0.5, 1, 0.3333]
    assert rounded(command(1, 0)) == [0, 0, 0, 0, 1, 1]  # an only argument always matters there


def test_commands_of_one_input_are_added_up_as_in_released_rows() -> None:
    assert rounded(command(2, 0), command(5, 0))[-1] == round(2 / 79, 4)  # grep and od
    assert rounded(command(1, 1), command(2, 0)) == [*[0.3333] * 4, 0.5, 0.5]  # basename and fold
    assert rounded(command(2, 0), ranges=2)[-1] == 0.5  # one more without arguments


def test_rules_see_only_what_they_look_at() -> None:
    assert scores("needs", "x", "y") == {
        **dict.fromkeys(RULES, 0.5), "smoothed": 0.6667, "all four": 0.6667,
    }  # fmt: skip
    fails = scores("fails", "x", "y")
    assert (fails["R*"], fails["failures"], fails["all four"]) == (0.5, 0, 0.3333)
    shouts = scores("shouts", "x", "y")
    assert (shouts["R*"], shouts["rewritten"], shouts["all four"]) == (0.5, 0, 0.3333)


def test_what_is_rewritten_may_differ_though_the_outputs_are_alike() -> None:
    pads = scores("pads", "x", "y")
    assert (pads["R*"], pads["strict"], pads["rewritten"], pads["failures"]) == (0, 0.5, 0.5, 0)
    assert (pads["smoothed"], pads["all four"]) == (0.3333, 0.6667)


def test_commands_of_a_composite_are_held_against_their_own_prefixes() -> None:
    found = scores("needs", "x", "y", ";", "fails", "x", "y")
    assert found["R*"] == 0.5
    assert found["failures"] == 0.25  # where the second fails, so does what is left of it
    assert found["all four"] == round((2 + 1) / (2 + 4), 4)
    assert scores("needs", "x", "y", ";", "needs", ">", "file")["all four"] == 0.8


def test_sub_inputs_run_where_their_records_did() -> None:
    observer = FakeRunner()
    scores("needs", "x", "y", observer=observer)
    assert {"needs x y", "needs y"} <= set(observer.texts)
    assert all(asked.state == State(cwd=HOME) for asked in observer.asked)


def test_inputs_that_wait_or_are_volatile_have_no_scores() -> None:
    observer: Any = FakeRunner()

    def found(number: int, *input_args: str) -> Rescored:
        return rescored(observer, (number, sample(*input_args)), seed=0, scoring=Scoring())

    assert found(3, "needs", "x", "waits") == Rescored(3, None, "waiting")
    assert found(4, "needs", "x", "random") == Rescored(4, None, "volatile")


def record(number: int, *, n: int = 2, volatile: bool = False) -> ScoredRecord:
    return ScoredRecord(number, "gcs", "needs", n, 1, 0, volatile, True, 5, 0.5, 0.5, 0.5)


def test_records_are_taken_evenly_and_none_that_is_volatile_or_has_no_argument() -> None:
    some = [record(n, n=n % 5, volatile=n % 2 == 1) for n in range(20)]
    usable = [2, 4, 6, 8, 12, 14, 16, 18]
    assert [one.session_id for one in evenly(some, 100)] == usable
    assert [one.session_id for one in evenly(some, 8)] == usable
    assert [one.session_id for one in evenly(some, 4)] == usable[::2]
    assert [one.session_id for one in evenly(some, 3)] == [2, 6, 14]
    assert evenly(some[:1], 3) == []


class Plan:
    drawing, scoring = Drawing(seed=3), Scoring(budget=16)

    def to_json(self) -> dict[str, Any]:
        return {"seed": self.drawing.seed, "budget": self.scoring.budget, "commands": ("ls",)}


@pytest.fixture(autouse=True)
def _system(monkeypatch: pytest.MonkeyPatch) -> None:
    def some(drawing: Drawing, count: int, **how: object) -> list[Sample]:
        return [one for _, one in zip(range(count), samples(), strict=False)]

    monkeypatch.setattr(reference, "read_manifest", lambda path: SimpleNamespace(plan=Plan()))
    monkeypatch.setattr(reference, "sample", some)
    monkeypatch.setattr(reference, "load_grammars", lambda names, host_clock: [])
    monkeypatch.setattr(ExperimentSetting, "system", SYSTEM)


def test_records_are_scored_again_once(tmp_path: Path) -> None:
    executor = FakeExecutor()
    setting = ExperimentSetting(out=tmp_path, executor=executor)
    wanted = [record(0), record(3), record(6)]
    found = scores_by_rule(setting, setting.data / "gcs", wanted[:2])
    assert [one.score for one in found.ruled] == wanted[:1]
    assert found.ruled[0].by_rule == by_rule([command(2, 1)], 1)
    assert found.left_out == {"waiting": 0, "volatile": 1}
    assert executor.executed == 2
    more = scores_by_rule(setting, setting.data / "gcs", wanted)
    assert [one.score for one in more.ruled] == [wanted[0], wanted[2]]
    assert executor.executed == 3
    columns = rule_columns(more.ruled)
    assert columns["session_id"] == [0, 6]
    assert columns["R*"] == [0.5, 0.5]
    assert means_by_rule([one.by_rule for one in more.ruled]) == found.ruled[0].by_rule
    assert list(scores_by_rule(setting, setting.data / "gcs", []).ruled) == []


def test_a_stopped_call_goes_on(tmp_path: Path) -> None:
    setting = ExperimentSetting(out=tmp_path, executor=FakeExecutor(fail_after=3))
    wanted = [record(number) for number in (0, 2, 6, 8)]
    with pytest.raises(KeyboardInterrupt):
        scores_by_rule(setting, setting.data / "gcs", wanted)
    kept = (setting.data / "gcs" / "rules" / JOURNAL).read_bytes().splitlines()
    executor = FakeExecutor()
    found = scores_by_rule(replace(setting, executor=executor), setting.data / "gcs", wanted)
    assert [one.score for one in found.ruled] == wanted
    assert executor.executed == len(wanted) - (len(kept) - 1)


def test_those_of_another_plan_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = ExperimentSetting(out=tmp_path, executor=FakeExecutor())
    scores_by_rule(setting, setting.data / "gcs", [record(0)])
    monkeypatch.setattr(Plan, "scoring", Scoring(budget=8))
    with pytest.raises(DatasetMismatchError, match="budget: 16 in the directory, 8 requested"):
        scores_by_rule(setting, setting.data / "gcs", [record(0)])
