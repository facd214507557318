"""The commands of `shioenv tasks` on a scripted machine: their files, output and exit status."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner, Result

from shioenv.cli.main import app
from shioenv_agents.tasks import sets
from shioenv_agents.tasks.harbor import task_folders
from shioenv_agents.tasks.harbor.task_folders import ExportedTasks
from shioenv_agents.tasks.sets import MadeSet, SetPlan
from shioenv_agents.tasks.task import read_tasks, write_tasks
from support.scripted_tasks import record, task, use_scripted_machines


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two tasks of one line."""
    use_scripted_machines(monkeypatch)
    tasks = [replace(task(text), id=f"t{n}") for n, text in enumerate(("rm b", "chmod 600 a"))]
    write_tasks(tasks, tmp_path / "tasks")
    return tmp_path / "tasks"


def run(*words: object) -> Result:
    return CliRunner().invoke(app, ["tasks", *map(str, words)])


def printed(done: Result) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_make_writes_the_tasks_of_records(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [record("rm b"), record("cp a n"), record("rm b", exit_code=1)]
    manifest = SimpleNamespace(records=3)
    monkeypatch.setattr("shioenv.dataset.manifest.read_manifest", lambda path: manifest)
    monkeypatch.setattr("shioenv.dataset.record_reader.read_records", lambda path, **how: records)
    monkeypatch.setattr("shioenv.cli.printing.note_unfinished", lambda *given: None)
    out = tmp_path / "out"
    done = run("make", tmp_path, "--out", out, "--json")
    assert done.exit_code == 0, done.output
    assert [one.solution for one in read_tasks(out)] == ["rm b", "cp a n"]
    assert printed(done) == {
        "file": str(out), "tasks": 2, "of": 3, "kinds": {"state": 2},
        "refused": {"its input failed": 1}, "commands": {"rm": 1, "cp": 1},
    }  # fmt: skip
    again = run("make", tmp_path, "--out", out)
    assert again.exit_code != 0
    assert "out" in again.stderr
    text = run("make", tmp_path, "--out", tmp_path / "text").stdout
    assert "2 tasks of 3 records (66.7%): 2 state" in text.replace("\n", " ")
    records[:] = []
    assert "makes a task" in run("make", tmp_path, "--out", tmp_path / "none").stderr
    assert run("make", tmp_path, "--out", tmp_path / "x", "--endpoint", "u").exit_code == 2


def test_verify_exits_with_1_where_a_proof_fails(file: Path, tmp_path: Path) -> None:
    done = run("verify", file)
    assert (done.exit_code, done.stdout) == (0, "proved: 2 of 2 tasks\n")
    sound, other = read_tasks(file)
    write_tasks([sound, replace(other, solution=":")], tmp_path / "wrong")
    done = run("verify", tmp_path / "wrong")
    assert done.exit_code == 1
    assert done.stdout.splitlines() == [
        "t1: :: the recorded solution fails: /fs/a/perms",
        "proved: 1 of 2 tasks",
    ]
    assert printed(run("verify", tmp_path / "wrong", "--json"))["proved"] == 1


def test_certify_writes_what_check_reads(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "certified"
    done = run("certify", file, "--out", out, "--runs", 1)
    assert (done.exit_code, done.stdout) == (0, "certified: 2 of 2 tasks\n")
    assert run("certify", out, "--check").exit_code == 0
    sound, other = read_tasks(out)
    write_tasks([sound, replace(other, prompt=f"{other.prompt} More.")], tmp_path / "edited")
    done = run("certify", tmp_path / "edited", "--check", "--json")
    assert done.exit_code == 1
    assert printed(done)["faulty"][0]["faults"] == ["changed after certification: prompt"]
    assert printed(done)["unchecked"] == ["id", "solved_by"]
    rebased = run("certify", out, "--out", tmp_path / "rebased", "--rebase", "--runs", 1)
    assert rebased.exit_code == 0, rebased.output
    refused = run("certify", tmp_path / "edited", "--out", tmp_path / "x", "--rebase")
    assert "task t1 was changed after certification" in refused.stderr


@pytest.mark.parametrize(
    "options", [[], ["--out", "OUT", "--check"], ["--check", "--rebase"]], ids=str
)
def test_certify_refuses_what_does_not_go_together(
    file: Path, tmp_path: Path, options: list[str]
) -> None:
    words = [str(tmp_path / "out") if word == "OUT" else word for word in options]
    assert run("certify", file, *words).exit_code == 2
    assert not (tmp_path / "out").exists()


def test_compose_writes_longer_tasks(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "longer"
    done = run("compose", file, "--out", out, "--lines", 1, "--broken", 1, "--json")
    assert done.exit_code == 0, done.output
    tasks = read_tasks(out)
    document = printed(done)
    assert document["tasks"] == len(tasks) == document["lines"] + document["broken"]
    assert {one.id for one in tasks} <= {"n000000", "b000000"}
    nothing = run("compose", file, "--out", tmp_path / "x", "--lines", 0, "--broken", 0)
    assert "give no task of several lines" in nothing.stderr


def test_show_tells_the_prompt_and_hides_the_solution(file: Path) -> None:
    done = run("show", file, "--count", 1)
    assert done.stdout.startswith("task t0 (state)\n  You are root, in a Bash shell whose")
    assert "$ rm b" not in done.stdout
    assert "  $ rm b\n" in run("show", file, "--count", 1, "--solutions").stdout
    assert json.loads(run("show", file, "--count", 1, "--json").stdout)["id"] == "t0"


def test_export_tells_what_was_refused(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = ExportedTasks(("shioenv-t0",), {"t1": "times of files"})
    monkeypatch.setattr(task_folders, "export_tasks", lambda tasks, out, **how: done)
    told = run("export", file, "--out", tmp_path / "harbor").stdout.splitlines()
    assert told[-1] == "  1 refused: times of files"
    assert told[-2].endswith("1 folder of 2 tasks")


@pytest.mark.parametrize(("tasks", "status"), [(3, 0), (2, 1)])
def test_set_exits_with_1_where_tasks_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tasks: int, status: int
) -> None:
    def made(directory: Path, plan: SetPlan, **how: object) -> MadeSet:
        manifest = {
            "plan": {"count": plan.count}, "tasks": tasks, "records": 20,
            "lengths": {"one line": tasks}, "parts": {"train": {"one line": tasks}},
            "solved_by": {"names": {"one line": [1, tasks]}}, "refused": {"records": {"x": 4}},
            "harbor": {"written": {"train": 1}, "refused": {}},
        }  # fmt: skip
        return MadeSet(directory, manifest)

    monkeypatch.setattr(sets, "make_set", made)
    done = run("set", tmp_path / "set", "--count", 3, "--runs", 1)
    assert done.exit_code == status
    assert f"{tasks} of 3, from 20 records" in done.stdout
    assert "1 folders" in done.stdout
    assert "4, by reason in" in done.stdout.replace("\n", " ")


def test_an_unknown_agent_is_refused(file: Path) -> None:
    done = run("evaluate", file, "--agent", "fact")
    assert done.exit_code == 2
    assert "unknown agent 'fact'" in done.stderr
    assert "facts" in done.stderr


def test_agents_are_compared_by_kind_and_length(file: Path) -> None:
    done = run("evaluate", file, "--agent", "facts", "--agent", "idle", "--max-turns", 2)
    assert done.exit_code == 0, done.output
    rows = [line.split() for line in done.stdout.splitlines()]
    assert rows[1] == ["facts", "state", "2", "100%", "1.00", "1.0"]
    assert rows[-1] == ["idle", "all", "2", "0%", "0.00", "2.0"]
