# ruff: noqa: E402 - what is imported needs what may not be installed
"""Stable-Baselines3 learns in the native vector, with immediate and delayed rewards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from shioenv.env.rewards import Gate, necessary
from shioenv.env.vector import EndedEpisode, GrammarVectorEnv
from shioenv.env.wrappers import LocalActions, ProductionHistory
from shioenv.grammar.bind import stand_in_catalogue
from support.needs import needed_module
from support.scripted_shell import ScriptedShell

needed_module("sb3_contrib")

from sb3_contrib import MaskablePPO
from stable_baselines3.common.env_util import make_vec_env

from shioenv_agents.fronts.stable_baselines import DeferredRewards, StableVecEnv, TokenEmbedding


def make(**options: Any) -> StableVecEnv:
    return StableVecEnv(
        GrammarVectorEnv(
            2, sandboxes=1, runner=ScriptedShell, commands=["df", "ls"],
            catalogue=stand_in_catalogue(), wrap=[LocalActions, ProductionHistory],
            rewards=Gate(necessary), record=False, noise_runs=2, budget=16, **options,
        )
    )  # fmt: skip


def model_of(env: StableVecEnv) -> MaskablePPO:
    return MaskablePPO(
        "MlpPolicy", env, n_steps=64, batch_size=32, n_epochs=1, seed=0,
        policy_kwargs={"features_extractor_class": TokenEmbedding},
    )  # fmt: skip


def test_infos_of_ended_episodes_are_their_last_ones() -> None:
    env = make()
    env.seed(3)
    env.reset()
    random = np.random.default_rng(0)
    ended = 0
    for _ in range(80):
        masks = env.env_method("action_masks")
        _, rewards, dones, infos = env.step(
            np.array([random.choice(np.flatnonzero(m)) for m in masks])
        )
        for number, info in enumerate(infos):
            assert dones[number] == ("terminal_observation" in info)
            if dones[number]:
                ended += 1
                assert info["episode"]["r"] == pytest.approx(rewards[number])
                assert info["input"].startswith("cd /home/ubuntu; ")
    assert ended > 3
    assert env.env_is_wrapped(LocalActions) == [True, True]
    env.close()


def test_deferred_rewards_fill_the_buffer_as_those_at_once_do() -> None:
    buffers, shown = [], []
    told: list[EndedEpisode] = []

    def tell(ended: Sequence[EndedEpisode]) -> bool:
        told.extend(ended)
        return True

    for defer in (False, True):
        env = make(defer=defer)
        model = model_of(env)
        model.learn(2 * 64, callback=DeferredRewards(tell) if defer else None)
        buffer = model.rollout_buffer
        buffers.append((buffer.rewards.copy(), buffer.returns.copy(), buffer.advantages.copy()))
        shown.append([(round(one["r"], 6), one["l"]) for one in model.ep_info_buffer])
        env.close()
    assert buffers[0][0].any()
    assert shown[0] == shown[1], "what the logger shows"
    assert any(reward for reward, _ in shown[0])
    for at_once, later in zip(*buffers, strict=True):
        assert np.allclose(at_once, later, atol=1e-6)
    assert sum(one.reward for one in told) == pytest.approx(buffers[0][0].sum(), rel=1e-5)


def test_training_ends_where_it_is_told_to() -> None:
    env = make(defer=True)
    rollouts: list[int] = []

    def tell(ended: Sequence[EndedEpisode]) -> bool:
        rollouts.append(len(ended))
        return len(rollouts) < 2

    model_of(env).learn(1 << 30, callback=DeferredRewards(tell))
    env.close()
    assert len(rollouts) == 2


def test_environments_are_made_as_the_library_makes_them() -> None:
    """It asks for the render mode `rgb_array` first."""
    options = {"runner": ScriptedShell, "commands": ["ls"], "catalogue": stand_in_catalogue()}
    envs = make_vec_env("shioenv:ShIOEnv-Grammar-v0", n_envs=2, env_kwargs=options)
    assert envs.reset()["symbols"].shape[0] == 2
    envs.close()
