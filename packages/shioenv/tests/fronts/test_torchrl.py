"""TorchRL rolls out masked policies, with inputs executed in a real sandbox."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import gymnasium
import pytest

from support.needs import needed_module

needed_module("torchrl")

import torch  # noqa: E402
from tensordict.nn import TensorDictModule  # noqa: E402
from torchrl.collectors import Collector  # noqa: E402
from torchrl.envs import (  # noqa: E402
    ActionMask,
    Compose,
    DTypeCastTransform,
    GymEnv,
    GymWrapper,
    ParallelEnv,
    SerialEnv,
    TransformedEnv,
    check_env_specs,
)
from torchrl.modules import MaskedCategorical, ProbabilisticActor  # noqa: E402

from shioenv.env.wrappers import LocalActions, MaskedObservation  # noqa: E402

pytestmark = [pytest.mark.usefixtures("system"), pytest.mark.timeout(600)]

NAME = "shioenv:ShIOEnv-Grammar-v0"

OPTIONS: dict[str, Any] = {
    "commands": ["df", "ls"],
    "command": "uniform",
    "record": False,
    "budget": 8,
    "noise_runs": 2,
    "wall_seconds": 0.5,
}


def wrapped() -> Any:
    env = MaskedObservation(LocalActions(gymnasium.make(NAME, **OPTIONS)))
    mask = DTypeCastTransform(torch.float32, torch.bool, in_keys=["action_mask"])
    env = GymWrapper(env, categorical_action_encoding=True)
    return TransformedEnv(env, Compose(mask, ActionMask()))


def masked_policy(env: Any) -> Any:
    torch.manual_seed(1)
    torch.set_num_threads(1)
    network = torch.nn.LazyLinear(env.action_spec.n)
    return ProbabilisticActor(
        TensorDictModule(network, ["observations"], ["logits"]),
        in_keys={"logits": "logits", "mask": "action_mask"},
        distribution_class=MaskedCategorical,
        spec=env.action_spec,
    )


def permitted(batch: Any) -> Any:
    """Whether each action of a rollout is permitted by the mask that was observed before it."""
    return batch["action_mask"].gather(-1, batch["action"].unsqueeze(-1))  # (..., steps, 1)


def paid(batch: Any) -> Any:
    """The rewards of the steps that ended an episode."""
    return batch["next", "reward"][batch["next", "done"]]


def test_the_registered_environment_has_the_specs_that_it_declares() -> None:
    with closing(TransformedEnv(GymEnv(NAME, **OPTIONS), ActionMask())) as env:
        env.set_seed(1)
        check_env_specs(env)
        random = env.rollout(200, break_when_any_done=False)
    taken = random["action"].argmax(-1, keepdim=True)
    assert random["action_mask"].gather(-1, taken).all()
    assert (paid(random) >= 0).all()
    assert (paid(random) > 0).any()


def test_without_the_mask_a_random_action_is_refused() -> None:
    with closing(GymEnv(NAME, **OPTIONS)) as env:
        env.set_seed(1)
        assert (paid(env.rollout(200, break_when_any_done=False)) == -10).any()


@pytest.mark.parametrize("kind", [SerialEnv, ParallelEnv])
def test_two_environments_are_collected_by_a_masked_policy(kind: Any) -> None:
    with closing(wrapped()) as env:
        check_env_specs(env)
        policy = masked_policy(env)
        policy(env.reset())  # the network's size
    collector = Collector(kind(2, wrapped), policy, frames_per_batch=100, total_frames=200)
    try:
        batches = [batch.clone() for batch in collector]
    finally:
        collector.shutdown()
    assert [batch.shape for batch in batches] == [(2, 50), (2, 50)]
    for batch in batches:
        assert permitted(batch).all()
        assert (paid(batch) >= 0).all()
    assert any((paid(batch) > 0).any() for batch in batches)
