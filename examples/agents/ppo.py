"""Train MaskablePPO (sb3-contrib) to do tasks, a line of Bash for each fact of a prompt.

    pip install 'shioenv[rl]'
    python examples/agents/ppo.py tasks/train.jsonl --test tasks/test.jsonl --out runs/tasks

The policy sees the words of a fact, without the names in it. It chooses one of `WAYS`, into which
the names are inserted. The reward comes at the end: 1 where the goal is reached, else 0. The policy
has to learn which way fits which words. Prints the rewards of test tasks before and after training.
Writes OUT/log.csv (a line an episode, for `examples/rl/plot.py`) and OUT/model.zip.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import re
import shlex
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from sb3_contrib import MaskablePPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import SubprocVecEnv

from shioenv_agents.tasks.env import TaskEnv
from shioenv_agents.tasks.task import Task, read_tasks

WAYS = (
    ":", "rm -rf <0>", "mkdir <0>", "mkfifo <0>", "touch <0>", "touch <0>; chmod <mode> <0>",
    "ln -s <1> <0>", "ln <1> <0>", "mv <0> <1>", "cp <1> <0>", "cat <1> > <0>", ": > <0>",
    "printf %s <text> > <0>", "printf %s <text> >> <0>", "truncate -s <number> <0>",
    "chmod <mode> <0>", "chown -h <last> <0>", "chgrp -h <last> <0>", "cd <0>", "umask <last>",
    "export <0>=<1>", "unset <0>", "cat <*>", "ls <0>", "find <0>", "file <0>", "du -sb <0>",
    "head <0>", "tail <0>", "sort <0>", "uniq <0>", "rev <0>", "wc <*>", "wc -l <*>",
    "grep <1> <0>", "basename <0>", "dirname <0>", "readlink -f <0>", "readlink <0>",
    "pwd", "whoami", "id -u",
)  # fmt: skip
"""The policy's choices. `<0>`, `<1>` and `<*>` are names of the fact, `<text>` the content that it
shows, `<last>` its last word."""

WORDS = 512
"""Size of an observation: words, and pairs of neighbours, each at the index of its hash."""

LONGEST = 6
"""Most facts of a task that is attempted."""

COLUMNS = ("episode", "seconds", "reward", "task", "lines")

_FACT = re.compile(
    r"^- (?P<fact>[^\n]+)(?:\n(?P<fence>`{3,})\n(?P<text>.*?)\n(?P=fence)$)?", re.M | re.S
)
_OUTPUT = re.compile(r"^(?:Print|The last command that you run must also print) [^\n]+", re.M)


@dataclass(frozen=True)
class Fact:
    """A fact of a prompt: the policy's observation, and the values that can be inserted into a
    way.
    """

    words: str
    places: dict[str, str] = field(default_factory=dict)

    def line(self, way: str) -> str | None:
        """Return the line of Bash for a way; None where the fact lacks a value for it."""
        parts = re.split(r"(<[\w*]+>)", way)
        if not all(part in self.places for part in parts[1::2]):
            return None
        return "".join(self.places.get(part, part) for part in parts)


def facts(prompt: str) -> list[Fact]:
    """Parse the facts of a prompt, in its order; the output that it asks for is the last."""
    found = [fact(one["fact"], one["text"]) for one in _FACT.finditer(prompt)]
    asked = _OUTPUT.search(_FACT.sub("", prompt))
    return [*found, fact(asked[0])] if asked else found


def fact(told: str, text: str | None = None) -> Fact:
    """A fact by its words; `text` is the content after it."""
    names = re.findall(r"`([^`]+)`", told)  # quoted for Bash
    places = {f"<{number}>": name for number, name in enumerate(names)}
    if names:
        places["<*>"] = " ".join(names)
    if perms := re.search(r"\b([0-7]{4}) \(", told):
        places["<mode>"] = perms[1]
    if size := re.search(r"(\d+) bytes?\b", told):
        places["<number>"] = size[1]
    if text is not None:
        end = "" if told.endswith("without a newline at the end:") else "\n"
        places["<text>"] = shlex.quote(text + end)
    words = re.sub(r"`[^`]+`", "NAME", told).rstrip(".").split()
    places["<last>"] = shlex.quote(words[-1])
    return Fact(" ".join(words), places)


def seen(words: str) -> np.ndarray:
    """Return the policy's observation of a fact, (WORDS,)."""
    known = np.zeros(WORDS, np.float32)
    single = re.findall(r"\w+", words)
    for text in (*single, *map(" ".join, itertools.pairwise(single))):
        known[zlib.crc32(text.encode()) % WORDS] = 1
    return known


