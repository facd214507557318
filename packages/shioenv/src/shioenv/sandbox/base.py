"""The contract between a sandbox and its callers: limits and requests in, executions out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from threading import RLock
from types import TracebackType
from typing import Any, Final, Protocol, Self

from shioenv.domain.runner import Order
from shioenv.errors import EpisodeError, InputError, LimitsError, SandboxError, did_you_mean

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
"""The largest values of these limits. For every other limit it is 2^50: a pebibyte, or a count."""

LONGEST_IDLE: Final = 30 * 86_400
"""Seconds that a shell may wait for its next line, at most; ours, because 32 bits count them in
milliseconds."""

_MAY_BE_0 = {"background_seconds", "revert"}

BARE: Final = "microvm-bare"
"""Name of the backend that makes an input root of the machine itself."""

MACHINES: Final = ("microvm", BARE, "firecracker")
"""Names of the backends that give an input a machine of its own: in QEMU, in Firecracker."""

SANDBOXES: Final = ("namespaces", *MACHINES)
"""Names of the backends."""

LONGEST_INPUT: Final = 128 * KIBIBYTE - 1
"""Bytes of the longest input: what Linux takes as one argument (MAX_ARG_STRLEN)."""

LONGEST_STDIN: Final = MEBIBYTE
"""Bytes of the longest standard input. Ours, because any filter needs no more and any host has
it."""


class ShellMode(StrEnum):
    """Where a starting bash stops to serve inputs as fork server; see `native/inside/preload.c`."""

    LATE = "late"
    """After bash's own initialisation: fastest."""
    MAIN = "main"
    """Before bash's main()."""
    FRESH = "fresh"
    """Nowhere: every input has a newly executed bash, and its shell state stays unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Every bound on one run. Reaching one is part of the behavior, never an exception."""

    wall_seconds: float = 5.0
    """Seconds of real time until the run is ended: exit code 124, `timed_out`."""
    cpu_seconds: float = 5.0
    """Seconds of processor time of the run's processes together, looked at every 50 ms; past it the
    run is ended. A process that ended between two looks, and that no other process waited for, is
    not counted."""
    memory_bytes: int = 256 * MEBIBYTE
    """Memory of the run's processes together and of its System V segments, looked at every 50 ms;
    past it the run is ended."""
    processes: int = 256
    """Processes and threads alive at once, of all users together; past it `fork` fails. What
    `ulimit -u` shows is the system's."""
    disk_bytes: int = 256 * MEBIBYTE
    """Bytes of new or changed file content; past it writing fails with ENOSPC. A run never gets
    more than the system leaves free of its declared disk, which `df` shows."""
    disk_inodes: int = 32_768
    """New or changed files; past it creating fails with ENOSPC."""
    output_bytes: int = 64 * KIBIBYTE
    """Bytes of output kept, of each channel where a run has two pipes; later output is read and
    dropped: `output_truncated`."""
    drain_bytes: int = 16 * MEBIBYTE
    """Bytes of output read in all, so that the true exit code is seen; past it the run is ended."""
    background_seconds: float = 0.1
    """Seconds that background processes may run on after the shell ended."""
    scan_seconds: float = 5.0
    """Seconds of processor time that finding a run's changes may take; past it the changes are
    truncated. A full disk of 256 MiB takes half a second."""
    state_bytes: int = 4 * MEBIBYTE
    """Bytes of shell state read after the run, at most 4 MiB; a state of this length or longer is
    dropped, and is then unknown."""
    sandboxes: int = 3
    """Sandboxes that a run may break, one after the other; past it nothing else is known of the
    run. A `Sandbox` takes no notice of this limit: whoever runs inputs in a sandbox opens the
    next."""
    without_shell_state: bool = False
    """Each run has a newly executed bash, and its shell state stays unknown. Nothing is read of
    what a run changes of the shell itself: its directory, variables, functions, options. This is
    what is left where no fork server can serve a system's bash. Asked for elsewhere, it does the
    same."""

    sandbox: str = "namespaces"
    """What stands around every run, one of `SANDBOXES`. `namespaces` are those of this host's
    kernel. `microvm` (in QEMU) and `firecracker` are a machine of the sandbox's own, with
    namespaces inside. In a `microvm-bare` an input is root of the machine itself, as in the paper.
    The machine is restored before each input, and nobody reads the shell's state
    (`without_shell_state` is true). The disk of that machine stands for `disk_bytes` and
    `disk_inodes`."""
    revert: int = 1
    """A machine is restored to its snapshot after so many runs. 1: before each run, as in the
    paper. 0: only where the traces of a run cannot be undone from within, which restores at any
    value. Between two restores, runs are kept apart as they are in namespaces."""

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
            refuse_limit(name, value, LARGEST.get(name, GIBIBYTE * MEBIBYTE))


