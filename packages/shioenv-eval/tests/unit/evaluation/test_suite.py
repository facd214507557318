"""Suites on disk, and the files of inputs they are made of."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from importlib.resources import files
from pathlib import Path

import pytest

from shioenv.bash.normal import is_single
from shioenv.dataset.questions import read_questions
from shioenv.errors import SuiteError, UsageError
from shioenv.grammar.library import PAPER, load_grammars
from shioenv_eval.places import utilities
from shioenv_eval.suite import head_digest, read_suite, write_suite
from support.evaluation_fakes import ENTRY, case, did, suite_of
from support.paths import ROOT


def test_a_suite_is_read_as_it_was_written(tmp_path: Path) -> None:
    moved = case(did("", ("m", "/fs/a", "/fs/b")), moved={"/fs/a": ENTRY})
    varying = case(did("1\n"), did(b"\xff\n"), did("1\n"), text="shuf x")
    suite = suite_of(moved, varying)
    path = tmp_path / "deep" / "suite.jsonl"
    write_suite(suite, path)
    again = read_suite(path)
    assert again.cases == suite.cases
    assert again.cases[1].gold == (did("1\n"), did(b"\xff\n"))
    assert again.volatile == 1
    lines = path.read_text().splitlines()
    assert json.loads(lines[2])["runs"] == [0, 1, 0]
    assert json.loads(lines[2])["mask"]["lines"] is not None


def test_a_suite_that_was_changed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "suite.jsonl"
    write_suite(suite_of(case(did("right\n"))), path)
    path.write_text(path.read_text().replace("right", "wrong"))
    with pytest.raises(SuiteError, match="was modified after recording"):
        read_suite(path)


@pytest.mark.parametrize("content", ["", "ls\n", "{}\n", '{"suite": {}}\n', "\xff"])
def test_what_is_no_suite_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "suite.jsonl"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(SuiteError):
        read_suite(path)
    with pytest.raises(SuiteError, match="cannot be read"):
        read_suite(tmp_path / "none")


def test_statistics_count_what_there_is() -> None:
    facts = suite_of(
        case(did(""), text="true"),
        case(did("x\n", exit_code=2), text="ls | sort"),
        case(did("1\n"), did("2\n"), text="date"),
    ).stats()
    assert facts["steps"] == {"single": 2, "multi": 1}
    assert (facts["inputs"], facts["volatile"], facts["exit_0"], facts["nothing"]) == (3, 1, 2, 1)
    assert facts["utilities"] == {"true": 1, "ls": 1, "sort": 1, "date": 1}
    assert facts["volatile_channels"] == {"output": 1}


@pytest.mark.parametrize("first", ["ls -la", '{"input": "ls -la"}', "# mine\nls -la"])
def test_inputs_may_begin_with_a_mark_of_the_byte_order(first: str, tmp_path: Path) -> None:
    path = tmp_path / "inputs"
    path.write_text(f"\ufeff{first}\r\nwho\r\n", encoding="utf-8")
    assert [question.input for question in read_questions(path)] == ["ls -la", "who"]


def test_inputs_are_text_or_json(tmp_path: Path) -> None:
    path = tmp_path / "inputs"
    path.write_text(
        "ls -la\n\n# a comment\n"
        '{"input": "cat x | wc -l", "cwd": "/tmp", "kind": "typed", "source": "me"}\n'
        '{"input": "ls", "id": "mine", "steps": "multi", "history": ["cd /", "x=1"]}\n'
        "{ echo a; }\n"
    )
    first, second, third, fourth = read_questions(path)
    assert (first.id, first.input, first.steps, first.cwd) == ("1", "ls -la", "single", None)
    assert (second.id, second.steps, second.cwd, second.kind) == ("4", "multi", "/tmp", "typed")
    assert second.extra == {"source": "me"}
    assert (third.id, third.steps, third.history) == ("mine", "multi", ("cd /", "x=1"))
    assert (fourth.input, fourth.steps) == ("{ echo a; }", "multi")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "has no inputs"),
        ('{"input": 7}', "inputs:1: expected text"),
        ('ls\n{"inputs": "x"}', "inputs:2: expected a JSON object"),
        ('{"input": "x"', "inputs:1: expected a JSON"),
        ('{"input": "x", "steps": "many"}', "single or multi"),
        ('{"input": "x", "history": "y"}', "list of texts"),
        ('{"input": "x", "cwd": 1}', "`cwd`"),
        ('{"input": "x", "id": 2}\nls', "two inputs have the id 2"),
        ('ls\n{"input": "echo \\ud800"}', "inputs:2: invalid Unicode"),
        ('{"input": "x", "history": ["\\udc80"]}', "inputs:1: invalid Unicode"),
        ('{"input": "x", "note": "\\ud83d"}', "inputs:1: invalid Unicode"),
    ],
)
def test_inputs_that_are_none_are_named(tmp_path: Path, content: str, why: str) -> None:
    path = tmp_path / "inputs"
    path.write_text(content)
    with pytest.raises(SuiteError, match=why):
        read_questions(path)


def test_files_that_are_none_are_named(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match="cannot be read"):
        read_questions(tmp_path / "none")
    with pytest.raises(UsageError, match="public-train"):
        read_questions("public-train")


def test_the_public_inputs_are_what_their_page_says() -> None:
    questions = read_questions("public")
    assert len(questions) == 600
    steps = Counter(question.steps for question in questions)
    assert steps == {"single": 367, "multi": 233}
    for question in questions:
        assert question.steps == ("single" if is_single(question.input) else "multi"), question.id
    used = Counter(name for question in questions for name in utilities(question.input))
    wanted = [grammar.header.command.replace(" ", "-") for grammar in load_grammars(PAPER)]
    assert len(wanted) == 86
    assert {name: used[name] for name in wanted if used[name] < 4} == {}
    assert len({(question.history, question.input) for question in questions}) == 600
    assert max(len(question.history) for question in questions) <= 4
    halves = {name: read_questions(f"public-{name}") for name in ("dev", "test")}
    assert {name: len(half) for name, half in halves.items()} == {"dev": 302, "test": 298}
    kinds = Counter(question.kind for question in questions)
    assert kinds["intruder"] == 41
    assert sum(bool(question.history) for question in questions) == 35


def test_the_sessions_are_what_their_page_says() -> None:
    path = Path(str(files("shioenv_eval").joinpath("suites/sessions-200.jsonl")))
    page = ROOT / "docs/reference/public-suite.md"
    assert hashlib.sha256(path.read_bytes()).hexdigest() in page.read_text("utf-8")
    questions = read_questions(path)
    names = ("awk-sed-perl", "loops", "several-lines", "variables", "files")
    assert Counter(question.kind for question in questions) == dict.fromkeys(names, 40)
    steps = Counter(question.steps for question in questions)
    assert steps == {"single": 127, "multi": 73}
    for question in questions:
        assert question.steps == ("single" if is_single(question.input) else "multi"), question.id
    who = Counter(question.extra["who"] for question in questions)
    assert who == {"developer": 108, "admin": 77, "intruder": 15}
    assert sum(question.extra.get("mistake", False) for question in questions) == 19
    lengths = Counter(len(question.history) + 1 for question in questions)
    assert lengths == {1: 94, 2: 58, 3: 30, 4: 17, 5: 1}
    asked = {(question.history, question.input) for question in questions}
    assert len(asked) == 200
    assert asked.isdisjoint((one.history, one.input) for one in read_questions("public"))


def test_the_digest_is_of_inputs_system_and_settings(tmp_path: Path) -> None:
    path = tmp_path / "inputs"
    path.write_text("ls\npwd\n")
    questions = read_questions(path)
    digest = head_digest(questions, "a", {"runs": 5})
    assert digest == head_digest(read_questions(path), "a", {"runs": 5})
    for other in (
        head_digest(questions[:1], "a", {"runs": 5}),
        head_digest(questions, "b", {"runs": 5}),
        head_digest(questions, "a", {"runs": 6}),
    ):
        assert other != digest


def test_an_input_may_hold_what_python_takes_for_the_end_of_a_line(tmp_path: Path) -> None:
    texts = ["printf 'a\fb'", "echo a\u2028b", "echo '\x1d' \x85"]
    (tmp_path / "list.txt").write_text("\n".join([*texts, "ls"]), encoding="utf-8")
    assert [one.input for one in read_questions(tmp_path / "list.txt")] == [*texts, "ls"]