class FactByFact(gymnasium.Env[np.ndarray, int]):
    """Episodes of a line for each fact: an action is the number of a way, and the next fact
    follows.
    """

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.env = TaskEnv(tasks, max_turns=LONGEST)
        self.observation_space = gymnasium.spaces.Box(0, 1, (WORDS,))
        self.action_space = gymnasium.spaces.Discrete(len(WAYS))
        self._facts: list[Fact] = []
        self._lines: list[str] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin the task of an option, or a drawn one."""
        prompt, info = self.env.reset(seed=seed, options=options)
        self._facts, self._lines = facts(prompt), []
        return seen(self._facts[0].words), info

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Type the line for a fact."""
        line = self._facts[0].line(WAYS[action])
        assert line is not None, "the way is masked"
        self._lines.append(line)
        _, reward, terminated, truncated, info = self.env.step(line)
        del self._facts[0]
        truncated = truncated or not (terminated or self._facts)
        observation = seen(self._facts[0].words if self._facts else "")
        return observation, reward, terminated, truncated, {**info, "lines": "; ".join(self._lines)}

    def action_masks(self) -> np.ndarray:
        """Return the ways for which the fact has all values."""
        return np.array([self._facts[0].line(way) is not None for way in WAYS])

    def close(self) -> None:
        """Close the machine."""
        self.env.close()


def paid(env: FactByFact, choose: Callable[[np.ndarray, np.ndarray], int]) -> float:
    """Return the mean reward of all tasks, each tried once."""
    rewards = []
    for task in env.env.tasks:
        observation, _ = env.reset(options={"task": task.id})
        over, reward = False, 0.0
        while not over:
            action = choose(observation, env.action_masks())
            observation, reward, terminated, truncated, _ = env.step(action)
            over = terminated or truncated
        rewards.append(reward)
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
        told = zip(self.locals["rewards"], self.locals["dones"], self.locals["infos"], strict=True)
        for reward, over, info in told:
            if over:
                self.done += 1
                self.lines.writerow((self.done, seconds, reward, info["task"], info["lines"]))
        self.file.flush()
        return True


def tried(path: Path) -> list[Task]:
    """Return the tasks of a file that have facts, but not too many."""
    return [task for task in read_tasks(path) if 0 < len(facts(task.prompt)) <= LONGEST]


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("train", type=Path, help="tasks to learn from")
    parser.add_argument("--test", type=Path, required=True, help="tasks to be judged by")
    parser.add_argument("--steps", type=int, default=12_000, help="lines to type")
    parser.add_argument("--out", type=Path, default=Path("runs/tasks"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--envs", type=int, default=2, help="processes that type lines")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # the policy is small, and the environments need the processors
    train, test = tried(given.train), tried(given.test)
    print(f"{len(train)} tasks to learn from, {len(test)} to be judged by, {len(WAYS)} ways")
    env = SubprocVecEnv([partial(FactByFact, train) for _ in range(given.envs)])
    model = MaskablePPO(
        "MlpPolicy",
        env,
        learning_rate=1e-3,
        n_steps=512 // given.envs,
        batch_size=128,
        n_epochs=8,
        gamma=1.0,
        ent_coef=0.02,
        seed=given.seed,
    )
    judged = FactByFact(test)

    def answered(observation: np.ndarray, masks: np.ndarray) -> int:
        return int(model.predict(observation, action_masks=masks)[0])

    before = paid(judged, answered)
    model.learn(given.steps, callback=Log(given.out / "log.csv"))
    after = paid(judged, answered)
    model.save(given.out / "model")
    env.close()
    judged.close()
    print(f"mean reward of the test's tasks: {before:.3f} before, {after:.3f} after")


if __name__ == "__main__":
    main()
