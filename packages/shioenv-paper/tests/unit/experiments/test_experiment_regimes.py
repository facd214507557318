"""Sequence models of an experiment on regimes: reused only with the same training settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from shioenv.errors import DatasetMismatchError, UsageError
from shioenv.execution.local import SerialExecutor
from shioenv_model.files import write_card
from shioenv_paper import regimes
from shioenv_paper.regimes import agree_on_training
from shioenv_paper.setting import ExperimentSetting

PLAN = {"size": "tiny", "steps": 20, "seed": 3}


def trained(run: Path) -> None:
    """Write the card of a model that was trained by `PLAN`."""
    (run / "model").mkdir(parents=True)
    write_card(run / "model", {"kind": "memory", "system": "", "plan": PLAN})


def test_a_trained_model_is_refused_where_another_plan_is_asked_for(tmp_path: Path) -> None:
    trained(tmp_path)
    agree_on_training(tmp_path, PLAN, 1.0)
    with pytest.raises(DatasetMismatchError, match="steps: 20 in the directory, 40 requested"):
        agree_on_training(tmp_path, {**PLAN, "steps": 40}, 1.0)


def test_the_minutes_belong_to_the_plan(tmp_path: Path) -> None:
    run = tmp_path / "run"
    agree_on_training(run, PLAN, 1.0)
    agree_on_training(run, PLAN, 1.0)
    with pytest.raises(DatasetMismatchError, match="minutes"):
        agree_on_training(run, PLAN, 2.0)


def test_suites_of_one_name_are_refused(tmp_path: Path) -> None:
    setting = ExperimentSetting(out=tmp_path, executor=SerialExecutor())
    suites = [Path("mine/typed.jsonl"), Path("drawn.jsonl"), Path("yours/typed.jsonl")]
    with pytest.raises(UsageError, match="several suites have the file name typed,"):
        regimes.run_regimes(setting, suites=suites, pools={})
