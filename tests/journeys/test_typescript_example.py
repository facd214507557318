"""The runner in TypeScript judges just-bash as the checker judges its answers."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from shioenv_eval.frozen import judge
from shioenv_eval.predictors.line_program import installed, run_installer
from shioenv_eval.suite import Suite, read_suite, write_suite
from support.needs import needs
from support.paths import ROOT

EXAMPLE = ROOT / "examples" / "just-bash"
FILES = ("package.json", "judge.ts")

pytestmark = [needs("node", "npm"), pytest.mark.timeout(300)]


def example() -> Path:
    """Return a copy of the example with its packages, installed on first use."""
    contents = b"".join((EXAMPLE / name).read_bytes() for name in FILES)

    def install(directory: Path) -> None:
        for name in FILES:
            shutil.copy(EXAMPLE / name, directory)
        words = ("npm", "install", "--ignore-scripts", "--no-audit", "--no-fund")
        run_installer(words, "the example", cwd=directory)

    return installed(f"just-bash-example-{hashlib.sha256(contents).hexdigest()[:12]}", install)


def test_the_runner_gives_the_figures_of_the_checker(tmp_path: Path) -> None:
    whole = read_suite("public-test")
    suite, answers = tmp_path / "suite.gz", tmp_path / "answers.jsonl"
    write_suite(Suite(whole.head, whole.cases[::10]), suite)
    words = ["npm", "start", "--silent", "--", str(suite), str(answers)]
    environment = {**os.environ, "FROZEN": f"{Path(judge.__file__).parent.as_uri()}/"}
    done = subprocess.run(
        words, cwd=example(), env=environment, capture_output=True, text=True, check=True
    )
    told = dict(line.split(" | ") for line in done.stdout.splitlines())
    figures = judge.judged(suite, answers)["all"]
    wanted = {"output": "em_output", "exit": "exit_code", "output and files": "em_files"}
    assert {name: float(share) for name, share in told.items()} == {
        name: figures[metric] for name, metric in wanted.items()
    }
    assert 0.2 < figures["em_files"] < 1


def test_the_runner_is_short() -> None:
    assert len((EXAMPLE / "judge.ts").read_text("utf-8").splitlines()) <= 120
