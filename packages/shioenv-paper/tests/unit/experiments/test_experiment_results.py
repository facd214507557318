"""Files of an experiment: data, picture, table, and the versions and options behind them."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shioenv.errors import DatasetBusyError, DatasetCorruptError, MissingExtraError
from shioenv.execution.local import LocalExecutor
from shioenv.files.durable import locked
from shioenv_eval.report import chart_style
from shioenv_eval.report.markup import Table
from shioenv_eval.report.panels import chart
from shioenv_paper import (
    by_length,
    determinism,
    estimator_errors,
    experiment_output,
    sampling_efficiency,
    training_sets,
)
from shioenv_paper.experiment_journal import agree
from shioenv_paper.experiment_output import (
    Findings,
    check_libraries,
    read_columns,
    write_columns,
)
from shioenv_paper.setting import ExperimentSetting
from support.experiment_fakes import SYSTEM

CHART = chart([{"x": 1, "y": 2}]).mark_point().encode(x="x:Q", y="y:Q")


@pytest.fixture
def setting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ExperimentSetting:
    monkeypatch.setattr(ExperimentSetting, "system", SYSTEM)
    return ExperimentSetting(
        out=tmp_path, executor=LocalExecutor(3), seed=4, command="shioenv experiment x"
    )


def test_results_say_what_they_were_made_with(setting: ExperimentSetting) -> None:
    findings = Findings(
        title="An experiment",
        data={"numbers": {"n": [1, 2], "text": ["a", "b"], "bits": [b"\x01", b""]}},
        tables=[Table("Some", "A note.", ("name", "value"), [("a|b", "1")])],
        chart=CHART,
        counts={"inputs": 2},
        parameters={"budget": 8},
        summary={"mean": 0.5},
    )
    written = experiment_output.write_findings(setting, "x", findings, started=time.monotonic())
    directory = setting.out / "x"
    assert written.directory == directory
    document = json.loads((directory / "run.json").read_text())
    assert document == written.document
    assert document["command"] == "shioenv experiment x"
    assert (document["seed"], document["workers"]) == (4, 3)
    assert document["system"] == {"name": "fake", "digest": "d1935"}
    assert (document["counts"], document["parameters"]) == ({"inputs": 2}, {"budget": 8})
    assert set(document["versions"]) >= {"shioenv", "python", "kernel", "pyarrow"}
    assert document["wall_seconds"] >= 0
    assert set(document["files"]) == {path.name for path in directory.iterdir()}
    assert read_columns(directory / "numbers.parquet") == findings.data["numbers"]
    assert (directory / "plot.svg").read_text().startswith("<svg")
    assert (directory / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert (directory / "table.md").read_text() == (
        "# An experiment\n\n## Some\n\nA note.\n\n| name | value |\n|---|---:|\n| a\\|b | 1 |\n"
    )


@pytest.mark.parametrize(
    ("module", "extra"), [("pyarrow", "export"), ("scipy", "report"), ("vl_convert", "report")]
)
def test_what_is_missing_is_said_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, module: str, extra: str
) -> None:
    monkeypatch.setattr(chart_style, "find_spec", lambda name: None if name == module else 1)
    with pytest.raises(MissingExtraError, match=module.replace("_", "-")) as error:
        check_libraries()
    assert error.value.hint == f"pip install 'shioenv[{extra}]'"


@pytest.mark.parametrize(
    "experiment",
    [
        by_length.run_by_length,
        determinism.run_determinism,
        estimator_errors.run_estimator_errors,
        sampling_efficiency.run_sampling_efficiency,
        training_sets.run_training_sets,
    ],
)
def test_no_experiment_begins_without_what_draws_it(
    setting: ExperimentSetting, monkeypatch: pytest.MonkeyPatch, experiment: Any
) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(MissingExtraError, match="altair"):
        experiment(setting)
    assert list(setting.out.iterdir()) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"nothing",
        lambda content: b"",
        lambda content: content[:20] + bytes(40) + content[60:],
    ],
)
def test_data_that_cannot_be_read_are_named(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "pass-1.parquet"
    write_columns(path, {"n": list(range(5000))})
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DatasetCorruptError, match=r"pass-1\.parquet"):
        read_columns(path)


@pytest.mark.parametrize("content", [b"nonsense", b"[]"])
def test_a_plan_that_cannot_be_read_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(content)
    with pytest.raises(DatasetCorruptError, match=r"plan\.json"):
        agree(path, {"seed": 1})


def test_a_directory_is_written_by_one_process_at_a_time(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(DatasetBusyError), locked(tmp_path):
        pass
    with locked(tmp_path):
        pass
