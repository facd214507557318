"""Adapters for Stable-Baselines3: `GrammarVectorEnv` as a `VecEnv`, and an embedding.

The training algorithms are in Stable-Baselines3; `examples/rl` shows their use. This module needs
the extra `rl`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import VecEnv

from shioenv.env.vector import EndedEpisode, GrammarVectorEnv

THREADS = 1
"""Number of torch's threads in a training process. The networks are small, and the sandboxes need
the processors. If torch has one thread per processor, training is many times slower on a loaded
machine."""

torch.set_num_threads(THREADS)

EMBEDDED = 32
"""Length of the embedding of one production or nonterminal (our choice)."""


class StableVecEnv(VecEnv):
    """A `GrammarVectorEnv` with the interface of Stable-Baselines3.

    With a vector that has `defer`, training needs the callback `DeferredRewards`. The info of a
    step that ends an episode is the last info of that episode, with `terminal_observation`. Without
    deferred rewards the info also contains `episode`: `r` is the reward, `l` the number of steps,
    `t` the seconds since this object was made. With deferred rewards, `collect` returns the
    `episode` of each ended episode.
    """

    def __init__(self, vector: GrammarVectorEnv) -> None:
        """Wrap a vector; closing this object closes it."""
        self.vector = vector
        self.render_mode = None
        self._actions: Any = None
        self._first_seed: int | None = None
        self._began = time.monotonic()
        self._returns = np.zeros(vector.num_envs)
        self._lengths = np.zeros(vector.num_envs, np.int64)
        self._unpaid: list[tuple[int, int, dict[str, Any]]] = []
        self._steps = 0
        super().__init__(
            vector.num_envs, vector.single_observation_space, vector.single_action_space
        )

    def seed(self, seed: int | None = None) -> list[int | None]:
        """Set the seed of the next reset: environment i gets `seed + i`."""
        self._first_seed = seed
        return [None if seed is None else seed + number for number in range(self.num_envs)]

    def reset(self) -> Any:
        """Begin new episodes, and return their first observations."""
        observations, _ = self.vector.reset(seed=self._first_seed)
        self._first_seed = None
        self._returns[:] = 0
        self._lengths[:] = 0
        self._unpaid, self._steps = [], 0
        return observations

    def step_async(self, actions: NDArray[Any]) -> None:
        """Keep the actions for `step_wait`."""
        self._actions = actions

    def step_wait(self) -> tuple[Any, NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """Take the kept actions; return observations, rewards, which episodes ended, and infos."""
        observations, rewards, terminated, truncated, batch = self.vector.step(self._actions)
        self._returns += rewards
        self._lengths += 1
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for number in np.flatnonzero(terminated | truncated):
            final = batch["final_info"]
            infos[number] = {
                **{
                    name: of[number]
                    for name, of in final.items()
                    if not name.startswith("_") and not isinstance(of, dict)
                },
                "terminal_observation": batch["final_obs"][number],
                "TimeLimit.truncated": bool(truncated[number] and not terminated[number]),
            }
            episode = {
                "r": float(self._returns[number]),
                "l": int(self._lengths[number]),
                "t": round(time.monotonic() - self._began, 3),
            }
            if self.vector.defer:  # the episode's reward is not known yet
                self._unpaid.append((self._steps, int(number), episode))
            else:
                infos[number]["episode"] = episode
            self._returns[number] = self._lengths[number] = 0
        self._steps += 1
        return observations, rewards.astype(np.float32), terminated | truncated, infos

    def collect(self) -> tuple[NDArray[np.float64], list[EndedEpisode], list[dict[str, Any]]]:
        """Return the results of `GrammarVectorEnv.collect`, and each ended episode's `episode`.

        All episodes that ended since the last call or reset have an `episode`, executed or not.
        """
        rewards, ended = self.vector.collect()
        unpaid, self._unpaid, self._steps = self._unpaid, [], 0
        for step, number, episode in unpaid:
            episode["r"] += float(rewards[step, number])
        return rewards, ended, [episode for _, _, episode in unpaid]

    def close(self) -> None:
        """Close the vector."""
        self.vector.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return the values of an attribute, one per environment.

        AttributeError if it is missing.
        """
        if attr_name == "render_mode":
            return [None for _ in self._chosen(indices)]
        return [env.get_wrapper_attr(attr_name) for env in self._chosen(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set an attribute of the environments."""
        for env in self._chosen(indices):
            env.set_wrapper_attr(attr_name, value)

    def env_method(
        self, method_name: str, *args: Any, indices: Any = None, **options: Any
    ) -> list[Any]:
        """Return the results of a method, such as `action_masks`, one per environment."""
        envs = self._chosen(indices)
        return [env.get_wrapper_attr(method_name)(*args, **options) for env in envs]

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        """Whether each environment has a wrapper of this class around it.

        Rewards and lengths of episodes are in the infos without a `Monitor` wrapper.
        """
        return [_is_wrapped(env, wrapper_class) for env in self._chosen(indices)]

    def _chosen(self, indices: Any) -> Sequence[gymnasium.Env[Any, Any]]:
        return [self.vector.envs[number] for number in self._get_indices(indices)]


class DeferredRewards(BaseCallback):
    """Writes the rewards of a rollout's episodes into its buffer, once all of them are scored.

    For on-policy algorithms (PPO, A2C, MaskablePPO) on a vector with `defer`. `told` is called with
    the executed episodes of each rollout. If it returns False, training ends.
    """

    def __init__(self, told: Callable[[Sequence[EndedEpisode]], bool] = lambda ended: True) -> None:
        super().__init__()
        self._told = told
        self._going_on = True

    def _on_step(self) -> bool:
        return self._going_on

    def _on_rollout_end(self) -> None:
        rewards, ended, episodes = self.training_env.collect()
        self.model.ep_info_buffer.extend(episodes)
        buffer, policy = self.model.rollout_buffer, self.model.policy
        buffer.rewards += rewards.astype(buffer.rewards.dtype)  # (steps, environments)
        with torch.no_grad():
            observations = policy.obs_to_tensor(self.model._last_obs)[0]
            values = policy.predict_values(observations)
        dones = self.model._last_episode_starts
        buffer.compute_returns_and_advantage(last_values=values, dones=dones)
        self._going_on = self._told(ended)


class TokenEmbedding(BaseFeaturesExtractor):
    """Embeds a `ProductionHistory` for a network: the embeddings of its numbers, concatenated."""

    def __init__(self, observation_space: gymnasium.spaces.Box, embedded: int = EMBEDDED) -> None:
        """Create an embedding with `embedded` numbers for each token of the space's vocabulary."""
        tokens = int(np.prod(observation_space.shape))
        super().__init__(observation_space, tokens * embedded)
        size = int(observation_space.high.max()) + 1
        self.embedding = torch.nn.Embedding(size, embedded, padding_idx=0)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Map (batch, tokens) to (batch, tokens * embedded)."""
        embedded: torch.Tensor = self.embedding(observations.long()).flatten(1)
        return embedded


def _is_wrapped(env: gymnasium.Env[Any, Any], kind: type) -> bool:
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, kind):
            return True
        env = env.env
    return False
