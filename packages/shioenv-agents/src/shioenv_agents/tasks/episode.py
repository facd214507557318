"""An attempt at a task, one line of Bash at a time, with text and a reward as results."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Final

from shioenv.behavior.observe import SandboxRunner
from shioenv.domain.behavior import Behavior
from shioenv.errors import EpisodeError, InputError
from shioenv_agents.tasks.goal_check import Judge, Verdict
from shioenv_agents.tasks.task import Task
from shioenv_agents.tasks.terminal import Terminal

MAX_TURNS: Final = 20
"""Maximum lines that an agent may type."""

SHOWN: Final = 8000
"""Maximum characters shown of an output; a longer output is cut in the middle."""

HOW: Final = (
    "Work one line of Bash at a time: reply with a line, and you will see its output. The shell "
    "keeps its state from line to line. You can type at most {lines}."
)


@dataclass(frozen=True, slots=True)
class Turn:
    """The result of a line."""

    text: str
    """The line's output, and its exit code unless it is 0."""
    reward: float
    """1 if the goal is reached, else 0."""
    done: bool
    """Whether the goal is reached."""
    truncated: bool
    """Whether the line was the last permitted one, and the goal is not reached."""
    verdict: Verdict


class Episode:
    """One attempt at a task. The goal is checked after every line.

    The caller owns the machine and closes it. Errors: TaskError for a task of another system. Every
    use of the machine may raise errors of the machine.
    """

    def __init__(self, task: Task, machine: SandboxRunner, max_turns: int = MAX_TURNS) -> None:
        self.task = task
        self.max_turns = max_turns
        self.turns = 0
        """The number of typed lines."""
        self.over = False
        self.terminal = Terminal(machine, task.cwd, task.history)
        self._judge = Judge(task, machine)
        self.verdict = self._judge.judge(self.terminal)
        """The verdict on all lines so far."""

    @property
    def prompt(self) -> str:
        """The first message for the agent: the task's prompt, and instructions."""
        return f"{self.task.prompt}\n\n{instructions(self.max_turns)}"

    def fork(self) -> Episode:
        """Return an independent attempt that continues from this state."""
        other = copy(self)
        other.terminal = self.terminal.fork()
        return other

    def act(self, line: str) -> Turn:
        """Type a line. Errors: EpisodeError if the episode is over, those of the machine."""
        return self.judged(self.typed(line))

    def typed(self, line: str) -> str:
        """Type a line and return the text for the agent; `judged` completes the turn.

        Episodes of one machine may type concurrently, from threads. Errors: those of `act`.
        """
        if self.over:
            raise EpisodeError("the episode is over", hint="begin another episode")
        try:
            return shown(self.terminal.run(line))
        except InputError as error:  # the line is invalid, for example because it holds a NUL
            return f"[{error.message}]"

    def judged(self, text: str) -> Turn:
        """Complete the turn of the last typed line, with `text` for the agent.

        Episodes of one machine must not call this concurrently. Errors: those of the machine.
        """
        try:
            self.verdict = self._judge.judge(self.terminal)
        except InputError as error:  # all lines together are too long to be repeated
            text = f"[{error.message}]"
        self.turns += 1
        done = self.verdict.passed
        truncated = not done and self.turns >= self.max_turns
        self.over = done or truncated
        if self.over:
            self.terminal.rest()
        return Turn(text, float(done), done, truncated, self.verdict)


def instructions(turns: int) -> str:
    """Return the instructions for an agent that may type this number of lines."""
    return HOW.format(lines="1 line" if turns == 1 else f"{turns} lines")


def shown(behavior: Behavior, *, stays: bool = False) -> str:
    """Format a behavior for an agent.

    `stays`: whether the effects of a line that ran out of time remain.
    """
    text = behavior.text
    if len(text) > SHOWN:
        half = SHOWN // 2
        text = f"{text[:half]}\n[{len(text) - SHOWN} characters omitted]\n{text[-half:]}"
    if behavior.timed_out:
        what = "all processes were ended" if stays else "the effects of this line were undone"
        return f"{text}\n[timed out: {what}]".lstrip("\n")
    notes = []
    if behavior.exit_code:
        notes.append(f"[exit code {behavior.exit_code}]")
    elif not text:
        notes.append("[no output]")
    if notes and text and not text.endswith("\n"):
        text += "\n"
    return text + "".join(notes)
