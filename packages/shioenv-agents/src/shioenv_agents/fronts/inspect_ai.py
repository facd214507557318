"""Tasks as an Inspect evaluation, and the sandbox `shioenv` for any other evaluation.

Inspect finds both by the entry point of the installed package. A file of tasks is evaluated by
`inspect eval shioenv/tasks -T file=FILE`. Any other evaluation sets `sandbox="shioenv"`.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryFile
from types import MappingProxyType
from typing import IO, Any, Literal, overload

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
from shioenv.behavior.observe import open_sandbox
from shioenv.domain.behavior import Behavior
from shioenv.errors import InputError, ShioenvError
from shioenv.live.machine_thread import Seat
from shioenv.sandbox.base import LARGEST, Entered, Limits
from shioenv.system.store import find_system
from shioenv_agents.tasks.entered_machine import OUTPUT, Command, CommandTimeoutError, finished
from shioenv_agents.tasks.episode import MAX_TURNS, shown
from shioenv_agents.tasks.goal_check import Judge, Verdict, refuse_other
from shioenv_agents.tasks.task import Task, decode, encode, read_tasks
from shioenv_agents.tasks.terminal import Terminal

NOT_EXECUTABLE = 126
"""A shell's exit code for a program without permission to run."""

TRANSFER_SECONDS = 600.0
"""Time limit for transferring a file in seconds."""

REFUSALS: Mapping[str, type[OSError]] = MappingProxyType(
    {
        "No such file or directory": FileNotFoundError,
        "Is a directory": IsADirectoryError,
        "Not a directory": NotADirectoryError,
        "File exists": NotADirectoryError,  # a file where a directory is needed
        "Permission denied": PermissionError,
    }
)
"""The exception that Inspect expects for each error message of programs."""

READ = '[ -p "$1" ] && echo "it is a pipe" >&2 || exec /usr/bin/cat < "$1"'
"""Read a file. Pipes are rejected: reading one could block, and would let its writer continue."""

WRITE = '/usr/bin/mkdir -p -- "${1%/*}/" && /usr/bin/cat > "$1"'
"""Write a file, and make the directories above it."""


class Start(BaseModel, frozen=True):
    """The start state of a sample: the `config` of a sandbox `shioenv`."""

    system: str | None = None
    """Name of a built system; None for the default system."""
    cwd: str | None = None
    """The start directory; None for the system's first start directory."""
    history: tuple[str, ...] = ()
    """The lines typed before the sample begins, oldest first."""


class SampleMachine:
    """The machine of a sample: a persistent shell for lines, and separate programs."""

    def __init__(self, start: Start) -> None:
        """Open the machine. Errors: those of `open_sandbox`; StartDirectoryError."""
        limits = replace(Limits(), cpu_seconds=LARGEST["cpu_seconds"])
        self.runner = open_sandbox(start.system, limits)
        try:
            cwd = start.cwd or self.runner.system.declaration.start_directory
            self.terminal = Terminal(self.runner, cwd, start.history)
            self.terminal.open()
        except BaseException:
            self.close()
            raise

    def start(self, command: Command) -> Entered:
        """Start a program; see `Terminal.enter`."""
        return self.terminal.enter(command)

    def end_group(self, group: int) -> None:
        """End a process group; see `Terminal.end_group`."""
        self.terminal.end_group(group)

    def close(self) -> None:
        """End the machine; a second call does nothing."""
        self.runner.close()


