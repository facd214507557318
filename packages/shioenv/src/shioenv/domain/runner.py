"""Runners, which execute or predict inputs, and the states that inputs start from.

All other parts use this interface. Examples of runners are a sandbox, a model, an emulator, a
recording, and a table of answers in a test.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, Protocol, TypeAlias, cast, runtime_checkable

from shioenv.domain.behavior import Behavior
from shioenv.domain.context import FIELDS, Context, FileEntry, keys
from shioenv.domain.names import file_key, name_bytes
from shioenv.errors import Abstained, ContextError
from shioenv.text import short_repr

_MOST_LINKS = 40
"""Maximum number of symbolic links followed in one path (path_resolution(7))."""

_MOVES = re.compile(r"\b(?:cd|pushd|popd)\b")
_SETS_LEFT = re.compile(r"(?<![\w${])OLDPWD\b")
_PARAMETERS = re.compile(r"\b(?:set|shift)\b")
_STACK = re.compile(r"\b(?:pushd|popd|dirs)\b")
_ALONE = re.compile(r"cd\b[^;&|()$`\n]*")
"""An input that is only a `cd`, not in a subshell."""


Order: TypeAlias = Literal["as it comes", "eager", "lazy"]
"""The scheduling order of the processes that a shell starts.

With "as it comes" the order is not controlled, so it may differ between runs. The other two orders
are opposite extremes. With "eager", the shell continues only when all other processes, including
the one it started, sleep or have ended. So a pipe is written before anything reads it. With "lazy",
a process begins only when everything else sleeps or has ended, the youngest first. So a pipe is
read before anything is written to it. Once processes of a run have been held back for half a second
in total, the rest of the run is not controlled. Processes started by programs other than the shell
are not controlled either. Nor are those in a sandbox that cannot hold processes: a bare machine, or
a new bash for each input.
"""


class Pristine(Protocol):
    """A runner's machine before any input."""

    def context(self, cwd: str | None = None) -> Context:
        """Return the context in a start directory (None: the first one), the base of patches."""
        ...

    def read(self, path: str) -> bytes | None:
        """Return the content of the regular file at an absolute path.

        None if the path leads to no regular file, or if the runner cannot read the file.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """Shell state that persists between inputs but is not part of the context."""

    left: str | None = None
    """The shell's previous directory, `$OLDPWD`. None if the variable is unset, because the shell
    never changed its directory. Empty if unknown."""
    arguments: tuple[str, ...] | None = ()
    """The positional parameters, from `$1`; None if unknown."""
    directories: tuple[str, ...] | None = ()
    """The directories that `pushd` put on the stack, without the working directory, newest first.

    None if unknown."""
    ended: bool = False
    """Whether the shell has exited: later inputs do nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The starting point of an input. A state is immutable: `after` returns the next state."""

    cwd: str
    """The start directory, absolute; names in the context's `fs` are relative to it."""
    history: tuple[str, ...] = ()
    """The inputs that led from the pristine machine to this state."""
    context: Context | None = None
    """The whole context; None for the pristine one."""
    stdin: bytes = b""
    """The standard input of the next input, passed through a pipe."""
    fed: bool = False
    """Whether an input of the history had a non-empty standard input.

    The bytes are not kept, so replaying the history may lead to another state."""
    written: Mapping[str, bytes | None] = field(default_factory=dict)
    """Contents of files that are no longer pristine, by the files' names in `fs`.

    None if a content changed and the new content is unknown."""
    status: int = 0
    """The exit code of the previous input, the value of `$?`."""
    carried: Carried = field(default_factory=Carried)
    """The shell state that earlier inputs left and that is not part of the context."""
    pristine: Pristine | None = field(default=None, compare=False, repr=False)
    """The untouched machine; None if unknown."""

    def __repr__(self) -> str:
        return short_repr(self)

    @property
    def before(self) -> Context:
        """The context that the next input's patch applies to.

        Errors: ContextError if this is the pristine context and `pristine` is None.
        """
        if self.context is not None:
            return self.context
        if self.pristine is None:
            raise ContextError(
                f"unknown machine state before {self.history or 'the first input'}",
                hint="start from a sandbox's state: open_sandbox().state(cwd)",
            )
        return self.pristine.context(self.cwd)

    def after(
        self,
        text: str,
        behavior: Behavior,
        written: Mapping[str, bytes] | None = None,
        carried: Carried | None = None,
    ) -> State:
        """Return the state after the input.

        The patch is applied, the text is added to the history, and standard input is empty.
        `written` has the known contents of changed files, by name in `fs`. `carried` is the shell
        state that persists (None: inferred from the text where possible). Errors: PatchError if the
        patch cannot be applied, and those of `before`.
        """
        context = Context(behavior.patch.apply(self.before.document))
        contents = dict(self.written)
        for operation in behavior.patch.operations:
            area, *names = keys(operation[1]) or [""]
            if area == "fs" and names[1:] == ["size"]:
                contents[names[0]] = None  # changed; set below if known
            if area != "fs" or len(names) != 1:
                continue
            if operation[0] == "m":
                contents[keys(operation[2])[-1]] = self._content(names[0])
            if operation[0] in "rm":
                contents.pop(names[0], None)
        contents.update(dict.fromkeys(behavior.content_digests))
        contents.update(written or {})
        return replace(
            self,
            history=(*self.history, text),
            context=context,
            stdin=b"",
            fed=self.fed or bool(self.stdin),
            written=contents,
            status=behavior.exit_code,
            carried=carried or self._carried(text, behavior),
        )

    def _carried(self, text: str, behavior: Behavior) -> Carried:
        """Return `carried` after an arbitrary input, as far as it follows from the text."""
        carried = self.carried
        return Carried(
            left=self._left(text, behavior),
            arguments=None if _PARAMETERS.search(text) else carried.arguments,
            directories=None if _STACK.search(text) else carried.directories,
            ended=carried.ended,
        )

    def _left(self, text: str, behavior: Behavior) -> str | None:
        """Return `Carried.left` after an input; "" if the text does not determine it."""
        if _SETS_LEFT.search(text):
            return ""
        moves = len(_MOVES.findall(text))
        moved = any(operation[1] in ("/cwd", "/env/PWD") for operation in behavior.patch.operations)
        if moves > 1:
            return ""
        here = self.before.document["env"].get("PWD", self.before.document["cwd"])
        if moved:
            return str(here)
        if not moves:
            return self.carried.left
        if _ALONE.fullmatch(text.strip()):
            return self.carried.left if behavior.exit_code else str(here)
        return ""

    def resolve(self, path: str) -> str:
        """Return the absolute path with all symbolic links resolved.

        A relative path starts at the shell's working directory. Parts that do not exist are
        unchanged.
        """
        document = self.before.document
        files, start = document.get("fs", {}), os.fsencode(self.cwd)
        left = posixpath.join(document["cwd"], path).split("/")[::-1]
        done: list[str] = []
        links = 0
        while left:
            part = left.pop()
            if part in {"", "."}:
                continue
            if part == "..":
                done = done[:-1]
                continue
            name = file_key(os.fsencode("/" + "/".join([*done, part])), start)
            target = files.get(name, {}).get("target")
            if target is not None and links < _MOST_LINKS:
                links += 1
                done = [] if target.startswith("/") else done
                left += target.split("/")[::-1]
            else:
                done.append(part)
        return "/" + "/".join(done)

    def entry(self, path: str) -> FileEntry | None:
        """Return the file at a path, following symbolic links; None if there is no file."""
        return self.entry_at(self.resolve(path))

    def entry_at(self, path: str) -> FileEntry | None:
        """Return the file at an absolute path, without following a symbolic link at its end."""
        return self.before.entry(self._key(path))

    def names(self, path: str = ".") -> list[str]:
        """Return the sorted names in a directory, as by `ls -A`; empty for no directory."""
        directory = self.resolve(path)
        files, key = self.before.document["fs"], self._key(directory)
        above = "" if key == "." else f"{key.rstrip('/')}/"
        inside = (name[len(above) :] for name in files if name.startswith(above))
        names = [
            os.fsdecode(name_bytes(name))
            for name in inside
            if "/" not in name and name not in {"", "."}
        ]
        parent, start = posixpath.split(self.cwd)
        return sorted([*names, start] if start and parent == directory else names)

    def read(self, path: str) -> bytes | None:
        """Return the content of a regular file; None if there is no such file or it is unknown."""
        whole = self.resolve(path)
        entry = self.entry_at(whole)
        if entry is None or not entry.perms.startswith("-"):
            return None
        return self._content(self._key(whole))

    def _key(self, path: str) -> str:
        return file_key(os.fsencode(path), os.fsencode(self.cwd))

    def _content(self, key: str) -> bytes | None:
        if key in self.written:
            return self.written[key]
        if self.pristine is None:
            return None
        path = posixpath.join(self.cwd, os.fsdecode(name_bytes(key)))
        return self.pristine.read(posixpath.normpath(path))


