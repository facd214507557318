"""The benchmarks of sources and rules run to their end. Their figures are not checked here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from shioenv_eval.suite import write_suite
from support.evaluation_fakes import case, did, suite_of
from support.nightly import NIGHTLY
from support.small_world import small_memory

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def run(script: str, directory: Path, *more: str) -> str:
    """Return a benchmark's output for a small suite and a small model."""
    small_memory(directory / "model")
    expected = {
        "basename sub/inner.txt": "inner.txt\n",
        "cat a.txt": "one\ntw",
        "head -n 1 b.txt": "x\n",
        "cd sub; pwd": "/home/ubuntu/sub\n",
    }
    cases = [case(did(output), text=text) for text, output in expected.items()]
    write_suite(suite_of(*cases), directory / "small.suite")
    given = ["--suite", f"{directory}/small.suite", "--model", f"{directory}/model", *more]
    command = [sys.executable, str(BENCHMARKS / script), *given]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_each_rule_is_left_out_once(tmp_path: Path) -> None:
    first, *_, row = run("rules.py", tmp_path).splitlines()
    assert (first, row) == ("3 of 4 are right", "| program | 1 | 1 | 1 | 0 |")


@NIGHTLY
def test_each_source_is_left_out_once(tmp_path: Path) -> None:
    shown = run("sources.py", tmp_path, "--workers", "1", "--limit", "3", "--json")
    rows: list[dict[str, Any]] = json.loads(shown)["rows"]
    assert {row["inputs"] for row in rows} == {3}
    # rewritten records and functions give the same answers here
    assert {row["sources"]: (row["right"], row["lost"], row["gained"]) for row in rows} == {
        "all": (3, 0, 0),
        "without rules": (2, 1, 0),
        "without functions": (3, 0, 0),
        "without records": (3, 0, 0),
        "without rules and functions": (2, 1, 0),
        "records alone": (1, 2, 0),
    }