def refuse_limit(name: str, value: object, most: float = LARGEST["wall_seconds"]) -> None:
    """Raise LimitsError where a value is no number above 0 and up to `most`.

    `background_seconds` and `revert` may be 0. NaN is no such number.
    """
    number = isinstance(value, int | float)
    if number and 0 <= value <= most and (value or name in _MAY_BE_0):  # type: ignore[operator]
        return
    raise LimitsError(
        f"the limit {name} is {value!r}",
        hint=f"limits are above 0 and at most {most:,}; leave it out for the default",
    )


def limits_from(document: Mapping[str, Any]) -> Limits:
    """Limits as a file has them. Older files have a key of its own, `inside`, for a bare microVM.

    Errors: LimitsError for impossible values, TypeError for a name that no limit has.
    """
    inside = document.get("inside")
    known = {name: value for name, value in document.items() if name != "inside"}
    return Limits(**known | ({"sandbox": BARE} if inside == "bare" else {}))


@dataclass(frozen=True, slots=True)
class Request:
    """One run to be made: an input, and what the input finds.

    Raises InputError for a terminal with separate channels or with standard input, and for standard
    input that is too long. LimitsError for a `wall_seconds` that `Limits` does not take.
    """

    text: str | bytes
    """The input, as `bash --norc --noprofile -c` is given it."""
    _: KW_ONLY
    cwd: str | None = None
    """The directory to start in, an absolute path; None for the system's first start directory."""
    separate: bool = False
    """Each output channel has a pipe of its own, which loses the order between the two."""
    tty: bool = False
    """Standard input and both output channels are one pseudo-terminal of 80 columns and 24 rows."""
    wall_seconds: float | None = None
    """Seconds that take the place of the limit of this name in this run; None for the limit."""
    order: Order = "as it comes"
    """The order in which the shell's processes begin; see `Order`."""
    stdin: bytes = b""
    """What standard input holds, at most `LONGEST_STDIN` bytes. Standard input is then a pipe that
    ends after these bytes, as in `printf ... | bash -c ...`. Up to 64 KiB lie in the pipe before
    the shell starts. Empty: standard input is at its end, as /dev/null is. Has to be empty with
    `tty`."""
    rows: bool = False
    """`stdin` is rows (`behavior/rows.py`), which `. /dev/stdin` runs one after the other; standard
    input is at its end. A shell that is executed anew for each input cannot run rows."""

    def __post_init__(self) -> None:
        if self.wall_seconds is not None:
            refuse_limit("wall_seconds", self.wall_seconds)
        if self.tty and self.separate:
            raise InputError("a terminal has one output channel", hint="separate or tty, not both")
        if self.tty and self.stdin:
            raise InputError("nobody is at the terminal's keyboard", hint="stdin or tty, not both")
        if len(self.stdin) > LONGEST_STDIN:
            raise InputError(
                f"standard input has {len(self.stdin)} bytes; at most {LONGEST_STDIN} are passed on"
            )

    def argument(self) -> bytes:
        """The text as bash gets it. InputError for a text that no program takes as argument."""
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


class Uncopied:
    """Base of what holds an open machine, which a copy would share without knowing it."""

    def __getstate__(self) -> object:
        """Refuse a copy and a pickle. Errors: EpisodeError."""
        raise EpisodeError(
            f"a {type(self).__name__} holds an open machine and cannot be copied or pickled",
            hint="open another one in the process that uses it",
        )


