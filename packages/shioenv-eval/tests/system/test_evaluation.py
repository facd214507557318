"""Suites recorded on the real system, and the ceiling."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shioenv.cli.main import app
from shioenv.errors import DatasetStorageError
from shioenv_eval.ceiling import ceiling
from shioenv_eval.evaluate import evaluate
from shioenv_eval.suite import Suite, read_suite, write_suite
from shioenv_eval.suite_recorder import recorded_suite
from support.nightly import NIGHTLY

pytestmark = [
    pytest.mark.usefixtures("system"),
    pytest.mark.xdist_group("evaluation"),  # one suite for all
]

INPUTS = [
    {"input": "ls documents", "id": "steady"},
    {"input": "mktemp", "id": "random"},
    {"input": "echo $RANDOM > /tmp/x; wc -l /tmp/x; cat /tmp/x", "id": "number"},
    {
        "input": "cat list; echo $n",
        "id": "history",
        "history": ["cd /tmp", "ls /home > list", "n=5", "sort -r list > turned", "mv turned list"],
    },
    {"input": "mv documents/notes.txt documents/moved.txt", "id": "move"},
    {"input": "pwd", "id": "elsewhere", "cwd": "/etc"},
]


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    directory = tmp_path_factory.mktemp("suite")
    inputs = directory / "inputs.jsonl"
    inputs.write_text("".join(json.dumps(line) + "\n" for line in INPUTS))
    with recorded_suite(inputs, seconds_apart=0, workers=1) as recorded:
        write_suite(recorded, directory / "suite.jsonl")
    return read_suite(directory / "suite.jsonl")


def test_what_varies_is_found_and_nothing_else(suite: Suite) -> None:
    varies = {case.question.id: case.mask.channels for case in suite.cases if case.mask.volatile}
    assert varies == {"random": ("output", "patch"), "number": ("output", "patch")}
    assert all(len(case.runs) == 5 for case in suite.cases)
    steady, _, number, history, move, elsewhere = suite.cases
    assert b"notes.txt\n" in steady.gold[0].output
    assert number.mask.fits(b"1 /tmp/x\n31000\n")
    assert not number.mask.fits(b"2 /tmp/x\n31000\n")
    assert history.gold[0].output == b"ubuntu\nbob\nalice\n5\n"
    assert not history.gold[0].patch, "what the inputs before it did is not its own"
    assert move.moved["/fs/documents~1notes.txt"]["size"] == 516
    assert elsewhere.gold[0].output == b"/etc\n"


def test_the_wait_before_the_last_runs_is_told(tmp_path: Path) -> None:
    (tmp_path / "inputs").write_text("date +%s\n")
    told: list[float] = []
    inputs = tmp_path / "inputs"
    with recorded_suite(inputs, seconds_apart=1.5, workers=1, runs=2, waits=told.append):
        pass
    assert len(told) == 1
    assert 1 < told[0] <= 1.5


KILLED = """
import os, signal, sys
from functools import partial
from pathlib import Path
from shioenv_eval.suite_recorder import recorded_suite
from shioenv.files import unfinished
inputs, cache, at = sys.argv[1:]
unfinished.cache_directory = lambda: Path(cache)
def report(done, total):
    if done == int(at):
        os.kill(os.getpid(), signal.SIGKILL)
with recorded_suite(inputs, seconds_apart=0, workers=1, runs=3, report=report):
    pass
"""


@NIGHTLY
def test_a_recording_that_was_killed_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is killed during the first runs, then during the last ones."""
    inputs, cache = tmp_path / "inputs", tmp_path / "cache"
    inputs.write_text("pwd\nmv documents/notes.txt moved\ncat nowhere\nls | wc -l\n")
    for at in (4, 10):
        words = [sys.executable, "-c", KILLED, str(inputs), str(cache), str(at)]
        assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
    monkeypatch.setattr("shioenv.files.unfinished.cache_directory", lambda: cache)
    told: list[tuple[int, int]] = []

    def record(name: str) -> bytes:
        told.clear()
        with recorded_suite(
            inputs, seconds_apart=0, workers=1, runs=3, report=lambda *counts: told.append(counts)
        ) as suite:
            write_suite(suite, tmp_path / name)
        return (tmp_path / name).read_bytes()

    went_on = record("went-on")
    assert told == [(10, 12), (11, 12), (12, 12)]
    assert not list((cache / "unfinished").iterdir())
    assert record("whole") == went_on
    assert told[0] == (0, 12)


