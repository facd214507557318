"""`ShIOEnv-Task-v0`: a task in, lines of Bash out, and a reward once it is done."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import gymnasium

from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.env.spaces import ShellText
from shioenv.errors import ActionError, EnvironmentOptionError, EpisodeError, did_you_mean
from shioenv.sandbox.base import Limits
from shioenv.tasks.episode import HOW, MAX_TURNS, SHOWN, Episode
from shioenv.tasks.task import Task, read_tasks
from shioenv.tasks.terminal import for_rows

MAX_LINE: Final = 4096
"""Characters of an action."""

MAX_TEXT: Final = 4 * SHOWN
"""Characters of an observation."""


class LongText(ShellText):
    """Texts of several lines; otherwise as `ShellText`."""

    def contains(self, x: Any) -> bool:
        """Whether this is a text of the space."""
        return isinstance(x, str) and super().contains(x.replace("\n", " "))

    def __eq__(self, other: object, /) -> bool:
        return isinstance(other, LongText) and other.max_length == self.max_length

    __hash__ = None

    def __repr__(self) -> str:
        return f"Text({self.max_length})"


class TaskEnv(gymnasium.Env[str, str]):
    """Tasks as a Gymnasium environment of texts.

    The first observation is what the agent is told; an action is a line of Bash (or several), the
    observation after it what that printed. The reward is 1 once the goal is reached, which ends the
    episode (`terminated`), else 0; the last of `max_turns` lines ends it too (`truncated`). `info`
    holds `task` (its id), `progress` (share of the goal that holds), `turns`, and `missing` and
    `extra` as the check tells them. An agent should not be shown `missing` and `extra`.

    Options of `reset`: `task`, an id; else one is drawn uniformly. Nothing is opened before that.
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
        """Make the environment; nothing is opened yet. `tasks` are tasks, or their file.

        `system` is another name of where they are done (default: the one they name; all have to
        name the same).
        Errors: TaskError, EnvironmentOptionError.
        """
        self.tasks = read_tasks(tasks) if isinstance(tasks, str | Path) else list(tasks)
        names = {task.system for task in self.tasks}
        if not self.tasks or max_turns < 1:
            raise EnvironmentOptionError("there has to be a task, and a turn to do it in")
        if system is None and len(names) > 1:
            raise EnvironmentOptionError(
                f"the tasks are of several systems: {', '.join(sorted(names))}",
                hint="one environment for each of them",
            )
        if render_mode not in (None, "ansi"):
            raise EnvironmentOptionError(f"no render mode is called {render_mode!r}", hint="ansi")
        self.render_mode = render_mode
        self.max_turns = max_turns
        self.action_space = LongText(MAX_LINE)
        longest = max(len(task.prompt) for task in self.tasks)
        self.observation_space = LongText(max(MAX_TEXT, longest + len(HOW) + 20))
        self._system, self._limits = system or self.tasks[0].system, limits
        self._machine: SandboxRunner | None = None
        self._episode: Episode | None = None
        self._lines: list[str] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """What the agent is told about a task, and info.

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
        if self._machine is None:
            self._machine = open_sandbox(self._system, for_rows(self._limits))
        self._episode = Episode(task, self._machine, self.max_turns)
        self._lines = [self._episode.prompt]
        return _readable(self._episode.prompt), self._info(self._episode)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """What a line of Bash prints, reward, `terminated`, `truncated`, info.

        Errors: ActionError for what is no text of the action space. EpisodeError where no episode
        is running. Those of sandboxes, and the line may be typed again.
        """
        if self._episode is None or self._episode.over:
            raise EpisodeError("no episode is running", hint="call reset first")
        if not self.action_space.contains(action):
            raise ActionError(
                f"{action!r:.60} is no line of Bash",
                hint=f"a text of at most {MAX_LINE} characters without NUL",
            )
        turn = self._episode.act(action)
        self._lines += [f"$ {action}", turn.text]
        text = _readable(turn.text)
        return text, turn.reward, turn.done, turn.truncated, self._info(self._episode)

    def render(self) -> str | None:
        """The whole conversation; None without `render_mode="ansi"`."""
        return None if self.render_mode is None else "\n".join(self._lines)

    def close(self) -> None:
        """Close the sandbox; any number of calls."""
        if self._machine is not None:
            self._machine.close()
        self._machine = self._episode = None

    def _named(self, name: object) -> Task:
        found = [task for task in self.tasks if task.id == name]
        if not found:
            raise EnvironmentOptionError(f"no task is called {name!r}", hint="see env.tasks")
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
    """The text as a space can hold it: no NUL, which binary outputs have."""
    return text.replace("\0", "\N{SYMBOL FOR NULL}")
