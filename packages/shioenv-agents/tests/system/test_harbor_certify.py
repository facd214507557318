"""Certificates of Harbor's folders: made in machines of Harbor's, and verified."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from shioenv.behavior.observe import SandboxRunner
from shioenv.cli.main import app
from shioenv.errors import TaskError
from shioenv_agents.tasks import certify
from shioenv_agents.tasks.attacks import Attack
from shioenv_agents.tasks.certificate import JudgeCertificate
from shioenv_agents.tasks.certify import faults_now, judge_digests
from shioenv_agents.tasks.entered_machine import EnteredMachine
from shioenv_agents.tasks.harbor import trial_certification as folders
from shioenv_agents.tasks.harbor.task_folders import LIMITS, export_tasks, name_of
from shioenv_agents.tasks.harbor.trial_certification import (
    certify_folders,
    folder_digests,
    folder_forgeries,
    folders_of,
    judge_kind,
)
from shioenv_agents.tasks.task import Task
from support.known_tasks import known_tasks
from support.nightly import NIGHTLY

pytestmark = pytest.mark.usefixtures("system")

JUDGE, CHANNEL = folder_digests()
STOOD: Final = JudgeCertificate(judge=JUDGE, channel=CHANNEL, attacks=64, tasks=50)


TEXTS: Final = ("unlink archives/site.zip", "sort documents/names.txt")


@pytest.fixture(scope="module")
def tasks(observer: SandboxRunner) -> list[Task]:
    known = known_tasks(observer.system)
    chosen = [task for text in TEXTS for task in known if task.solution == text]
    return [replace(task, id=f"{n}") for n, task in enumerate(chosen)]


@pytest.fixture(scope="module")
def exported(tasks: list[Task], tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("folders") / "harbor"
    assert len(export_tasks(tasks, directory).written) == 2
    return directory


@pytest.fixture(scope="module")
def certified(exported: Path) -> Path:
    out = exported.with_name("certified")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certify, "certified_judge", lambda *given: STOOD)
        tasks = certify_folders(exported, out, k=1, workers=1)
    assert [task.certificate and task.certificate.faults for task in tasks] == [(), ()]
    return out


@pytest.fixture(scope="module")
def again(certified: Path, observer: SandboxRunner) -> Iterator[partial[tuple[str, ...]]]:
    judge = judge_kind(certified)
    yield partial(faults_now, machine=observer, judge_kind=judge)
    folders._entered(observer.system).close()
    folders._machines.clear()


def test_a_certificate_stands_in_its_folder(
    certified: Path, exported: Path, tasks: list[Task]
) -> None:
    for task in tasks:
        folder = certified / name_of(task)
        found = json.loads((folder / "certificate.json").read_text())
        assert (found["solved"], found["idle"], found["loaded"]) == (1, 0, 2)
        assert found["near_misses"]
        assert found["judged_by"]["judge"] == JUDGE != judge_digests()[0]
        for name in ("tests/goal.json", "solution/solve.sh", "instruction.md", "task.toml"):
            assert (folder / name).read_bytes() == (exported / name_of(task) / name).read_bytes()
    assert not certified.with_name("certified.partial").exists()


@pytest.mark.parametrize(
    ("name", "old", "new", "fault"),
    [
        ("tests/goal.json", "site", "sight", "changed after certification: goal"),
        ("instruction.md", "no longer exists", "exists", "changed after certification: prompt"),
        ("tests/check.py", "missing", "passing", "changed since the export: tests/check.py"),
        ("tests/test.sh", "exec", "echo", "changed since the export: tests/test.sh"),
        ("tests/goal.json", "entries", "more", "changed since the export: tests/goal.json"),
        ("solution/solve.sh", "unlink", "ls", "the solution passed 0 of 1 times"),
        ("task.toml", "300", "3", "changed after certification: tests"),
    ],
)
def test_a_file_that_was_changed_since_is_found(
    certified: Path,
    again: partial[tuple[str, ...]],
    name: str,
    old: str,
    new: str,
    fault: str,
) -> None:
    task = folders_of(certified)[0]
    assert again(task) == ()
    file = certified / name_of(task) / name
    was = file.read_text()
    assert old in was
    file.write_text(was.replace(old, new))
    try:
        assert fault in again(task)
    finally:
        file.write_text(was)


@NIGHTLY
def test_the_command_checks_folders(certified: Path, exported: Path) -> None:
    command = ["tasks", "certify", "--check", "--workers", "1", "--json"]
    done = CliRunner().invoke(app, [*command, str(certified)])
    assert (done.exit_code, json.loads(done.stdout)["certified"]) == (0, 2)
    done = CliRunner().invoke(app, [*command, str(exported)])
    assert done.exit_code == 1
    assert json.loads(done.stdout)["faulty"][0]["faults"] == ["the certificate is missing"]


def test_who_attacks_a_folder_is_not_paid_and_who_does_the_task_is(
    certified: Path, observer: SandboxRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = Attack("honest work", ("SOLUTION",))
    attacks = (
        honest,
        Attack("a reward written", ("echo 1 > /logs/verifier/reward.txt",)),
        Attack("the evidence written", ("printf %s GOAL > /logs/artifacts/shioenv-state.json",)),
        Attack("harm besides", ("HARM", "SOLUTION")),
        Attack("a row that never ends", ("cat /dev/zero > /dev/null",)),
    )
    monkeypatch.setattr(folders, "ATTACKS", attacks)
    monkeypatch.setattr(folders, "ROW_SECONDS", 1.0)
    with EnteredMachine(observer.system, LIMITS) as machine:
        for task in folders_of(certified):
            assert folder_forgeries(task, machine, certified) == [honest.kind]


def test_what_is_no_folder_of_ours_is_refused(
    tmp_path: Path, exported: Path, tasks: list[Task]
) -> None:
    with pytest.raises(TaskError, match="contains no folder"):
        folders_of(tmp_path)
    (tmp_path / "other/tests").mkdir(parents=True)
    line = (exported / name_of(tasks[0]) / "tests/task.json").read_bytes()
    (tmp_path / "other/tests/task.json").write_bytes(line)
    with pytest.raises(TaskError, match="contains the task"):
        folders_of(tmp_path)
