"""Train PPO (Stable-Baselines3) to choose the line that does a task, on a processor, in minutes.

    pip install 'shioenv[rl]'
    python examples/agents/train.py ./set/train.jsonl ./set/test.jsonl --steps 2000

The agent is shown a prompt and six lines: the recorded solution among near misses of the task's
certificate and other tasks' solutions. It types one of them. The reward is the task's own: 1 where
the goal is reached, judged on the machine. Printed is the mean reward on tasks of the second file,
which the agent never trained on, before and after.
"""

from __future__ import annotations

import argparse
import random
import re
import zlib
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

import shioenv  # noqa: F401 - registers the environment
from shioenv.tasks.task import Task, read_tasks

LINES = 6
HASHED = 24


def words(text: str) -> set[str]:
    """The words of a text, quotes and punctuation left out."""
    return {word.strip("`'\".,:;()") for word in re.split(r"[\s=|;]+", text)} - {""}


def hashed(names: Sequence[str]) -> np.ndarray:
    """Some names as a vector: a one at the hash of each."""
    vector = np.zeros(HASHED, np.float32)
    for name in names:
        vector[zlib.crc32(name.encode()) % HASHED] = 1
    return vector


def features(prompt: str, line: str) -> np.ndarray:
    """What the agent sees of a line: its command, and how far line and prompt name the same."""
    told, typed = words(prompt), words(line)
    named = set(re.findall(r"`([^`\n]+)`", prompt.partition("`.")[2]))
    shares = [
        len(typed & told) / max(1, len(typed)),
        len(typed & named) / max(1, len(named)),
        min(1.0, len(line) / 100),
        float(any(word.startswith("-") for word in typed)),
    ]
    kind = prompt.partition("`. ")[2].partition("\n")[0] or "Print"
    return np.concatenate(
        [shares, hashed([line.split()[0]]), hashed([f"{kind} {line.split()[0]}"])]
    )


class ChooseLine(gymnasium.Env[np.ndarray, int]):
    """One choice an episode: which of some lines does the task."""

    def __init__(self, tasks: Sequence[Task], seed: int = 0) -> None:
        self.tasks, self.random = tasks, random.Random(seed)
        self.env = gymnasium.make("ShIOEnv-Task-v0", tasks=tasks, max_turns=1)
        self.action_space = gymnasium.spaces.Discrete(LINES)
        shape = (LINES, 4 + 2 * HASHED)
        self.observation_space = gymnasium.spaces.Box(0, 1, shape, np.float32)
        self.lines: list[str] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        """Begins a task: the one that `options` name, else one that is drawn."""
        task = options["task"] if options else self.random.choice(self.tasks)
        others = list(task.certificate.near_misses) if task.certificate else [task.reduced]
        self.random.shuffle(others)
        while len(others) < LINES - 1:
            others.append(self.random.choice(self.tasks).solution)
        self.lines = [task.solution, *others[: LINES - 1]]
        self.random.shuffle(self.lines)
        self.env.reset(options={"task": task.id})
        return np.stack([features(task.prompt, line) for line in self.lines]), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Types the line, and gives the task's reward."""
        _, reward, *_ = self.env.step(self.lines[int(action)])
        return np.zeros(self.observation_space.shape, np.float32), float(reward), True, False, {}


class EachLine(BaseFeaturesExtractor):
    """One network for every line, whose outputs stand side by side."""

    def __init__(self, space: gymnasium.spaces.Box) -> None:
        super().__init__(space, LINES)
        self.net = torch.nn.Sequential(
            torch.nn.Linear(space.shape[1], 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)
        )

    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        """A number for each line."""
        return self.net(seen).squeeze(-1)


def reward_of(model: PPO, tasks: Sequence[Task]) -> float:
    """The mean reward of a model's likeliest choices, one for each task."""
    env, total = ChooseLine(tasks, seed=1), 0.0
    for task in tasks:
        seen, _ = env.reset(options={"task": task})
        action, _ = model.predict(seen, deterministic=True)
        total += env.step(int(action))[1]
    env.env.close()
    return total / len(tasks)


def main() -> None:
    """Train, and print the reward before and after."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("train")
    parser.add_argument("test")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    train, test = read_tasks(given.train), read_tasks(given.test)
    env = ChooseLine(train, given.seed)
    model = PPO(
        "MlpPolicy", env, n_steps=128, batch_size=64, learning_rate=3e-3, gamma=0.0,
        seed=given.seed, policy_kwargs={"features_extractor_class": EachLine, "net_arch": []},
    )  # fmt: skip
    print(f"before: mean reward {reward_of(model, test):.2f} on {len(test)} tasks", flush=True)
    model.learn(given.steps)
    print(f"after:  mean reward {reward_of(model, test):.2f} on {len(test)} tasks")
    env.env.close()


if __name__ == "__main__":
    main()
