"""Publish tasks on a hub: the library's own requests, and the library that loads them there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shioenv.errors import UsageError
from shioenv_agents.tasks.publish import COLUMNS, write_layout
from shioenv_agents.tasks.sets import MANIFEST, PARTS
from shioenv_agents.tasks.task import decode, encode, read_tasks
from support.hub_server import hub
from support.known_tasks import RIGHT_ANSWERS

TASKS = read_tasks(RIGHT_ANSWERS / "tasks.jsonl")


def set_in(directory: Path) -> Path:
    """Write a set of tasks, as `tasks set` leaves it."""
    directory.mkdir()
    for number, part in enumerate(PARTS.names):
        lines = b"".join(encode(task) for task in TASKS[number :: len(PARTS.names)])
        (directory / f"{part}.jsonl").write_bytes(lines)
    (directory / MANIFEST).write_text("{}")
    return directory


def test_three_splits_of_tasks_are_published_and_come_back(tmp_path: Path) -> None:
    import datasets

    tasks = set_in(tmp_path / "tasks")
    with hub() as (url, repositories):
        environment = {
            **os.environ, "HF_ENDPOINT": url, "HF_TOKEN": "hf_x", "HF_HOME": str(tmp_path / "hf"),
            "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "NO_PROXY": "127.0.0.1",
        }  # fmt: skip
        line = [sys.executable, "-m", "shioenv.cli.main", "tasks", "push", str(tasks), "me/tasks"]
        line += ["--license", "cc-by-4.0", "--json"]
        done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        kept = dict(repositories["me/tasks"])
    splits = json.loads(done.stdout)["splits"]
    assert sum(splits.values()) == len(TASKS)
    assert "license: cc-by-4.0" in kept["README.md"].decode()
    assert kept[MANIFEST] == b"{}"
    for name, content in kept.items():
        (tmp_path / "got" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "got" / name).write_bytes(content)
    loaded = datasets.load_dataset(str(tmp_path / "got"), cache_dir=str(tmp_path / "cache"))
    assert {name: len(part) for name, part in loaded.items()} == splits
    assert loaded["train"].column_names == list(COLUMNS)
    back = [decode(row["task"].encode()) for part in loaded.values() for row in part]
    assert {task.id: task for task in back} == {task.id: task for task in TASKS}


def test_a_file_is_one_split_and_others_are_refused(tmp_path: Path) -> None:
    tasks = set_in(tmp_path / "tasks")
    made = write_layout(tasks / "test.jsonl", tmp_path / "one", "mit")
    assert list(made) == ["train"]
    assert not (tmp_path / "one" / MANIFEST).exists()
    with pytest.raises(UsageError, match="not a set"):
        write_layout(tmp_path / "one", tmp_path / "two", "mit")
