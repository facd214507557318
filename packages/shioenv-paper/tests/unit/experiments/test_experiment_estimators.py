"""Errors by estimator and budget, and the cost of a target error."""

from __future__ import annotations

from pathlib import Path

import pytest

from shioenv.irreducibility.estimators import ESTIMATORS
from shioenv_eval.report.means import Mean
from shioenv_paper import estimator_errors, exact, sampling_efficiency
from shioenv_paper.estimator_errors import spent
from shioenv_paper.estimator_replay import Accuracy, Cell, Cells, cells
from shioenv_paper.experiment_output import read_columns
from shioenv_paper.setting import ExperimentSetting
from support.experiment_fakes import SYSTEM, FakeExecutor, stream


def curve(*points: tuple[float, float]) -> Cells:
    return {
        ("paper", budget): Cell("paper", budget, Mean(error, error, error, 3), 0.0, executions)
        for budget, (executions, error) in enumerate(points)
    }


def test_a_wanted_error_lies_between_budgets() -> None:
    group = curve((4, 0.1), (16, 0.05), (64, 0.025))
    assert spent(group, "paper", 0.2) == 4
    assert spent(group, "paper", 0.05) == pytest.approx(16)
    assert spent(group, "paper", 0.05 / 2**0.5) == pytest.approx(32)
    assert spent(group, "paper", 0.01) is None


def test_an_error_of_nothing_is_reached_where_it_is() -> None:
    assert spent(curve((4, 0.1), (14, 0.0)), "paper", 0.01) == 14


def test_accuracies_are_averaged_over_inputs() -> None:
    by_place = cells(
        Accuracy(number, 3, "pps", 8, error, error - 0.1, 6.0 + number)
        for number, error in enumerate((0.1, 0.3))
    )
    cell = by_place["pps", 8]
    assert cell.error.value == pytest.approx(0.2)
    assert cell.bias == pytest.approx(0.1)
    assert cell.executions == 6.5


@pytest.fixture
def setting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ExperimentSetting:
    monkeypatch.setattr(exact, "stream", stream)
    monkeypatch.setattr(ExperimentSetting, "system", SYSTEM)
    return ExperimentSetting(out=tmp_path, executor=FakeExecutor())


def test_sampling_efficiency_writes_every_length_estimator_and_budget(
    setting: ExperimentSetting,
) -> None:
    results = sampling_efficiency.run_sampling_efficiency(setting, count=1, longest=3, replays=2)
    errors = read_columns(results.directory / "errors.parquet")
    assert len(errors["n"]) == 8 * len(ESTIMATORS) * len(sampling_efficiency.BUDGETS)
    inputs = read_columns(results.directory / "inputs.parquet")
    for known in range(len(inputs["number"])):
        n, differs = inputs["n_arguments"][known], inputs["differs"][known]
        score = exact.weighed(n, differs)
        assert score == inputs["irreducibility"][known]
    titles = [table.title for table in results.tables]
    assert titles == [*(f"Estimator `{name}`" for name in ESTIMATORS), "The exact scores"]


def test_estimators_uses_what_sampling_efficiency_executed(setting: ExperimentSetting) -> None:
    sampling_efficiency.run_sampling_efficiency(setting, count=1, longest=3, replays=2)
    results = estimator_errors.run_estimator_errors(setting, count=1, longest=3, replays=2)
    assert results.document["counts"]["executed by an earlier call"] == 8
    assert set(results.document["summary"]["3 arguments"]) == set(ESTIMATORS)
    assert (results.directory / "plot.png").read_bytes().startswith(b"\x89PNG")