@sandboxenv(name="shioenv")
class ShioenvSandbox(SandboxEnvironment):
    """A machine for each sample, initially pristine and isolated from the host's files.

    `type` types into one persistent shell. Programs run by `exec` see the present state of the
    machine and its processes, and run concurrently with each other and with the shell. They do not
    share the shell's functions, aliases, variables or traps.

    A line has the limits of a run. A program has no time limit except `timeout`. Memory, processes
    and disk have the limits of a run, for the whole machine.

    Inspect's tools that need a server inside the sandbox (`bash_session`, `text_editor`) do not
    work, because Inspect has no server for this sandbox.
    """

    def __init__(self, seat: Seat[SampleMachine], cwd: str) -> None:
        """Create the sandbox; `cwd` is the start directory."""
        super().__init__()
        self.seat, self._cwd = seat, cwd

    @classmethod
    async def sample_init(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        metadata: dict[str, str],
    ) -> dict[str, SandboxEnvironment]:
        """Return the sandbox of a sample. `config` is a `Start`, or the name of a system.

        Errors: those of `SampleMachine`.
        """
        start = config if isinstance(config, Start) else Start(system=config or None)
        seat = Seat(lambda: SampleMachine(start))
        try:
            cwd = await seat.do(lambda machine: machine.terminal.start.cwd)
        except BaseException:
            await seat.close()
            raise
        return {"default": cls(seat, cwd)}

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
        """Return the `Start` that a log holds as a mapping."""
        return Start(**config)

    async def type(self, line: str) -> Behavior:
        """Type a line into the sample's shell, and return its behavior. See `Terminal`."""
        return await self.seat.do(lambda machine: machine.terminal.run(line))

    async def show(self, line: str) -> str:
        """Type a line into the sample's shell, and return the text for an agent."""

        def typed(machine: SampleMachine) -> str:
            try:
                behavior = machine.terminal.run(line)
            except InputError as error:  # the line is invalid, for example because it holds a NUL
                return f"[{error.message}]"
            return shown(behavior, stays=machine.terminal.entered)

        return await self.seat.do(typed)

    async def judge(self, task: Task) -> Verdict:
        """Return the verdict on a task that began in the sample's start state.

        If a program ran in addition to the shell, every process of the machine is ended first.
        """
        return await self.seat.do(
            lambda machine: Judge(task, machine.runner).judge(machine.terminal)
        )

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
        """Run a program in `cwd`, or in the start directory, and return exit code and outputs.

        Processes that the program leaves running continue. At the time limit, or if the caller is
        cancelled, the processes of its group are ended, and their effects remain. Errors:
        TimeoutError, whose `truncated_output` is the output until then. PermissionError if the
        program is not executable. OutputLimitExceededError.
        """
        content = input.encode() if isinstance(input, str) else input
        command = Command(
            program=cmd, cwd=cwd or ".", env=env or {}, user=user, fed=content is not None
        )
        most = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        try:
            done = await finished(
                self.seat, command, given=BytesIO(content or b""), most=most, seconds=timeout
            )
        except CommandTimeoutError as error:
            over = TimeoutError(f"{' '.join(map(quoted, cmd))!r:.80} timed out")
            partial = "".join(map(_text, (error.output, error.errors)))
            vars(over)["truncated_output"] = partial
            raise over from None
        out, err = _text(done.output), _text(done.errors)
        if done.exit_code == NOT_EXECUTABLE and "Permission denied" in err:
            raise PermissionError(f"{cmd[0]}: Permission denied")
        if not (done.whole and done.errors_whole):
            raise OutputLimitExceededError(
                SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, err if done.whole else out
            )
        return ExecResult(done.exit_code == 0, done.exit_code, out, err)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Write a file, and make the directories above it. Errors: as Inspect documents them."""
        content = contents.encode() if isinstance(contents, str) else contents
        await self._transfer(WRITE, file, given=BytesIO(content))

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        """Return the content of a file. Errors: as Inspect documents them."""
        most = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        with TemporaryFile() as content:
            if not await self._transfer(READ, file, into=content, most=most):
                raise OutputLimitExceededError(
                    SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None
                )
            content.seek(0)
            read = content.read()
        return read.decode() if text else read

    async def _transfer(
        self,
        text: str,
        file: str,
        *,
        given: IO[bytes] | None = None,
        into: IO[bytes] | None = None,
        most: int = OUTPUT,
    ) -> bool:
        """Transfer a file by a script with its path as `$1`, and return whether it is complete."""
        path = posixpath.join(self._cwd, file)
        command = Command(
            program=("/bin/bash", "-c", text, "bash", path),
            fed=given is not None,
            reads=into is not None,
        )
        done = await finished(
            self.seat, command, given=given, into=into, most=most, seconds=TRANSFER_SECONDS
        )
        errors = _text(done.errors)
        if done.whole and (done.exit_code or errors):
            for words, error in REFUSALS.items():
                if words in errors:
                    raise error(f"{file}: {words}")
            raise ShioenvError(f"{file}: {errors[:200] or f'exit code {done.exit_code}'}")
        return done.whole


def _text(output: bytes) -> str:
    return output.decode("utf-8", "replace")


@tool
def terminal() -> Tool:
    """Return the tool that types lines into the shell of the sample's sandbox `shioenv`."""

    async def execute(line: str) -> str:
        """Run a line in a Bash shell and return its output. The shell keeps its working directory
        and its variables between calls.

        Args:
            line: The line of Bash to run.

        Returns:
            The output of the line, and its exit code unless it is 0.

        """
        return await sandbox().as_type(ShioenvSandbox).show(line)

    return execute


@scorer(metrics=[accuracy(), stderr()])
def solved() -> Scorer:
    """Return the scorer: 1 if the sample's task is solved, else 0.

    The fraction of the goal that holds is `progress` in the metadata of the score.
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
    """Convert tasks to Inspect samples, with the recorded solution as target.

    Each sample has a sandbox. Errors: TaskError for a task of another build of its system, those of
    `find_system`.
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
    """Return an evaluation of a file of tasks, by default with Inspect's ReAct agent."""
    return Evaluation(
        dataset=samples(read_tasks(file)),
        solver=solver or react(tools=[terminal()]),
        scorer=solved(),
        message_limit=2 * max_turns + 2,
    )
