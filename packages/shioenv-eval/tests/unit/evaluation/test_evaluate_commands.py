"""`shioenv evaluate` on the command line: its output, files and exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from shioenv.cli.main import app
from shioenv_eval.suite import write_suite
from support.evaluation_fakes import case, did, suite_of
from support.needs import needs


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(app, list(map(str, words)))


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    path = tmp_path / "made.suite"
    write_suite(suite_of(case(did(""), text="true"), case(did("a\n"), text="echo a")), path)
    return path


def test_predictors_are_judged_shown_and_asked_no_more(tmp_path: Path, suite: Path) -> None:
    judge = ("evaluate", "--predictor", "trivial", "--suite", suite, "--workers", "1", "--json")
    done = run(*judge, "--out", tmp_path / "kept")
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    facts = document["predictors"]["trivial"]
    assert facts["patch_level"] == "full"
    for group, n in (("single", 2), ("multi", 0), ("all", 2)):
        assert facts[group]["n"] == n
    value, low, high = facts["all"]["em"]
    assert (value, low <= value <= high) == (0.5, True)
    assert json.loads((tmp_path / "kept" / "results.json").read_text()) == document
    (answers,) = (tmp_path / "kept" / "answers").glob("*.ndjson")
    before = answers.read_bytes()
    assert json.loads(run(*judge, "--out", tmp_path / "kept").stdout) == document
    assert answers.read_bytes() == before
    assert "| `trivial` |" in run("evaluate", "table", tmp_path / "kept").stdout
    told = run("evaluate", "report", tmp_path / "kept", "--out", tmp_path / "page.html")
    assert told.exit_code == 0, told.output
    assert "echo a" in (tmp_path / "page.html").read_text()


@needs("shioenv-model")
def test_what_cannot_run_is_told_beside_what_can(tmp_path: Path, suite: Path) -> None:
    absent = f"memory:{tmp_path / 'absent'}"
    done = run("evaluate", "--predictor", "trivial", "--predictor", absent, "--suite", suite)
    assert done.exit_code == 1
    assert "trivial" in done.stdout
    assert "absent" in done.output


def test_who_names_no_predictor_is_told_how(suite: Path) -> None:
    done = run("evaluate", "--suite", suite)
    assert done.exit_code == 2
    assert "--predictor" in done.output


def test_answers_that_are_none_are_told_and_alone_are_an_error(tmp_path: Path, suite: Path) -> None:
    answers = tmp_path / "answers"
    answers.write_text('{"input": "true", "output": ""}\n{"input": "echo a", "outptu": "a"}\n')
    half = run("evaluate", "--predictor", f"recording:{answers}", "--suite", suite)
    assert half.exit_code == 0
    assert "1 of 2 answers are missing or invalid, and count as wrong (1 invalid)" in half.stderr
    assert "did you mean output?" in half.stderr
    cat = run("evaluate", "--predictor", "command:/bin/cat", "--suite", suite)
    assert cat.exit_code == 1
    assert "error: command:/bin/cat: none of its 2 answers is valid" in cat.stderr
    assert "started in" in cat.stderr
    assert cat.stdout == "", "no empty tables"
