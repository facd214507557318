# ruff: noqa: E402 - what is imported needs what may not be installed
"""The example that trains on tasks: it learns from the reward, and from nothing else."""

from __future__ import annotations

import csv
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from needs import needed_module

needed_module("sb3_contrib")

from shioenv.system.store import System
from shioenv.tasks.task import Task, read_tasks, write_tasks

EXAMPLES = Path(__file__).parents[2] / "examples/agents"


@pytest.fixture(scope="module")
def ppo() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLES)  # the environments' processes find it there, too
        yield importlib.import_module("ppo")


@pytest.fixture(scope="module")
def tasks(system: System) -> list[Task]:
    return [
        replace(task, system_digest=system.digest)
        for task in read_tasks(EXAMPLES / "tasks.jsonl")
        if "\n" not in task.solution and not task.history
    ]


def test_a_way_is_a_solution_without_the_names_of_its_prompt(ppo: Any, tasks: list[Task]) -> None:
    ways = {task.solution: ppo.way(task) for task in tasks}
    assert ways["chown root config"] == "chown root <0>"
    assert ways['chgrp www-data "misc/a file.txt"'] == "chgrp www-data <0>"
    assert ways["rm data/data.csv"] == "rm <0>"
    assert ppo.ways([*tasks[:1], *tasks[:2]]) == [ppo.way(tasks[0])]
    prompts = [ppo.seen(task.prompt) for task in tasks]
    assert all(one.shape == (ppo.WORDS,) and one.any() for one in prompts)
    assert not np.array_equal(prompts[0], prompts[1])


def test_a_line_is_typed_and_paid(ppo: Any, tasks: list[Task]) -> None:
    gone = next(task for task in tasks if task.solution == "rm data/data.csv")
    env = ppo.OneLine([gone], ["rm <0>", "mv <0> <1>", "ls <0>"])
    try:
        for action, paid in ((0, 1), (2, 0), (0, 1)):
            observation, _ = env.reset(seed=1)
            assert observation.any()
            assert env.action_masks().tolist() == [True, False, True]
            _, reward, terminated, truncated, info = env.step(action)
            assert (reward, terminated, truncated) == (paid, bool(paid), not paid)
            assert info["line"] == env.lines[action].replace("<0>", "data/data.csv")
    finally:
        env.close()


@pytest.mark.timeout(900)
def test_training_raises_the_reward(
    ppo: Any,
    tasks: list[Task],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_tasks([*tasks, *(replace(task, id=f"{task.id}b") for task in tasks)], tmp_path / "tasks")
    told = [str(tmp_path / "tasks"), "--test", str(tmp_path / "tasks"), "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["ppo.py", *told, "--episodes", "1000", "--envs", "2"])
    ppo.main()
    before, after = (float(word) for word in capsys.readouterr().out.split() if word[0] in "01.")
    assert after > before + 0.3
    with (tmp_path / "log.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert len(lines) >= 1000
    first, last = (
        np.mean([float(line["reward"]) for line in part]) for part in (lines[:300], lines[-300:])
    )
    assert last > first
    assert (tmp_path / "model.zip").exists()