@dataclass(frozen=True, slots=True)
class FileStat:
    """What `lstat` says about one file, in the system's own ids, and its content's digest."""

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
    """Inode number. Constant across a rename; compared between `before` and `after` only."""
    rdev: int = 0
    """Device number of a device node, else 0."""
    target: bytes | None = None
    """Where a symbolic link points, else None."""
    digest: str | None = None
    """SHA-256 (hex) of a regular file's content; None for other files, and where it was not
    read."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """One path that a run touched: `before` is None for a new file, `after` for a gone one."""

    path: bytes
    """Absolute, in the system's own root, without `.`, `..` or a trailing slash."""
    before: FileStat | None
    after: FileStat | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """Everything that one run gave, not yet compared with anything."""

    exit_code: int
    """The shell's own; 124 where the wall time ran out, 128 + signal where a signal ended it."""
    output: bytes
    """Standard output and error in arrival order, at most `Limits.output_bytes`. Where the run had
    two pipes: all of `stdout`, then all of `stderr`, at most as many bytes each."""
    stdout: bytes | None = None
    """Standard output where the run had two pipes, else None."""
    stderr: bytes | None = None
    """Standard error where the run had two pipes, else None."""
    changes: tuple[FileChange, ...] = ()
    """Every path that the run touched, in any order. A removed or renamed directory gives one
    change for each entry in it."""
    changes_truncated: bool = False
    """The run made more changes than could be listed."""
    shell: bytes | None = None
    """The dump: the shell's account of its own state at its end, untrusted. None where unknown."""
    cwd: bytes | None = None
    """The shell's working directory at its end, None where it is unknown."""
    started: float = 0.0
    """When the run started, seconds since 1970 on the clock that stamps files."""
    ended: float = 0.0
    """When the run's last process was gone, seconds since 1970 on the same clock."""
    timed_out: bool = False
    """The wall time ran out."""
    waited: bool = False
    """The wall time ran out on a run that slept: a faster machine would hardly have helped.

    Looks every 50 ms found all of its processes asleep nearly always (nine looks of ten), or all
    through the last half of its time. A faster machine would have helped only where the event that
    the processes slept for was about to come. A bare machine sleeps where its processor does, nine
    tenths of all the time or of its last half."""
    output_truncated: bool = False
    """The run wrote more than `output` holds."""
    limits_hit: tuple[str, ...] = ()
    """The names of the `Limits` that the run reached. `processes`: a look (every 50 ms) found so
    many. `disk_bytes`, `disk_inodes`: the disk was full at the end. `background_seconds`: something
    still ran when that time was over."""
    signal: int | None = None
    """The signal that ended the shell, else None."""
    processes: int = 0
    """How many processes and threads the run started until its shell ended, the shell among them.

    0 where nobody counted.
    """
    stays: bool = False
    """The shell lives, and waits for its next line (`ShellSandbox`)."""
    busy: bool = False
    """On a terminal: another process than the shell is in front."""
    frozen: bool = False
    """The changes of later lines lead from here, not from where those of this line led from."""
    hostname: bytes | None = None
    """The host's name after the run; None where it did not change."""
    network: bytes | None = None
    """The network after the run as a JSON object; None where nothing changed.

    `links`, `addresses` and `routes` are the lists that `ip -json link/address/route show` prints.
    `rules` are those of `ip -json rule show`; `routes6` and `rules6` are the same for IPv6, where
    the kernel has it. `firewall` holds the rules as a list of lines, or as one text in
    hexadecimal."""


@dataclass(frozen=True, slots=True)
class Entered:
    """The other ends of what an input found open: descriptors, which are the caller's to close."""

    talk: int
    """Of its standard input: a stream socket, so that it can be answered."""
    output: int
    """Of its standard output: a pipe that blocks nobody."""
    errors: int
    """Of its standard error: a pipe that blocks nobody."""


