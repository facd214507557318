"""The benchmark of datasets runs to its end. Its figures are not checked here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from shioenv.files.durable import cache_directory
from shioenv.system.store import System
from support.nightly import NIGHTLY

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "generate.py"


@NIGHTLY
def test_every_way_is_measured(
    system: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("bases", "names", "systems"):
        (tmp_path / name).symlink_to(cache_directory() / name)
    monkeypatch.setenv("SHIOENV_CACHE", str(tmp_path))
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--count", "3", "--turns", "1", "--json"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert system.digest.startswith(report["system"].split()[1])
    assert len(report["rows"]) == 6
    for row in report["rows"]:
        assert row["records_per_second"] > 0
        assert row["executed_per_second"] > 0
        assert 0 < row["not_in_commands"] < 1
    usual, again, unshared, alone, papers, unscored = report["rows"]
    assert all(row["hit_rate"] is None for row in (unshared, alone, papers))
    assert again["hit_rate"] > usual["hit_rate"]
    assert 2 <= unscored["executions"] < unshared["executions"] <= papers["executions"]
    assert all(row["generator_ms"] > 0 for row in report["rows"])
    assert not (tmp_path / "executions").exists()  # the user's cache stays unused
