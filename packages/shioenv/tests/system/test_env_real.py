"""The environments on the built default system: their inputs are really executed."""

import json
import re
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from shioenv import registration
from shioenv.env.wrappers import IntegerObservation, texts
from shioenv.errors import (
    StartDirectoryError,
)
from support.paths import ROOT

registration.register()

DOCS = ROOT / "docs"
HOME = "/home/ubuntu"
Env = gymnasium.Env[Any, Any]


pytestmark = pytest.mark.usefixtures("system")


@pytest.fixture(scope="module")
def env() -> Iterator[Env]:
    made = gymnasium.make(
        "ShIOEnv-v0", max_commands=2, start_directories=[HOME], render_mode="ansi"
    )
    yield made
    made.close()


def play(env: Env, *rows: str, cwd: str = HOME) -> Any:
    """Execute these rows, one cell per word, and return the result."""
    env.reset(seed=0, options={"cwd": cwd})
    for row in rows:
        for index, word in enumerate(row.split()):
            env.step((word, 0, int(index == 0)))
    return env.step(("", 1, 0))


def test_output_exit_code_and_score_are_real(env: Env) -> None:
    _, reward, terminated, truncated, info = play(env, "ls -l<ns> <ns>a")
    assert (terminated, truncated, info["exit_code"]) == (True, False, 0)
    assert info["input"] == f"cd {HOME}; ls -la"
    assert info["output"].startswith("total ")
    assert " notes" in info["output"] or " documents" in info["output"]
    assert (info["stdout"], info["stderr"]) == (info["output"], "")
    assert info["context_patch"] == "[]"
    assert reward == info["irreducibility"] == 1.0
    assert info["exact"]
    assert info["n_executions"] == 5


def test_argument_without_effect_lowers_the_reward(env: Env) -> None:
    _, reward, *_, info = play(env, "ls -a --color=never")
    assert (reward, info["irreducibility_strict"]) == (0.5, 0.5)
    *_, info = play(env, "ls /nowhere -d")
    assert info["exit_code"] == 2
    assert info["output"] == info["stderr"]


def test_changes_are_recorded_and_gone_in_the_next_episode(env: Env) -> None:
    _, reward, *_, info = play(env, "mkdir -p made/inside && ls made")
    paths = [operation[1] for operation in json.loads(info["context_patch"])]
    assert "/fs/made" in paths
    assert "/fs/made~1inside" in paths
    assert info["output"] == "inside\n"
    assert 0 < reward <= 1
    *_, info = play(env, "ls made")
    assert info["exit_code"] == 2


def test_rows_share_one_shell(env: Env) -> None:
    *_, info = play(env, "COLOUR=red", "echo $COLOUR $((1+1)) && cd documents")
    assert info["output"] == "red 2\n"
    patch = json.loads(info["context_patch"])
    assert ["=", "/cwd", f"{HOME}/documents"] in patch
    assert ["a", "/settings/COLOUR", "red"] in patch


def test_start_directory_is_where_it_runs(env: Env) -> None:
    *_, info = play(env, "pwd -P", cwd="/tmp")
    assert info["output"] == "/tmp\n"
    with pytest.raises(StartDirectoryError):
        play(env, "pwd -P", cwd="/nowhere")


def test_what_bash_refuses_is_behavior(env: Env) -> None:
    *_, info = play(env, "ls 'unclosed")
    assert info["exit_code"] == 2
    assert "unexpected EOF" in info["output"]


def test_rendering_shows_what_happened(env: Env) -> None:
    play(env, "echo hello")
    assert env.render() == (
        f"$ cd {HOME}\n$ echo hello\nhello\n"
        "[exit code 0, irreducibility 1.000 (exact), 4 executions]\n"
    )


def test_workers_of_a_vector_have_a_sandbox_each() -> None:
    envs = gymnasium.make_vec(
        "ShIOEnv-v0",
        num_envs=2,
        vectorization_mode="async",
        vector_kwargs={"context": "spawn"},  # a fork dies where Ray was started
        wrappers=[IntegerObservation],
        start_directories=[HOME],
    )
    steps = [(("echo", "touch"), 0, 1), (("one", "two"), 0, 0), (("", ""), 1, 0)]
    envs.reset(seed=0)
    for added, execute, begin in steps:
        action = {
            "input_addition": added,
            "exec_action": np.full(2, execute),
            "new_global": np.full(2, begin),
        }
        observation, rewards, terminated, _, info = envs.step(action)
    envs.close()
    assert terminated.tolist() == [True, True]
    assert rewards.tolist() == [1.0, 1.0]
    assert info["output"].tolist() == ["one\n", ""]
    assert "/fs/two" in info["context_patch"][1]
    assert texts(observation[1])[1][:2] == ("touch", "two")


def test_grammar_episodes_run() -> None:
    env = gymnasium.make("ShIOEnv-Grammar-v0", commands=["ls", "df"], budget=8)
    env.action_space.seed(0)
    for seed in range(5):
        _, info = env.reset(seed=seed)
        done = False
        while not done:
            action = env.action_space.sample(mask=info["action_mask"])
            observation, reward, done, truncated, info = env.step(action)
        assert (info["error"], truncated) == (None, False)
        assert env.observation_space.contains(observation)
        assert reward == (info["irreducibility"] or 0.0)
        assert info["output"]
    env.close()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["ShIOEnv-v0", "ShIOEnv-Grammar-v0"])
def test_gymnasiums_own_checks_find_nothing(name: str) -> None:
    options: dict[str, Any] = {"commands": ["ls"]} if "Grammar" in name else {}
    env = gymnasium.make(name, **options)
    check_env(env.unwrapped)
    env.close()


def test_tutorial_runs_as_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    """Every block of Python that needs nothing else, in order, prints the output shown below it."""
    page = (DOCS / "tutorial" / "reinforcement-learning.md").read_text()
    page = re.sub(r"<!-- docs-test: needs .*? -->\n```python\n.*?```", "", page, flags=re.DOTALL)
    blocks = re.findall(r"```python\n(.*?)```(?:\n```text\n(.*?)```)?", page, re.DOTALL)
    assert len(blocks) > 4
    names: dict[str, Any] = {}
    for code, shown in blocks:
        exec(compile(code, "reinforcement-learning.md", "exec"), names)
        printed = capsys.readouterr().out
        if shown:
            assert printed.strip() == shown.strip()
    assert np.mean(names["rewards"][-50:]) > np.mean(names["rewards"][:50])
