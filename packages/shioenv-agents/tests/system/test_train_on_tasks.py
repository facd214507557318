# ruff: noqa: E402 - what is imported needs what may not be installed
"""The training example on tasks: it learns from the reward alone."""

from __future__ import annotations

import csv
import importlib
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from support.needs import needed_module
from support.paths import ROOT

needed_module("sb3_contrib")

from shioenv.system.store import System
from shioenv_agents.tasks.task import Task, read_tasks, write_tasks

EXAMPLES = ROOT / "examples/agents"
TWO_FACTS = "echo ~/documents -nope > todo14"


@pytest.fixture(scope="module")
def ppo() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLES)  # the environments' processes find it there, too
        yield importlib.import_module("ppo")


@pytest.fixture(scope="module")
def tasks(system: System) -> list[Task]:
    return [
        replace(task, system_digest=system.digest) for task in read_tasks(EXAMPLES / "tasks.jsonl")
    ]


def test_a_fact_is_read_from_a_prompt(ppo: Any, tasks: list[Task]) -> None:
    told = {task.solution: ppo.facts(task.prompt) for task in tasks}
    (gone,) = told["rm data/data.csv"]
    assert (gone.words, gone.line("rm -rf <0>")) == (
        "NAME no longer exists",
        "rm -rf data/data.csv",
    )
    assert gone.line("mv <0> <1>") is None
    (owner,) = told["chown root config"]
    assert owner.line("chown -h <last> <0>") == "chown -h root config"
    made, held = told["echo ~/documents -nope > todo14"]
    assert made.line("touch <0>; chmod <mode> <0>") == "touch todo14; chmod 0644 todo14"
    assert held.line("printf %s <text> > <0>") == "printf %s '/root/documents -nope\n' > todo14"
    (asked,) = told["cat scripts/deploy.sh"]
    assert asked.line("cat <*>") == "cat scripts/deploy.sh"
    for one in itertools.chain(*told.values()):
        assert one.line(":") == ":"
        assert ppo.seen(one.words).any()


def test_a_line_for_each_fact_is_typed_and_paid(ppo: Any, tasks: list[Task]) -> None:
    chosen = [task for task in tasks if task.solution in ("rm data/data.csv", TWO_FACTS)]
    env = ppo.FactByFact(chosen)
    ways = {way: number for number, way in enumerate(ppo.WAYS)}
    said = {"rm data/data.csv": ["rm -rf <0>"], TWO_FACTS: [":", "printf %s <text> > <0>"]}
    try:
        for task in chosen:
            for lines, paid in ((said[task.solution], 1), (len(said[task.solution]) * [":"], 0)):
                env.reset(seed=1, options={"task": task.id})
                for line in lines:
                    assert env.action_masks()[ways[line]]
                    assert not env.action_masks()[ways["mv <0> <1>"]]
                    _, reward, terminated, truncated, info = env.step(ways[line])
                assert (reward, terminated, truncated) == (paid, bool(paid), not paid)
                assert len(info["lines"].split("; ")) == len(lines)
        env.reset(options={"task": chosen[0].id})
        assert ppo.paid(env, lambda seen, masks: ways[":"]) == 0
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
    write_tasks(tasks, tmp_path / "tasks")
    told = [str(tmp_path / "tasks"), "--test", str(tmp_path / "tasks"), "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["ppo.py", *told, "--steps", "6000", "--envs", "2"])
    ppo.main()
    before, after = (float(word) for word in capsys.readouterr().out.split() if word[0] in "01.")
    assert after > before + 0.1
    with (tmp_path / "log.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert len(lines) >= 500
    first, last = (
        np.mean([float(line["reward"]) for line in part]) for part in (lines[:300], lines[-300:])
    )
    assert last > first
    assert (tmp_path / "model.zip").exists()
