"""An attempt at a task, a line of Bash at a time: text in, text and reward out."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Final

from shioenv.behavior.observe import SandboxRunner
from shioenv.domain.behavior import Behavior
from shioenv.errors import EpisodeError, InputError
from shioenv.live.terminal import Terminal
from shioenv_agents.tasks.check import Judge, Verdict
from shioenv_agents.tasks.task import Task

MAX_TURNS: Final = 20
"""Most lines that an agent may type."""

SHOWN: Final = 8000
"""Most characters of an output that are shown; a longer output is cut in the middle."""

HOW: Final = (
    "You work one line of Bash at a time: answer with a line, and you are shown what it prints. "
    "The shell goes on from line to line. You have {turns} lines at most."
)


@dataclass(frozen=True, slots=True)
class Turn:
    """The result of a line."""

    text: str
    """The line's output, and its exit code where that is not 0."""
    reward: float
    """1 where the goal is reached, else 0."""
    done: bool
    """The goal is reached."""
    truncated: bool
    """The line was the last one, and the goal is not reached."""
    verdict: Verdict


class Episode:
    """One attempt at a task. The goal is checked after every line.

    The machine stays its owner's, who closes it. Errors: TaskError for a task of another system.
    Every use of the machine may raise errors of the machine.
    """

    def __init__(self, task: Task, machine: SandboxRunner, max_turns: int = MAX_TURNS) -> None:
        self.task = task
        self.max_turns = max_turns
        self.turns = 0
        """How many lines were typed."""
        self.over = False
        self.terminal = Terminal(machine, task.cwd, task.history)
        self._judge = Judge(task, machine)
        self.verdict = self._judge.judge(self.terminal)
        """The verdict on all lines so far."""

    @property
    def prompt(self) -> str:
        """What the agent is told first: the task's prompt, and how to work."""
        return f"{self.task.prompt}\n\n{HOW.format(turns=self.max_turns)}"

    def fork(self) -> Episode:
        """Another attempt that goes on from here; lines of one are nothing to the other."""
        other = copy(self)
        other.terminal = self.terminal.fork()
        return other

    def act(self, line: str) -> Turn:
        """Types a line. Errors: EpisodeError where the episode is over, those of the machine."""
        return self.judged(self.typed(line))

    def typed(self, line: str) -> str:
        """Types a line, and leaves it to `judged` to make a turn of it; what the agent is shown.

        Episodes of one machine may type at the same time, from threads. Errors: those of `act`.
        """
        if self.over:
            raise EpisodeError("the episode is over", hint="begin another one")
        try:
            return shown(self.terminal.run(line))
        except InputError as error:  # no shell can be given the line: it holds a NUL, say
            return f"[{error.message}]"

    def judged(self, text: str) -> Turn:
        """The turn of the line that was typed last, of which `text` is shown.

        Not for use by two threads at once with one machine. Errors: those of the machine.
        """
        try:
            self.verdict = self._judge.judge(self.terminal)
        except InputError as error:  # the lines are too long together to be repeated
            text = f"[{error.message}]"
        self.turns += 1
        done = self.verdict.passed
        truncated = not done and self.turns >= self.max_turns
        self.over = done or truncated
        if self.over:
            self.terminal.rest()
        return Turn(text, float(done), done, truncated, self.verdict)


def shown(behavior: Behavior, *, stays: bool = False) -> str:
    """A behavior as an agent reads it.

    `stays`: what a line that ran out of time did was not taken back.
    """
    text = behavior.text
    if len(text) > SHOWN:
        half = SHOWN // 2
        text = f"{text[:half]}\n[{len(text) - SHOWN} characters left out]\n{text[-half:]}"
    if behavior.timed_out:
        what = "every process was ended" if stays else "all that this line did was taken back"
        return f"{text}\n[ran out of time: {what}]".lstrip("\n")
    notes = []
    if behavior.exit_code:
        notes.append(f"[exit code {behavior.exit_code}]")
    elif not text:
        notes.append("[nothing was printed]")
    if notes and text and not text.endswith("\n"):
        text += "\n"
    return text + "".join(notes)
