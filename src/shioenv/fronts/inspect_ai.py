"""Tasks as an evaluation of Inspect, and the sandbox `shioenv` for any other evaluation.

Inspect finds both by the entry point of the installed package. A file of tasks is evaluated by
`inspect eval shioenv/tasks -T file=FILE`. Any other evaluation names `sandbox="shioenv"`.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, overload

from inspect_ai import Task as Evaluation
from inspect_ai import task as evaluation
from inspect_ai.agent import Agent, react
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.scorer import Score, Scorer, Target, accuracy, scorer, stderr
from inspect_ai.solver import TaskState
from inspect_ai.tool import Tool, tool
from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxEnvironment,
    SandboxEnvironmentConfigType,
    SandboxEnvironmentLimits,
    SandboxEnvironmentSpec,
    sandbox,
    sandboxenv,
)
from pydantic import BaseModel

from shioenv.bash.words import quoted
from shioenv.behavior.observe import SandboxRunner
from shioenv.domain.behavior import Behavior
from shioenv.errors import ShioenvError
from shioenv.fronts.seat import Seat, runner_seat
from shioenv.live.terminal import Terminal
from shioenv.sandbox.base import Limits
from shioenv.system.store import find_system
from shioenv.tasks.check import Judge, Verdict, refuse_other
from shioenv.tasks.episode import MAX_TURNS, shown
from shioenv.tasks.task import Task, decode, encode, read_tasks

NOT_EXECUTABLE = 126
"""A shell's exit code for a program that may not be run."""

OUTPUT = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
"""Most bytes of an output, as Inspect bounds it."""

PIECE = 60_000
"""Most bytes of a file that are written at once."""

REFUSALS: Mapping[str, type[OSError]] = MappingProxyType(
    {
        "No such file or directory": FileNotFoundError,
        "Is a directory": IsADirectoryError,
        "Permission denied": PermissionError,
    }
)
"""The error that Inspect wants raised for each message that programs print."""


class Start(BaseModel, frozen=True):
    """Where a sample begins: the `config` of a sandbox `shioenv`."""

    system: str | None = None
    """Name of a built system; None for the default system."""
    cwd: str | None = None
    """The start directory; None for the system's first start directory."""
    history: tuple[str, ...] = ()
    """The lines typed before the sample begins, oldest first."""


