"""Play random episodes of ShIOEnv-Grammar-v0: python examples/rl/episodes.py

It needs no learner and no extra. Each step draws one of the permitted actions.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from shioenv.env.vector import GrammarVectorEnv
from shioenv.env.wrappers import LocalActions


def main() -> None:
    """Print the number of episodes, their rate and their mean reward."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    random = np.random.default_rng(given.seed)
    envs = GrammarVectorEnv(
        16, budget=16, noise_runs=2, wall_seconds=0.5, record=False, defer=True, wrap=[LocalActions]
    )
    envs.reset(seed=given.seed)
    began, ended = time.perf_counter(), 0
    while ended < given.episodes:
        actions = [random.choice(np.flatnonzero(mask)) for mask in envs.action_masks()]
        *_, terminated, _, _ = envs.step(actions)
        ended += int(terminated.sum())
    rewards = [episode.reward for episode in envs.collect()[1]]
    seconds = time.perf_counter() - began
    envs.close()
    rate = len(rewards) / seconds
    print(f"{len(rewards)} episodes, {rate:.1f} a second, mean reward {np.mean(rewards):.2f}")


if __name__ == "__main__":
    main()
