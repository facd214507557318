"""Tasks as Harbor's folders: their contents, and refused tasks."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from msgspec.structs import replace

from shioenv.errors import OutputExistsError, TaskError, UsageError
from shioenv.system.store import System
from shioenv_agents.tasks.entered_machine import EnteredMachine
from shioenv_agents.tasks.harbor.task_folders import (
    ANSWER,
    GOAL,
    HOOK,
    LIMITS,
    export_tasks,
    folder_of,
    left_by,
    name_of,
)
from shioenv_agents.tasks.task import Goal, write_tasks
from support.fronts_tasks import BROKEN, EXPORTED, TASKS

pytestmark = pytest.mark.usefixtures("system")
MADE = {"perms": "-rw-r--r--", "links": 1, "owner": "root", "group": "root", "size": 9}
MADE |= {"month": "Oct", "day": 16, "year": 2025, "time": "19:43"}


def test_the_command_writes_a_folder_for_each_task(tmp_path: Path) -> None:
    write_tasks(EXPORTED, tmp_path / "tasks.jsonl")
    command = [sys.executable, "-m", "shioenv", "tasks", "export", str(tmp_path / "tasks.jsonl")]
    command += ["--out", str(tmp_path / "out"), "--image", "example.org/x:1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["written"] == 3
    gone, user, broken = (tmp_path / "out" / name_of(task) for task in EXPORTED)
    assert (gone / "instruction.md").read_text() == f"{TASKS[0].prompt}\n"
    assert json.loads((gone / "tests/goal.json").read_text()) == {
        "entries": {"/home/ubuntu/documents/notes.txt": None},
        "output": None,
    }
    assert ANSWER in (user / "instruction.md").read_text()
    assert ANSWER in (user / "solution/solve.sh").read_text()
    assert json.loads((user / "tests/goal.json").read_text()) == {"entries": {}, "output": "root\n"}
    dockerfile = (broken / "environment/Dockerfile").read_text().splitlines()
    assert "FROM example.org/x:1" in dockerfile  # so that it is broken without a local image
    assert dockerfile[-1] == 'RUN ["/bin/bash", "-c", "chmod 000 documents/notes.txt"]'
    entries = json.loads((broken / "tests/goal.json").read_text())["entries"]
    assert entries["/home/ubuntu/documents/notes.txt"]["mode"] == "-rw-r--r--"
    assert "docker_image" not in (broken / "task.toml").read_text()  # it would not be broken
    settings = tomllib.loads((gone / "task.toml").read_text())
    assert settings["environment"]["docker_image"] == "example.org/x:1"
    assert settings["verifier"]["environment_mode"] == "separate"
    assert settings["verifier"]["collect"][0]["command"].startswith(HOOK)


def test_a_broken_machine_is_judged_from_where_it_is_broken(system: System) -> None:
    """Undoing what was typed is paid. Restoring what was pristine all along is not."""
    with EnteredMachine(system, LIMITS) as machine:
        goal = json.loads(folder_of(BROKEN, machine, None)[GOAL])

        def passes(line: str) -> bool:
            return left_by(BROKEN, machine, line).reaches(goal)

        assert passes(
            "cd documents; install -m 644 -o ubuntu -g ubuntu notes.txt x; mv x notes.txt"
        )
        assert not passes(":")
        assert not passes("chmod 600 documents/notes.txt")
        assert not passes(f"{BROKEN.solution}; {BROKEN.history[0]}")
        assert not passes(f"{BROKEN.solution}; touch documents/more")


def test_what_cannot_be_told_is_refused_by_its_reason(tmp_path: Path) -> None:
    plain = TASKS[0]
    made = Goal(patch=[["a", "/fs/made", MADE]])
    dated = Goal(patch=[["a", "/fs/made", {**MADE, "year": 1999}]])
    refused = {
        "its history fails": replace(plain, history=["false"]),
        "the state of the shell": replace(plain, goal=Goal(patch=[["=", "/cwd", "/"]])),
        "it is about the host name": replace(plain, goal=Goal(patch=[["=", "/hostname", "x"]])),
        "the network": replace(plain, goal=Goal(patch=[["=", "/network/rules", []]])),
        "it is about file times": replace(plain, goal=dated),
        "Harbor or the container": replace(plain, goal=Goal(patch=[["r", "/fs/~1etc~1hosts"]])),
        "unknown wording": TASKS[1],
        "a part of its solution": replace(plain, reduced=plain.solution),
        "other variables": replace(plain, goal=made, solution="echo $TERM > made"),
        "another effect on a persistent": replace(plain, goal=made, solution="true"),
        "prints": replace(EXPORTED[1], solution="id -Gn; id -un"),
        "more than files": replace(plain, solution=f"{plain.solution}; hostname x"),
    }
    tasks = [replace(task, id=why) for why, task in refused.items()]
    done = export_tasks([replace(plain, id="fits"), *tasks], tmp_path / "out")
    assert done.written == ("shioenv-fits",)
    assert all(why in done.refused[why] for why in refused), done.refused
    assert sum(done.reasons.values()) == len(refused)
    with pytest.raises(OutputExistsError):
        export_tasks([plain], tmp_path / "out")
    with pytest.raises(TaskError, match="no task can be exported"):
        export_tasks(tasks[:1], tmp_path / "none")
    assert not (tmp_path / "none").exists()
    with pytest.raises(TaskError, match="have the id"):
        export_tasks([plain, plain], tmp_path / "twice")


@pytest.mark.parametrize("image", ["", "a b", "a\nRUN rm -r /", "--platform=x"])
def test_an_image_is_a_reference(tmp_path: Path, image: str) -> None:
    with pytest.raises(UsageError, match="not an image reference"):
        export_tasks(EXPORTED, tmp_path / "out", image=image)
    assert not (tmp_path / "out").exists()


def test_one_image_is_not_that_of_two_systems(tmp_path: Path) -> None:
    tasks = [TASKS[0], replace(TASKS[0], id="other", system="ubuntu-24.04")]
    with pytest.raises(UsageError, match="2 systems: debian-12, ubuntu"):
        export_tasks(tasks, tmp_path / "out", image="example.org/x:1")
