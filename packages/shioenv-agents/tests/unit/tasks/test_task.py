"""Parsing a task inverts its formatting, and the error for an invalid task names the reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shioenv.errors import OutputExistsError, TaskError
from shioenv_agents.tasks.prompt import reveals_solution
from shioenv_agents.tasks.task import Goal, GoalKind, Task, decode, encode, read_tasks, write_tasks


def task(**fields: Any) -> Task:
    known: dict[str, Any] = {
        "id": "000001",
        "prompt": "Remove `ä`.",
        "cwd": "/home/ubuntu",
        "goal": Goal(patch=[["r", "/fs/ä"]]),
        "solution": "rm ä",
        "reduced": "rm",
        "commands": ["rm"],
        "irreducibility": 1.0,
        "n_arguments": 1,
        "record": 1,
        "system": "debian-12",
        "system_digest": "0" * 64,
    }
    return Task(**{**known, **fields})


def test_tasks_come_back_as_they_were_written(tmp_path: Path) -> None:
    tasks = [task(), task(id="2", goal=Goal(output="x\n"), history=["cd /"], necessary=0.5)]
    path = tmp_path / "tasks.jsonl"
    write_tasks(tasks, path)
    assert read_tasks(path) == tasks
    assert path.read_bytes().count(b"\n") == 2
    with pytest.raises(OutputExistsError):
        write_tasks(tasks, path)


def test_what_a_goal_is_about() -> None:
    patch: list[list[Any]] = [["r", "/fs/x"]]
    goals = Goal(patch=patch), Goal(output=""), Goal(patch=patch, output="x")
    assert [goal.kind for goal in goals] == [GoalKind.STATE, GoalKind.OUTPUT, GoalKind.BOTH]
    assert Goal(digests={"x": "0" * 64}, output="x").kind == GoalKind.BOTH


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"goal": {"patch": [["?", "/fs/x"]]}}, "not an operation"),
        ({"goal": {"patch": [["r", "fs"]]}}, "not a JSON Pointer"),
        ({"irreducibility": 2}, "irreducibility"),
        ({"cwd": "home"}, "is not absolute"),
        *(
            ({"id": name}, "is not a valid id")
            for name in ("", ".", "..", "a/b", "x/../../escaped", "a\n", "\0", "a b", "a" * 101)
        ),
        ({"schema_version": 99}, "schema version 99"),
        ({"more": 1}, "more"),
        ({"prompt": None}, "prompt"),
    ],
)
def test_a_line_that_is_no_task_says_why(change: dict[str, Any], why: str) -> None:
    line = json.dumps({**json.loads(encode(task())), **change})
    with pytest.raises(TaskError, match=why):
        decode(line)


@pytest.mark.parametrize("name", ["000001", "o000000", "r0001-00002", "a.b_c", "...", "a" * 100])
def test_a_name_that_is_one_file_is_an_id(name: str) -> None:
    assert decode(encode(task(id=name))).id == name


def test_a_file_without_tasks_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "other").write_text("not JSON\n")
    for name in ("missing", "empty", "other"):
        with pytest.raises(TaskError, match=name):
            read_tasks(tmp_path / name)


def test_a_reply_that_tells_how_is_known() -> None:
    assert reveals_solution("Use `-rf` on it.", "rm -rf old")
    assert reveals_solution("Just type rm -rf old.", "rm -rf old")
    assert reveals_solution("Try sort names.txt for this", "sort names.txt > x")
    assert not reveals_solution("Please get rid of old.", "rm -rf old")
