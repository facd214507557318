"""What a shell has for itself, where in its program it is, and how it leaves what it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from shioenv.bash.program import Function
from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import Carried
from shioenv_model.composition.channels import Sink, Stdin
from shioenv_model.composition.variables import Value


class Exit(Exception):  # noqa: N818 - control flow
    """The shell ends with this status."""

    def __init__(self, status: int) -> None:
        self.status = status


class Loop(Exception):  # noqa: N818 - control flow
    """`break`, or `continue` (`goes_on`), out of `levels` loops."""

    def __init__(self, levels: int, *, goes_on: bool) -> None:
        self.levels, self.goes_on = levels, goes_on


class Return(Exception):  # noqa: N818 - control flow
    """`return` with this status."""

    def __init__(self, status: int) -> None:
        self.status = status


class Discard(Exception):  # noqa: N818 - control flow
    """The rest of what Bash read at once is left out, with the status 1."""


class Over(Exception):  # noqa: N818 - control flow
    """The whole run is over: out of time, or its shell was killed."""

    def __init__(self, behavior: Behavior) -> None:
        self.behavior = behavior


@dataclass(slots=True)
class Streams:
    """What a shell has open."""

    fds: dict[int, Sink]
    """Where output goes, by descriptor."""
    stdin: Stdin


@dataclass(slots=True)
class Own:
    """What a shell has for itself. A subshell begins with a copy."""

    carried: Carried = field(default_factory=Carried)
    """What the shell would carry to the next input."""
    functions: dict[str, Function] = field(default_factory=dict)
    last: str | None = None
    """`$_`; None where it is unknown, and where the input never asks for it."""
    name: str = "bash"
    """`$0`."""
    frames: list[dict[str, Value | None]] = field(default_factory=list)
    """What the local variables of each function hide, by name; the newest function is last."""
    cluster: int = 0
    """The place where `getopts` goes on in the word of `OPTIND`; 0: at its beginning.

    Below 0: unknown."""
    files: dict[str, str] = field(default_factory=dict)
    """The file that each function stands in, where it was defined in this input."""


@dataclass(slots=True)
class Position:
    """Where in the input the shell is."""

    line: int = 1
    level: int = 0
    """How many subshells deep."""
    calls: int = 0
    """How many function calls deep."""
    loops: int = 0
    """How many loops deep, in the same function and subshell."""
    file: str = "bash"
    """The file that is read, as Bash names it in messages."""
    scripts: int = 0
    """How many scripts deep."""
    is_read: bool = False
    """The file is read by `.`, so `return` ends it."""
    is_dash: bool = False
    """The shell is dash."""
    refused: int = 127
    """The status with which the shell ends where it refuses an expansion."""


@dataclass(slots=True)
class Result:
    """How the newest commands ended, beside the last status."""

    statuses: Sequence[int] = (0,)
    """`$PIPESTATUS`."""
    substituted: int | None = None
    """The status of the command's newest substitution; None where there was none."""


def copied(own: Own) -> Own:
    """A copy, for a shell that changes it for itself alone."""
    frames = [dict(frame) for frame in own.frames]
    functions, files = dict(own.functions), dict(own.files)
    return replace(own, functions=functions, frames=frames, files=files)