@sandboxenv(name="shioenv")
class ShioenvSandbox(SandboxEnvironment):
    """A pristine system for each sample. No file of the host can be reached from it.

    Each call runs again what the sample did before, so nothing runs between two calls.

    `type` types into one shell that goes on from call to call. Each call of `exec`, `read_file` and
    `write_file` has a shell of its own in the start directory. Typed lines affect those shells
    through files and the network only, not through functions, aliases, variables, traps or
    processes. Each call has the limits of a run to itself.

    Inspect's tools that need a server inside the sandbox (`bash_session`, `text_editor`) do not
    work. A program, its arguments and its input in base64 have 128 KiB together at most. All that a
    sample types, executes and writes has one MiB at most, because every call runs it again.
    """

    def __init__(self, seat: Seat[SandboxRunner], start: Start) -> None:
        super().__init__()
        self.seat = seat
        self._start = start
        self._terminal: Terminal | None = None

    @classmethod
    async def sample_init(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        metadata: dict[str, str],
    ) -> dict[str, SandboxEnvironment]:
        """The sandbox of a sample. `config` is a `Start`, or the name of a system."""
        start = config if isinstance(config, Start) else Start(system=config or None)
        limits = Limits(output_bytes=OUTPUT)
        return {"default": cls(runner_seat(start.system, limits), start)}

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        """End the sandbox of a sample."""
        for environment in environments.values():
            await environment.as_type(cls).seat.close()

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        """The `Start` that a log holds as a mapping."""
        return Start(**config)

    async def type(self, line: str) -> Behavior:
        """Type a line into the sample's shell; its behavior."""
        return await self.seat.do(lambda machine: self._opened(machine).run(line))

    async def beside(
        self, row: str, *, separate: bool = False, seconds: float | None = None
    ) -> Behavior:
        """Run a line in a shell of its own; its behavior. See `Terminal.beside`."""
        return await self.seat.do(
            lambda machine: self._opened(machine).beside(
                row, separate=separate, wall_seconds=seconds
            )
        )

    async def judge(self, task: Task) -> Verdict:
        """The verdict on a task that began where the sample began."""
        return await self.seat.do(lambda machine: Judge(task, machine).judge(self._opened(machine)))

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,  # noqa: A002 - as Inspect calls it
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """Run a program in `cwd`, or in the sample's start directory; its exit code and outputs.

        `timeout` is in seconds; None stands for the five seconds of a run. Errors: TimeoutError
        where the time is over; then all that the program did is taken back. PermissionError where
        the program may not be run. OutputLimitExceededError. TerminalError where something that was
        typed kills the program's shell.
        """
        given = [f"{name}={value}" for name, value in (env or {}).items()]
        row = " ".join(map(quoted, ["/usr/bin/env", *given, *cmd]))
        if user is not None:
            row = f"/usr/sbin/runuser -u {quoted(user)} -- {row}"
        if input is not None:
            content = input.encode() if isinstance(input, str) else input
            row = f"echo {base64.b64encode(content).decode()} | /usr/bin/base64 -d | {row}"
        if cwd is not None:
            row = f"cd {quoted(cwd)} && {row}"
        done = await self.beside(row, separate=True, seconds=timeout)
        if done.timed_out:
            raise TimeoutError(f"{' '.join(map(quoted, cmd))!r:.80} ran out of time")
        if done.exit_code == NOT_EXECUTABLE and b"Permission denied" in (done.stderr or b""):
            raise PermissionError(f"{cmd[0]}: Permission denied")
        out, err = ((text or b"").decode("utf-8", "replace") for text in (done.stdout, done.stderr))
        if done.output_truncated:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, out)
        return ExecResult(done.exit_code == 0, done.exit_code, out, err)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Write a file, and make the directories above it. Errors: as Inspect documents them."""
        content = contents.encode() if isinstance(contents, str) else contents
        path = quoted(file)
        made = f'/usr/bin/mkdir -p -- "$(/usr/bin/dirname -- {path})" && : > {path}'
        _refuse(await self.beside(made), file)
        for begin in range(0, len(content), PIECE):
            piece = base64.b64encode(content[begin : begin + PIECE]).decode()
            done = await self.beside(f"echo {piece} | /usr/bin/base64 -d >> {path}")
            _refuse(done, file)

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        """The content of a file. Errors: as Inspect documents them."""

        def read(machine: Any) -> Behavior:
            row = f"/usr/bin/base64 -w0 < {quoted(file)}"
            return self._opened(machine).fork().beside(row)

        done = await self.seat.do(read)
        limit = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        if done.output_truncated:
            raise OutputLimitExceededError(str(OUTPUT // 4 * 3), None)
        _refuse(done, file)
        content = base64.b64decode(done.output)
        if len(content) > limit:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
        return content.decode() if text else content

    def _opened(self, machine: Any) -> Terminal:
        if self._terminal is None:
            cwd = self._start.cwd or machine.system.declaration.start_directory
            self._terminal = Terminal(machine, cwd, self._start.history)
        return self._terminal


def _refuse(done: Behavior, file: str) -> None:
    if done.exit_code == 0:
        return
    for words, error in REFUSALS.items():
        if words in done.text:
            raise error(f"{file}: {words}")
    raise ShioenvError(f"{file}: {done.text[:200]}")


@tool
def terminal() -> Tool:
    """The tool that types lines into the shell of the sample's sandbox `shioenv`."""

    async def execute(line: str) -> str:
        """Type a line into a Bash shell and read what it prints. The shell goes on: its working
        directory and its variables stay.

        Args:
            line: The line of Bash.

        Returns:
            What it printed, and its exit code where that is not 0.

        """
        return shown(await sandbox().as_type(ShioenvSandbox).type(line))

    return execute


@scorer(metrics=[accuracy(), stderr()])
def solved() -> Scorer:
    """The scorer: 1 where the sample's task is solved, else 0.

    The share of the goal that holds is `progress` in the metadata of the score.
    """

    async def score(state: TaskState, target: Target) -> Score:
        done = decode(state.metadata["task"])
        verdict = await sandbox().as_type(ShioenvSandbox).judge(done)
        return Score(
            value=int(verdict.passed),
            explanation=", ".join((*verdict.missing, *verdict.extra)) or None,
            metadata={"progress": verdict.progress},
        )

    return score


def samples(tasks: list[Task]) -> MemoryDataset:
    """Tasks as Inspect's samples. Each has its sandbox, and its target is the recorded solution.

    Errors: TaskError for a task of another build of its system, those of `find_system`.
    """
    systems = {name: find_system(name) for name in {one.system for one in tasks}}
    for one in tasks:
        refuse_other(one, systems[one.system])
    return MemoryDataset(
        [
            Sample(
                id=one.id,
                input=one.prompt,
                target=one.solution,
                sandbox=SandboxEnvironmentSpec(
                    "shioenv",
                    Start(system=one.system, cwd=one.cwd, history=tuple(one.history)),
                ),
                metadata={"task": encode(one).decode(), "kind": one.kind.value},
            )
            for one in tasks
        ],
        name="shioenv",
    )


@evaluation
def tasks(file: str | Path, solver: Agent | None = None, max_turns: int = MAX_TURNS) -> Evaluation:
    """An evaluation of a file of tasks, by default of Inspect's ReAct agent with `terminal`."""
    return Evaluation(
        dataset=samples(read_tasks(file)),
        solver=solver or react(tools=[terminal()]),
        scorer=solved(),
        message_limit=2 * max_turns + 2,
    )
