"""Statistics of scores: means by length, gains, distributions, training sets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shioenv.dataset.manifest import Plan
from shioenv.errors import DatasetMismatchError
from shioenv.irreducibility.scoring import THE_PAPERS, Scoring
from shioenv.sandbox.base import Limits
from shioenv.synthesis.drawing import Drawing
from shioenv_eval.report.means import MeanDifference
from shioenv_paper import by_length, length_groups, scores, training_sets
from shioenv_paper.experiment_output import read_columns
from shioenv_paper.length_groups import gains_by_command, gains_of
from shioenv_paper.reference import Rescoring, Ruled
from shioenv_paper.scores import ScoredDataset, ScoredRecord, values
from shioenv_paper.setting import ExperimentSetting
from support.experiment_fakes import SYSTEM


def score(
    number: int, sampler: str, n: int, value: float | None, exit_code: int = 0
) -> ScoredRecord:
    return ScoredRecord(
        session_id=number,
        sampler=sampler,
        command="ls",
        n_arguments=n,
        n_operands=n // 2,
        exit_code=exit_code,
        volatile=False,
        exact=True,
        n_executions=5,
        irreducibility=value,
        irreducibility_strict=value,
        necessary=value,
    )


def of(sampler: str, count: int) -> list[ScoredRecord]:
    """Return records of lengths 0, 1, 2 in turn. With GCS all arguments matter, with others half;
    every second record fails."""
    high = 1.0 if sampler == "gcs" else 0.5
    return [
        score(number, sampler, number % 3, high if number % 3 else None, number % 2)
        for number in range(count)
    ]


@pytest.fixture
def setting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ExperimentSetting:
    def made(
        setting: ExperimentSetting, name: str, count: int, drawing: Drawing, scoring: Scoring
    ) -> ScoredDataset:
        return ScoredDataset(setting.data / name, count, of(drawing.sampler, count))

    def ruled(setting: ExperimentSetting, directory: Path, found: list[ScoredRecord]) -> Rescoring:
        rows = [
            Ruled(one, (one.irreducibility or 0.0, 0.9, 0.8, 0.7, 0.6, 0.6 if number % 2 else 0.4))
            for number, one in enumerate(found)
        ]
        return Rescoring(rows, {"waiting": 1, "volatile": 0})

    for experiment in (by_length, training_sets):
        monkeypatch.setattr(experiment, "make_dataset", made)
        monkeypatch.setattr(experiment, "scores_by_rule", ruled)
    monkeypatch.setattr(ExperimentSetting, "system", SYSTEM)
    return ExperimentSetting(out=tmp_path)


def test_irreducibility_by_length_compares_the_samplers(
    setting: ExperimentSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(length_groups, "RESCORED", 30)
    results = by_length.run_by_length(setting, count=240)
    gains = next(table for table in results.tables if table.title == "Difference of GCS and UCS")
    assert [row[0] for row in gains.rows] == ["1", "2"]
    assert gains.rows[1] == ("2", *["+0.500 (+0.500 to +0.500)"] * 4, "+100%")
    assert results.document["counts"]["gcs"]["fail"] == 120
    assert results.document["summary"]["share of GCS inputs at exactly 1"] == 1
    assert len(read_columns(results.directory / "scores.parquet")["sampler"]) == 720
    operands, commands, rules, by_number = results.tables[-4:]
    assert operands.rows == [("2", "0", "-", "0", "-", "80", "1.000")]
    assert commands.rows == [("ls", "80", "1.000 ± 0.000", "100%", "50%")]
    assert rules.rows[2] == (
        "UCS", "1 and more", "60", "0.500", "0.900", "0.800", "0.700", "0.600", "0.500",
    )  # fmt: skip
    assert rules.rows[3][:4] == ("UCS", "2 and more", "30", "0.500")
    assert by_number.rows[0][:7] == ["1", "30", "1.000", "0.500", "30", "0.500", "0.500"]
    assert [row[-2] for row in by_number.rows] == ["+0.500 (+0.500 to +0.500)"] * 2
    assert [row[-1][:7] for row in by_number.rows] == ["+0.000 ", "+0.000 "]
    assert len(read_columns(results.directory / "rules.parquet")["R*"]) == 180
    assert results.document["counts"]["ucs"]["not so scored"] == {"waiting": 1, "volatile": 0}
    shares = next(table for table in results.tables if table.title == "Distributions")
    assert shares.rows[0] == (
        "GCS", "all with a score", "all inputs", "160", "1.000", "0.0%", "0.0%", "100.0%",
    )  # fmt: skip
    assert shares.rows[3][:4] == ("GCS", "2 and more", "all inputs", "80")
    assert shares.rows[7][2:6] == ("inputs that succeed (exit 0)", "80", "0.500", "0.0%")


@pytest.mark.parametrize("run", [by_length.run_by_length, training_sets.run_training_sets])
def test_without_rules_no_input_is_executed_again(
    run: Any, setting: ExperimentSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    for experiment in (by_length, training_sets):
        monkeypatch.setattr(experiment, "scores_by_rule", None)
    results = run(setting, count=240, rules=False)
    assert results.tables
    assert not any("rules" in table.title for table in results.tables)
    assert "rules.parquet" not in results.document["files"]


def test_a_sampler_without_inputs_of_a_length_has_none_there(
    setting: ExperimentSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(
        setting: ExperimentSetting, name: str, count: int, drawing: Drawing, scoring: Scoring
    ) -> ScoredDataset:
        return ScoredDataset(
            setting.data,
            count,
            [score(0, drawing.sampler, 2 + (drawing.sampler == "ucs"), 0.5)] * 8,
        )

    monkeypatch.setattr(by_length, "make_dataset", made)
    results = by_length.run_by_length(setting, count=8)
    table = results.tables[0]
    assert [row[:7] for row in table.rows] == [
        ["2", "8", "0.500 ± 0.000", "0.0%", "0", "-", "-"],
        ["3", "0", "-", "-", "8", "0.500 ± 0.000", "0.0%"],
    ]


def test_inputs_without_a_score_make_no_picture_but_no_error(
    setting: ExperimentSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(
        setting: ExperimentSetting, name: str, count: int, drawing: Drawing, scoring: Scoring
    ) -> ScoredDataset:
        return ScoredDataset(setting.data, count, [score(0, drawing.sampler, 0, None)] * count)

    monkeypatch.setattr(by_length, "make_dataset", made)
    assert by_length.run_by_length(setting, count=1).document["counts"]["gcs"]["inputs"] == 1


def test_differences_of_few_inputs_are_not_given(
    setting: ExperimentSetting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(
        setting: ExperimentSetting, name: str, count: int, drawing: Drawing, scoring: Scoring
    ) -> ScoredDataset:
        fails = 19 if drawing.sampler == "ucs" else 20
        scores = [score(0, drawing.sampler, 2, 0.5, number < fails) for number in range(count)]
        return ScoredDataset(setting.data, count, scores)

    monkeypatch.setattr(by_length, "make_dataset", made)
    results = by_length.run_by_length(setting, count=40)
    gains = next(table for table in results.tables if table.title == "Difference of GCS and UCS")
    equal = "+0.000 (+0.000 to +0.000)"
    assert gains.rows == [("2", equal, equal, "-", equal, "+0%")]


def test_a_difference_between_samplers_may_be_one_between_their_commands() -> None:
    high, low = ([score(0, "", 2, value)] for value in (1.0, 0.0))
    of_gcs = [("cat", low, 80), ("echo", high, 20), ("tr", high, 4)]
    of_ucs = [("cat", low, 20), ("echo", high, 80), ("ls", low, 50)]
    found = [
        replace(one, sampler=sampler, command=command)
        for sampler, commands in (("gcs", of_gcs), ("ucs", of_ucs))
        for command, some, count in commands
        for one in some * count
    ]
    assert gains_of(found, lambda one: True)[2].value == pytest.approx(24 / 104 - 80 / 150)
    assert gains_by_command(found, lambda one: True) == {2: MeanDifference(0.0, 0.0)}
    assert gains_by_command(found, lambda one: one.command == "tr") == {}


def test_commands_weigh_as_much_as_ucs_writes_them() -> None:
    def some(sampler: str, command: str, count: int, *found: float) -> list[ScoredRecord]:
        ones = [replace(score(0, sampler, 3, value), command=command) for value in found]
        return ones * count

    found = some("gcs", "cat", 10, 0.5, 0.7) + some("gcs", "echo", 10, 0.9)
    found += some("ucs", "cat", 30, 0.4) + some("ucs", "echo", 5, 0.8, 1.0)
    gain = gains_by_command(found, lambda one: True)[3]
    assert gain.value == pytest.approx(0.75 * 0.2)
    variances = 0.75**2 * (0.01 * 20 / 19) / 20, 0.25**2 * (0.01 * 10 / 9) / 10
    assert gain.error == pytest.approx(sum(variances) ** 0.5)


def test_training_sets_are_cut_at_a_half_and_hold_as_many_scores_as_asked_for(
    setting: ExperimentSetting,
) -> None:
    results = training_sets.run_training_sets(setting, count=20)
    counts = results.document["counts"]
    assert {one["with a score"] for one in counts.values()} == {20}
    assert counts["gcs"]["inputs"] == 30  # a third have no arguments
    summary = results.document["summary"]
    assert summary["UCS, R* ≥ 0"] == {"inputs": 20, "mean": 0.5, "sd": 0.0}
    assert summary["GCS, R* ≥ 0.5"] == {"inputs": 20, "mean": 1.0, "sd": 0.0}
    assert summary["GCS, R* ≤ 0.5"] == {"inputs": 0}
    assert results.tables[0].rows[1][2:4] == ("1.000 ± 0.000", "0.58 ± 0.31")
    rules = results.tables[-1].rows
    assert rules[0][:3] == ("UCS, score ≥ 0", "0.500 ± 0.000 (20)", "0.900 ± 0.000 (20)")
    assert rules[0][-1] == "0.500 ± 0.103 (20)"
    assert [row[-1] for row in rules[2:]] == ["0.600 ± 0.000 (10)", "0.400 ± 0.000 (10)"]
    assert rules[3][1] == "- (0)"


NL2CMD = SimpleNamespace(
    plan=Plan(
        drawing=Drawing(sampler="nl2cmd"),
        scoring=THE_PAPERS,
        system="fake",
        system_digest=SYSTEM.digest,
        grammar_digest="9" * 64,
        limits=Limits(),
        version="0.1.0",
    )
)


def test_what_people_wrote_stands_beside_the_training_sets(
    setting: ExperimentSetting, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = [replace(one, command="find") for one in of("gcs", 9)] + of("ucs", 3)
    monkeypatch.setattr(training_sets, "scores_of", lambda directory: iter(given))
    monkeypatch.setattr(training_sets, "finished_manifest", lambda directory: NL2CMD)
    results = training_sets.run_training_sets(setting, count=20, nl2cmd=tmp_path)
    own = {row[0]: row for row in results.tables[0].rows}
    assert own["NL2CMD, R* ≥ 0"][1:] == ("8", "0.875 ± 0.231", "-", "0.875 ± 0.250", "75.0%")
    assert own["NL2CMD, R* ≤ 0.5"][1] == "2"
    assert results.tables[1].rows[2] == ("NL2CMD", "`find`, 75.0%", "1", "-1.15", "41.7%", "0.0%")
    assert [row[0] for row in results.tables[2].rows] == ["UCS", "GCS", "NL2CMD"]
    assert not any("NL2CMD" in row[0] for row in results.tables[-1].rows)
    assert results.document["counts"]["nl2cmd"]["inputs"] == 12
    with pytest.raises(DatasetMismatchError, match="budget: 64 in the dataset, 8 requested"):
        training_sets.run_training_sets(
            setting, count=20, scoring=replace(THE_PAPERS, budget=8), nl2cmd=tmp_path
        )


def test_a_dataset_that_was_begun_for_more_is_finished(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[int] = []

    class Manifest:
        count = 9

    def generate(directory: Path, **how: Any) -> Any:
        asked.append(how["count"])
        raise DatasetMismatchError(str(directory), ["seed: 7 in the dataset, 8 requested"])

    monkeypatch.setattr(scores, "generate", generate)
    setting = ExperimentSetting(out=tmp_path)
    with pytest.raises(DatasetMismatchError):
        scores.make_dataset(setting, "gcs", 4, Drawing(), Scoring())
    monkeypatch.setattr(scores, "read_manifest", lambda directory: Manifest)
    with pytest.raises(DatasetMismatchError):
        scores.make_dataset(setting, "gcs", 4, Drawing(), Scoring())
    assert asked == [4, 9]


def test_values_are_those_that_are_kept_and_known() -> None:
    some = of("gcs", 6)
    assert values(some) == [1.0] * 4
    assert values(some, lambda one: one.exit_code == 0) == [1.0] * 2
