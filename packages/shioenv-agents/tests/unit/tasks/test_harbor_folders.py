"""Harbor's folders by other authors: allowed contents, and differences from an export."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from shioenv.errors import TaskError
from shioenv_agents.tasks.harbor import trial_certification
from shioenv_agents.tasks.harbor.task_folders import (
    DOCKERFILE,
    GOAL,
    SETTINGS,
    name_of,
    static_files,
    write,
)
from shioenv_agents.tasks.harbor.trial_certification import altered_files, folders_of
from shioenv_agents.tasks.task import Goal, Task

TASK = Task(
    id="1", prompt="Remove `x`.", cwd="/home/ubuntu", goal=Goal(patch=[["r", "/fs/x"]]),
    solution="rm x", reduced="rm", commands=["rm"], irreducibility=1.0, n_arguments=1, record=1,
    system="debian-12", system_digest="0" * 64,
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(tmp_path / "harbor")


def written(directory: Path, image: str | None = None, task: Task = TASK) -> Path:
    folder = directory / name_of(task)
    goal = {"entries": {"/home/ubuntu/x": None}, "output": None}
    write({**static_files(task, image), GOAL: json.dumps(goal)}, folder)
    return folder


def test_a_folder_as_the_export_writes_it_is_taken(folder: Path) -> None:
    assert folders_of(folder.parent) == [TASK]
    (folder / "certificate.json").write_text("{}")
    assert altered_files(TASK, folder) == []


PUSHED = f"registry.example/debian@sha256:{'a' * 64}"
"""A reference that names an image by its digest."""

BROKEN = replace(TASK, history=["chmod 000 x"])


@pytest.mark.parametrize("task", [TASK, BROKEN], ids=["whole", "broken"])
@pytest.mark.parametrize("image", [PUSHED, "registry.example/debian:1"])
def test_the_image_is_whoever_exports_to_choose(tmp_path: Path, task: Task, image: str) -> None:
    folder = written(tmp_path, image, task)
    assert altered_files(task, folder) == []
    assert (folder / DOCKERFILE).read_text().splitlines()[1:3] == [
        f"FROM {image}",
        f"LABEL shioenv.system=debian-12:{'0' * 12}",
    ]


def test_a_folder_names_one_image(tmp_path: Path) -> None:
    folder = written(tmp_path, PUSHED)
    file = folder / SETTINGS
    file.write_text(file.read_text().replace(PUSHED, "registry.example/other"))
    assert altered_files(TASK, folder) == [SETTINGS]


@pytest.mark.parametrize(
    "put",
    [
        lambda path: path.symlink_to("/etc/hostname"),
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.symlink_to("/etc"),
        lambda path: path.symlink_to("missing"),
        os.mkfifo,
    ],
    ids=["link", "endless", "directory", "dangling", "pipe"],
)
@pytest.mark.parametrize("name", ["leak", "tests/leak", "certificate.json"])
def test_what_is_no_regular_file_is_refused(
    folder: Path, name: str, put: Callable[[Path], None]
) -> None:
    put(folder / name)
    with pytest.raises(TaskError, match=f"{name} is neither"):
        folders_of(folder.parent)


@pytest.mark.parametrize("name", ["", "tests"])
def test_a_linked_directory_is_refused(folder: Path, tmp_path: Path, name: str) -> None:
    place = folder / name
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(TaskError, match="is neither"):
        folders_of(folder.parent)


def test_what_a_folder_holds_is_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(trial_certification, "ENTRIES", 10)
        with pytest.raises(TaskError, match="more than 10 files"):
            folders_of(folder.parent)
        patch.setattr(trial_certification, "ENTRIES", 11)
        assert folders_of(folder.parent) == [TASK]
    os.truncate(folder / GOAL, trial_certification.BYTES)
    with pytest.raises(TaskError, match="bytes"):
        folders_of(folder.parent)


@pytest.mark.parametrize("name", sorted({*static_files(TASK, None)}))
def test_a_file_that_differs_from_the_export_is_named(folder: Path, name: str) -> None:
    file = folder / name
    was = file.read_bytes()
    file.write_bytes(was + b"\n")
    assert altered_files(TASK, folder) == [name]
    file.unlink()
    assert altered_files(TASK, folder) == [name]


@pytest.mark.parametrize(
    "text", ["", "[environment", "environment = 1", "[environment]\ndocker_image = 1"]
)
def test_settings_that_are_none_differ(folder: Path, text: str) -> None:
    (folder / "task.toml").write_text(text)
    assert altered_files(TASK, folder) == ["task.toml"]


def test_a_reward_that_is_given_away_is_found(folder: Path) -> None:
    (folder / "tests/test.sh").write_text("echo 1 > /logs/verifier/reward.txt\n")
    (folder / "environment/docker-compose.yaml").write_text("services: {}\n")
    (folder / os.fsdecode(b"\xff")).write_text("")
    found = altered_files(TASK, folder)
    assert found == ["?", "environment/docker-compose.yaml", "tests/test.sh"]


@pytest.mark.parametrize(
    "text",
    [
        "", "{}", "[]", "null", "[" * 100_000, '{"entries": [], "output": null}',
        '{"entries": {"/x": 1}, "output": null}', '{"entries": {}, "output": 1}',
        '{"entries": {}, "output": null, "more": 1}',
    ],
)  # fmt: skip
def test_a_goal_that_is_none_is_a_fault_of_its_folder(folder: Path, text: str) -> None:
    (folder / GOAL).write_text(text)
    assert altered_files(TASK, folder) == [GOAL]
    (folder / GOAL).unlink()
    assert altered_files(TASK, folder) == [GOAL]
