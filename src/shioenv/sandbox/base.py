"""The contract between a sandbox and its callers: limits and requests in, executions out."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from types import TracebackType
from typing import Any, Final, Protocol, Self

from shioenv.domain.runner import Order
from shioenv.errors import InputError, LimitsError, did_you_mean

KIBIBYTE = 1024
MEBIBYTE = 1024 * KIBIBYTE
GIBIBYTE = 1024 * MEBIBYTE
LARGEST = {
    "wall_seconds": 86_400,
    "cpu_seconds": 86_400,
    "background_seconds": 86_400,
    "scan_seconds": 86_400,
    "output_bytes": GIBIBYTE,
}
"""The largest values of limits; of the others it is a pebibyte, or as many."""

_MAY_BE_0 = {"background_seconds", "revert"}

BARE: Final = "microvm-bare"
"""Name of the backend whose machine an input is root of."""

MACHINES: Final = ("microvm", BARE, "firecracker")
"""Names of the backends that give an input a machine of its own: in QEMU, in Firecracker."""

SANDBOXES: Final = ("namespaces", *MACHINES)
"""Names of the backends."""

LONGEST_INPUT: Final = 128 * KIBIBYTE - 1
"""Bytes of the longest input: what Linux takes as one argument (MAX_ARG_STRLEN)."""

LONGEST_STDIN: Final = MEBIBYTE
"""Bytes of the longest standard input. Ours: what any filter needs and no memory misses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Every bound on one run. Reaching one is part of the behavior, never an exception."""

    wall_seconds: float = 5.0
    """Seconds of real time until the run is ended: exit code 124, `timed_out`."""
    cpu_seconds: float = 5.0
    """Seconds of processor time of the run's processes together, looked at every 50 ms; past it the
    run is ended. What ended between two looks and was waited for by nobody is not counted."""
    memory_bytes: int = 256 * MEBIBYTE
    """Memory of the run's processes together and of its System V segments, looked at every 50 ms;
    past it the run is ended."""
    processes: int = 256
    """Processes and threads alive at once, of all users together; past it `fork` fails. What
    `ulimit -u` shows is the system's."""
    disk_bytes: int = 256 * MEBIBYTE
    """Bytes of new or changed file content; past it writing fails with ENOSPC. Never more than what
    the system leaves free of the disk that it declares, which `df` shows."""
    disk_inodes: int = 32_768
    """New or changed files; past it creating fails with ENOSPC."""
    output_bytes: int = 64 * KIBIBYTE
    """Output kept; what comes after is read and dropped: `output_truncated`."""
    drain_bytes: int = 16 * MEBIBYTE
    """Output read in all, so that the true exit code is seen; past it the run is ended."""
    background_seconds: float = 0.1
    """Seconds that background processes may run on after the shell ended."""
    scan_seconds: float = 5.0
    """Seconds of processor time in which what a run changed is found out; past it the changes are
    truncated. A full disk of 256 MiB takes half a second."""
    state_bytes: int = 4 * MEBIBYTE
    """Shell state read after the run; a longer one is dropped and the state is unknown."""
    sandboxes: int = 3
    """Sandboxes that a run may break, one after the other; past it nothing is known of the run but
    that. A `Sandbox` takes no notice of it: whoever runs inputs in one opens the next."""
    without_shell_state: bool = False
    """Nothing is read of what a run changes of the shell itself: its directory, variables,
    functions, options. Each run has a newly executed bash, and its shell state stays unknown. What
    is left where no fork server can serve a system's bash, and the same wherever it is asked for.
    """

    sandbox: str = "namespaces"
    """What stands around every run, one of `SANDBOXES`. It is namespaces of this host's kernel, or
    a machine of its own with namespaces inside, in QEMU (`microvm`) or in Firecracker. In a
    `microvm-bare` an input is root of the machine itself, as in the paper. The machine is restored
    before each input, and nobody reads the shell's state (`without_shell_state` is true).
    `disk_bytes` and `disk_inodes` are what the disk has.
    """
    revert: int = 1
    """Of a machine: it is restored to its snapshot before every so many runs. 1: before each, as
    in the paper; 0: only where what a run left cannot be undone from within. Between two restores
    runs are kept apart as they are in namespaces."""

    def __post_init__(self) -> None:
        if self.sandbox not in SANDBOXES:
            raise LimitsError(
                f"no sandbox is called {self.sandbox!r}",
                hint=did_you_mean(str(self.sandbox), SANDBOXES),
            )
        if self.sandbox == BARE:
            if self.revert != 1:
                raise LimitsError(
                    f"a {BARE} is restored before every input, not with revert {self.revert}",
                    hint="leave revert out; microvm takes it",
                )
            object.__setattr__(self, "without_shell_state", True)
        for name in self.__slots__:
            value = getattr(self, name)
            if isinstance(value, bool | str):
                continue
            most = LARGEST.get(name, GIBIBYTE * MEBIBYTE)
            if not 0 <= value <= most or (value == 0 and name not in _MAY_BE_0):
                raise LimitsError(
                    f"the limit {name} is {value!r}",
                    hint=f"limits are above 0 and at most {most:,}; leave it out for the default",
                )


