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
from shioenv_agents.tasks.env import TaskEnv, TaskVectorEnv
from shioenv_agents.tasks.task import Goal, Task, write_tasks

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
    prompt="Remove `documents/notes.txt`.",
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
    assert (text, reward, terminated, truncated) == ("[no output]", 1.0, True, False)
    assert (info["progress"], info["turns"], info["missing"]) == (1.0, 2, ())
    with pytest.raises(EpisodeError):
        env.unwrapped.step("ls")


def test_the_last_line_ends_the_episode(env: Any) -> None:
    env.reset(seed=1, options={"task": "1"})
    for line in ("false", "printf 'a\\0b'"):
        assert env.step(line)[3] is False
    text, reward, terminated, truncated, _ = env.step("sleep 100")
    assert "timed out" in text
    assert (reward, terminated, truncated) == (0.0, False, True)


def test_the_same_seed_draws_the_same_tasks(env: Any) -> None:
    drawn = [env.reset(seed=seed)[1]["task"] for seed in (3, 4, 5, 6, 7, 3)]
    assert drawn[0] == drawn[-1]
    assert set(drawn) == {"1", "2"}


def test_what_cannot_be_meant_is_refused(env: Any, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentOptionError, match="task"):
        env.reset(options={"tsk": "1"})
    with pytest.raises(EnvironmentOptionError, match="unknown task"):
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


HISTORY = task(
    3,
    prompt="`mine` is `README.md` again",
    history=("mv README.md mine",),
    goal=Goal(patch=[["m", "/fs/mine", "/fs/README.md"]]),
    solution="mv mine README.md",
)
LINES = ("ls", "cd data", "echo $1 one > two; cat two", "rm ~/documents/notes.txt two", "(exit 3)")


def test_a_vector_gives_what_single_environments_give() -> None:
    vector = gymnasium.make_vec("ShIOEnv-Task-v0", num_envs=3, tasks=[task(1), REMOVE], max_turns=4)
    single = [TaskEnv([task(1), REMOVE], max_turns=4) for _ in range(3)]
    told, infos = vector.reset(seed=1)
    expected = [env.reset(seed=1 + number) for number, env in enumerate(single)]
    assert told == tuple(text for text, _ in expected)
    assert infos["task"].tolist() == [info["task"] for _, info in expected]
    for line in LINES:
        told, rewards, terminated, truncated, infos = vector.step((line,) * 3)
        for number, env in enumerate(single):
            text, *ended, info = env.step(line)
            if any(ended[1:]):
                assert infos["final_obs"][number] == text
                assert infos["final_info"]["missing"][number] == info["missing"]
                text, info = env.reset()
            mine = rewards[number], terminated[number], truncated[number]
            assert mine == tuple(ended)
            assert (told[number], infos["turns"][number]) == (text, info["turns"])
    vector.close()
    for env in single:
        env.close()


def test_attempts_fork_a_shared_beginning_and_are_nothing_to_each_other() -> None:
    vector = gymnasium.make_vec("ShIOEnv-Task-v0", num_envs=4, tasks=[HISTORY, REMOVE])
    vector.reset(options={"task": "3"})
    vector.step(("echo $RANDOM$RANDOM > drawn; once=$(< drawn)",) * 4)
    told, *_ = vector.step(("[ $(< drawn) = $once ] && echo same",) * 4)
    assert told == ("same\n",) * 4  # so no shell was made anew meanwhile
    told, *_ = vector.step(("touch a", "rm drawn", "cat drawn", "ls -d mine"))
    assert told[:2] == ("[no output]",) * 2
    assert told[2].strip().isdecimal()
    assert told[3] == "mine\n"
    with pytest.raises(ActionError):
        vector.step(("true", "x\0", "true", "true"))
    told, rewards, terminated, *_ = vector.step(("ls a", "mv mine README.md", "ls drawn", "ls a"))
    assert (told[0], told[2]) == ("a\n", "drawn\n")
    assert told[3].endswith("[exit code 2]")
    assert (rewards.tolist(), terminated.tolist()) == ([0, 1, 0, 0], [False, True, False, False])
    vector.close()
    vector.close()


def test_a_vector_refuses_what_it_cannot_be() -> None:
    wrong: list[dict[str, Any]] = [{"num_envs": 0}, {"render_mode": "ansi"}, {"tasks": []}]
    for options in wrong:
        with pytest.raises(EnvironmentOptionError):
            TaskVectorEnv(**{"tasks": [REMOVE], **options})
    vector = TaskVectorEnv(2, [REMOVE])
    with pytest.raises(EpisodeError):
        vector.step(("ls", "ls"))
    with pytest.raises(EnvironmentOptionError, match="unknown task"):
        vector.reset(options={"task": "9"})
    vector.close()


def test_a_task_of_another_build_of_its_system_is_refused(tmp_path: Path) -> None:
    env = TaskEnv([task(1, system_digest="ab" * 32)])
    with pytest.raises(TaskError, match=r"task 1 was made on the build abab") as error:
        env.reset()
    env.close()
    assert "--rebase" in (error.value.hint or "")
