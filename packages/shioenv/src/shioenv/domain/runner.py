"""Runners, which answer inputs, and the states that they answer from.

Everything else stands on this seam. A sandbox with its capture is a runner. So are a model, an
emulator, a recording, and a table in a test.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, TypeAlias, cast, runtime_checkable

from shioenv.domain.behavior import Behavior
from shioenv.domain.context import Context, FileEntry
from shioenv.domain.names import file_key, name_bytes
from shioenv.domain.pointer import keys
from shioenv.errors import ContextError

_MOST_LINKS = 40
"""Symbolic links followed in one path (path_resolution(7))."""

_MOVES = re.compile(r"\b(?:cd|pushd|popd)\b")
_SETS_LEFT = re.compile(r"(?<![\w${])OLDPWD\b")
_PARAMETERS = re.compile(r"\b(?:set|shift)\b")
_STACK = re.compile(r"\b(?:pushd|popd|dirs)\b")
_ALONE = re.compile(r"cd\b[^;&|()$`\n]*")
"""A `cd` that the shell itself runs, and nothing besides."""


Order: TypeAlias = Literal["as it comes", "eager", "lazy"]
"""Which of the processes that a shell starts does something first.

With "as it comes" nobody decides the order, so it need not be the same twice. The other two orders
lie furthest apart. With "eager" the shell goes on once all other processes, the one it started
included, sleep or have ended. So a pipe is written before anything reads it. With "lazy" a process
begins once everything else sleeps or has ended, the youngest first. So a pipe is read before
anything is written to it. Once a run's processes were held for half a second in sum, the rest of
the run goes as it comes. A process that another program than the shell starts begins as it comes.
So does every process in a sandbox that cannot hold processes: a bare machine, a bash that is run
anew for each input.
"""


class Pristine(Protocol):
    """A runner's machine as it is before anything was run on it."""

    def context(self, cwd: str | None = None) -> Context:
        """The whole context in a start directory (None: the first one), to which patches apply."""
        ...

    def read(self, path: str) -> bytes | None:
        """The content of a regular file by its absolute path.

        None where the path leads to no regular file, and where the file cannot be read from here.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """What a shell keeps from one input to the next, and no context tells."""

    left: str | None = None
    """The directory that the shell was in before, `$OLDPWD`.

    None where the shell never left its start directory: it is not set. Empty where it is
    unknown."""
    arguments: tuple[str, ...] | None = ()
    """The positional parameters, from `$1`; None where nobody knows."""
    directories: tuple[str, ...] | None = ()
    """What `pushd` stacked below the working directory, the newest first.

    None where nobody knows."""
    ended: bool = False
    """Whether the shell has ended: what follows does nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What an input starts from. A state is never changed: `after` gives the next state."""

    cwd: str
    """The start directory, absolute; names in the context's `fs` are relative to it."""
    history: tuple[str, ...] = ()
    """The inputs that led from the pristine machine to here."""
    context: Context | None = None
    """The whole context; None: the pristine one."""
    stdin: bytes = b""
    """The bytes that the next input finds on its standard input, through a pipe."""
    fed: bool = False
    """Whether an input of the history had something on its standard input.

    That is not kept, so running the history again need not lead to this state."""
    written: Mapping[str, bytes | None] = field(default_factory=dict)
    """Contents of files that are no longer pristine, by the files' names in `fs`.

    None where a content changed and the new content is not known."""
    status: int = 0
    """The exit code of the input before, which `$?` gives."""
    carried: Carried = field(default_factory=Carried)
    """What the shell keeps of the inputs before, beside the context."""
    pristine: Pristine | None = field(default=None, compare=False, repr=False)
    """The untouched machine; None where nothing is known of it."""

    @property
    def before(self) -> Context:
        """The context that the next input's patch applies to.

        Errors: ContextError where that is the pristine context and `pristine` is None.
        """
        if self.context is not None:
            return self.context
        if self.pristine is None:
            raise ContextError(
                f"nothing is known of the machine before {self.history or 'the first input'}",
                hint="take the state from who knows the machine: open_sandbox().state(cwd)",
            )
        return self.pristine.context(self.cwd)

    def after(
        self,
        text: str,
        behavior: Behavior,
        written: Mapping[str, bytes] | None = None,
        carried: Carried | None = None,
    ) -> State:
        """The state once the input was run.

        The patch is applied, the history is one longer, and standard input is empty. `written` has
        the known contents among those that changed, by name in `fs`. `carried` is what the shell
        keeps (None: as far as the text tells it). Errors: PatchError where the patch does not fit,
        those of `before`.
        """
        context = Context(behavior.patch.apply(self.before.document))
        contents = dict(self.written)
        for operation in behavior.patch.operations:
            area, *names = keys(operation[1]) or [""]
            if area == "fs" and names[1:] == ["size"]:
                contents[names[0]] = None  # a content of another length, known below or not
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
        """`carried` after an input that may be any, as far as its text tells it."""
        carried = self.carried
        return Carried(
            left=self._left(text, behavior),
            arguments=None if _PARAMETERS.search(text) else carried.arguments,
            directories=None if _STACK.search(text) else carried.directories,
            ended=carried.ended,
        )

    def _left(self, text: str, behavior: Behavior) -> str | None:
        """`Carried.left` after an input: what one `cd` left, as where the shell is tells it."""
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
        """The absolute path with every symbolic link in it followed.

        A relative path starts at the shell's working directory. Parts that do not exist stay as
        they are written.
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
        """The file that a path leads to, symbolic links followed; None where there is no file."""
        return self.entry_at(self.resolve(path))

    def entry_at(self, path: str) -> FileEntry | None:
        """The file, or the link itself, at an absolute path; no link before its end is followed."""
        return self.before.entry(self._key(path))

    def names(self, path: str = ".") -> list[str]:
        """The names in a directory, sorted, as `ls -A` shows them; empty for no directory."""
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
        """The content of a regular file; None where no such file is, or the content is unknown."""
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
    """Says what an input does in a state."""

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        """What a fresh `bash --norc --noprofile -c INPUT` does on a machine in a state.

        It starts in the state's start directory, and `OLDPWD` is not set (D-27). Without a state
        the machine is pristine, and the shell starts in its first start directory. The patch leads
        from the state's context to the next one. Errors: Abstained where the runner declines to
        answer. A runner that breaks raises an error too, and gives no behavior.
        """
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """A behavior with how sure its runner is of it."""

    behavior: Behavior
    confidence: float = 1.0
    """0 to 1: the share of such answers that the runner expects to be right. 1: it is certain."""
    source: str = ""
    """Where the answer is from, for people; empty where the input was executed."""
    written: Mapping[str, bytes] = field(default_factory=dict)
    """Contents that the input wrote, as far as the runner knows them, by name in `fs`."""
    carried: Carried | None = None
    """What the shell keeps after the input; None where the runner does not say."""


@runtime_checkable
class Guesser(Protocol):
    """A runner that says how sure it is."""

    def answer(self, shell_input: str, state: State | None = None) -> Answer:
        """What `Runner.run` says, and how sure the runner is of it. Errors: those of `run`."""
        ...


def answer_of(runner: Runner, shell_input: str, state: State | None = None) -> Answer:
    """The answer of any runner. A runner that is no `Guesser` is certain."""
    if isinstance(runner, Guesser):
        return runner.answer(shell_input, state)
    return Answer(runner.run(shell_input, state))


class Built(Protocol):
    """A built system, as far as records name the system that they are of."""

    @property
    def name(self) -> str:
        """The system's name."""
        ...

    @property
    def digest(self) -> str:
        """The hash of the build. On builds of equal digests the same inputs do the same things."""
        ...


