"""Tasks in the repository of the development machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.cli.main import app
from shioenv_agents.tasks.certificate import JudgeCertificate
from shioenv_agents.tasks.certify import certificate_of
from shioenv_agents.tasks.goal_check import Judge
from shioenv_agents.tasks.history import LAST, PROJECT, SYSTEM, TESTED, read_committed
from shioenv_agents.tasks.task import GoalKind, Task, read_tasks
from shioenv_agents.tasks.terminal import Terminal, for_rows
from shioenv_agents.tasks.variants import lines_of
from support.needs import needs

pytestmark = [needs(SYSTEM), pytest.mark.xdist_group("history tasks")]

STOOD = JudgeCertificate(judge="", channel="", attacks=60, tasks=50)


@pytest.fixture(scope="module")
def machine() -> Iterator[SandboxRunner]:
    with open_sandbox(SYSTEM, limits=for_rows(None)) as opened:
        yield opened


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> list[Task]:
    file = tmp_path_factory.mktemp("history") / "tasks.jsonl"
    asked = ["tasks", "history", "--out", str(file), "--count", "3", "--workers", "1"]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    return read_tasks(file)


def test_one_of_each_family_is_made(tasks: list[Task]) -> None:
    assert len(tasks) == 3
    assert {task.kind for task in tasks} == {GoalKind.STATE, GoalKind.OUTPUT}
    assert all(task.cwd == PROJECT and len(lines_of(task.solution)) >= 4 for task in tasks)
    said = "\n".join(task.prompt for task in tasks)
    assert "Restore files from the history" in said
    assert "The tests of the project fail" in said
    assert "`logs/requests.jsonl`" in said


@pytest.mark.parametrize("family", range(3))
def test_each_gets_a_certificate_without_faults(
    family: int, tasks: list[Task], machine: SandboxRunner
) -> None:
    found = certificate_of(tasks[family], (), machine, k=1, judged_by=STOOD)
    assert replace(found, loaded=2).faults == ()
    assert found.near_misses


def test_looking_around_in_the_repository_is_allowed(
    tasks: list[Task], machine: SandboxRunner
) -> None:
    task = tasks[0]
    terminal = Terminal(machine, task.cwd, task.history)
    for row in ("git status", "git diff", "git log --stat", "make -s test", task.solution):
        terminal.run(row)
    verdict = Judge(task, machine).judge(terminal)
    assert verdict.passed, verdict


def test_a_change_of_the_index_is_not(tasks: list[Task], machine: SandboxRunner) -> None:
    task = tasks[0]
    terminal = Terminal(machine, task.cwd, task.history)
    terminal.run(task.solution)
    terminal.run("git add README.md")
    assert not Judge(task, machine).judge(terminal).passed


@pytest.mark.parametrize(
    ("file", "commit", "words"),
    [
        ("docs/runbook.md", LAST, b"# Runbook"),
        ("stock/prices.py", TESTED, b"return round("),
        ("stock/prices.py", "the tag `v1.1`", b"return int("),
        ("stock/report.py", "the branch `table`", b":<20}"),
        ("Makefile", "the commit `Count lines in C`", b"build/count"),
        ("docs/runbook.md", "the tag `v1.1`", None),
        ("README.md", "some commit", None),
    ],
)
def test_contents_are_read_by_the_words_for_a_commit(
    file: str, commit: str, words: bytes | None, machine: SandboxRunner
) -> None:
    found = read_committed(machine, PROJECT, file, commit)
    assert found is None if words is None else words in (found or b"")


def test_the_same_seed_makes_the_same_tasks(tasks: list[Task], tmp_path: Path) -> None:
    file = tmp_path / "again.jsonl"
    asked = ["tasks", "history", "--out", str(file), "--count", "3", "--workers", "2"]
    assert CliRunner().invoke(app, asked).exit_code == 0
    assert read_tasks(file) == tasks