class Runner(Protocol):
    """Executes or predicts an input in a state."""

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        """Run a fresh `bash --norc --noprofile -c INPUT` on a machine in a state.

        Bash starts in the state's start directory, and `OLDPWD` is not set (D-27). Without a state
        the machine is pristine, and the shell starts in its first start directory. The patch
        converts the state's context into the next one. Errors: Abstained if the runner declines to
        answer. A runner that fails raises an error too, and returns no behavior.
        """
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """A behavior with its runner's confidence."""

    behavior: Behavior
    confidence: float = 1.0
    """The probability that the answer is right, 0 to 1."""
    source: str = ""
    """The source of the answer, for display; empty if the input was executed."""
    written: Mapping[str, bytes] = field(default_factory=dict)
    """File contents that the input wrote, as far as known, by name in `fs`."""
    carried: Carried | None = None
    """The shell state that persists after the input; None if the runner does not report it."""

    def __repr__(self) -> str:
        return short_repr(self)


@runtime_checkable
class Guesser(Protocol):
    """A runner that reports its confidence."""

    def answer(self, shell_input: str, state: State | None = None) -> Answer:
        """Return the behavior, as `Runner.run` does, with a confidence. Errors: those of `run`."""
        ...


def answer_of(runner: Runner, shell_input: str, state: State | None = None) -> Answer:
    """Return the answer of any runner. If the runner is no `Guesser`, the confidence is 1."""
    if isinstance(runner, Guesser):
        return runner.answer(shell_input, state)
    return Answer(runner.run(shell_input, state))


