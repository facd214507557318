"""The frozen answers: they are complete, agree with their index, and need no built system."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shioenv.cli.main import app
from shioenv.dataset.questions import read_questions
from shioenv.errors import SuiteError
from shioenv_eval.conform.cases import KINDS
from shioenv_eval.suite import FROZEN, frozen_file, read_suite, write_suite
from support.evaluation_fakes import case, did, suite_of

INDEX = json.loads(frozen_file("index.json").read_bytes())


@pytest.mark.parametrize("name", FROZEN)
def test_a_frozen_suite_is_as_the_index_lists_it(name: str) -> None:
    suite = read_suite(name)
    facts = {"inputs": len(suite.cases), "runs": 5, "volatile": suite.volatile}
    assert INDEX["files"][f"{name}.jsonl.gz"] == {**facts, "sha256": suite.head.sha256}
    assert suite.head.name == name
    assert suite.head.system_digest == INDEX["system_digest"]
    assert all(len(case.runs) == 5 for case in suite.cases)


def test_the_inputs_are_those_of_the_package() -> None:
    asked = [case.question for case in read_suite("public-test").cases]
    assert asked == read_questions("public-test")
    kinds = Counter(case.question.kind for case in read_suite("conformance").cases)
    assert kinds.keys() == set(KINDS)
    assert INDEX["files"]["conformance.jsonl.gz"]["inputs"] == INDEX["conformance"]["count"]


def test_the_machine_is_that_of_the_answers_and_everything_is_small() -> None:
    packed = frozen_file("machine.json.gz").read_bytes()
    content = gzip.decompress(packed)
    assert hashlib.sha256(content).hexdigest() == INDEX["files"]["machine.json.gz"]["sha256"]
    machine = json.loads(content)
    assert machine["system_digest"] == INDEX["system_digest"]
    files = {file[0]: file for file in machine["files"]}
    assert files["/home/ubuntu/documents/notes.txt"][1] == "file"
    known = {path for paths in INDEX["conffiles"].values() for path in paths}
    assert known & files.keys()
    sizes = [len(frozen_file(name).read_bytes()) for name in (*FROZEN, "machine.json.gz")]
    assert sum(sizes) < 15_000_000


def test_an_evaluation_by_frozen_answers_needs_no_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    words = ["evaluate", "--predictor", "trivial", "--suite", "sessions-200", "--workers", "1"]
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["suite"]["system_digest"] == INDEX["system_digest"]
    assert document["predictors"]["trivial"]["all"]["n"] == 200


def test_a_file_of_the_same_name_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_suite(suite_of(case(did("x"))), "public-test")
    assert len(read_suite("public-test").cases) == 1


def test_a_compressed_suite_is_the_same_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    suite, path = suite_of(case(did("x\n"))), tmp_path / "suite.gz"
    write_suite(suite, path)
    packed = path.read_bytes()
    assert read_suite(path).cases == suite.cases
    write_suite(suite, path)
    assert path.read_bytes() == packed
    for damaged in (packed[:-9], packed[:40], packed[:2] + b"x" + packed[3:]):
        path.write_bytes(damaged)
        with pytest.raises(SuiteError):
            read_suite(path)
