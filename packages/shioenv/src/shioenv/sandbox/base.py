"""The interface of a sandbox: it takes limits and requests, and returns executions."""

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
from shioenv.text import short_repr

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
"""The largest values of these limits; for all others 2^50 (bytes, or a count)."""

LONGEST_IDLE: Final = 30 * 86_400
"""The most seconds that a shell may wait for its next line; as milliseconds they fit in 32 bits."""

_MAY_BE_0 = {"background_seconds", "revert"}

BARE: Final = "microvm-bare"
"""The backend in which an input runs as root of the virtual machine itself."""

MACHINES: Final = ("microvm", BARE, "firecracker")
"""Names of the backends that run a virtual machine (QEMU or Firecracker)."""

SANDBOXES: Final = ("namespaces", *MACHINES)
"""Names of all backends."""

LONGEST_INPUT: Final = 128 * KIBIBYTE - 1
"""Bytes of the longest input: the longest argument that Linux accepts (MAX_ARG_STRLEN)."""

LONGEST_STDIN: Final = MEBIBYTE
"""Bytes of the longest standard input (our choice: enough for filters, little for any host)."""


class ShellMode(StrEnum):
    """The point at which a starting bash becomes the fork server (`native/inside/preload.c`)."""

    LATE = "late"
    """After bash has initialised itself; the fastest mode."""
    MAIN = "main"
    """Before bash calls main()."""
    FRESH = "fresh"
    """No fork server: each input runs in a newly executed bash, and the shell state is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """All limits of one run. Reaching one is part of the behavior, never an exception."""

    wall_seconds: float = 5.0
    """Seconds of real time after which the run is ended (exit code 124, `timed_out`)."""
    cpu_seconds: float = 5.0
    """Seconds of processor time of all processes of the run, sampled every 50 ms. A run that uses
    more is ended. A process that ended between two samples without being waited for is not
    counted."""
    memory_bytes: int = 256 * MEBIBYTE
    """Bytes of memory of all processes of the run and of its System V segments, sampled every
    50 ms. A run that uses more is ended."""
    processes: int = 256
    """Processes and threads alive at once, of all users together; beyond this, `fork` fails. (But
    `ulimit -u` shows the system's declared value.)"""
    disk_bytes: int = 256 * MEBIBYTE
    """Bytes of new or changed file content; beyond this, writing fails with ENOSPC. The free space
    of the declared disk (shown by `df`) is a further bound."""
    disk_inodes: int = 32_768
    """New or changed files; beyond this, creating a file fails with ENOSPC."""
    output_bytes: int = 64 * KIBIBYTE
    """Bytes of output that are kept, for each channel if a run has two pipes. Later output is read
    and dropped (`output_truncated`)."""
    drain_bytes: int = 16 * MEBIBYTE
    """Total bytes of output that a run may write before it is ended. Output beyond `output_bytes`
    is dropped, so that the run can go on to its exit code."""
    background_seconds: float = 0.1
    """Seconds for which background processes may continue after the shell has ended."""
    scan_seconds: float = 5.0
    """Seconds of processor time for finding a run's changes; beyond this, the changes are
    truncated."""
    state_bytes: int = 4 * MEBIBYTE
    """Bytes of shell state read after the run, at most 4 MiB. A state of this length or more is
    dropped and counts as unknown."""
    sandboxes: int = 3
    """Attempts at a run whose sandbox breaks, each in a new sandbox. After the last attempt the
    run is reported without results. A `Sandbox` ignores this limit; its callers retry."""
    without_shell_state: bool = False
    """Whether each run gets a newly executed bash whose state stays unknown. Changes of the shell
    itself (directory, variables, functions, options) are then not read. This is meant for systems
    whose bash cannot run the fork server, but is possible on any system."""

    sandbox: str = "namespaces"
    """The backend, one of `SANDBOXES`. `namespaces` uses namespaces of this host's kernel.
    `microvm` (QEMU) and `firecracker` run a virtual machine with namespaces inside. In a
    `microvm-bare` an input is root of the virtual machine, as in the paper. That machine is
    restored before each input, and the shell state is not read (`without_shell_state` is true).
    The size of its disk replaces `disk_bytes` and `disk_inodes`."""
    revert: int = 1
    """Runs of a virtual machine between two restores of its snapshot. 1 restores before each run,
    as in the paper. 0 restores only after runs that left something that cannot be undone inside the
    machine. Such runs always cause a restore. Between restores, namespaces isolate the runs."""

    def __repr__(self) -> str:
        return short_repr(self)

    def __post_init__(self) -> None:
        if self.sandbox not in SANDBOXES:
            raise LimitsError(
                f"unknown sandbox {self.sandbox!r}",
                hint=did_you_mean(str(self.sandbox), SANDBOXES),
            )
        if self.sandbox == BARE:
            if self.revert != 1:
                raise LimitsError(
                    f"revert is {self.revert}, but a {BARE} is restored before every input",
                    hint="omit revert, or use microvm",
                )
            object.__setattr__(self, "without_shell_state", True)
        for name in self.__slots__:
            value = getattr(self, name)
            if isinstance(value, bool | str):
                continue
            refuse_limit(name, value, LARGEST.get(name, GIBIBYTE * MEBIBYTE))


def refuse_limit(name: str, value: object, most: float = LARGEST["wall_seconds"]) -> None:
    """Raise LimitsError unless the value is a number above 0 and at most `most`.

    `background_seconds` and `revert` may be 0. NaN is refused too.
    """
    number = isinstance(value, int | float)
    if number and 0 <= value <= most and (value or name in _MAY_BE_0):  # type: ignore[operator]
        return
    raise LimitsError(
        f"the limit {name} is {value!r}",
        hint=f"give more than 0 and at most {most:,}, or omit it for the default",
    )


def limits_from(document: Mapping[str, Any]) -> Limits:
    """Read limits from a file's document. Older files mark a bare microVM by the key `inside`.

    Errors: LimitsError for impossible values, TypeError for a name that no limit has.
    """
    inside = document.get("inside")
    known = {name: value for name, value in document.items() if name != "inside"}
    return Limits(**known | ({"sandbox": BARE} if inside == "bare" else {}))


@dataclass(frozen=True, slots=True)
class Request:
    """One run to execute: an input, and the state in which it starts.

    Errors: InputError for a terminal with separate channels or with standard input, and for
    standard input that is too long. LimitsError for a `wall_seconds` that `Limits` would refuse.
    """

    text: str | bytes
    """The input: the argument of `bash --norc --noprofile -c`."""
    _: KW_ONLY
    cwd: str | None = None
    """Absolute path of the start directory; None for the system's default start directory."""
    separate: bool = False
    """Whether standard output and error have separate pipes, which loses their relative order."""
    tty: bool = False
    """Standard input and both output channels are one pseudo-terminal of 80 columns and 24 rows."""
    wall_seconds: float | None = None
    """Overrides the limit of this name for this run, unless None."""
    order: Order = "as it comes"
    """The order in which the shell's processes start; see `Order`."""
    stdin: bytes = b""
    """The content of standard input, at most `LONGEST_STDIN` bytes. Standard input is then a pipe
    that ends after these bytes, as in `printf ... | bash -c ...`. Up to 64 KiB are in the pipe
    before the shell starts. If empty, standard input is at end of file, like /dev/null. Must be
    empty with `tty`."""
    rows: bool = False
    """Whether `stdin` holds rows (`behavior/typed_rows.py`), which `. /dev/stdin` runs in sequence.
    The rows themselves find standard input at end of file. This needs the fork server."""

    def __post_init__(self) -> None:
        if self.wall_seconds is not None:
            refuse_limit("wall_seconds", self.wall_seconds)
        if self.tty and self.separate:
            raise InputError("a terminal has one output channel", hint="omit separate or tty")
        if self.tty and self.stdin:
            raise InputError("a run on a terminal has no standard input", hint="omit stdin or tty")
        if len(self.stdin) > LONGEST_STDIN:
            raise InputError(
                f"standard input has {len(self.stdin)} bytes; the maximum is {LONGEST_STDIN}"
            )

    def argument(self) -> bytes:
        """Encode the text for bash. InputError for a text that cannot be a program's argument."""
        try:
            text = os.fsencode(self.text)
        except UnicodeEncodeError as error:
            raise InputError(f"the input cannot be encoded: {error}") from error
        if b"\0" in text:
            raise InputError("the input has a NUL byte, which shell arguments cannot contain")
        if len(text) > LONGEST_INPUT:
            raise InputError(
                f"the input has {len(text)} bytes; Linux allows at most {LONGEST_INPUT}"
            )
        return text


class Uncopied:
    """Base class of objects that hold an open machine and therefore must not be copied."""

    def __getstate__(self) -> object:
        """Refuse a copy and a pickle. Errors: EpisodeError."""
        raise EpisodeError(
            f"a {type(self).__name__} has an open machine and cannot be copied or pickled",
            hint="open another one in the process that uses it",
        )


class Closing(Uncopied):
    """A context manager that closes itself at the end of its `with` block."""

    def close(self) -> None:
        """Release all resources; closing twice does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class FileStat:
    """The result of `lstat` for one file, with ids of the system, and the content's digest."""

    mode: int
    """Type and permission bits."""
    uid: int
    """Owner, as an id of the system (0 is its root)."""
    gid: int
    """Group, as an id of the system."""
    size: int
    """Bytes."""
    links: int
    """The link count of the file system."""
    mtime_ns: int
    """Modification time, nanoseconds since 1970."""
    inode: int
    """Inode number, unchanged by a rename. Only to be compared between `before` and `after`."""
    rdev: int = 0
    """Device number of a device node, else 0."""
    target: bytes | None = None
    """The target of a symbolic link, else None."""
    digest: str | None = None
    """SHA-256 (hex) of a regular file's content; None for other files, and for unread content."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """One path that a run changed: `before` is None for a new file, `after` for a removed one."""

    path: bytes
    """Absolute path in the system, without `.`, `..` or a trailing slash."""
    before: FileStat | None
    after: FileStat | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """The raw results of one run."""

    exit_code: int
    """The shell's exit code; 124 after a timeout, 128 + signal if a signal ended the shell."""
    output: bytes
    """Standard output and error in arrival order, at most `Limits.output_bytes`. For a run with
    two pipes: `stdout`, then `stderr`, each limited to that size."""
    stdout: bytes | None = None
    """Standard output of a run with two pipes, else None."""
    stderr: bytes | None = None
    """Standard error of a run with two pipes, else None."""
    changes: tuple[FileChange, ...] = ()
    """Every path that the run changed, in any order. A removed or renamed directory yields one
    change for each entry in it."""
    changes_truncated: bool = False
    """Whether the run made more changes than could be listed."""
    shell: bytes | None = None
    """The shell's final state as the shell itself dumped it, so untrusted; None if unknown."""
    cwd: bytes | None = None
    """The shell's final working directory; None if unknown."""
    started: float = 0.0
    """The start of the run, seconds since 1970 on the clock of file timestamps."""
    ended: float = 0.0
    """The end of the run's last process, seconds since 1970 on the same clock."""
    timed_out: bool = False
    """Whether the run reached its wall time."""
    waited: bool = False
    """Whether the run timed out while sleeping, so that a faster machine would hardly have helped.

    True if all its processes slept in nine of ten samples (one every 50 ms), or in all samples of
    the second half. In a `microvm-bare`: if the processor idled for nine tenths of the time, or of
    its second half."""
    output_truncated: bool = False
    """Whether the run wrote more than `output` holds."""
    limits_hit: tuple[str, ...] = ()
    """The names of the `Limits` that the run reached. `processes`: a sample (every 50 ms) found as
    many processes as allowed. `disk_bytes`, `disk_inodes`: the disk was full at the end.
    `background_seconds`: a process was still running after that time."""
    signal: int | None = None
    """The signal that ended the shell, else None."""
    processes: int = 0
    """Processes and threads started before the shell ended, including the shell; 0 if unknown."""
    stays: bool = False
    """Whether the shell is alive and waits for its next line (`ShellSandbox`)."""
    busy: bool = False
    """On a terminal: whether a process other than the shell is in the foreground."""
    frozen: bool = False
    """Whether the changes that later lines report are relative to the state after this line."""
    outlived: bool = False
    """For a line: whether a process that it started was still running at its end."""
    hostname: bytes | None = None
    """The hostname after the run; None if unchanged."""
    network: bytes | None = None
    """The network after the run as a JSON object; None if unchanged.

    `links`, `addresses` and `routes` are the lists printed by `ip -json link/address/route show`,
    and `rules` is that of `ip -json rule show`. `routes6` and `rules6` are the same for IPv6, if
    the kernel supports it. `firewall` holds the rules as a list of lines, or as one hexadecimal
    text."""


@dataclass(frozen=True, slots=True)
class Marked:
    """The answer to `ShellSandbox.mark`."""

    node: int
    """The number of the kept state; negative if it was not kept."""
    why: str | None
    """Why the state was not kept, else None."""
    stays: bool
    """Whether the shell waits for its next line. False if many files had changed, because freezing
    them ends the shell."""
    frozen: bool
    """Whether changes of later lines are relative to this state."""
    traffic: bool = False
    """Whether a line sent packets. A copy of the shell has a new network, which counts from 0."""


@dataclass(frozen=True, slots=True)
class ShellNode:
    """The answer to `ShellSandbox.export`."""

    node: int
    """A descriptor of the kept state, which the caller must close; negative if it was not kept."""
    why: str | None
    """Why the state was not kept, else None."""


@dataclass(frozen=True, slots=True)
class Entered:
    """The caller's ends of an input's standard streams: descriptors that the caller must close."""

    talk: int
    """Standard input: a stream socket."""
    output: int
    """Standard output: a non-blocking pipe."""
    errors: int
    """Standard error: a non-blocking pipe."""


class Sandbox(Protocol):
    """Runs inputs on a pristine system.

    Each input starts from the same state; changes made by earlier inputs are undone. Any thread of
    the process that opened the sandbox may call it. Calls are executed one after the other.
    """

    @property
    def limits(self) -> Limits:
        """The limits of every run."""
        ...

    def run(self, request: Request) -> Execution:
        """Run the input in a fresh `bash --norc --noprofile -c`.

        Errors: InputError for an input that cannot be passed to a shell, and StartDirectoryError if
        its start directory cannot be entered. A broken sandbox raises SandboxError; then the run
        may be repeated. The text of this error never becomes output.
        """
        ...

    def network(self) -> bytes:
        """Return the pristine network as in `Execution.network`. Errors: SandboxError."""
        ...

    def close(self) -> None:
        """End every process and free every resource; later calls do nothing.

        A call in progress in another thread is interrupted and raises SandboxError.
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
    """A sandbox that can also run a persistent shell, which takes line after line.

    Executions of that shell report all changes since the machine was pristine, or since the last
    execution that is `frozen`. Their `started` is the start of the first shell. `network` and
    `hostname` are in the execution only if the line changed them.
    """

    @property
    def supervisor_pid(self) -> int | None:
        """The process that all processes of the machine descend from; None without one."""
        ...

    def start_shell(
        self, cwd: str | None = None, *, idle_seconds: float, separate: bool = False
    ) -> Execution:
        """Start a shell in a directory of the machine, which may be as an ended shell left it.

        The execution has the state of the new shell. The shell ends after waiting `idle_seconds`
        for its next line. With `separate` it has two output channels, and every line's request is
        `separate`. Errors: those of `run`.
        """
        ...

    def run_line(self, request: Request, *, blind: bool = False, last: bool = False) -> Execution:
        """Run a line in the shell; `stays` is true if the shell waits for another line.

        With `last` the shell exits after the line, as `bash -c` exits after its last line.

        With `blind`, the execution has only output and exit code. The next line without `blind`
        reports the changes.

        `exit_code` is the value of `$?` afterwards. Only the request's text, time, order and
        `separate` are used. A line that reaches a limit ends its shell. Background effects of
        earlier lines are attributed to this line. Errors: those of `run`, after which the machine
        is gone; ShellEndedError if the shell had ended before the line.
        """
        ...

    def mark(self) -> Marked:
        """Keep the shell's memory and the machine's files as they are, until `end_shell`.

        Errors: those of `run`.
        """
        ...

    def run_from(self, node: int, request: Request, *, last: bool) -> Execution:
        """End the machine's shell, and run a line in a copy of a kept one, like `run_line`.

        The copy has the memory, the working directory and the process ID of the kept shell. The
        machine's files are as they were when it was kept. Errors: those of `run_line`.
        """
        ...

    def return_to(self, node: int) -> None:
        """End the machine's shell, and continue with a copy of a kept one; see `run_from`."""
        ...

    def export(self) -> ShellNode:
        """Keep the shell's memory and the machine's files for other machines of the same system.

        Errors: those of `run`.
        """
        ...

    def start_copy(self, node: int, *, idle_seconds: float) -> bool:
        """Start a copy of another machine's shell in the pristine machine.

        `node` is a descriptor from `export`, and `idle_seconds` is that of `start_shell`. The copy
        has the other machine's clock. Return whether the shell waits for a line. If not,
        `end_shell` is to be called. Errors: those of `run`.
        """
        ...

    def run_beside(self, request: Request) -> Execution:
        """Run an input in a second shell in the same machine. Errors: those of `run`."""
        ...

    def run_apart(self, request: Request) -> Execution:
        """Run an input like `run_beside`, but on the files and programs of the pristine system."""
        ...

    def start_terminal(self, request: Request, *, idle_seconds: float) -> int:
        """Start a persistent shell that runs an input on a terminal. Errors: those of `run`.

        Return the descriptor of the terminal's other end, which the caller must close. The shell
        ends after `idle_seconds` without a call.
        """
        ...

    def look(self) -> Execution:
        """Report the changes since the shell was started, without running anything.

        In a machine with inputs from `enter` and without a shell, every process is ended first.
        Errors: those of `run`.
        """
        ...

    def enter(self, request: Request, *, idle_seconds: float) -> Entered:
        """Run an input that leaves background processes in the machine, without a shell that stays.

        The call returns once the input itself has ended. So the actual work must be done by its
        background processes, which continue until `end_shell`, `look`, or a limit. Processes of
        several inputs may run at once. Only the request's text, start directory and time are used.
        The processes are ended after `idle_seconds` without a call. Errors: those of `run`;
        SandboxError if the input does not end within its wall time.
        """
        ...

    def interrupt(self) -> None:
        """End the machine at once. Any thread may call this while another thread's call runs.

        The interrupted call raises SandboxError.
        """
        ...

    def end_shell(self) -> None:
        """End the shell and every process of the machine, and make the machine pristine again."""
        ...


LIMITS = Limits(wall_seconds=2.0)
"""The default limits of executions for datasets. Inputs generated from the grammars either take
milliseconds or block forever (`grep -R x` at a fifo). One score may execute dozens of sub-inputs
that block, so the wall time is shorter than in `Limits`."""
_CLOSING_SECONDS: Final = 0.05
"""Seconds that closing waits for another thread's call before interrupting it."""


class CallLock:
    """A lock for an object that several threads of its process may call.

    Other processes are refused: a forked process copies the state of the lock, which may be held by
    a thread that does not exist there.
    """

    def __init__(self) -> None:
        self._lock = RLock()
        self._owner = os.getpid()

    @property
    def lock(self) -> RLock:
        """The lock, for a `with` block. Errors: SandboxError in another process."""
        if os.getpid() != self._owner:
            raise SandboxError(
                "the sandbox was opened by another process", hint="open a sandbox in each process"
            )
        return self._lock

    @contextmanager
    def last(self, interrupt: Callable[[], object]) -> Iterator[None]:
        """Hold the lock while closing the protected object; another process needs no lock for that.

        The call of another thread is interrupted repeatedly, until it releases the lock.
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