class Built(Protocol):
    """A built system, as identified in records."""

    @property
    def name(self) -> str:
        """The system's name."""
        ...

    @property
    def digest(self) -> str:
        """A hash of the build. Inputs have the same results on builds with equal digests."""
        ...


class Executing(Runner, Protocol):
    """A runner that executes inputs; it is used to create records."""

    @property
    def seconds(self) -> float:
        """Total seconds that all inputs so far ran, until the end of their last processes."""
        ...

    @property
    def waited(self) -> bool:
        """Whether the newest run timed out while it slept, and not for lack of processor time."""
        ...

    def execute(
        self,
        shell_input: str,
        state: State | None = None,
        *,
        separate: bool = False,
        wall_seconds: float | None = None,
        sandboxes: int | None = None,
        order: Order = "as it comes",
    ) -> Behavior:
        """Run an input like `run`, but always execute it: no cached behavior is returned.

        With `separate`, standard output and error have a pipe each. This sets `stdout` and
        `stderr`, but the order between them is lost. `wall_seconds` and `sandboxes` override the
        limits of these names. `order` is the scheduling order of the processes that the shell
        starts.
        """
        ...

    def close(self) -> None:
        """End the runner's processes and free its resources; a second call does nothing."""
        ...


class Installed(Executing, Protocol):
    """A runner that executes on a known system; it is used to create datasets."""

    @property
    def system(self) -> Built:
        """The system on which inputs run."""
        ...

    def context(self, cwd: str | None = None) -> Context:
        """Return the whole context of the pristine system in a start directory."""
        ...


