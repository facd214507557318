"""A vector of environments in one process."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, SupportsFloat, TypeAlias

import gymnasium
import numpy as np
from gymnasium.core import ActType
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate
from numpy.typing import NDArray

from shioenv.errors import EnvironmentOptionError, EpisodeError

Taken: TypeAlias = tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]
Vector: TypeAlias = tuple[
    Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]
]


class SameStepVectorEnv(VectorEnv[Any, Any, Any]):
    """A vector of environments.

    If an episode ends, its environment is reset in the same step. The last observation and info of
    the ended episode are in `final_obs` and `final_info` (`AutoresetMode.SAME_STEP`).
    """

    metadata: dict[str, Any] = {  # noqa: RUF012
        "render_modes": [],
        "autoreset_mode": AutoresetMode.SAME_STEP,
    }

    def __init__(self, envs: Sequence[gymnasium.Env[Any, Any]]) -> None:
        """Store the environments, which have the same spaces; no episode begins yet."""
        self.envs = list(envs)
        self.num_envs = len(self.envs)
        self.single_observation_space = self.envs[0].observation_space
        self.single_action_space = self.envs[0].action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.render_mode = None
        self._begun = False

    def reset(
        self,
        *,
        seed: int | list[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Begin a new episode in each environment.

        With a seed, environment i gets `seed + i`. A list has a separate seed for each environment.
        `options` are those of the environments, the same for all. Errors: those of their `reset`,
        and EnvironmentOptionError for a list of another length than `num_envs`.
        """
        seeds = seed if isinstance(seed, list) else self._seeds(seed)
        if len(seeds) != self.num_envs:
            raise EnvironmentOptionError(f"{len(seeds)} seeds for {self.num_envs} environments")
        self._begun = True
        observations: list[Any] = []
        infos: dict[str, Any] = {}
        for number, (env, own) in enumerate(zip(self.envs, seeds, strict=True)):
            observation, info = env.reset(seed=own, options=options)
            observations.append(observation)
            infos = self._add_info(infos, info, number)
        return self._batched(observations), infos

    def step(self, actions: ActType) -> Vector:
        """Take an action in each environment; the class describes the end of an episode.

        Errors: EpisodeError before a reset, and those of the environments. After an error, the
        results of the other environments are lost.
        """
        if not self._begun:
            raise EpisodeError("no episode is running", hint="call reset first")
        observations: list[Any] = []
        finals: dict[int, tuple[Any, dict[str, Any]]] = {}
        rewards = np.zeros(self.num_envs)  # (environments,)
        terminated = np.zeros(self.num_envs, np.bool_)
        truncated = np.zeros(self.num_envs, np.bool_)
        infos: list[dict[str, Any]] = []
        given = iterate(self.action_space, actions)
        for number, (observation, reward, ended, cut, info) in enumerate(self._taken(given)):
            rewards[number] = float(reward)
            terminated[number], truncated[number] = ended, cut
            if ended or cut:
                finals[number] = observation, info
                self._end(number)
                observation, info = self.envs[number].reset()
            observations.append(observation)
            infos.append(info)
        self._complete(rewards, finals)
        return (
            self._batched(observations),
            rewards,
            terminated,
            truncated,
            self._infos(infos, finals),
        )

    def _taken(self, actions: Iterable[Any]) -> Iterable[Taken]:
        """Yield the results of the actions, environment by environment."""
        return (env.step(action) for env, action in zip(self.envs, actions, strict=True))

    def _end(self, number: int) -> None:
        """Handle the end of an episode, before its environment is reset."""

    def _complete(
        self, rewards: NDArray[np.float64], finals: dict[int, tuple[Any, dict[str, Any]]]
    ) -> None:
        """Complete a step after all actions; may change rewards and last infos."""

    def _seeds(self, seed: int | None) -> list[int | None]:
        return [None if seed is None else seed + number for number in range(self.num_envs)]

    def _batched(self, observations: list[Any]) -> Any:
        space = self.single_observation_space
        out: Any = create_empty_array(space, self.num_envs)
        return concatenate(space, observations, out)

    def _infos(
        self, infos: list[dict[str, Any]], finals: dict[int, tuple[Any, dict[str, Any]]]
    ) -> dict[str, Any]:
        batched: dict[str, Any] = {}
        for number, info in enumerate(infos):
            if number in finals:
                observation, last = finals[number]
                info = {**info, "final_obs": observation, "final_info": last}
            batched = self._add_info(batched, info, number)
        return batched