def limits_from(document: Mapping[str, Any]) -> Limits:
    """Limits as a file has them. Older files say apart what is `inside` a microVM.

    Errors: LimitsError for impossible values, TypeError for a name that no limit has.
    """
    inside = document.get("inside")
    known = {name: value for name, value in document.items() if name != "inside"}
    return Limits(**known | ({"sandbox": BARE} if inside == "bare" else {}))


@dataclass(frozen=True, slots=True)
class Request:
    """One run to be made: an input, and what it finds. InputError where that cannot be."""

    text: str | bytes
    """What `bash --norc --noprofile -c` is given."""
    _: KW_ONLY
    cwd: str | None = None
    """The directory to start in, an absolute path; None for the system's first start directory."""
    separate: bool = False
    """Each output channel has a pipe of its own, which loses the order between the two."""
    tty: bool = False
    """Standard input and both output channels are one pseudo-terminal of 80 columns and 24 rows."""
    wall_seconds: float | None = None
    """Stands for the limit of that name in this run; None for the limit."""
    order: Order = "as it comes"
    """In which order the shell's processes begin; see `Order`."""
    stdin: bytes = b""
    """What standard input holds. It is a pipe, as in `printf ... | bash -c ...`, that ends after
    these bytes, at most `LONGEST_STDIN` of them. Up to 64 KiB lie in it before the shell starts.
    Empty: standard input is at its end, as /dev/null is. On a terminal it has to be empty.
    """
    rows: bool = False
    """`stdin` is rows (`behavior/rows.py`), which `. /dev/stdin` runs one after the other; standard
    input is at its end. No shell that is executed anew for each input can do that."""

    def __post_init__(self) -> None:
        if self.tty and self.separate:
            raise InputError("a terminal has one output channel", hint="separate or tty, not both")
        if self.tty and self.stdin:
            raise InputError("nobody is at the terminal's keyboard", hint="stdin or tty, not both")
        if len(self.stdin) > LONGEST_STDIN:
            raise InputError(
                f"standard input has {len(self.stdin)} bytes; at most {LONGEST_STDIN} are passed on"
            )

    def argument(self) -> bytes:
        """The text as bash gets it. InputError for what cannot be an argument of a program."""
        try:
            text = os.fsencode(self.text)
        except UnicodeEncodeError as error:
            raise InputError(f"the input cannot be encoded: {error}") from error
        if b"\0" in text:
            raise InputError("the input holds a NUL byte, which no shell argument can")
        if len(text) > LONGEST_INPUT:
            raise InputError(
                f"the input has {len(text)} bytes; Linux takes {LONGEST_INPUT} at most"
            )
        return text


