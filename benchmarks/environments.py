"""Measure episodes a second: the native vector beside Gymnasium's own, on the same inputs.

All grammars, uniformly drawn permitted actions, budget 16. Both play the same episodes: the actions
of episode e are drawn by its own generator, and the reset options are the same. Gymnasium's vector
has the environments' defaults; the native one makes no records, runs an input twice instead of
three times for its noise and gives each run half a second, as learners use it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np

from shioenv import registration
from shioenv.env.vector import GrammarVectorEnv
from shioenv.env.wrappers import LocalActions

NATIVE: dict[str, Any] = {"record": False, "noise_runs": 2, "wall_seconds": 0.5}


class Players:
    """Draws actions: the same for an episode of a seed in every vector."""

    def __init__(self, count: int, first: int) -> None:
        self._next = first + count
        self._generators = [np.random.default_rng(first + number) for number in range(count)]

    def choose(self, masks: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Draw an action for each environment, uniformly among those permitted."""
        chosen = np.zeros(len(masks), np.int64)
        for number, (mask, generator) in enumerate(zip(masks, self._generators, strict=True)):
            permitted = np.flatnonzero(mask)
            if len(permitted):
                chosen[number] = permitted[int(generator.integers(len(permitted)))]
        return chosen

    def begin(self, number: int) -> None:
        """Begin the next episode in an environment."""
        self._generators[number] = np.random.default_rng(self._next)
        self._next += 1


def native(episodes: int, envs: int, sandboxes: int | None, budget: int, **options: Any) -> float:
    """Return the native vector's seconds."""
    vector = GrammarVectorEnv(
        envs, sandboxes=sandboxes, defer=True, wrap=[LocalActions], budget=budget,
        **{**NATIVE, **options},
    )  # fmt: skip
    try:
        play(vector, envs)  # sandboxes are open, tables compiled
        return play(vector, episodes)
    finally:
        vector.close()


def gymnasiums(episodes: int, envs: int, mode: str, budget: int) -> float:
    """Return the seconds of Gymnasium's vector."""
    vector = gymnasium.make_vec(
        "ShIOEnv-Grammar-v0",
        num_envs=envs,
        vectorization_mode=mode,
        budget=budget,
    )
    try:
        play(vector, envs)
        return play(vector, episodes)
    finally:
        vector.close()


def play(vector: Any, episodes: int) -> float:
    """Return the seconds for so many episodes."""
    began = time.perf_counter()
    done = sum(1 for _ in ends(vector, episodes))
    if isinstance(vector, GrammarVectorEnv):
        vector.collect()
    seconds = time.perf_counter() - began
    return seconds * episodes / max(done, 1)


def ends(vector: Any, episodes: int) -> Iterator[int]:
    """Yield the environments whose episodes end, one after the other."""
    players = Players(vector.num_envs, 0)
    _, infos = vector.reset(seed=0)
    ended = 0
    while ended < episodes:
        *_, terminated, _, infos = vector.step(players.choose(infos["action_mask"]))
        for number in np.flatnonzero(terminated):
            players.begin(int(number))
            ended += 1
            yield int(number)


def main() -> None:
    """Print the rates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=400)
    parser.add_argument("--baseline-episodes", type=int, default=80)
    parser.add_argument("--envs", type=int, default=16)
    parser.add_argument("--sandboxes", type=int, default=None)
    parser.add_argument("--budget", type=int, default=16)
    parser.add_argument("--json", action="store_true", help="one object of JSON and nothing else")
    given = parser.parse_args()
    registration.register()
    ours = given.episodes / native(given.episodes, given.envs, given.sandboxes, given.budget)
    count = given.baseline_episodes
    processes = len(os.sched_getaffinity(0))
    modes = {
        mode: count / gymnasiums(count, processes, mode, given.budget) for mode in ("sync", "async")
    }
    document = {
        "episodes_per_second": round(ours, 2),
        "gymnasium_episodes_per_second": round(max(modes.values()), 2),
    }
    if given.json:
        print(json.dumps(document))
        return
    print(f"{platform.processor() or platform.machine()}, {processes} processors")
    print(f"native, {given.envs} environments: {ours:.1f} episodes/s")
    for mode, rate in modes.items():
        print(f"Gymnasium, {mode}, {processes} environments: {rate:.1f} episodes/s")


if __name__ == "__main__":
    main()
