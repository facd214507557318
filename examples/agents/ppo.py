"""Train MaskablePPO (sb3-contrib) to do tasks, each by a line of Bash.

    pip install 'shioenv[rl]'
    python examples/agents/ppo.py tasks/train.jsonl --test tasks/test.jsonl --out runs/tasks

An action is a way to write a line: the solution of a training task, with the names that its prompt
tells as places. The policy sees the words of a prompt. It learns which way fits which words, from
the reward alone: 1 where the line reaches the goal, else 0. The test's tasks are never trained on.
Prints what the test's tasks pay before and after. Writes OUT/log.csv (a line an episode, for
`examples/rl/plot.py`) and OUT/model.zip.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import re
import shlex
import time
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from sb3_contrib import MaskablePPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import SubprocVecEnv

from shioenv.tasks.env import TaskEnv
from shioenv.tasks.task import Task, read_tasks

WORDS = 1024
"""Size of an observation: words, and pairs of neighbours, each at the place of its hash."""

COLUMNS = ("episode", "seconds", "reward", "task", "line")


def names(prompt: str) -> list[str]:
    """The names that a prompt tells, each once; the start directory is none."""
    _, _, facts = prompt.partition("`.")
    facts, _, _ = facts.partition("\n\nNames that do not begin")
    return list(dict.fromkeys(re.findall(r"`([^`\n]+)`", facts)))


def way(task: Task) -> str:
    """The solution of a task with `<0>`, `<1>`, … in the places of the names of its prompt."""
    text = task.solution
    for number, name in sorted(enumerate(names(task.prompt)), key=lambda pair: -len(pair[1])):
        for spelling in (shlex.quote(name), f'"{name}"', name):
            text = re.sub(rf"(?<![^\s=]){re.escape(spelling)}(?![^\s;])", f"<{number}>", text)
    return text


def ways(tasks: Sequence[Task]) -> list[str]:
    """The ways to write a line that at least two tasks share, the most frequent first."""
    return [text for text, count in Counter(map(way, tasks)).most_common() if count > 1]


def seen(prompt: str) -> np.ndarray:
    """What the policy sees of a prompt: its words, (WORDS,), with numbers in place of names."""
    for number, name in enumerate(names(prompt)):
        prompt = prompt.replace(f"`{name}`", f"<{number}>")
    words = re.findall(r"<\d+>|[\w-]+", prompt)
    found = np.zeros(WORDS, np.float32)
    for text in (*words, *map(" ".join, itertools.pairwise(words))):
        found[zlib.crc32(text.encode()) % WORDS] = 1
    return found


class OneLine(gymnasium.Env[np.ndarray, int]):
    """Episodes of one line: the number of a way goes in, the words of a prompt come out."""

    def __init__(self, tasks: Sequence[Task], lines: Sequence[str]) -> None:
        self.env = TaskEnv(tasks, max_turns=1)
        self.lines = lines
        self.observation_space = gymnasium.spaces.Box(0, 1, (WORDS,))
        self.action_space = gymnasium.spaces.Discrete(len(lines))
        self._names: list[str] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begins the task of an option, or a drawn one."""
        prompt, info = self.env.reset(seed=seed, options=options)
        self._names = names(prompt)
        return seen(prompt), info

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Types the line."""
        line = self.lines[action]
        for number, name in enumerate(self._names):
            line = line.replace(f"<{number}>", shlex.quote(name))
        _, reward, terminated, truncated, info = self.env.step(line)
        return np.zeros(WORDS, np.float32), reward, terminated, truncated, {**info, "line": line}

    def action_masks(self) -> np.ndarray:
        """The ways for which the prompt tells names enough."""
        known = {f"<{number}>" for number in range(len(self._names))}
        return np.array([set(re.findall(r"<\d+>", line)) <= known for line in self.lines])

    def close(self) -> None:
        """Closes the machine."""
        self.env.close()


def paid(env: OneLine, choose: Callable[[np.ndarray, np.ndarray], int]) -> float:
    """The mean reward of all tasks, each tried once."""
    rewards = []
    for task in env.env.tasks:
        observation, _ = env.reset(options={"task": task.id})
        rewards.append(env.step(choose(observation, env.action_masks()))[1])
    return float(np.mean(rewards))


class Log(BaseCallback):
    """Writes a line for each episode."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.file = path.open("w", newline="")
        self.lines = csv.writer(self.file)
        self.lines.writerow(COLUMNS)
        self.done, self.began = 0, time.monotonic()

    def _on_step(self) -> bool:
        seconds = round(time.monotonic() - self.began, 1)
        for reward, info in zip(self.locals["rewards"], self.locals["infos"], strict=True):
            self.done += 1
            self.lines.writerow((self.done, seconds, reward, info["task"], info["line"]))
        self.file.flush()
        return True


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("train", type=Path, help="tasks to learn from")
    parser.add_argument("--test", type=Path, required=True, help="tasks to be judged by")
    parser.add_argument("--episodes", type=int, default=10_000)
    parser.add_argument("--out", type=Path, default=Path("runs/tasks"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--envs", type=int, default=2, help="processes that type lines")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    train, test = (
        [task for task in read_tasks(path) if "\n" not in task.solution]
        for path in (given.train, given.test)
    )
    torch.set_num_threads(1)  # the policy is small, and the environments need the processors
    lines = ways(train)
    print(f"{len(train)} tasks to learn from, {len(test)} to be judged by, {len(lines)} ways")
    env = SubprocVecEnv([partial(OneLine, train, lines) for _ in range(given.envs)])
    model = MaskablePPO(
        "MlpPolicy",
        env,
        learning_rate=1e-3,
        n_steps=512 // given.envs,
        batch_size=128,
        n_epochs=6,
        ent_coef=0.01,
        seed=given.seed,
    )
    random = np.random.default_rng(given.seed)
    judged = OneLine(test, lines)
    drawn = [
        paid(judged, lambda _, masks: int(random.choice(np.flatnonzero(masks)))) for _ in range(3)
    ]
    model.learn(given.episodes, callback=Log(given.out / "log.csv"))
    learned = paid(
        judged,
        lambda observation, masks: int(
            model.predict(observation, action_masks=masks, deterministic=True)[0]
        ),
    )
    model.save(given.out / "model")
    env.close()
    judged.close()
    print(f"mean reward of the test's tasks: {np.mean(drawn):.3f} before, {learned:.3f} after")


if __name__ == "__main__":
    main()