class Executing(Runner, Protocol):
    """A runner that executes. Records are made with it, below the seam."""

    @property
    def seconds(self) -> float:
        """Seconds that everything executed so far took by itself."""
        ...

    @property
    def waited(self) -> bool:
        """Whether the newest run ran out of time while it slept, and lacked no processor."""
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
        """What `run` says, from an execution of its own: nothing is remembered.

        `separate` gives the two output channels a pipe each, which fills `stdout` and `stderr` and
        loses the order between them. `wall_seconds` and `sandboxes` override the limits of these
        names. `order` says which of the processes that the shell starts does something first.
        """
        ...

    def close(self) -> None:
        """Ends the runner's processes and frees what it holds; closing twice does nothing."""
        ...


class Installed(Executing, Protocol):
    """A runner that executes on a known system. Datasets are made with it."""

    @property
    def system(self) -> Built:
        """The system on which inputs run."""
        ...

    def context(self, cwd: str | None = None) -> Context:
        """The whole context of the pristine system in a start directory."""
        ...


class _Answering:
    """A runner that cannot execute, used to make records: its answers stand for executions."""

    def __init__(self, runner: Runner) -> None:
        self.run = runner.run
        self.seconds, self.waited = 0.0, False

    def execute(self, shell_input: str, state: State | None = None, **_how: object) -> Behavior:
        return self.run(shell_input, state)

    def close(self) -> None:
        pass


def executing(runner: Runner) -> Executing:
    """The runner itself where it executes; else a runner that gives the answers of `runner`.

    Whatever `separate` asks for, such answers have only the channels that `runner` gives.
    """
    if hasattr(runner, "execute"):
        return cast("Executing", runner)
    return _Answering(runner)
