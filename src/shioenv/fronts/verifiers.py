"""Tasks as an environment of verifiers, in which its evaluations and trainers run rollouts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import verifiers as vf
from datasets import Dataset

from shioenv.fronts.seat import Seat
from shioenv.sandbox.base import Limits
from shioenv.tasks.episode import HOW, MAX_TURNS, Episode, Turn
from shioenv.tasks.task import Task, decode, encode, read_tasks

FORM = "Answer each time with the line alone, between <line> and </line>."

_LINE = re.compile(r"<line>(.*?)</line>", re.DOTALL)


class TaskEnvironment(vf.MultiTurnEnv):
    """An environment in which a model types lines. The reward is 1 once the goal is reached.

    Each rollout has a machine of its own. A reply without `<line>` types nothing: it is answered
    with the form that a reply has to have, and counts as a turn.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        *,
        max_turns: int = MAX_TURNS,
        limits: Limits | None = None,
        **options: Any,
    ) -> None:
        """Make the environment; `options` are those of `vf.MultiTurnEnv`."""
        how = HOW.format(turns=max_turns)
        rows = [
            {
                "prompt": [{"role": "user", "content": f"{task.prompt}\n\n{how} {FORM}"}],
                "answer": task.solution,
                "info": {"shioenv": encode(task).decode()},
            }
            for task in tasks
        ]
        rubric = vf.Rubric(funcs=[reached, progress], weights=[1.0, 0.0])
        dataset = Dataset.from_list(rows)
        super().__init__(
            dataset=dataset, eval_dataset=dataset, rubric=rubric, max_turns=max_turns, **options
        )
        self._limits = limits

    async def setup_state(self, state: vf.State) -> Any:
        """Open the rollout's machine and begin its task."""
        task = decode(state["info"]["shioenv"])
        seat = Seat(task.system, self._limits)
        state["seat"], state["answered"] = seat, 0
        state["episode"] = await seat.do(lambda machine: Episode(task, machine, self.max_turns))
        return await super().setup_state(state)

    async def env_response(
        self, messages: vf.Messages, state: vf.State, **kwargs: Any
    ) -> vf.Messages:
        """Type the line in the newest reply; a message with what the line printed."""
        state["answered"] = len(state["trajectory"])
        found = _LINE.search(said(messages[-1]))
        if found is None:
            return [{"role": "user", "content": f"[no line was found] {FORM}"}]
        turn = await self._typed(state, found[1].strip())
        answer: vf.Messages = [{"role": "user", "content": turn.text}]
        if turn.done or turn.truncated:
            state["final_env_response"] = answer
        return answer

    @vf.cleanup
    async def leave(self, state: vf.State) -> None:
        """Type the line in the last reply if nothing answered that reply, and end the machine.

        A last reply has no answer where the turns ran out. The machine is ended in any case.
        """
        seat: Seat | None = state.get("seat")
        if seat is None:
            return
        episode: Episode | None = state.get("episode")
        trajectory, found = state["trajectory"], None
        try:
            if len(trajectory) > state["answered"]:
                found = _LINE.search(said(trajectory[-1]["completion"][-1]))
            if episode is not None:
                if found is not None and not episode.over:
                    await self._typed(state, found[1].strip())
                state["reached"] = float(episode.verdict.passed)
                state["progress"] = episode.verdict.progress
        finally:
            for name in ("seat", "episode", "answered"):
                state.pop(name, None)
            await seat.close()

    async def _typed(self, state: Mapping[str, Any], line: str) -> Turn:
        episode: Episode = state["episode"]
        return await state["seat"].do(lambda machine: episode.act(line))


def said(message: Any) -> str:
    """The text of a message, which is a dict or has an attribute `content`; "" for no text."""
    content = message["content"] if isinstance(message, dict) else message.content
    return content if isinstance(content, str) else ""


def reached(state: vf.State) -> float:
    """The reward: 1 where the goal is reached, else 0."""
    return float(state.get("reached", 0.0))


def progress(state: vf.State) -> float:
    """A metric: the share of the goal that holds."""
    return float(state.get("progress", 0.0))


def load_environment(file: str | Path, **options: Any) -> TaskEnvironment:
    """The environment of a file of tasks, called by verifiers' programs. Errors: TaskError."""
    return TaskEnvironment(read_tasks(file), **options)
