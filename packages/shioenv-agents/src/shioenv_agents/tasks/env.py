"""`ShIOEnv-Task-v0`: a task as input, lines of Bash as actions, and a reward for success."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Final

import gymnasium

from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.env.same_step import SameStepVectorEnv, Taken
from shioenv.env.scorer import require_count
from shioenv.env.spaces import ShellText
from shioenv.errors import (
    ActionError,
    EnvironmentOptionError,
    EpisodeError,
    did_you_mean,
    used_environment,
)
from shioenv.sandbox.base import Limits
from shioenv.text import short_repr
from shioenv_agents.tasks.episode import MAX_TURNS, SHOWN, Episode, instructions
from shioenv_agents.tasks.task import Task, read_tasks
from shioenv_agents.tasks.terminal import for_rows

MAX_LINE: Final = 4096
"""Maximum characters of an action."""

MAX_TEXT: Final = 4 * SHOWN
"""Maximum characters of an observation."""


class LongText(ShellText):
    """A `ShellText` space whose texts may have several lines."""

    def contains(self, x: Any) -> bool:
        """Whether `x` is a text of the space."""
        return isinstance(x, str) and super().contains(x.replace("\n", " "))

    def __eq__(self, other: object, /) -> bool:
        return isinstance(other, LongText) and other.max_length == self.max_length

    __hash__ = None

    def __repr__(self) -> str:
        return f"Text({self.max_length})"


BEGINNINGS: Final = 8
"""Maximum cached start states; our choice, because each may hold a context of megabytes."""


class Beginnings:
    """The start states of attempts on one machine.

    Each task's state is prepared once, and every attempt at the task is a fork of it.
    """

    def __init__(self, machine: SandboxRunner, max_turns: int) -> None:
        """Take over the machine, which `close` closes."""
        self.machine = machine
        self._max_turns = max_turns
        self._known: dict[str, Episode] = {}

    def attempt(self, task: Task) -> Episode:
        """Return a new attempt at a task. Errors: those of `Episode`."""
        beginning = self._known.pop(task.id, None)
        if beginning is None:
            beginning = Episode(task, self.machine, self._max_turns)
        self._known[task.id] = beginning
        if len(self._known) > BEGINNINGS:
            del self._known[next(iter(self._known))]
        return beginning.fork()

    def close(self) -> None:
        """Close the machine; may be called any number of times."""
        self.machine.close()


class TaskEnv(gymnasium.Env[str, str]):
    """Tasks as a Gymnasium environment of texts.

    The first observation is the prompt. An action is a line of Bash (or several lines). The
    observation after it is the output of the action. The reward is 1 when the goal is reached,
    which ends the episode (`terminated`), else 0. The last of `max_turns` actions ends the episode
    as well (`truncated`).

    `info` holds `task` (the task's id), `progress` (the fraction of the goal that holds, 0 to 1)
    and `turns`. It also holds `missing` and `extra` as in `Verdict`, which must not be shown to an
    agent.

    `reset` takes the option `task`, an id; without it a task is drawn uniformly. The sandbox is
    opened by the first `reset`.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012

    def __init__(
        self,
        tasks: str | Path | Iterable[Task],
        *,
        max_turns: int = MAX_TURNS,
        limits: Limits | None = None,
        system: str | None = None,
        render_mode: str | None = None,
    ) -> None:
        """Create the environment without opening a machine.

        `tasks` are tasks, or the path of their file.

        `system` is the name under which the tasks' system is built here, if it differs from the
        name in the tasks. Errors: TaskError, EnvironmentOptionError.
        """
        self.tasks = read_tasks(tasks) if isinstance(tasks, str | Path) else list(tasks)
        names = {task.system for task in self.tasks}
        if not self.tasks or max_turns < 1:
            raise EnvironmentOptionError(
                f"there are {len(self.tasks)} tasks, and max_turns is {max_turns}",
                hint="use at least one task, and max_turns of at least 1",
            )
        if system is None and len(names) > 1:
            raise EnvironmentOptionError(
                f"the tasks belong to several systems: {', '.join(sorted(names))}",
                hint="create an environment for each system",
            )
        if render_mode not in (None, "ansi"):
            raise EnvironmentOptionError(
                f"unknown render_mode {render_mode!r}", hint="use 'ansi' or None"
            )
        self.render_mode = render_mode
        self.max_turns = max_turns
        self.action_space = LongText(MAX_LINE)
        longest = max(len(task.prompt) for task in self.tasks)
        self.observation_space = LongText(max(MAX_TEXT, longest + len(instructions(max_turns)) + 2))
        self._system, self._limits = system or self.tasks[0].system, limits
        self.beginnings: Beginnings | None = None
        """The start states of attempts; None before the first `reset`, and after `close`."""
        self._episode: Episode | None = None
        self._lines: list[str] = []

    def __repr__(self) -> str:
        facts = {"system": self._system, "tasks": len(self.tasks), "max_turns": self.max_turns}
        return short_repr(self, facts)

    def __getstate__(self) -> object:
        """Return the state for a copy. Errors: EpisodeError after the first reset."""
        if self._episode is not None:
            raise used_environment()
        return super().__getstate__()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Begin an episode, and return the prompt of its task, and `info`.

        Errors: EnvironmentOptionError for another option or an unknown task; TaskError for a task
        of another build of its system; those of sandboxes.
        """
        super().reset(seed=seed)
        number = int(self.np_random.integers(len(self.tasks)))
        for name in options or {}:
            if name != "task":
                raise EnvironmentOptionError(
                    f"reset has no option {name!r}", hint=did_you_mean(str(name), ["task"])
                )
        task = self.tasks[number] if not options else self._named(options["task"])
        self._episode = self.open().attempt(task)
        self._lines = [self._episode.prompt]
        return _readable(self._episode.prompt), self._info(self._episode)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Type a line of Bash; return its output, reward, `terminated`, `truncated` and `info`.

        Errors: ActionError for an action outside the action space, EpisodeError if no episode is
        running. After a sandbox error, no turn is counted, and the line may be typed again. If the
        error occurred in the check, the line had already run.
        """
        return self.judged(action, self.typed(action))

    def typed(self, action: str) -> str:
        """Type a line and return its output; the rest of the step is left to `judged`.

        Environments that share `beginnings` may call this concurrently, from threads. Errors: those
        of `step`.
        """
        if self._episode is None or self._episode.over:
            raise EpisodeError("no episode is running", hint="call reset first")
        if not self.action_space.contains(action):
            raise ActionError(
                f"the action {action!r:.60} is not in the action space",
                hint=f"give a text of at most {MAX_LINE} characters without NUL",
            )
        return self._episode.typed(action)

    def judged(self, action: str, text: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Do the rest of a step whose line printed `text`. Errors: those of `step`."""
        assert self._episode is not None
        turn = self._episode.judged(text)
        self._lines += [f"$ {action}", turn.text]
        info = self._info(self._episode)
        return _readable(turn.text), turn.reward, turn.done, turn.truncated, info

    def render(self) -> str | None:
        """Return the prompt, all lines and all outputs; None without `render_mode="ansi"`."""
        return None if self.render_mode is None else "\n".join(self._lines)

    def open(self) -> Beginnings:
        """Return the start states, opening the machine if necessary. Errors: those of `reset`."""
        if self.beginnings is None:
            machine = open_sandbox(self._system, for_rows(self._limits))
            self.beginnings = Beginnings(machine, self.max_turns)
        return self.beginnings

    def close(self) -> None:
        """Close the sandbox; may be called any number of times."""
        if self.beginnings is not None:
            self.beginnings.close()
        self.beginnings = self._episode = None

    def _named(self, name: object) -> Task:
        found = [task for task in self.tasks if task.id == name]
        if not found:
            raise EnvironmentOptionError(f"unknown task {name!r}", hint="env.tasks lists the tasks")
        return found[0]

    @staticmethod
    def _info(episode: Episode) -> dict[str, Any]:
        verdict = episode.verdict
        return {
            "task": episode.task.id,
            "progress": verdict.progress,
            "turns": episode.turns,
            "missing": verdict.missing,
            "extra": verdict.extra,
        }


def _readable(text: str) -> str:
    """Replace each NUL of a binary output by a symbol that a space accepts."""
    return text.replace("\0", "\N{SYMBOL FOR NULL}")


class TaskVectorEnv(SameStepVectorEnv):
    """Several `ShIOEnv-Task-v0` environments on one system, each attempt in a separate machine.

    `gymnasium.make_vec("ShIOEnv-Task-v0", num_envs=8, tasks=FILE)` makes such a vector. A step
    types a line in all environments, at the same time. Attempts at the same task fork its start
    state: the history, and the verdict before the first line, are computed once. The option `task`
    of `reset` begins the same task in all environments.

    With the same seed and lines, the results equal those of single environments. An environment
    whose episode ends is reset in the same step.
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
