from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, VectorEnv

from shioenv import registration
from shioenv.env.wrappers import ENCODINGS, IntegerObservation, texts
from support.scripted_shell import ScriptedShell

registration.register()

STEPS = [
    (("ls", "é漢😀"), (0, 0), (1, 1)),
    (("-l<ns>", "x" * 64), (0, 0), (0, 0)),
    (("<ns>a", "y"), (0, 1), (0, 0)),
    (("", "ls"), (1, 0), (0, 1)),
    (("", "cat"), (0, 0), (0, 1)),
]


def roll(envs: VectorEnv[Any, Any, Any]) -> list[Any]:
    """Return the results of a reset and the steps, without info."""
    results = [envs.reset(seed=3)[0]]
    for added, execute, begin in STEPS:
        action = {
            "input_addition": added,
            "exec_action": np.array(execute),
            "new_global": np.array(begin),
        }
        observation, rewards, terminated, truncated, _ = envs.step(action)
        results.append((observation, rewards.tolist(), terminated.tolist(), truncated.tolist()))
    envs.close()
    return results


SPAWN = {"context": "spawn"}
"""A fork of a process in which Ray was started dies at once."""


def make(mode: str, **options: Any) -> VectorEnv[Any, Any, Any]:
    return gymnasium.make_vec(
        "ShIOEnv-v0",
        num_envs=2,
        vectorization_mode=mode,
        runner=ScriptedShell,
        start_directories=["/a", "/b", "/c"],
        max_arguments=4,
        **options,
    )


def test_async_without_shared_memory_shows_what_sync_shows() -> None:
    sync = roll(make("sync"))
    assert sync == roll(make("async", vector_kwargs={"shared_memory": False, **SPAWN}))
    observation = sync[2][0]
    assert observation[1][0] == ("ls", "é漢😀")
    assert observation[1][1] == ("-l<ns>", "x" * 64)
    assert sync[3][1] == [0.0, -10.0]
    assert sync[4][1] == [1.0, 0.0]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_integers_carry_the_texts_through_shared_memory(encoding: str) -> None:
    plain = roll(make("sync"))
    wrapped = make(
        "async",
        wrappers=[lambda env: IntegerObservation(env, encoding)],
        vector_kwargs={"shared_memory": True, **SPAWN},
    )
    assert isinstance(wrapped, AsyncVectorEnv)
    shared = roll(wrapped)
    for expected, found in zip(plain[1:], shared[1:], strict=True):
        assert found[1:] == expected[1:]
        for number in range(2):
            cells = tuple(tuple(cell[number] for cell in row) for row in expected[0])
            assert texts(found[0][number]) == cells


def test_end_info_reaches_the_vector() -> None:
    envs = make("sync")
    envs.reset(seed=0)
    for added, execute, begin in (STEPS[0], STEPS[1], (("", ""), (1, 1), (0, 0))):
        *_, info = envs.step(
            {
                "input_addition": added,
                "exec_action": np.array(execute),
                "new_global": np.array(begin),
            }
        )
    assert info["irreducibility"].tolist() == [1.0, 1.0]
    assert info["input"][0].endswith("; ls -l")
    assert info["error"].tolist() == [None, None]
