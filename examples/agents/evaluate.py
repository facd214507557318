"""An agent evaluated on tasks: one that answers from a list, or a language model.

python examples/agents/evaluate.py tasks.jsonl --count 100
python examples/agents/evaluate.py tasks.jsonl --count 100 --model MODEL --url http://localhost:8000/v1
"""

from __future__ import annotations

import argparse
import os
import re
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium

import shioenv  # noqa: F401 - registers the environment
from shioenv.tasks.task import Task, read_tasks

Agent = Callable[[Sequence[str]], str]
"""The line to type next, by all that was said so far: what the agent was told, what it typed."""


def scripted(task: Task) -> Agent:
    """An agent that looks around, then types what was recorded, and so knows the solution."""
    replies = ["pwd; ls", task.solution]
    return lambda said: replies[len(said) // 2] if len(said) < 2 * len(replies) else "true"


def idle(task: Task) -> Agent:
    """An agent that only looks around, as a check of the check."""
    return lambda said: "ls -la"


def prompted(model: str, url: str | None) -> Callable[[Task], Agent]:
    """An agent that is a language model behind an endpoint that speaks OpenAI's protocol."""
    import openai

    client = openai.OpenAI(base_url=url, api_key=os.environ.get("OPENAI_API_KEY", "none"))

    def reply(said: Sequence[str]) -> str:
        messages: list[Any] = [
            {"role": "assistant" if place % 2 else "user", "content": text}
            for place, text in enumerate(said)
        ]
        done = client.chat.completions.create(model=model, messages=messages, max_tokens=500)
        text = done.choices[0].message.content or "true"
        fenced = re.search(r"```(?:\w*\n)?(.*?)```", text, re.DOTALL)
        return (fenced[1] if fenced else text).strip() or "true"

    return lambda task: reply


def main() -> None:
    """Does so many tasks and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--max-turns", type=int, default=10)
    parser.add_argument("--agent", choices=["scripted", "idle"], default="scripted")
    parser.add_argument("--model")
    parser.add_argument("--url")
    given = parser.parse_args()
    begin = prompted(given.model, given.url) if given.model else {
        "scripted": scripted, "idle": idle,
    }[given.agent]  # fmt: skip
    tasks = read_tasks(given.file)[: given.count]
    env = gymnasium.make("ShIOEnv-Task-v0", tasks=tasks, max_turns=given.max_turns)
    results: dict[str, list[tuple[float, float, int]]] = defaultdict(list)
    started = time.perf_counter()
    for task in tasks:
        agent = begin(task)
        text, info = env.reset(options={"task": task.id})
        said, reward, over = [text], 0.0, False
        while not over:
            said.append(agent(said)[:4096])
            text, step_reward, terminated, truncated, info = env.step(said[-1])
            said.append(text)
            reward, over = float(step_reward), terminated or truncated
        for kind in (task.kind.value, "all"):
            results[kind].append((reward, info["progress"], info["turns"]))
    env.close()
    seconds = time.perf_counter() - started
    print(f"{'goal':8}{'tasks':>7}{'solved':>8}{'progress':>10}{'lines':>7}")
    for kind in sorted(results, key=lambda name: name == "all"):
        rewards, progress, turns = map(list, zip(*results[kind], strict=True))
        count = len(rewards)
        print(
            f"{kind:8}{count:7}{sum(rewards) / count:8.0%}"
            f"{sum(progress) / count:10.2f}{sum(turns) / count:7.1f}"
        )
    print(f"{seconds:.0f} s, {seconds / len(tasks):.2f} s a task")


if __name__ == "__main__":
    main()