@dataclass(frozen=True, slots=True)
class FileStat:
    """What `lstat` says about one file, in the system's own ids, with what it holds."""

    mode: int
    """Type and permission bits."""
    uid: int
    """Owner, as the system numbers it (0 is its root)."""
    gid: int
    """Group, as the system numbers it."""
    size: int
    """Bytes."""
    links: int
    """Hard links as the file system counts them."""
    mtime_ns: int
    """Last change of the content, nanoseconds since 1970."""
    inode: int
    """Constant across a rename; compared between `before` and `after` only."""
    rdev: int = 0
    """Device number of a device node, else 0."""
    target: bytes | None = None
    """Where a symbolic link points, else None."""
    digest: str | None = None
    """SHA-256 (hex) of a regular file's content; None for others and where not read."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """One path that a run touched. `before` is None where it is new, `after` where it is gone."""

    path: bytes
    """Absolute, in the system's own root, without `.`, `..` or a trailing slash."""
    before: FileStat | None
    after: FileStat | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """Everything one run gave, not yet compared with anything."""

    exit_code: int
    """The shell's own; 124 where the wall time ran out, 128 + signal where one ended it."""
    output: bytes
    """Standard output and error in arrival order, at most `Limits.output_bytes`."""
    stdout: bytes | None = None
    """Standard output where the run had two pipes, else None."""
    stderr: bytes | None = None
    """Standard error where the run had two pipes, else None."""
    changes: tuple[FileChange, ...] = ()
    """Every path the run touched, in any order. A removed or renamed directory gives one change for
    each entry in it."""
    changes_truncated: bool = False
    """There were more changes than could be listed."""
    shell: bytes | None = None
    """The shell's own state at its end, as it dumped it: untrusted. None where it is unknown."""
    cwd: bytes | None = None
    """The shell's working directory at its end, None where it is unknown."""
    started: float = 0.0
    """When the run started, seconds since 1970 on the clock that stamps files."""
    ended: float = 0.0
    """When its last process was gone, on the same clock."""
    timed_out: bool = False
    """The wall time ran out."""
    waited: bool = False
    """The wall time ran out, and no faster machine would have helped, but where what the run slept
    for was about to come. All of the run's processes slept nearly always when it was looked at
    (every 50 ms), or all through the last half of its time. A bare machine sees the former alone.
    """
    output_truncated: bool = False
    """More was written than `output` holds."""
    limits_hit: tuple[str, ...] = ()
    """The fields of `Limits` that the run reached. `processes` is there where a look (every 50 ms)
    found so many, `disk_bytes` and `disk_inodes` where the disk was full at the end.
    `background_seconds` is there where something still ran when that time was over.
    """
    signal: int | None = None
    """The signal that ended the shell, else None."""
    hostname: bytes | None = None
    """The host's name after the run, where it changed."""
    network: bytes | None = None
    """The network after the run as JSON, where it changed. It is an object of `links`, `addresses`,
    `routes` and `firewall`. The first three are the lists that `ip -json link/address/route show`
    prints. The firewall's rules are a list of lines, or one text in hexadecimal. None where nothing
    changed.
    """


class Sandbox(Protocol):
    """Runs inputs on a pristine system: each starts from the same state, and what it does is gone
    when the next one starts. Used by one caller at a time.
    """

    @property
    def limits(self) -> Limits:
        """What every run is bound by."""
        ...

    def run(self, request: Request) -> Execution:
        """What a fresh `bash --norc --noprofile -c` did with this input.

        InputError where no shell could be given the input, StartDirectoryError where its directory
        cannot be entered. A sandbox that fails raises SandboxError, and the run may be repeated;
        its text never becomes output.
        """
        ...

    def network(self) -> bytes:
        """The pristine network, in the form of `Execution.network`: what a changed one is compared
        with. SandboxError where it could not be read.
        """
        ...

    def close(self) -> None:
        """Ends every process and returns every resource; calling it again does nothing."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
