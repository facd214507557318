"""Descriptions and implementations of the MCP server's tools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import msgspec

from shioenv.errors import StartDirectoryError, UsageError
from shioenv.files.documents import fault
from shioenv.live.answerer import load_model
from shioenv.sandbox.base import Limits
from shioenv_agents.mcp.machines import OpenShells, PristineMachines
from shioenv_agents.mcp.previews import AT_ONCE, Previews
from shioenv_agents.mcp.schema import (
    PredictArguments,
    Prediction,
    PreviewArguments,
    PreviewEffects,
    ReportedEffects,
    RunArguments,
    ShellAnswer,
    ShellArguments,
)
from shioenv_agents.mcp.workers import Slots, Threads

if TYPE_CHECKING:
    from shioenv.domain.runner import Answer
    from shioenv.live.answerer import Answerer
import json
from typing import TypeVar

from shioenv.domain.behavior import Behavior
from shioenv.domain.readable import changes
from shioenv_agents.mcp.schema import ReportedChange

LARGEST_PATCH: Final = 32_768
"""Maximum bytes of a result's patch as JSON (our choice)."""

LARGEST_DIFF: Final = 32_768
"""Maximum characters of a preview's diff in a result (our choice)."""

MOST_SHOWN: Final = 40
"""Maximum changes in the text of a result (our choice; its structured form lists more)."""

AnyEffects = TypeVar("AnyEffects", bound=ReportedEffects)


def effects_of(
    behavior: Behavior, start: str, limit: int, kind: type[AnyEffects], **more: Any
) -> AnyEffects:
    """Return a behavior as a result of the given kind, with at most `limit` characters of output.

    `start` is the directory that names are relative to; `more` are the kind's other fields.
    """
    output, omitted = shorten(behavior.text, limit)
    operations = list(behavior.patch.operations)
    kept = _fitting(operations)
    return kind(
        cwd=start,
        exit_code=behavior.exit_code,
        output=output,
        output_omitted=omitted,
        output_truncated=behavior.output_truncated,
        changes=[ReportedChange(*each) for each in changes(kept, start)],  # type: ignore[arg-type]
        context_patch=[list(each) for each in kept],
        changes_omitted=len(operations) - len(kept),
        patch_truncated=behavior.patch_truncated,
        timed_out=behavior.timed_out,
        limits_hit=list(behavior.limits_hit),
        died_by_signal=behavior.died_by_signal,
        volatile=behavior.volatile,
        **more,
    )


