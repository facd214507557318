"""The vector environment of `ShIOEnv-Task-v0`: many attempts at once, on separate machines."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from shioenv.env.same_step import SameStepVectorEnv, Taken
from shioenv.env.scorer import require_count
from shioenv.errors import EnvironmentOptionError
from shioenv_agents.tasks.env import TaskEnv
from shioenv_agents.tasks.task import Task, read_tasks


class TaskVectorEnv(SameStepVectorEnv):
    """Several `ShIOEnv-Task-v0` environments on one system, each attempt in a separate machine.

    `gymnasium.make_vec("ShIOEnv-Task-v0", num_envs=8, tasks=FILE)` makes such a vector. A step
    types a line in all environments, at the same time. Attempts at the same task fork its start
    state: the history, and the verdict before the first line, are computed once. The option `task`
    of `reset` begins the same task in all environments.

    The results equal those of the same number of single environments with the same seed and lines.
    Therefore an environment whose episode ends is reset in the same step.
    """

    def __init__(
        self, num_envs: int = 1, tasks: str | Path | Iterable[Task] = (), **options: Any
    ) -> None:
        """Create the environments without opening machines.

        The options are those of `TaskEnv`, without `render_mode`. Errors: those of `TaskEnv`.
        """
        require_count("num_envs", num_envs)
        if options.get("render_mode") is not None:
            raise EnvironmentOptionError("vectors cannot be rendered", hint="omit render_mode")
        known = read_tasks(tasks) if isinstance(tasks, str | Path) else list(tasks)
        self._own = [TaskEnv(known, **options) for _ in range(num_envs)]
        super().__init__(self._own)
        self._threads = ThreadPoolExecutor(num_envs, "shioenv-task")

    def reset(
        self,
        *,
        seed: int | list[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in each environment. Errors: those of `TaskEnv.reset`."""
        beginnings = self._own[0].open()
        beginnings.machine.lends = max(beginnings.machine.lends, self.num_envs)
        for env in self._own:
            env.beginnings = beginnings
        return super().reset(seed=seed, options=options)

    def close_extras(self, **kwargs: Any) -> None:
        """Close all machines."""
        self._threads.shutdown()
        for env in self._own:
            env.close()

    def _taken(self, actions: Iterable[str]) -> Iterable[Taken]:
        given = list(zip(self._own, actions, strict=True))
        typing = [self._threads.submit(env.typed, action) for env, action in given]
        wait(typing)
        printed = [future.result() for future in typing]
        return (
            env.judged(action, text) for (env, action), text in zip(given, printed, strict=True)
        )
