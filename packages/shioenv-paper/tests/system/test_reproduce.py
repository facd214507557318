"""`shioenv reproduce quick` on the built system, with few records and a small predictor."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shioenv.cli.main import app
from shioenv_paper import reproduction
from shioenv_paper.reproduction import made_values


@pytest.mark.usefixtures("system")
def test_values_are_made_again_and_a_difference_ends_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reproduction, "COUNT", 4)
    monkeypatch.setattr(reproduction, "MODEL", "trivial")
    made = made_values(tmp_path / "first", workers=1)
    assert list(made.records) == ["0", "1", "2", "3"]
    words = ["reproduce", "quick", "--out", str(tmp_path / "second"), "--workers", "1", "--json"]
    monkeypatch.setattr(reproduction, "committed_values", lambda: made)
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["compared_records"] == 4 - len(made.volatile)
    other = replace(made, records={**made.records, "1": "f" * 16}, volatile=())
    monkeypatch.setattr(reproduction, "committed_values", lambda: other)
    failed = CliRunner().invoke(app, words)
    assert failed.exit_code == 1
    assert "1" in json.loads(failed.stdout)["faults"][0]