class _Answering:
    """Wraps a runner that cannot execute, to create records from its answers."""

    def __init__(self, runner: Runner) -> None:
        self.run = runner.run
        self.seconds, self.waited = 0.0, False

    def execute(self, shell_input: str, state: State | None = None, **_how: object) -> Behavior:
        return self.run(shell_input, state)

    def close(self) -> None:
        pass


def executing(runner: Runner) -> Executing:
    """Return the runner itself if it executes, else a wrapper that returns its answers.

    The wrapper ignores `separate`: its answers have only the channels that `runner` provides.
    """
    if hasattr(runner, "execute"):
        return cast("Executing", runner)
    return _Answering(runner)


class ScriptedSystem(NamedTuple):
    """A placeholder system for scripted runners: a name and a digest."""

    name: str = "scripted"
    digest: str = "0" * 64


class ScriptedCall(NamedTuple):
    """The arguments of one execution."""

    text: str
    state: State | None
    separate: bool
    wall_seconds: float | None
    sandboxes: int | None = None
    order: Order = "as it comes"


class ScriptedRunner:
    """Answers each input from a table, else from a function; see `Runner` and `Executing`.

    The function takes the input without its `cd`, and returns a behavior or None. The runner
    abstains if neither the table nor the function has an answer. With separate channels all output
    is standard output. `asked` lists every execution. `closed` counts the calls of `close`.
    """

    system = ScriptedSystem()
    seconds = 0.0
    waited = False

    def __init__(
        self,
        answer: Callable[[str], Behavior | None] | None = None,
        table: Mapping[str, Behavior] | None = None,
    ) -> None:
        self.table = dict(table or {})
        self.asked: list[ScriptedCall] = []
        self.closed = 0
        self._answer = answer

    def __repr__(self) -> str:
        return short_repr(self, {"table": self.table, "asked": len(self.asked)})

    @property
    def texts(self) -> list[str]:
        """The executed inputs, in order."""
        return [asked.text for asked in self.asked]

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        """Return the scripted answer. Errors: Abstained."""
        return self.execute(shell_input, state)

    def execute(
        self,
        shell_input: str,
        state: State | None = None,
        *,
        separate: bool = False,
        wall_seconds: float | None = None,
        sandboxes: int | None = None,
        order: Order = "as it comes",
    ) -> Behavior:
        """Return the scripted answer and add the arguments to `asked`. Errors: Abstained."""
        self.asked.append(
            ScriptedCall(shell_input, state, separate, wall_seconds, sandboxes, order)
        )
        behavior = self.table.get(shell_input) or self.answer_to(self.asked[-1])
        if behavior is None:
            raise Abstained(
                f"the script has no answer to {shell_input!r:.80}",
                hint="add one to its table, or use a function",
            )
        if separate and behavior.stdout is None:
            behavior = replace(behavior, stdout=behavior.output, stderr=b"")
        return behavior

    def answer_to(self, asked: ScriptedCall) -> Behavior | None:
        """Return an answer that is not in the table. Subclasses may use the other arguments."""
        return None if self._answer is None else self._answer(asked.text)

    def context(self, cwd: str | None = None) -> Context:
        """Return a context in which all objects are empty, except the working directory."""
        objects = {"env", "fs", "shell_options", "settings", "functions", "aliases", "limits"}
        document = {name: {} if name in objects else "" for name in FIELDS}
        document |= {"cwd": cwd or "/", "groups": [], "firewall": [], "network": {}}
        return Context(document)

    def close(self) -> None:
        """Count the call; there is nothing to free."""
        self.closed += 1
