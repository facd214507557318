"""The state of a running shell: open files, variables, position, and control flow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from shioenv.bash.program import Function
from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import Carried
from shioenv_model.bash.arrays import Array
from shioenv_model.composition.variables import Value


class Exit(Exception):  # noqa: N818 - control flow
    """The shell exits with this status."""

    def __init__(self, status: int) -> None:
        self.status = status


class Loop(Exception):  # noqa: N818 - control flow
    """`break`, or `continue` (`goes_on`), out of `levels` loops."""

    def __init__(self, levels: int, *, goes_on: bool) -> None:
        self.levels, self.goes_on, self.status = levels, goes_on, 0


class Return(Exception):  # noqa: N818 - control flow
    """`return` with this status."""

    def __init__(self, status: int) -> None:
        self.status = status


class Discard(Exception):  # noqa: N818 - control flow
    """The rest of what Bash has parsed so far is discarded, with status 1."""


class Over(Exception):  # noqa: N818 - control flow
    """The whole run ends: it timed out, or its shell was killed."""

    def __init__(self, behavior: Behavior) -> None:
        self.behavior = behavior


@dataclass(slots=True)
class Streams:
    """The open files of a shell."""

    fds: dict[int, Sink]
    """Output sinks, by descriptor."""
    stdin: Stdin


@dataclass(slots=True)
class Frame:
    """The scope of a function call, or of the assignments before a command (`temporary`)."""

    temporary: bool = False
    hidden: dict[str, Value | None] = field(default_factory=dict)
    """The outer variables that the scope's variables hide, by name; None if the outer one is
    unset."""


@dataclass(slots=True)
class Own:
    """The part of the state that belongs to one shell. A subshell starts with a copy."""

    carried: Carried = field(default_factory=Carried)
    """State that the shell carries to the next input."""
    functions: dict[str, Function] = field(default_factory=dict)
    last: str | None = None
    """`$_`; None if it is unknown, or if the input never uses it."""
    name: str = "bash"
    """`$0`."""
    frames: list[Frame] = field(default_factory=list)
    """The scopes of variables; the innermost one is last."""
    matched: Array | None = None
    """`$BASH_REMATCH`; None before the first match."""
    traps: dict[str, str] = field(default_factory=dict)
    """The commands of each trap, by the name of its signal as in `trap -p`."""
    command: str | None = None
    """`$BASH_COMMAND`; None if it is unknown."""
    inherited: dict[str, str] = field(default_factory=dict)
    """In a subshell, the traps of the outer shell: `trap -p` shows them, but they never run."""
    cluster: int = 0
    """The offset at which `getopts` continues in the word at `OPTIND`; 0: at the word's beginning.
    Negative if unknown."""
    files: dict[str, str] = field(default_factory=dict)
    """The file of each function that was defined in this input."""


@dataclass(slots=True)
class Position:
    """The shell's position in the input."""

    line: int = 1
    level: int = 0
    """Nesting depth of subshells."""
    depth: int = 0
    """Nesting depth of substitutions, `eval` and files read by `.`, as `set -x` shows it."""
    calls: int = 0
    """Nesting depth of function calls."""
    stack: tuple[tuple[str, int, str], ...] = ()
    """The function calls, outermost first: name, line of the call, and file of the function."""
    loops: int = 0
    """Nesting depth of loops, in the same function and subshell."""
    file: str = "bash"
    """The file being read, as named in Bash's messages."""
    scripts: int = 0
    """Nesting depth of scripts."""
    is_read: bool = False
    """Whether the file is read by `.`, so that `return` ends it."""
    is_dash: bool = False
    """Whether the shell is dash."""
    refused: int = 127
    """The exit status after a failed expansion."""


@dataclass(slots=True)
class Result:
    """Results of the newest commands, apart from the last exit status."""

    statuses: Sequence[int] = (0,)
    """`$PIPESTATUS`."""
    substituted: int | None = None
    """The status of the command's last substitution; None if there was none."""


def copied(own: Own) -> Own:
    """Copy the state for a subshell."""
    frames = [replace(frame, hidden=dict(frame.hidden)) for frame in own.frames]
    functions, files = dict(own.functions), dict(own.files)
    # a subshell ignores the same signals; its other traps begin anew
    traps: dict[str, str] = {
        name: text for name, text in own.traps.items() if not text and name.startswith("SIG")
    }
    return replace(
        own, functions=functions, frames=frames, files=files, traps=traps, inherited=own.traps
    )


@dataclass(slots=True, eq=False)
class Buffer:
    """Captured output: the whole input's, or a pipe's."""

    data: bytearray = field(default_factory=bytearray)
    endless: bool = False
    """Whether the data is incomplete, because more was written."""


@dataclass(slots=True, eq=False)
class OpenFile:
    """Output to a file; `name` is its key in `fs`, None after its removal."""

    path: str
    name: str | None
    fresh: bool
    """Whether this run created or truncated the file, so that the file's times are those of the
    run."""
    appends: bool
    """Whether the file was opened by `>>`, so that every write goes to its end."""
    offset: int = 0
    """Bytes written to the file so far."""


@dataclass(slots=True, eq=False)
class Nowhere:
    """Discarded output."""


Sink = Buffer | OpenFile | Nowhere


@dataclass(slots=True, eq=False)
class Stdin:
    """Standard input that has not been read yet.

    `shared`: several commands read it, and each may leave data for the next. `endless`: more data
    follows than is known. `seekable`: it is a file.
    """

    data: bytes
    piped: bool = True
    shared: bool = False
    seekable: bool = False
    endless: bool = False
    perhaps: bytes = b""
    """The bytes that may remain, if it is unknown how many were read."""