def test_a_recording_that_could_not_be_written_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = tmp_path / "inputs"
    inputs.write_text("pwd\ncat nowhere\n")
    monkeypatch.setattr("shioenv.files.unfinished.cache_directory", lambda: tmp_path / "cache")
    told: list[tuple[int, int]] = []

    def record(out: Path) -> None:
        told.clear()
        with recorded_suite(
            inputs, seconds_apart=0, workers=1, runs=2, report=lambda *counts: told.append(counts)
        ) as suite:
            write_suite(suite, out)

    with pytest.raises(DatasetStorageError):
        record(tmp_path)
    record(tmp_path / "suite")
    assert told == [(4, 4)]
    assert len(read_suite(tmp_path / "suite").cases) == 2
    assert not list((tmp_path / "cache" / "unfinished").iterdir())


def test_the_machine_itself_reaches_the_ceiling(suite: Suite) -> None:
    found = ceiling(suite, workers=1)
    assert found.misses == ()
    assert found.ok
    done = evaluate(suite, ["sandbox", "trivial"], workers=1)
    sandbox, trivial = (done.document["predictors"][name]["all"] for name in ("sandbox", "trivial"))
    assert sandbox["em_masked"] == [1.0, 1.0, 1.0]
    assert sandbox["em"][0] == pytest.approx(4 / 6, abs=1e-4), "what is random is not guessed"
    assert trivial["em"] == [0.0, 0.0, 0.0]


def test_a_machine_that_does_something_else_is_found_out(suite: Suite, tmp_path: Path) -> None:
    path = tmp_path / "other.jsonl"
    lines = json.dumps({"input": "ls documents", "id": "steady"})
    inputs = tmp_path / "inputs"
    inputs.write_text(lines)
    with recorded_suite(inputs, seconds_apart=0, workers=1, runs=2) as other:
        (case,) = other.cases
    changed = type(case)(case.question, tuple(
        type(run)(run.exit_code, run.output.replace(b"notes", b"nodes"), run.patch)
        for run in case.runs
    ))  # fmt: skip
    write_suite(Suite(other.head, (changed,)), path)
    found = ceiling(read_suite(path), workers=1)
    assert not found.ok
    assert "line 6 is 'notes.txt' instead of 'nodes.txt'" in found.misses[0].why


def test_a_suite_of_another_build_says_so(suite: Suite, tmp_path: Path) -> None:
    path = tmp_path / "other.suite"
    write_suite(Suite(replace(suite.head, system_digest="0" * 64), suite.cases), path)
    done = CliRunner().invoke(app, ["suite", "check", str(path), "--workers", "1"])
    assert done.exit_code == 1
    assert "the suite was made with another build of the system debian-12" in done.output
    assert "(SHIO-S10)" in done.output
    assert "dataset" not in done.output


def test_an_evaluation_may_run_the_inputs_again(suite: Suite, tmp_path: Path) -> None:
    path, out = tmp_path / "suite.jsonl.gz", tmp_path / "kept"
    other = replace(suite.head, system_digest="0" * 64, name="mine")
    write_suite(Suite(other, suite.cases[:2]), path)
    words = ["evaluate", "--predictor", "sandbox", "--suite", str(path), "--run-again", "--json"]
    first, second = (
        CliRunner().invoke(app, [*words, "--out", str(out), "--workers", "1"]) for _ in range(2)
    )
    assert first.exit_code == 0, first.output
    document = json.loads(first.stdout)
    assert document["suite"]["name"] == "mine"
    assert document["suite"]["system_digest"] == suite.head.system_digest
    assert document["predictors"]["sandbox"]["all"]["em_masked"][0] == 1.0
    assert json.loads(second.stdout) == document, "the recording in the directory is used again"
