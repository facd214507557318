"""A set of certified tasks from a seed: its contents, and its continuation after a stop."""

from __future__ import annotations

import json
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from shioenv.errors import TaskError
from shioenv.execution.local import SerialExecutor
from shioenv.files.journal import sound_lines
from shioenv_agents.tasks import certify, make, sets
from shioenv_agents.tasks.agents import attempts, names, results_of
from shioenv_agents.tasks.certificate import JudgeCertificate
from shioenv_agents.tasks.certify import judge_digests
from shioenv_agents.tasks.sets import SetPlan, commands_of, make_set
from shioenv_agents.tasks.task import LENGTHS, Task, length_of, read_tasks
from support.nightly import LARGER, scaled

pytestmark = [pytest.mark.usefixtures("system"), LARGER]

JUDGE, CHANNEL = judge_digests()
STOOD = JudgeCertificate(judge=JUDGE, channel=CHANNEL, attacks=64, tasks=50)
STEPS = ("records", "records as tasks", "longer tasks", "certificates", "tries of facts")
PLAN = SetPlan(count=3, seed=4, k=1, share=1.0, agents=("facts",))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Make a small set, stopped in the middle of each of its steps."""
    directory = tmp_path_factory.mktemp("set") / "made"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certify, "certified_judge", lambda *given: STOOD)
        patch.setattr(certify, "_load", nullcontext)
        patch.setattr(sets, "BARREN", 1)
        for module in (make, sets):  # no processes: each takes a second
            patch.setattr(module, "LocalExecutor", lambda workers: SerialExecutor())
        for step in scaled(STEPS[1::2], STEPS):
            with pytest.raises(KeyboardInterrupt):
                make_set(directory, PLAN, workers=1, tell=partial(_stops, step))
            assert not (directory / "manifest.json").exists()
            assert_nothing_twice(directory)
        manifest = dict(make_set(directory, PLAN, workers=1).manifest)
    return directory, manifest


def _stops(step: str, label: str, done: int, total: int) -> None:
    if label == step and done:
        raise KeyboardInterrupt


def assert_nothing_twice(directory: Path) -> None:
    for journal in directory.glob("rounds/*/parts/*.ndjson"):
        names = [json.loads(line)[0] for line in sound_lines(journal)]
        assert len(names) == len({*names})


@pytest.fixture(scope="module")
def parts(made: tuple[Path, dict[str, Any]]) -> dict[str, list[Task]]:
    files = {part: made[0] / f"{part}.jsonl" for part in ("train", "test", "validation")}
    return {part: read_tasks(file) for part, file in files.items() if file.stat().st_size}


def test_the_manifest_says_what_is_there(
    made: tuple[Path, dict[str, Any]], parts: dict[str, list[Task]]
) -> None:
    directory, manifest = made
    written = json.loads((directory / "manifest.json").read_text())
    assert written == json.loads(json.dumps(manifest))
    tasks = [task for part in parts.values() for task in part]
    assert manifest["tasks"] == len(tasks) > 0
    for length in LENGTHS:
        of = [task for task in tasks if length_of(task) == length]
        assert manifest["lengths"][length] == len(of) <= PLAN.wanted(length)
        most = manifest["most_of_a_command"][length]
        for name in {name for task in of for name in commands_of(task)}:
            assert sum(name in commands_of(task) for task in of) <= most
    assert manifest["refused"]["records"]
    folders = [path.name for path in (directory / "harbor").glob("*/*")]
    assert sum(manifest["harbor"]["written"].values()) == len(folders)
    assert len(folders) + sum(manifest["harbor"]["refused"].values()) == len(tasks)


def test_each_task_is_certified_and_tried(parts: dict[str, list[Task]]) -> None:
    for task in (task for part in parts.values() for task in part):
        assert task.certificate is not None
        assert task.certificate.faults == ()
        assert [*task.solved_by] == ["facts"]
    names = [task.id for part in parts.values() for task in part]
    assert len({*names}) == len(names)


def test_what_is_finished_is_not_made_again(
    made: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, manifest = made
    monkeypatch.setattr(sets, "_run_round", lambda *given: pytest.fail("a round was played again"))
    before = {path: path.read_bytes() for path in directory.glob("*.jsonl")}
    assert make_set(directory, PLAN).manifest == manifest
    assert {path: path.read_bytes() for path in directory.glob("*.jsonl")} == before


def test_other_plans_and_other_things_are_refused(
    made: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    with pytest.raises(TaskError, match="with other options"):
        make_set(made[0], SetPlan(count=4, seed=3))
    with pytest.raises(TaskError, match="another agent"):
        make_set(made[0], PLAN, agents={"facts": names})
    (tmp_path / "mine").write_text("x")
    with pytest.raises(TaskError, match="is not a set of tasks"):
        make_set(tmp_path, PLAN)


def test_results_are_counted(parts: dict[str, list[Task]]) -> None:
    tasks = [task for part in parts.values() for task in part]
    tried = {name: attempts(tasks, name, workers=1) for name in ("recorded", "idle")}
    rows = {(row["agent"], row["group"]): row for row in results_of(tasks, tried)}
    assert rows["recorded", "all"]["solved"] == len(tasks)
    assert rows["idle", "all"]["solved"] == 0
    assert sum(
        rows["idle", length]["tasks"] for length in LENGTHS if ("idle", length) in rows
    ) == len(tasks)
