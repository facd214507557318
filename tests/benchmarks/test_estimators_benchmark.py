"""The benchmark of the estimators runs to its end and has a figure for each. The figures are not
checked here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from shioenv.irreducibility.estimators import ESTIMATORS
from shioenv.system.store import System
from support.nightly import NIGHTLY

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "estimators.py"


@NIGHTLY
def test_every_estimator_has_its_errors(system: System) -> None:
    sizes = ("--inputs", "2", "--lengths", "4", "5", "--budgets", "4", "32", "--seeds", "2")
    command = [sys.executable, str(SCRIPT), *sizes, "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["inputs"] == 4
    rows = {(row["estimator"], row["budget"], row["lengths"]): row for row in report["rows"]}
    assert len(rows) == len(report["rows"]) == len(ESTIMATORS) * 2 * 2
    for (_, budget, _), row in rows.items():
        if budget == 32:  # every sub-input
            assert row["mean_absolute_error"] < 1e-12
        assert row["executions"] <= 30
