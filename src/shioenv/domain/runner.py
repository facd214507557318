"""What answers an input, and the state that it answers from: the seam everything else stands on.

A sandbox with its capture is a runner; so are a model, an emulator, a recording, a table in a test.
"""

from __future__ import annotations

import os
import posixpath
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


Order: TypeAlias = Literal["as it comes", "eager", "lazy"]
"""Which of the processes that a shell starts does something first.

Nobody decides that, so it need not be the same twice. The other two orders lie furthest apart. With
`eager` the shell goes on once everything else, with the process that the shell started, sleeps or
has ended. So a pipe is written before anything reads it. With `lazy` a process begins once
everything else sleeps or has ended, the youngest first: a pipe is read before anything is written.
Where a run's processes are held for half a second all together, the rest of it goes as it comes.
What other programs than the shell start begins as it comes. So does everything in a sandbox that
cannot hold processes: a bare machine, a bash that is run anew for each input.
"""


class Pristine(Protocol):
    """What a runner's machine is before anything was run on it."""

    def context(self, cwd: str | None = None) -> Context:
        """The whole context in a start directory (None: the first one): what patches apply to."""
        ...

    def read(self, path: str) -> bytes | None:
        """The content of a regular file by its absolute path; None for what is none, or cannot be
        read from here.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What an input starts from. Never changed: `after` gives the next one."""

    cwd: str
    """The start directory, absolute; names in the context's `fs` are relative to it."""
    history: tuple[str, ...] = ()
    """The inputs that led from the pristine machine to here."""
    context: Context | None = None
    """The whole context; None: the pristine one."""
    stdin: bytes = b""
    """What the next input finds on its standard input, through a pipe."""
    fed: bool = False
    """One of the history's inputs had something on its standard input, which is not kept: running
    the history again need not lead here."""
    written: Mapping[str, bytes | None] = field(default_factory=dict)
    """Contents of files that are not as they were, by their names in `fs`; None where one changed
    and nobody knows to what."""
    pristine: Pristine | None = field(default=None, compare=False, repr=False)
    """Where the untouched machine can be looked up; None where nothing is known of it."""

    @property
    def before(self) -> Context:
        """The context that the next input's patch applies to.

        Errors: ContextError where it is the pristine one and nothing is known of that.
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
        self, text: str, behavior: Behavior, written: Mapping[str, bytes] | None = None
    ) -> State:
        """The state once the input was run: the patch applied, the history one longer, standard
        input empty. `written` says what is known of the contents that changed, by name in `fs`.

        Errors: PatchError where the patch does not fit, those of `before`.
        """
        context = Context(behavior.patch.apply(self.before.document))
        contents = dict(self.written)
        for operation in behavior.patch.operations:
            area, *names = keys(operation[1]) or [""]
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
        )

    def resolve(self, path: str) -> str:
        """The absolute path with every symbolic link in it followed; relative to the shell's
        working directory. What does not exist stays as it is written.
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
        """The file that a path leads to, links followed; None where there is none."""
        return self._entry(self.resolve(path))

    def names(self, path: str = ".") -> list[str]:
        """What a directory holds, sorted, as `ls -A` names it; empty for what is none."""
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
        """The content of a regular file; None where there is none, or nobody knows it."""
        whole = self.resolve(path)
        entry = self._entry(whole)
        if entry is None or not entry.perms.startswith("-"):
            return None
        return self._content(self._key(whole))

    def _key(self, path: str) -> str:
        return file_key(os.fsencode(path), os.fsencode(self.cwd))

    def _entry(self, path: str) -> FileEntry | None:
        return self.before.entry(self._key(path))

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
        """What a fresh `bash --norc --noprofile -c 'cd DIR; INPUT'` does, DIR being the state's
        start directory, on a machine in that state (None: pristine, in its first start directory).

        The patch leads from the state's context to the next one. Errors: Abstained from who
        declines to answer; what breaks raises, and is never a behavior.
        """
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """A behavior that was guessed, with how sure its runner is."""

    behavior: Behavior
    confidence: float = 1.0
    """0 to 1: the share of such answers that the runner expects to be right. 1: it knows."""
    source: str = ""
    """Where the answer is from, for people; empty where it was executed."""


@runtime_checkable
class Guesser(Protocol):
    """A runner that says how sure it is."""

    def answer(self, shell_input: str, state: State | None = None) -> Answer:
        """What `Runner.run` says, and how sure that is. Errors: those of `run`."""
        ...


def answer_of(runner: Runner, shell_input: str, state: State | None = None) -> Answer:
    """The answer of any runner; one that does not guess is sure."""
    if isinstance(runner, Guesser):
        return runner.answer(shell_input, state)
    return Answer(runner.run(shell_input, state))


class Built(Protocol):
    """What has to be known of a system to say of which one records are."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    @property
    def digest(self) -> str:
        """Equal digests: the same inputs do the same things."""
        ...


class Executing(Runner, Protocol):
    """A runner that executes, below the seam: what records are made with."""

    @property
    def seconds(self) -> float:
        """How long everything executed so far took by itself."""
        ...

    @property
    def waited(self) -> bool:
        """Whether the newest run ran out of time in its sleep: no processor was lacking."""
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
        loses the order between them. `wall_seconds` and `sandboxes` stand for the limits of these
        names. `order` says which of the processes that the shell starts does something first.
        """
        ...

    def close(self) -> None:
        """Gives everything back; closing twice does nothing."""
        ...


class Installed(Executing, Protocol):
    """One that executes on a system that is known: what datasets are made with."""

    @property
    def system(self) -> Built:
        """Where inputs run."""
        ...

    def context(self, cwd: str | None = None) -> Context:
        """The whole context of the pristine system in a start directory."""
        ...


class _Answering:
    """A runner that cannot execute, where records are made: its answers stand for executions."""

    def __init__(self, runner: Runner) -> None:
        self.run = runner.run
        self.seconds, self.waited = 0.0, False

    def execute(self, shell_input: str, state: State | None = None, **_how: object) -> Behavior:
        return self.run(shell_input, state)

    def close(self) -> None:
        pass


def executing(runner: Runner) -> Executing:
    """The runner itself where it executes; else one that gives its answers, whose channels then
    stay unknown.
    """
    if hasattr(runner, "execute"):
        return cast("Executing", runner)
    return _Answering(runner)
