"""Tasks of several lines, and of machines that are broken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from shioenv.behavior.observe import SandboxRunner
from shioenv.cli.main import app
from shioenv.domain.context import pointer
from shioenv.seeding import generator
from shioenv_agents.tasks.certificate import JudgeCertificate
from shioenv_agents.tasks.certify import certificate_of
from shioenv_agents.tasks.episode import Episode
from shioenv_agents.tasks.goal_check import Judge
from shioenv_agents.tasks.prompt import FACTS, describe_goal
from shioenv_agents.tasks.task import Goal, GoalKind, Task, read_tasks, write_tasks
from shioenv_agents.tasks.task_composition import UNDOING, of_lines, repair_of
from shioenv_agents.tasks.terminal import Terminal
from shioenv_agents.tasks.variants import lines_of
from support.known_tasks import known_tasks

pytestmark = pytest.mark.usefixtures("system")

STOOD = JudgeCertificate(judge="", channel="", attacks=60, tasks=50)


@pytest.fixture(scope="module")
def tasks(observer: SandboxRunner) -> list[Task]:
    return [task for task in known_tasks(observer.system) if task.kind is GoalKind.STATE]


def named(tasks: list[Task], words: str) -> Task:
    return next(task for task in tasks if words in task.solution)


@pytest.mark.parametrize("seed", range(3))
def test_every_line_is_needed(seed: int, tasks: list[Task], observer: SandboxRunner) -> None:
    made = of_lines(tasks, generator(seed, "test"), observer)
    assert isinstance(made, Task)
    lines = lines_of(made.solution)
    assert 2 <= len(lines) <= 4
    judge = Judge(made, observer)
    for left_out in range(len(lines)):
        terminal = Terminal(observer, made.cwd)
        for number, line in enumerate(lines):
            if number != left_out:
                terminal.run(line)
        assert not judge.judge(terminal).passed
    episode = Episode(made, observer)
    for line in lines:
        episode.act(line)
    assert episode.verdict.passed
    found = certificate_of(made, (), observer, k=1, judged_by=STOOD)
    assert replace(found, loaded=2).faults == ()
    assert of_lines(tasks, generator(seed, "test"), observer) == made


@pytest.mark.parametrize(
    ("harm", "other"),
    [
        ("chmod g-rx scripts/backup.sh", "chmod --reference=scripts/cleanup.sh scripts/backup.sh"),
        ("tee -a documents/todo.txt", "sed -i '$d' documents/todo.txt"),
        ("chgrp -v -h root", "chown -h :ubuntu images/photo_link.png"),
    ],
)
def test_what_was_done_has_to_be_undone(
    harm: str, other: str, tasks: list[Task], observer: SandboxRunner
) -> None:
    task = named(tasks, harm)
    made = repair_of([task], observer)
    assert isinstance(made, Task)
    assert made.history == [task.solution]
    assert "made unwanted changes to this machine. Undo them." in made.prompt
    episode = Episode(made, observer)
    assert not episode.act("ls").done
    assert not episode.act(f"{task.solution} > /dev/null; ls").done
    for row in (made.solution, other):
        terminal = Terminal(observer, made.cwd, made.history)
        terminal.run(row)
        assert Judge(made, observer).judge(terminal).passed, row
    found = certificate_of(made, (), observer, k=1, judged_by=STOOD)
    assert replace(found, loaded=2).faults == ()


def test_what_two_lines_did_has_to_be_undone(tasks: list[Task], observer: SandboxRunner) -> None:
    harms = [named(tasks, "chmod g-rx scripts/backup.sh"), named(tasks, "chgrp -v -h root")]
    made = repair_of(harms, observer)
    assert isinstance(made, Task)
    assert made.history == [task.solution for task in harms]
    judge = Judge(made, observer)
    undone = [repair_of([task], observer) for task in harms]
    assert all(isinstance(one, Task) for one in undone)
    for one in undone:  # each of them alone is not enough
        terminal = Terminal(observer, made.cwd, made.history)
        terminal.run(one.solution)  # type: ignore[union-attr]
        assert not judge.judge(terminal).passed
    found = certificate_of(made, (), observer, k=1, judged_by=STOOD)
    assert replace(found, loaded=2).faults == ()
    again = repair_of([harms[0], harms[0]], observer)
    assert isinstance(again, str) or again.solution == undone[0].solution  # type: ignore[union-attr]


def test_what_nobody_can_write_again_is_no_task(tasks: list[Task], observer: SandboxRunner) -> None:
    refused = repair_of([named(tasks, "ip link del")], observer)
    assert refused == "its effect cannot be undone from a prompt"
    refused = repair_of([named(tasks, "unlink archives/site.zip")], observer)
    assert refused == "its goal cannot be described"


def test_a_command_makes_both(observer: SandboxRunner, tmp_path: Path) -> None:
    file, out = tmp_path / "tasks.jsonl", tmp_path / "more.jsonl"
    write_tasks(known_tasks(observer.system), file)
    options = ["--lines", "2", "--broken", "2", "--workers", "1", "--json"]
    made = CliRunner().invoke(app, ["tasks", "compose", str(file), "--out", str(out), *options])
    assert made.exit_code == 0, made.output
    document = json.loads(made.stdout)
    assert (document["lines"], document["broken"]) == (2, 2)
    assert [task.id for task in read_tasks(out)] == ["n000000", "n000001", "b000000", "b000001"]


def test_a_file_that_comes_back_has_to_hold_what_it_held(
    tasks: list[Task], observer: SandboxRunner
) -> None:
    """Its own certificate finds a task that forgets what a file holds."""
    text = "rm documents/todo.txt"
    gone = Goal(patch=[["r", "/fs/documents~1todo.txt"]])
    made = repair_of([replace(named(tasks, "chmod"), goal=gone, solution=text)], observer)
    assert isinstance(made, Task)
    assert [*made.goal.digests] == ["documents/todo.txt"]
    assert (
        "- `documents/todo.txt` contains exactly this text, with a newline at the end:\n"
        in made.prompt
    )
    found = certificate_of(made, (), observer, k=1, judged_by=STOOD)
    assert replace(found, loaded=2).faults == ()
    (spoiled,) = [text for text in found.near_misses if "/dev/zero" in text]
    forgetful = replace(made, goal=replace(made.goal, digests={}))
    assert spoiled in certificate_of(forgetful, (), observer, k=1, judged_by=STOOD).mistaken


def test_what_takes_too_many_lines_is_no_task(tasks: list[Task], observer: SandboxRunner) -> None:
    """A broken machine is tested without each of its lines; a prompt with a hundred facts is
    useless."""
    one = named(tasks, "chmod")
    files = observer.context(one.cwd).document["fs"]
    names = [name for name in files if name.startswith("doc")]
    assert len(names) > UNDOING
    patch = [
        ["=", pointer("fs", name, "perms"), f"{files[name]['perms'][0]}rwxrwxrwx"] for name in names
    ]
    wide = replace(one, goal=Goal(patch=patch), solution="chmod -R 777 documents")
    assert repair_of([wide], observer) == "undoing it takes too many lines"
    before = observer.context(one.cwd).document
    facts = [["=", pointer("env", f"X{number}"), "1"] for number in range(FACTS + 1)]
    lengths = [len(describe_goal(before, Goal(patch=facts[:n]), [], bool) or ()) for n in (50, 51)]
    assert lengths == [FACTS, 0]
