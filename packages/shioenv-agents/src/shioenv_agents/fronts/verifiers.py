"""Tasks as a taskset of verifiers, in which its evaluations and trainers run rollouts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import verifiers.v1 as vf
from verifiers.v1.harnesses.null import NullHarnessConfig

from shioenv.behavior.observe import SandboxRunner
from shioenv.errors import UsageError
from shioenv.live.seat import Seat, runner_seat
from shioenv_agents.tasks.check import Verdict
from shioenv_agents.tasks.episode import HOW, MAX_TURNS, Episode
from shioenv_agents.tasks.task import Task, decode, encode, read_tasks

FORM = "Answer each time with the line alone, between <line> and </line>."

_LINE = re.compile(r"<line>(.*?)</line>", re.DOTALL)


class ShioenvTaskData(vf.TaskData):
    """What a rollout's trace keeps of a task."""

    line: str
    """The task as a line of a file of tasks."""


class ShioenvState(vf.State):
    """What was judged of a rollout."""

    reached: float | None = None
    """1 where the goal is reached, else 0; None as long as nothing was judged."""
    progress: float = 0.0
    """The share of the goal that holds."""

    def keep(self, verdict: Verdict) -> None:
        """Notes a verdict."""
        self.reached, self.progress = float(verdict.passed), verdict.progress


class ShioenvTask(vf.Task[ShioenvTaskData, ShioenvState]):
    """A task. Its reward is 1 once the goal is reached."""

    async def validate(self, runtime: vf.Runtime) -> bool:
        """Whether the task's solution reaches the goal, on a machine of its own."""
        verdict = await _judged(decode(self.data.line), solved=True)
        return verdict.passed

    @vf.reward
    async def reached(self, trace: vf.Trace) -> float:
        """1 where the goal is reached, else 0. Where nobody played, a fresh machine is judged."""
        if trace.state.reached is None:
            trace.state.keep(await _judged(decode(self.data.line), solved=False))
        return float(trace.state.reached)

    @vf.metric
    async def progress(self, trace: vf.Trace) -> float:
        """The share of the goal that holds."""
        return float(trace.state.progress)


class ShioenvTasksetConfig(vf.TasksetConfig):
    """Which tasks, and how they are played."""

    file: Path | None = None
    """The file of tasks, which is needed: verifiers makes a configuration before it reads one."""
    max_turns: int = MAX_TURNS
    """Replies of the model, at most."""


class ShioenvTaskset(vf.Taskset[ShioenvTask, ShioenvTasksetConfig]):
    """The tasks of a file."""

    def load(self) -> Iterator[ShioenvTask]:
        """Each task of the file. Errors: UsageError without a file, those of `read_tasks`."""
        if self.config.file is None:
            raise UsageError("no file of tasks", hint="name it: --taskset.file FILE")
        for task in read_tasks(self.config.file):
            data = ShioenvTaskData(id=task.id, name=task.id, line=encode(task).decode())
            yield ShioenvTask(data, self.config.task)


class ShioenvPlayConfig(vf.EnvConfig):
    """Who plays: a model without tools, since a reply is what it types."""

    player: vf.AgentConfig = vf.AgentConfig(
        harness=NullHarnessConfig(id="null"), runtime=vf.SubprocessConfig()
    )


class ShioenvPlay(vf.Env[ShioenvPlayConfig]):
    """An environment in which a model types lines.

    Each rollout has a machine of its own, in this process. A reply without `<line>` types nothing:
    it is answered with the form that a reply has to have, and counts as a turn.
    """

    async def run(self, task: ShioenvTask, agents: vf.Agents) -> None:
        """Play one task until its goal is reached, the turns ran out or the model is at an end."""
        asked, turns = decode(task.data.line), self.config.taskset.max_turns
        seat = runner_seat(asked.system)
        try:
            episode = await seat.do(lambda machine: Episode(asked, machine, turns))
            said = f"{asked.prompt}\n\n{HOW.format(turns=turns)} {FORM}"
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
    """What is told after a reply; the line in it is typed."""
    found = _LINE.search(reply)
    if found is None:
        return f"[no line was found] {FORM}"
    turn = await seat.do(lambda machine: episode.act(found[1].strip()))
    return turn.text


async def _judged(task: Task, *, solved: bool) -> Verdict:
    """The verdict on a fresh machine, on which the task's solution was typed if `solved`."""

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
