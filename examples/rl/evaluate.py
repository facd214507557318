"""Evaluate a policy's inputs: python examples/rl/evaluate.py runs/maskable/model.zip

Without a model it evaluates uniformly drawn actions. Useful: exit code 0, steady, at least three
arguments, irreducibility of .7 or more.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from sb3_contrib import MaskablePPO

from shioenv.env.rewards import necessary
from shioenv.env.vector import EndedEpisode, GrammarVectorEnv
from shioenv.env.wrappers import LocalActions, ProductionHistory

Choose = Callable[[Any, Any], Any]


def play(vector: GrammarVectorEnv, choose: Choose, episodes: int, seed: int) -> list[EndedEpisode]:
    """Yield so many executed episodes."""
    observations, _ = vector.reset(seed=seed)
    ended = 0
    while ended < episodes:
        observations, _, terminated, _, _ = vector.step(choose(observations, vector.action_masks()))
        ended += int(terminated.sum())
    return vector.collect()[1][:episodes]


def uniform(seed: int) -> Choose:
    """Draw a permitted action, all equally likely."""
    random = np.random.default_rng(seed)
    return lambda _, masks: [random.choice(np.flatnonzero(mask)) for mask in masks]


def learned(path: str) -> Choose:
    """Return the inputs that a model draws."""
    model = MaskablePPO.load(path)
    return lambda observations, masks: model.predict(observations, action_masks=masks)[0]


def main() -> None:
    """Print the values of the inputs, and some of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", help="model.zip; none: uniformly drawn actions")
    parser.add_argument("--episodes", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--sampler", default="gcs")
    parser.add_argument("--commands", nargs="*", help="default: all")
    given = parser.parse_args()
    choose = learned(given.model) if given.model else uniform(given.seed)
    vector = GrammarVectorEnv(
        16, sampler=given.sampler, commands=given.commands, command="uniform", defer=True,
        wrap=[LocalActions, ProductionHistory], rewards=necessary, record=False, noise_runs=2,
        wall_seconds=0.5,
    )  # fmt: skip
    try:
        ended = play(vector, choose, given.episodes, given.seed)
    finally:
        vector.close()
    of = [episode.scored for episode in ended]
    scores = [one.score.irreducibility or 0.0 for one in of]
    failing = [one.behavior.exit_code != 0 for one in of]
    useful = [
        not failed and not one.volatile and one.score.n_arguments >= 3 and score >= 0.7
        for one, score, failed in zip(of, scores, failing, strict=True)
    ]
    print(f"executed        {len(of)} of {given.episodes}")
    print(f"irreducibility  {np.mean(scores):.3f}")
    print(f"necessary       {np.mean([one.reward(necessary) for one in of]):.3f} of the horizon")
    print(f"arguments       {np.mean([one.score.n_arguments for one in of]):.2f}")
    print(f"failing         {np.mean(failing):.0%}")
    print(f"unique          {len({one.session.text for one in of})}")
    print(f"useful          {np.mean(useful):.0%}")
    for one in of[:8]:
        print("   ", one.session.body)


if __name__ == "__main__":
    main()