def shorten(text: str, limit: int) -> tuple[str, int]:
    """Return a text, without its middle if it is too long, and the number of omitted characters.

    A mark replaces the middle. It does not count towards `limit`.
    """
    omitted = len(text) - limit
    if omitted <= 0:
        return text, 0
    head = limit - limit // 3
    tail = text[len(text) - limit // 3 :] if limit // 3 else ""
    return f"{text[:head]}\n[... {omitted} characters omitted ...]\n{tail}", omitted


def _fitting(operations: list[Any]) -> list[Any]:
    """Return the first operations, as many as fit into `LARGEST_PATCH`."""
    room = LARGEST_PATCH
    for number, operation in enumerate(operations):
        room -= len(json.dumps(operation))
        if room < 0:
            return operations[:number]
    return operations


def text_of(effects: ReportedEffects) -> str:
    """Return a result as text: the output, the facts, and the changes."""
    lines = [effects.output.rstrip("\n")] if effects.output else []
    facts = [f"exit code {effects.exit_code}"]
    if effects.timed_out:
        facts.append("timed out")
    if effects.died_by_signal:
        facts.append(f"ended by signal {effects.died_by_signal}")
    if effects.limits_hit:
        facts.append(f"limits reached: {', '.join(effects.limits_hit)}")
    if effects.output_truncated:
        facts.append("output truncated")
    if effects.patch_truncated:
        facts.append("changes truncated")
    lines.append(f"[{', '.join(facts)}]")
    for each in effects.changes[:MOST_SHOWN]:
        lines.append(f"{each.change} {each.name}  {each.detail}".rstrip())
    more = max(len(effects.changes) - MOST_SHOWN, 0) + effects.changes_omitted
    if more:
        lines.append(f"and {more} more changes")
    return "\n".join(lines)


MACHINES: Final = 4
"""Default number of commands that run in parallel on pristine machines (our choice)."""

SHELLS: Final = 32
"""Default maximum number of open shells (our choice)."""

IDLE_SECONDS: Final = 900.0
"""Default idle timeout of a shell in seconds (our choice)."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool, as clients see it."""

    name: str
    title: str
    description: str
    arguments: type[msgspec.Struct]
    result: type[msgspec.Struct]
    read_only: bool
    """Whether a call changes nothing, including the server's state."""


TOOLS: Final = {
    tool.name: tool
    for tool in (
        Tool(
            "run",
            "Run a command on a pristine machine",
            "Run a Bash command on a fresh Debian machine and report everything that it did: "
            "output, exit code, and every file, variable and process setting that it changed.\n\n"
            "Use it to find out what a command really does, to try an idea, or to compare two "
            "commands. Each call starts from the same pristine machine. Nothing of an earlier call "
            "exists there, and nothing of the user's files. To keep state between commands, use "
            "`shell`. To try a command on the user's own files, use `preview`.\n\n"
            "Limits: no network, 5 seconds (`timeout_seconds` up to 60), 256 MiB of memory and of "
            "disk. The command runs as root there, isolated from the user's machine. `limits_hit` "
            "lists the limits that it reached.",
            RunArguments,
            ReportedEffects,
            read_only=True,
        ),
        Tool(
            "preview",
            "Preview a command in the user's directory",
            "Run a Bash command on a copy-on-write layer over the user's own files, and report "
            "what it would change there. The files stay as they are.\n\n"
            "Use it before every command that deletes, moves, overwrites or edits files, and "
            "before scripts that you have not read. Check `changes` and `diff`, then run the "
            "command for real with your usual tool if they are as intended.\n\n"
            "Limits: no network, no standard input, 30 seconds (`timeout_seconds` up to 60). "
            "Directories with secrets, such as .ssh, look empty. Servers and other programs that "
            "the command cannot reach here may make it fail, although it would succeed for real.",
            PreviewArguments,
            PreviewEffects,
            read_only=True,
        ),
        Tool(
            "shell",
            "Keep a shell open on a machine",
            "Keep a Bash shell open on a separate Debian machine, and run one command after the "
            "other in it. Variables, the working directory, files and background processes stay "
            "between commands.\n\n"
            "Start with the action `open`, which returns the id of the shell. Pass that id as "
            "`shell` to every other action. Use `run` for a command, `fork` to try two ways "
            "from the same state, `patch` to see all changes since `open`, and `close` when you "
            "are done. For a single command, use `run` instead.\n\n"
            "Limits: 8 open shells for each client; an idle shell is closed. A command that "
            "reaches a limit (5 seconds, or `timeout_seconds` up to 60) ends its shell, and so "
            "does cancelling a call. `open` is false then: open a new shell. No network.",
            ShellArguments,
            ShellAnswer,
            read_only=False,
        ),
        Tool(
            "predict",
            "Predict a command without running it",
            "Predict the output, exit code and changes of a Bash command on the Debian machine of "
            "`run`, with a model. Nothing is executed.\n\n"
            "Use it for a quick guess about many commands, or where no machine can be built. "
            "`confidence` is the expected accuracy, 0 to 1. Use `run` instead whenever you need to "
            "be sure.",
            PredictArguments,
            Prediction,
            read_only=True,
        ),
    )
}
"""The tools, by their names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSettings:
    """The settings of a server."""

    tools: Collection[str] = tuple(TOOLS)
    """Names of the tools to offer."""
    system: str | None = None
    root: Path = Path()
    """The directory at or below which previews start."""
    hide: tuple[str, ...] = ()
    """Paths hidden from previews, besides the usual ones."""
    machines: int = MACHINES
    shells: int = SHELLS
    idle_seconds: float = IDLE_SECONDS
    limits: Limits | None = None


class ToolBox:
    """The machines, shells, previews and the model that the tools of one server use."""

    def __init__(self, settings: ToolSettings) -> None:
        """Prepare the tools; nothing is opened yet. Errors: UsageError."""
        if unknown := sorted(set(settings.tools) - TOOLS.keys()):
            raise UsageError(f"unknown tool {unknown[0]}", hint=f"choose from {', '.join(TOOLS)}")
        self.tools = [tool for name, tool in TOOLS.items() if name in settings.tools]
        count = settings.machines + settings.shells + AT_ONCE + 4
        self._threads = threads = Threads(count)
        system, limits = settings.system, settings.limits
        self._pristine = PristineMachines(threads, settings.machines, system, limits)
        self._shells = OpenShells(threads, settings.shells, settings.idle_seconds, system, limits)
        self._previews = Previews(threads, settings.root, settings.hide)
        self._guessing = Slots(1, "the model")
        self._model: Answerer | None = None
        self._loading = Lock()
        self._calls: dict[str, Callable[[Any, str], Awaitable[tuple[msgspec.Struct, str]]]] = {
            "run": self._run,
            "preview": self._preview,
            "shell": self._shell,
            "predict": self._predict,
        }

    def make_ready(self) -> None:
        """Open machines and shells for the first calls, in background threads."""
        ready = {
            "run": self._pristine.make_ready,
            "preview": self._previews.make_ready,
            "shell": self._shells.make_ready,
        }
        for tool in self.tools:
            if tool.name in ready:
                self._threads.submit(ready[tool.name])

    def close_idle(self) -> None:
        """End shells that have been idle for too long."""
        self._shells.close_idle()

    def close_of(self, owner: str) -> None:
        """End the shells of a client that has left."""
        self._shells.close_of(owner)

    def close(self) -> None:
        """End all machines, processes and threads."""
        self._pristine.close()
        self._shells.close()
        self._previews.close()
        self._threads.close()

    async def call(
        self, name: str, arguments: Mapping[str, Any], owner: str
    ) -> tuple[msgspec.Struct, str]:
        """Call a tool for a client; return the result, and the result as text.

        Errors: UsageError for an unknown tool or wrong arguments, and those of the tool.
        """
        tool = next((tool for tool in self.tools if tool.name == name), None)
        if tool is None:
            raise UsageError(f"unknown tool {name!r:.80}")
        try:
            given = msgspec.convert(dict(arguments), tool.arguments)
        except msgspec.ValidationError as error:
            raise UsageError(f"invalid arguments for {name}: {fault(error)}") from None
        return await self._calls[name](given, owner)

    async def _run(self, given: RunArguments, owner: str) -> tuple[ReportedEffects, str]:
        def action(runner: Any) -> ReportedEffects:
            state = replace(runner.state(given.cwd), stdin=given.stdin.encode())
            behavior = runner.execute(given.command, state, wall_seconds=given.timeout_seconds)
            return effects_of(behavior, state.cwd, given.output_limit, ReportedEffects)

        effects = await self._pristine.use(action)
        return effects, text_of(effects)

    async def _preview(self, given: PreviewArguments, owner: str) -> tuple[PreviewEffects, str]:
        made = await self._previews.preview(given.command, given.cwd, given.timeout_seconds)
        effects = effects_of(
            made.behavior,
            made.start,
            given.output_limit,
            PreviewEffects,
            diff=made.diff[:LARGEST_DIFF],
            diff_omitted=max(len(made.diff) - LARGEST_DIFF, 0),
            diff_truncated=made.diff_truncated,
            layers=list(made.layers),
            read_only=list(made.read_only),
            whole_root=made.whole,
        )
        return effects, f"{text_of(effects)}\n{effects.diff}".rstrip("\n")

    async def _shell(self, given: ShellArguments, owner: str) -> tuple[ShellAnswer, str]:
        if given.action == "open":
            opened = await self._shells.open(owner, given.cwd)
            return ShellAnswer(shell=opened.id, open=True), f"opened shell {opened.id}"
        if given.shell is None:
            raise UsageError(f"the action {given.action} needs the id of a shell in `shell`")
        if given.action == "close":
            await self._shells.close_one(owner, given.shell)
            return ShellAnswer(shell=given.shell, open=False), f"closed shell {given.shell}"
        if given.action == "fork":
            copy = await self._shells.fork(owner, given.shell)
            told = f"shell {copy.id} is a copy of {given.shell}"
            return ShellAnswer(shell=copy.id, open=True), told
        if given.action == "patch":
            used, behavior = await self._shells.changes(owner, given.shell)
        elif not given.command:
            raise UsageError("the action run needs a command line in `command`")
        else:
            used, behavior = await self._shells.run(
                owner, given.shell, given.command, given.timeout_seconds
            )
        effects = effects_of(behavior, used.cwd, given.output_limit, ReportedEffects)
        answer = ShellAnswer(shell=used.id, open=not used.shell.ended, effects=effects)
        text = text_of(effects)
        return answer, text if answer.open else f"{text}\nThe shell has ended. Open a new one."

    async def _predict(self, given: PredictArguments, owner: str) -> tuple[Prediction, str]:
        def answered() -> tuple[Answer, str]:
            model = self._loaded()
            if given.cwd is not None and not model.world.has_directory(given.cwd):
                raise StartDirectoryError(
                    f"{given.cwd!r:.200} is not a directory of the model's system"
                )
            state = replace(model.world.state(given.cwd), history=tuple(given.history))
            return model.answer(given.command, state), state.cwd

        async with self._guessing.taken():
            answer, cwd = await self._threads.call(answered)
        prediction = effects_of(
            answer.behavior,
            cwd,
            given.output_limit,
            Prediction,
            confidence=answer.confidence,
            source=answer.source,
        )
        return prediction, f"{text_of(prediction)}\npredicted, confidence {answer.confidence:.2f}"

    def _loaded(self) -> Answerer:
        """Return the model, loaded by the first call. Errors: those of `load_model`."""
        with self._loading:
            if self._model is None:
                self._model = load_model()
            return self._model
