"""`ShIOEnv-Task-v0` on the real system, with an agent that answers from a list."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

from shioenv.errors import ActionError, EnvironmentOptionError, EpisodeError, TaskError
from shioenv.registration import register
from shioenv.system.store import build_system
from shioenv.tasks.env import TaskEnv
from shioenv.tasks.task import Goal, Task, write_tasks

register()
DIGEST = build_system().digest


def task(number: int, **fields: Any) -> Task:
    known: dict[str, Any] = {
        "id": str(number),
        "prompt": "Print the number of processors that can be used.",
        "cwd": "/home/ubuntu",
        "goal": Goal(output="2\n"),
        "solution": "nproc --all",
        "reduced": "nproc --ignore=1",
        "commands": ["nproc"],
        "irreducibility": 1.0,
        "n_arguments": 1,
        "record": number,
        "system": "debian-12",
        "system_digest": DIGEST,
    }
    return Task(**{**known, **fields})


REMOVE = task(
    2,
    prompt="`documents/notes.txt` is gone",
    goal=Goal(patch=[["r", "/fs/documents~1notes.txt"]]),
    solution="rm documents/notes.txt",
)


@pytest.fixture
def env(tmp_path: Path) -> Iterator[Any]:
    write_tasks([task(1), REMOVE], tmp_path / "tasks.jsonl")
    made = gymnasium.make("ShIOEnv-Task-v0", tasks=tmp_path / "tasks.jsonl", max_turns=3)
    yield made
    made.close()


def test_gymnasiums_own_checks_pass(env: Any) -> None:
    check_env(env.unwrapped, skip_render_check=True)


def test_a_scripted_agent_does_a_task(env: Any) -> None:
    told, info = env.reset(seed=1, options={"task": "2"})
    assert "documents/notes.txt" in told
    assert "3 lines" in told
    assert (info["task"], info["progress"], info["turns"]) == ("2", 0.0, 0)
    text, reward, terminated, truncated, info = env.step("ls documents")
    assert "notes.txt" in text
    assert (reward, terminated, truncated) == (0.0, False, False)
    text, reward, terminated, truncated, info = env.step("cd documents\nrm notes.txt")
    assert (text, reward, terminated, truncated) == ("[nothing was printed]", 1.0, True, False)
    assert (info["progress"], info["turns"], info["missing"]) == (1.0, 2, ())
    with pytest.raises(EpisodeError):
        env.unwrapped.step("ls")


def test_the_last_line_ends_the_episode(env: Any) -> None:
    env.reset(seed=1, options={"task": "1"})
    for line in ("false", "printf 'a\\0b'"):
        assert env.step(line)[3] is False
    text, reward, terminated, truncated, _ = env.step("sleep 100")
    assert "ran out of time" in text
    assert (reward, terminated, truncated) == (0.0, False, True)


def test_the_same_seed_draws_the_same_tasks(env: Any) -> None:
    drawn = [env.reset(seed=seed)[1]["task"] for seed in (3, 4, 5, 6, 7, 3)]
    assert drawn[0] == drawn[-1]
    assert set(drawn) == {"1", "2"}


def test_what_cannot_be_meant_is_refused(env: Any, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentOptionError, match="task"):
        env.reset(options={"tsk": "1"})
    with pytest.raises(EnvironmentOptionError, match="no task"):
        env.reset(options={"task": "9"})
    with pytest.raises(TaskError):
        TaskEnv(tmp_path / "missing")
    for tasks in ([], [task(1), task(2, system="ubuntu-24.04")]):
        with pytest.raises(EnvironmentOptionError):
            TaskEnv(tasks)
    env.reset()
    for action in ("x\0", "x" * 5000, 3):
        with pytest.raises(ActionError):
            env.unwrapped.step(action)


def test_a_task_of_another_build_of_its_system_is_refused(tmp_path: Path) -> None:
    env = TaskEnv([task(1, system_digest="ab" * 32)])
    with pytest.raises(TaskError, match=r"task 1 .* with the digest abab") as error:
        env.reset()
    env.close()
    assert "cluster.md" in (error.value.hint or "")
