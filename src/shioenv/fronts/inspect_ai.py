"""Tasks as an evaluation of Inspect, and `sandbox="shioenv"` for any other.

An installed package announces both by its entry point: `inspect eval shioenv/tasks -T file=FILE`.
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
from shioenv.domain.behavior import Behavior
from shioenv.errors import ShioenvError
from shioenv.fronts.seat import Seat
from shioenv.sandbox.base import Limits
from shioenv.system.store import find_system
from shioenv.tasks.check import Judge, Verdict, refuse_other
from shioenv.tasks.episode import MAX_TURNS, shown
from shioenv.tasks.task import Task, decode, encode, read_tasks
from shioenv.tasks.terminal import Terminal

NOT_EXECUTABLE = 126
"""A shell's exit code where a program may not be run."""

OUTPUT = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
"""Bytes of an output at most, as Inspect wants it."""

PIECE = 60_000
"""Bytes of a file that are written at once."""

REFUSALS: Mapping[str, type[OSError]] = MappingProxyType(
    {
        "No such file or directory": FileNotFoundError,
        "Is a directory": IsADirectoryError,
        "Permission denied": PermissionError,
    }
)
"""What programs say, and what Inspect wants raised."""


class Start(BaseModel, frozen=True):
    """Where a sample begins: the `config` of a sandbox `shioenv`."""

    system: str | None = None
    """A built system; None: the default one."""
    cwd: str | None = None
    """The start directory; None: the system's first one."""
    history: tuple[str, ...] = ()
    """What was typed before."""


@sandboxenv(name="shioenv")
class ShioenvSandbox(SandboxEnvironment):
    """A pristine system for each sample. What is executed one after the other is replayed, so that
    nothing runs between two calls, and no file of the host can be reached.

    `type` types into one shell that goes on. `exec`, `read_file` and `write_file` each have a shell
    of their own beside it, in the start directory. What was typed reaches them through files (and
    the network) alone. Its functions, aliases, variables, traps and processes do not. Each has the
    limits of a run to itself. Inspect's tools that need a server inside (`bash_session`,
    `text_editor`) do not work. A program with its arguments and its input has 128 KiB at most. All
    that a sample types, executes and writes has one MiB, since it is run again for the next one.
    """

    def __init__(self, seat: Seat, start: Start) -> None:
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
        """A machine for a sample; `config` is a `Start`, or the name of a system."""
        start = config if isinstance(config, Start) else Start(system=config or None)
        limits = Limits(output_bytes=OUTPUT)
        return {"default": cls(Seat(start.system, limits), start)}

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        """Ends it."""
        for environment in environments.values():
            await environment.as_type(cls).seat.close()

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        """A start, as logs hold it."""
        return Start(**config)

    async def type(self, line: str) -> Behavior:
        """What a line typed into the sample's shell does."""
        return await self.seat.do(lambda machine: self._opened(machine).run(line))

    async def beside(
        self, row: str, *, separate: bool = False, seconds: float | None = None
    ) -> Behavior:
        """What a line does in a shell of its own; see `Terminal.beside`."""
        return await self.seat.do(
            lambda machine: self._opened(machine).beside(
                row, separate=separate, wall_seconds=seconds
            )
        )

    async def judge(self, task: Task) -> Verdict:
        """How a task stands that began where the sample did."""
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
        """What a program does, started in the sample's start directory, or in `cwd`.

        Errors: TimeoutError where it runs out of `timeout`, and then it was not run at all. The
        default is the five seconds of a run. PermissionError, OutputLimitExceededError.
        TerminalError where what was typed kills it.
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
        """Writes a file, and the directories it lies in. Errors: as Inspect says."""
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
        """What a file holds. Errors: as Inspect says."""

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
    """A shell that goes on from call to call, in the sample's sandbox `shioenv`."""

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
    """1 where the task of a sample is done, else 0; the share of its goal is in the metadata."""

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
    """Tasks as Inspect's samples, each with its sandbox; the target is the recorded solution.

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
    """An evaluation of a file of tasks; the solver is Inspect's ReAct agent with a terminal."""
    return Evaluation(
        dataset=samples(read_tasks(file)),
        solver=solver or react(tools=[terminal()]),
        scorer=solved(),
        message_limit=2 * max_turns + 2,
    )
