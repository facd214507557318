"""Tasks for TRL's `GRPOTrainer(environment_factory=…)`.

An example:

    tasks = read_tasks("tasks.jsonl")
    trainer = GRPOTrainer(
        model="Qwen/Qwen3-0.6B",
        train_dataset=Dataset.from_list(rows(tasks)),
        environment_factory=environments(tasks),
    )
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.errors import EpisodeError, TaskError, used_environment
from shioenv.sandbox.base import Limits
from shioenv_agents.tasks.episode import MAX_TURNS, Episode
from shioenv_agents.tasks.task import Task
from shioenv_agents.tasks.terminal import for_rows

OVER = "[the task is over: the line was not run]"


class TaskEnvironment:
    """An environment of tasks. TRL creates one for each rollout of a batch, and resets it.

    The environment has one tool, `terminal`. It returns its reward itself: 1 if the goal is
    reached, else 0. The machine is opened by the first reset, and by a reset to a task of another
    system. It is closed when the environment is garbage-collected.
    """

    def __init__(
        self, tasks: Mapping[str, Task], max_turns: int = MAX_TURNS, limits: Limits | None = None
    ) -> None:
        self._tasks, self._max_turns, self._limits = tasks, max_turns, limits
        self._machine: SandboxRunner | None = None
        self._episode: Episode | None = None

    def __getstate__(self) -> object:
        """Return the state for a copy. Errors: EpisodeError after the first reset."""
        if self._machine is not None:
            raise used_environment()
        return super().__getstate__()

    def reset(self, task: str, **row: Any) -> None:
        """Begin the task of a row. Errors: TaskError for an unknown id."""
        if task not in self._tasks:
            raise TaskError(f"unknown task {task!r}", hint="use rows of rows(tasks)")
        begun = self._tasks[task]
        if self._machine is None or self._machine.system.name != begun.system:
            if self._machine is not None:
                self._machine.close()
            self._machine = open_sandbox(begun.system, for_rows(self._limits))
            weakref.finalize(self, self._machine.close)
        self._episode = Episode(begun, self._machine, self._max_turns)

    def terminal(self, line: str) -> str:
        """Run a line in a Bash shell and return its output. The shell keeps its working directory
        and its variables between calls.

        Args:
            line: The line of Bash to run.

        Returns:
            The output of the line, and its exit code unless it is 0.

        """
        if self._episode is None:
            raise EpisodeError("no episode is running", hint="TRL calls reset first")
        return OVER if self._episode.over else self._episode.act(line).text

    def get_reward(self) -> float:
        """Return 1 if the goal is reached, else 0."""
        return float(self._episode is not None and self._episode.verdict.passed)


def environments(
    tasks: Sequence[Task], *, max_turns: int = MAX_TURNS, limits: Limits | None = None
) -> Callable[[], TaskEnvironment]:
    """Return a factory of environments for `environment_factory`; it can be pickled."""
    named = {task.id: task for task in tasks}
    return partial(TaskEnvironment, named, max_turns, limits)


def rows(tasks: Sequence[Task]) -> list[dict[str, Any]]:
    """Return the rows of a training dataset, each with a prompt and the task's id for `reset`."""
    return [
        {"prompt": [{"role": "user", "content": task.prompt}], "task": task.id} for task in tasks
    ]
