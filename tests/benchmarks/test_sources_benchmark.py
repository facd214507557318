"""The benchmark of sources runs to its end. What it measures of a suite is not judged here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from shioenv_eval.suite import write_suite
from support.evaluation_fakes import case, did, suite_of
from support.small_world import small_memory

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "sources.py"


def test_each_source_is_left_out_once(tmp_path: Path) -> None:
    small_memory(tmp_path / "model")
    expected = {
        "basename sub/inner.txt": "inner.txt\n",
        "cat a.txt": "one\ntw",
        "head -n 1 b.txt": "x\n",
        "cd sub; pwd": "/home/ubuntu/sub\n",
    }
    cases = [case(did(output), text=text) for text, output in expected.items()]
    write_suite(suite_of(*cases), tmp_path / "small.suite")
    given: list[str | Path] = [
        "--suite",
        tmp_path / "small.suite",
        "--model",
        tmp_path / "model",
        "--workers",
        "1",
    ]
    done = subprocess.run(
        [sys.executable, SCRIPT, *given, "--limit", "3", "--json"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)["rows"]
    assert {row["inputs"] for row in rows} == {3}
    # rewritten records answer here as the functions do
    assert {row["sources"]: (row["right"], row["lost"], row["gained"]) for row in rows} == {
        "all": (3, 0, 0),
        "without rules": (2, 1, 0),
        "without functions": (3, 0, 0),
        "without records": (3, 0, 0),
        "without rules and functions": (2, 1, 0),
        "records alone": (1, 2, 0),
    }
