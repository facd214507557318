"""RLlib trains on masked observations, with inputs executed in a real sandbox."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from typing import Any, ClassVar

import gymnasium
import pytest

from support.needs import needed_module

needed_module("ray.rllib")

import ray  # noqa: E402
import torch  # noqa: E402
from ray.rllib.algorithms.ppo import PPOConfig  # noqa: E402
from ray.rllib.core.rl_module.rl_module import RLModuleSpec  # noqa: E402
from ray.rllib.examples.rl_modules.classes.action_masking_rlm import (  # noqa: E402
    ActionMaskingTorchRLModule,
)
from ray.tune.registry import register_env  # noqa: E402

from shioenv.env.grammar_env import ActionFault  # noqa: E402
from shioenv.env.rewards import Gate, necessary  # noqa: E402
from shioenv.env.wrappers import LocalActions, MaskedObservation  # noqa: E402

pytestmark = [pytest.mark.usefixtures("system"), pytest.mark.timeout(600)]

STEPS = 2_000

OPTIONS = {
    "commands": ["df", "ls"],
    "command": "uniform",
    "record": False,
    "budget": 8,
    "noise_runs": 2,
    "wall_seconds": 0.5,
}


class Counted(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Counts the `error` values of all steps, over all such environments."""

    errors: ClassVar[Counter[str | None]] = Counter()

    def step(self, action: Any) -> Any:
        taken = self.env.step(action)
        self.errors[taken[4]["error"]] += 1
        return taken


def make(options: dict[str, Any]) -> Any:
    env = gymnasium.make("ShIOEnv-Grammar-v0", rewards=Gate(necessary), **options)
    return Counted(MaskedObservation(LocalActions(env)))


@pytest.fixture
def algorithm() -> Iterator[Any]:
    torch.set_num_threads(1)
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    register_env("shioenv", make)
    made = (
        PPOConfig()
        .environment("shioenv", env_config=OPTIONS)
        .env_runners(num_env_runners=0, num_envs_per_env_runner=2)
        .training(train_batch_size_per_learner=500, minibatch_size=125, num_epochs=2)
        .rl_module(
            rl_module_spec=RLModuleSpec(
                module_class=ActionMaskingTorchRLModule, model_config={"fcnet_hiddens": [32]}
            )
        )
        .debugging(seed=1)
        .build_algo()
    )
    yield made
    made.stop()
    ray.shutdown()


def test_training_takes_no_masked_action(algorithm: Any) -> None:
    Counted.errors.clear()
    while Counted.errors.total() < STEPS:
        result = algorithm.train()
        assert math.isfinite(result["learners"]["default_policy"]["total_loss"])
    assert ActionFault.MASKED_ACTION not in Counted.errors
    assert result["env_runners"]["episode_return_max"] > 0  # inputs were executed and paid
    with closing(make(OPTIONS)) as env:
        observation, _ = env.reset(seed=1)
        env.step(int(observation["action_mask"].argmin()))
    assert Counted.errors[ActionFault.MASKED_ACTION] == 1, "a masked action is counted"