class Sandbox(Protocol):
    """Runs inputs on a pristine system.

    Each input starts from the same state: whatever the input before it did is gone. Any thread of
    the process that opened it may call it. It takes the calls one after the other.
    """

    @property
    def limits(self) -> Limits:
        """What every run is bound by."""
        ...

    def run(self, request: Request) -> Execution:
        """What a fresh `bash --norc --noprofile -c` did with this input.

        Raises InputError where no shell could be given the input, StartDirectoryError where its
        start directory cannot be entered. A sandbox that fails raises SandboxError, and the run may
        be repeated. The text of that error never becomes output.
        """
        ...

    def network(self) -> bytes:
        """The pristine network, in the form of `Execution.network`, to compare a changed one with.

        Raises SandboxError where the network could not be read.
        """
        ...

    def close(self) -> None:
        """Ends every process and returns every resource; calling it again does nothing.

        A call of another thread is interrupted, and raises SandboxError.
        """
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class ShellSandbox(Sandbox, Protocol):
    """A sandbox whose machine can become a shell's that stays, for line after line.

    Executions of that shell tell all that changed since the machine was pristine. After one that is
    `frozen`, they tell all that changed since that one. Their `started` is the start of the first
    shell. The line that changed `network` or `hostname` tells them.
    """

    def start_shell(self, cwd: str | None = None, *, idle_seconds: float) -> Execution:
        """Starts a shell in a directory of the machine as it is: pristine, or an ended shell's.

        The execution has the new shell's state. The shell ends once it waited for its next line for
        `idle_seconds`. Errors: those of `run`.
        """
        ...

    def run_line(self, request: Request, *, blind: bool = False) -> Execution:
        """What the shell does with a line; `stays` says whether it waits for another one.

        With `blind` the execution has output and exit code alone. What changed is told by the next
        line that is not blind.

        `exit_code` is what `$?` gives afterwards. Of the request the text, the time and the order
        count. A line that reaches a limit ends its shell. What processes that are left from earlier
        lines did meanwhile is told with this line. Errors: those of `run`, after which the machine
        is gone; ShellEndedError where the shell had ended before the line.
        """
        ...

    def run_beside(self, request: Request) -> Execution:
        """What an input does in a shell of its own in the same machine. Errors: those of `run`."""
        ...

    def run_apart(self, request: Request) -> Execution:
        """As `run_beside`, on the pristine system's files: no program that a line replaced runs."""
        ...

    def start_terminal(self, request: Request, *, idle_seconds: float) -> int:
        """Starts a shell that stays on a terminal, where it runs an input. Errors: as `run`.

        Returns the descriptor of the terminal's other end, which is the caller's to close. The
        shell ends once nobody looked at it for `idle_seconds`.
        """
        ...

    def look(self) -> Execution:
        """What changed since the shell was started; nothing is run. Errors: those of `run`.

        In a machine that was entered, and has no shell, every process ends first.
        """
        ...

    def enter(self, request: Request, *, idle_seconds: float) -> Entered:
        """Starts an input in the machine as it is, without a shell that stays; any number at once.

        The call returns once the input has ended. What the input left running goes on, until
        `end_shell`, `look`, or a limit. So an input starts what it is for in the background. Of the
        request the text, the start directory and the time count. What goes on without a call for
        `idle_seconds` is ended. Errors: those of `run`; SandboxError where the input does not end
        in its time.
        """
        ...

    def interrupt(self) -> None:
        """Ends the machine at once. Any thread may call this while another one waits for a call.

        That call raises SandboxError.
        """
        ...

    def end_shell(self) -> None:
        """Ends the shell with every process of the machine, which is pristine afterwards."""
        ...


LIMITS = Limits(wall_seconds=2.0)
"""Limits of every execution of a dataset, where none are given. An input that the grammars write
takes milliseconds or waits for ever (`grep -R x` at a fifo). One score may execute dozens of
sub-inputs that wait for ever: hence two fifths of the default wall time.
"""
_CLOSING_SECONDS: Final = 0.05
"""Seconds for which closing waits for a call of another thread, before it interrupts the call."""


class CallLock:
    """The lock of something that several threads may call, in the process that made it.

    Other processes are refused: a fork has the lock as it was, held perhaps by a thread that the
    fork does not have.
    """

    def __init__(self) -> None:
        self._lock = RLock()
        self._owner = os.getpid()

    @property
    def lock(self) -> RLock:
        """The lock, for a `with` block. Errors: SandboxError in another process."""
        if os.getpid() != self._owner:
            raise SandboxError(
                "the sandbox was opened by another process", hint="open one in each process"
            )
        return self._lock

    @contextmanager
    def last(self, interrupt: Callable[[], object]) -> Iterator[None]:
        """Hold the lock to close what it protects; in another process the lock is not needed.

        A call of another thread is interrupted until it gives the lock back.
        """
        if os.getpid() != self._owner:
            yield
            return
        while not self._lock.acquire(timeout=_CLOSING_SECONDS):
            interrupt()
        try:
            yield
        finally:
            self._lock.release()
