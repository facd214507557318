"""The checker of frozen answers gives the figures of `evaluate`, and needs Python alone."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shioenv.domain.behavior import Behavior
from shioenv.domain.patch import ContextPatch
from shioenv.domain.predictor import PatchLevel
from shioenv_eval.evaluate import evaluate
from shioenv_eval.frozen import judge
from shioenv_eval.metrics import PredictorAnswer, Status
from shioenv_eval.predictors.recording import recorded_lines
from shioenv_eval.results import evaluation_results, judge_predictor
from shioenv_eval.suite import Suite, SuiteCase, read_suite, write_suite
from support.evaluation_fakes import ENTRY, added, case, did, said, suite_of

PROGRAM = Path(judge.__file__)
MOVE = ("m", "/fs/a", "/fs/b")
CONTENT = ("=", "/fs/a", ENTRY)
PID = [did(f"pid {n}\nfixed\n", added(f"tmp.{n}")) for n in (11, 22, 33)]

HANDMADE: list[tuple[SuiteCase, PredictorAnswer]] = [
    (case(did("", MOVE), moved={"/fs/a": ENTRY}), said("", ("r", "/fs/a"), added("b"))),
    (case(did("", ("r", "/fs/a"), added("b"))), said("", MOVE)),
    (case(did("", ("r", "/fs/a"), ("r", "/fs/c"), added("b"))), said("", MOVE, ("r", "/fs/c"))),
    (case(did("", CONTENT)), said("")),
    (case(replace(did(""), content_digests={"a": "0" * 64})), said("", CONTENT)),
    (case(did("")), said("", CONTENT)),
    (case(*PID), said("pid 4444\nfixed\n", added("tmp.44"))),
    (case(*PID), said("pid 4444\nother\n", added("tmp.44"))),
    (case(did("a\nb\n"), did("a\nx\nb\n")), said("a\ny\nz\nb\n")),
    (case(did("a\nb\n"), did("a\nx\nb\n")), said("b\n")),
    (case(did(b"\xff\n")), said(b"\xfe\n")),
    (case(did("\U0001f600abcd" * 3000)), said("\U0001f600abxd" * 2999)),
    (case(did("one\ntwo\n")), said("one\r\ntwo\r\n", added("n"))),
    (case(did("1", added("a/b~c"), exit_code=1)), said("1", added("a"), exit_code=1)),
    (case(did("", ("=", "/fs/b/links", 2), ("=", "/cwd", "/tmp"))), said("")),
    (case(did("x", added("f"))), PredictorAnswer(Status.ABSTAINED)),
    (case(did("x")), PredictorAnswer(Status.TIMED_OUT, why="late")),
    (case(did("x", added("f"))), PredictorAnswer(Status.INVALID, Behavior(1, b"x"))),
    (case(did("x")), PredictorAnswer(Status.INVALID)),
]


def figures(document: dict[str, Any]) -> dict[str, Any]:
    """Return the values of an evaluation without intervals, by group and metric."""
    return {
        group: {"n": document[group]["n"]}
        | {name: document[group][name][0] for name in judge.COLUMNS}
        for group in judge.GROUPS
    }


def same_figures(
    suite: Suite, answers: list[PredictorAnswer], level: PatchLevel, directory: Path
) -> None:
    one = judge_predictor(suite, answers, "mine", "1", level)
    write_suite(suite, directory / "suite.gz")
    lines = [json.dumps(line) for line in recorded_lines(suite, one)]
    (directory / "answers").write_text("\n".join(lines))
    told = judge.judged(directory / "suite.gz", directory / "answers")
    wanted = figures(evaluation_results(suite, [one])["predictors"]["mine"])
    assert {group: told[group] for group in judge.GROUPS} == wanted


@pytest.mark.parametrize("level", [PatchLevel.FULL, PatchLevel.FILES])
def test_each_handmade_answer_has_the_figures_of_evaluate(
    level: PatchLevel, tmp_path: Path
) -> None:
    for gold, answer in HANDMADE:
        same_figures(suite_of(gold), [answer], level, tmp_path)


def distorted(number: int, gold: SuiteCase) -> PredictorAnswer:
    run = gold.runs[number % len(gold.runs)]
    others: list[PredictorAnswer] = [
        PredictorAnswer(behavior=run),
        PredictorAnswer(behavior=replace(run, output=run.output[:-3] + b"?\n")),
        PredictorAnswer(behavior=replace(run, exit_code=(run.exit_code + 1) % 256)),
        PredictorAnswer(behavior=replace(run, patch=ContextPatch(run.patch.operations[1:]))),
        PredictorAnswer(
            behavior=replace(run, patch=ContextPatch((*run.patch.operations, added("new"))))
        ),
        PredictorAnswer(Status.INVALID, run),
        PredictorAnswer(Status.ABSTAINED),
    ]
    return others[number * 5 % len(others)]


@pytest.mark.parametrize("name", ["public-test", "sessions-200"])
@pytest.mark.parametrize("level", [PatchLevel.FULL, PatchLevel.FILES])
def test_distorted_frozen_answers_have_the_figures_of_evaluate(
    name: str, level: PatchLevel, tmp_path: Path
) -> None:
    suite = read_suite(name)
    answers = [distorted(*each) for each in enumerate(suite.cases)]
    same_figures(suite, answers, level, tmp_path)


MALFORMED = [
    '"outptu": "a\\n"', '"output": 7', '"output_b64": "?"', '"output": "a\\n", "exit_code": 256',
    '"output": "a\\n", "exit_code": true', '"output": "a\\n", "exitCode": 0',
    '"output": "a\\n", "context_patch": [["a", "/fs/x"]]', '"output": "a\\n", "context_patch": 5',
    '"output": "a\\n", "context_patch": [["r", "fs"]]', '"output": "a\\n", "context_patch": "[]"',
    '"output": "a\\n", "confidence": 2', '"output": "a\\n", "note": 1', '"abstained": true',
]  # fmt: skip


def test_malformed_answers_have_the_figures_of_evaluate(tmp_path: Path) -> None:
    suite, path = tmp_path / "suite", tmp_path / "answers"
    cases = [case(did("a\n"), text=f"echo {number}") for number in range(len(MALFORMED))]
    write_suite(suite_of(*cases), suite)
    lines = [f'{{"input": "echo {each[0]}", {each[1]}}}\n' for each in enumerate(MALFORMED)]
    path.write_text("".join(lines))
    name = f"recording:{path}"
    document = evaluate(suite, [name], workers=1).document["predictors"][name]
    told = judge.judged(suite, path)
    assert {group: told[group] for group in judge.GROUPS} == figures(document)


def test_the_checker_is_one_file_of_the_standard_library(tmp_path: Path) -> None:
    tree = ast.parse(PROGRAM.read_text("utf-8"))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import)
             for alias in node.names}  # fmt: skip
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names
    suite, answers = tmp_path / "suite", tmp_path / "answers"
    write_suite(suite_of(case(did("a\n"), text="true")), suite)
    answers.write_text('{"patch_level": "files"}\n{"input": "true", "output": "a\\n"}\n')
    words = [sys.executable, "-I", str(PROGRAM), str(answers), "--suite", str(suite)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "| all | 1 | 1.000 | 1.000 |" in done.stdout
    answers.write_text("no JSON")
    failed = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (failed.returncode, failed.stderr[:7]) == (2, "error: ")
