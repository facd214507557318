"""Tasks as a verifiers taskset, for its evaluations and trainers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import verifiers.v1 as vf
from verifiers.v1.harnesses.null import NullHarnessConfig

from shioenv.behavior.observe import SandboxRunner
from shioenv.errors import UsageError
from shioenv.live.machine_thread import Seat
from shioenv_agents.tasks.episode import MAX_TURNS, Episode, instructions
from shioenv_agents.tasks.goal_check import Verdict
from shioenv_agents.tasks.task import Task, decode, encode, read_tasks
from shioenv_agents.tasks.terminal import runner_seat

FORM = "Reply with only the line, between <line> and </line>."

_LINE = re.compile(r"<line>(.*?)</line>", re.DOTALL)


class ShioenvTaskData(vf.TaskData):
    """The data of a task in a rollout's trace."""

    line: str
    """The task as a line of a file of tasks."""


class ShioenvState(vf.State):
    """The verdict on a rollout."""

    reached: float | None = None
    """1 if the goal is reached, else 0; None before the first verdict."""
    progress: float = 0.0
    """The fraction of the goal that holds."""

    def keep(self, verdict: Verdict) -> None:
        """Store a verdict."""
        self.reached, self.progress = float(verdict.passed), verdict.progress


class ShioenvTask(vf.Task[ShioenvTaskData, ShioenvState]):
    """A task. Its reward is 1 once the goal is reached."""

    async def validate(self, runtime: vf.Runtime) -> bool:
        """Whether the task's solution reaches the goal on a separate machine."""
        verdict = await _judged(decode(self.data.line), solved=True)
        return verdict.passed

    @vf.reward
    async def reached(self, trace: vf.Trace) -> float:
        """Return 1 if the goal is reached, else 0; without a rollout, judge a fresh machine."""
        if trace.state.reached is None:
            trace.state.keep(await _judged(decode(self.data.line), solved=False))
        return float(trace.state.reached)

    @vf.metric
    async def progress(self, trace: vf.Trace) -> float:
        """Return the fraction of the goal that holds."""
        return float(trace.state.progress)


class ShioenvTasksetConfig(vf.TasksetConfig):
    """The tasks, and the limits of a rollout."""

    file: Path | None = None
    """The file of tasks: required, but None in the first configuration that verifiers creates."""
    max_turns: int = MAX_TURNS
    """Maximum replies of the model."""


class ShioenvTaskset(vf.Taskset[ShioenvTask, ShioenvTasksetConfig]):
    """The tasks of a file."""

    def load(self) -> Iterator[ShioenvTask]:
        """Yield each task of the file. Errors: UsageError without a file, those of `read_tasks`."""
        if self.config.file is None:
            raise UsageError("no file of tasks is given", hint="add --taskset.file FILE")
        for task in read_tasks(self.config.file):
            data = ShioenvTaskData(id=task.id, name=task.id, line=encode(task).decode())
            yield ShioenvTask(data, self.config.task)


class ShioenvPlayConfig(vf.EnvConfig):
    """The player: a model without tools, because its reply is the line to type."""

    player: vf.AgentConfig = vf.AgentConfig(
        harness=NullHarnessConfig(id="null"), runtime=vf.SubprocessConfig()
    )


class ShioenvPlay(vf.Env[ShioenvPlayConfig]):
    """An environment in which a model types lines.

    Each rollout has a separate machine, in this process. A reply without `<line>` types nothing but
    counts as a turn; the answer repeats the required form.
    """

    async def run(self, task: ShioenvTask, agents: vf.Agents) -> None:
        """Play one task until its goal is reached, the turns are used up, or the model stops."""
        asked, turns = decode(task.data.line), self.config.taskset.max_turns
        seat = runner_seat(asked.system)
        try:
            episode = await seat.do(lambda machine: Episode(asked, machine, turns))
            said = f"{asked.prompt}\n\n{instructions(turns)} {FORM}"
            async with agents.player.interaction(task) as interaction:
                try:
                    for _ in range(turns):
                        segment = await interaction.turn(said)
                        said = await _answer(seat, episode, segment.last_reply)
                        if episode.over or segment.terminated:
                            break
                finally:
                    interaction.trace.state.keep(episode.verdict)
        finally:
            await seat.close()


async def _answer(seat: Seat[SandboxRunner], episode: Episode, reply: str) -> str:
    """Type the line in a reply, and return the answer to the model."""
    found = _LINE.search(reply)
    if found is None:
        return f"[no line found] {FORM}"
    turn = await seat.do(lambda machine: episode.act(found[1].strip()))
    return turn.text


async def _judged(task: Task, *, solved: bool) -> Verdict:
    """Return the verdict on a fresh machine, after the task's solution if `solved`."""

    def judge(machine: SandboxRunner) -> Verdict:
        episode = Episode(task, machine, 1)
        if solved:
            episode.act(task.solution)
        return episode.verdict

    seat = runner_seat(task.system)
    try:
        return await seat.do(judge)
    finally:
        await seat.close()


__all__ = ["ShioenvPlay", "ShioenvTask", "ShioenvTaskset"]
