"""A policy network trained by sb3-contrib's MaskablePPO; needs the extra `rl`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sb3_contrib import MaskablePPO

from shioenv.env.stable_baselines import DeferredRewards, StableVecEnv, TokenEmbedding
from shioenv.env.vector import EndedEpisode, GrammarVectorEnv

ROLLOUT = 1024
"""Steps of all environments between two updates, as in the paper's first version."""


def train(
    vector: GrammarVectorEnv,
    seed: int,
    episodes: int,
    told: Callable[[Sequence[EndedEpisode]], int],
) -> Callable[[Any, Any], Any]:
    """Trains a policy; gives what chooses actions for observations and masks. Closes `vector`.

    `told` is given the executed episodes of each rollout, and says how many there are of all
    rollouts. Training ends with the rollout in which they are at least `episodes`.

    Batches, epochs, discount and entropy are those of the paper's first version. The network is
    smaller: two layers of 64 behind an embedding. The learning rate is the library's.
    """
    env = StableVecEnv(vector)
    try:
        model = MaskablePPO(
            "MlpPolicy",
            env,
            n_steps=max(ROLLOUT // vector.num_envs, 2),
            batch_size=128,
            n_epochs=4,
            gamma=1.0,
            ent_coef=0.01,
            seed=seed,
            policy_kwargs={"features_extractor_class": TokenEmbedding},
        )
        callback = DeferredRewards(lambda ended: told(ended) < episodes)
        model.learn(total_timesteps=1 << 40, callback=callback)
    finally:
        env.close()
    return lambda observations, masks: model.predict(observations, action_masks=masks)[0]
