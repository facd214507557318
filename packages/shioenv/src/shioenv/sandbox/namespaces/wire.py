"""The protocol between Python and the supervisor: the Python side of `native/around/protocol.h`.

Python first sends a configuration, then requests, each as one message. Each request gets one reply.
Numbers are in native byte order. `tests/unit/sandbox/test_wire.py` compares this module with the
header.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum, IntFlag
from functools import lru_cache, partial
from typing import Final, NamedTuple, Protocol, TypeVar

from shioenv.domain.runner import Order
from shioenv.sandbox.base import (
    LONGEST_IDLE,
    MEBIBYTE,
    Execution,
    Limits,
    Request,
    refuse_limit,
)
from shioenv.sandbox.change_records import parse_changes, scan_error
from shioenv.system import stopped


class Config(IntEnum):
    """Kinds of configuration records, `CONFIG_*`."""

    END = 0
    ENVIRONMENT = 1
    HOSTNAME = 2
    DOMAINNAME = 3
    UPTIME = 4
    DISK = 5
    NETLINK = 6
    GATEWAY = 7
    SECCOMP = 8
    RLIMITS = 9
    SHELL = 10
    PRELOAD = 11
    DIRECTORY = 12
    DEVICE = 13
    PROCESSORS = 14
    COVER = 15
    WEB_DATE = 16
    PLAIN = 17
    USAGE = 18
    CLOCK = 19
    PARENT = 20
    PROCESSES = 21
    SOCKETS = 22


class Ask(IntEnum):
    """The flags of a request, `REQUEST_*`: bits, combined as plain numbers."""

    FRESH = 1
    """Use a newly executed bash."""
    SEPARATE = 2
    KEEP = 4
    """Keep the run's changes for the next run."""
    TERMINAL = 8
    RENEW = 16
    """The run reads how the previous run changed the network; afterwards the network is created
    anew."""
    ROWS = 32
    EAGER = 64
    LAZY = 128
    SHELL = 256
    """Start a persistent shell in the machine as it is. The reply comes once the shell waits for a
    line."""
    LINE = 512
    """The input is the next line of the persistent shell."""
    END = 1024
    """End the persistent shell and make the machine pristine. Until then, runs without `LINE` are
    in the same machine as the shell."""
    APART = 2048
    """Run beside a persistent shell, on the pristine system's files."""
    LOOK = 4096
    """Run nothing; report the changes since the persistent shell was started."""
    BLIND = 16384
    """For a line: do not report changes and shell state; the next line without this flag does."""
    HAND = 8192
    """Pass the terminal of a persistent shell, or the caller's ends of an entered input's streams.
    These descriptors come with one byte instead of a reply."""
    ENTER = 32768
    """Run the input in the machine without a persistent shell; its processes continue."""
    MARK = 65536
    """Keep the state of the persistent shell as a node."""
    FORK = 131072
    """Continue in a copy of a node's shell, with a line if `LINE` is set. With `SHELL`: the node is
    a file that comes with the request."""
    LAST = 262144
    """For a line: the shell exits after it, as `bash -c` does after its last line."""
    EXPORT = 524288
    """With `MARK`: the node is a file, which `HAND` passes."""


class ReplyFlags(IntFlag):
    """The flags of a reply, `REPLY_*`."""

    TIMED_OUT = 1
    OUTPUT_TRUNCATED = 2
    OUTPUT_KILLED = 4
    MEMORY = 8
    BACKGROUND = 16
    FILES = 32
    NETWORK = 64
    IPC = 128
    HOSTNAME = 256
    CHANGES_TRUNCATED = 512
    INIT = 1024
    TRAFFIC = 2048
    CPU = 4096
    PROCESSES = 8192
    DISK = 16384
    INODES = 32768
    MOUNTS = 65536
    WAITED = 131072
    SOCKETS = 262144
    SCAN = 524288
    STAYS = 1048576
    BUSY = 2097152
    FROZEN = 4194304
    OUTLIVED = 8388608


class Stage(IntEnum):
    """The stage in which a run failed, `STAGE_*`."""

    NONE = 0
    NAMESPACES = 1
    DIRECTORY = 2
    STARTED = 3
    COPIED = 4
    SCAN = 16
    OVER = 17


UNMARKED: Final = {
    "ENDED": "the shell has ended",
    "PROCESSES": "other processes are running",
    "MACHINE": "the machine was changed",
    "DESCRIPTORS": "other descriptors are open",
    "ATTRIBUTES": "attributes of its process were changed",
    "FILES": "its files cannot be kept",
    "MEMORY": "its memory cannot be copied",
}
"""Reasons why a shell's state cannot be kept, in the order of the numbers of `NODE_*`."""
NEEDS_NEW_SANDBOX: Final = (
    ReplyFlags.IPC | ReplyFlags.HOSTNAME | ReplyFlags.INIT | ReplyFlags.MOUNTS | ReplyFlags.SOCKETS
)
"""The flags of changes that the supervisor cannot undo. It undoes all other changes. Changes of the
network are undone once they were read."""
FD_GATEWAY: Final = 100
"""The descriptor that refers to the gateway's network namespace in messages that create
interfaces."""
LONGEST_PATH: Final = 4096
"""Maximum bytes of a start directory, including its final NUL: `CWD_MAX`."""
LONGEST_STATE: Final = 4 << 20
"""Maximum bytes of the shell state: `STATE_MAX`."""
LONGEST_CHANGES: Final = 32 * MEBIBYTE + (1 << 17)
"""Maximum bytes of change records: `RECORDS_MAX` of scan.c plus the record that exceeds it."""

RECORD = struct.Struct("=II")
REQUEST = struct.Struct("=4I2Q6I")
REPLY = struct.Struct("=iIiIqq5I4x")  # as C pads it
RLIMIT = struct.Struct("=3Q")
PROCESS = struct.Struct("=3I16s")
SOCKET = struct.Struct("=3I16s16s64s")

_ORDERS: Mapping[Order, int] = {"as it comes": 0, "eager": Ask.EAGER, "lazy": Ask.LAZY}
_LIMITS_HIT = (
    (ReplyFlags.TIMED_OUT, "wall_seconds"),
    (ReplyFlags.CPU, "cpu_seconds"),
    (ReplyFlags.MEMORY, "memory_bytes"),
    (ReplyFlags.PROCESSES, "processes"),
    (ReplyFlags.DISK, "disk_bytes"),
    (ReplyFlags.INODES, "disk_inodes"),
    (ReplyFlags.OUTPUT_TRUNCATED | ReplyFlags.OUTPUT_KILLED, "output_bytes"),
    (ReplyFlags.OUTPUT_KILLED, "drain_bytes"),
    (ReplyFlags.BACKGROUND, "background_seconds"),
    (ReplyFlags.SCAN, "scan_seconds"),
)


def pack_configuration(records: Iterable[tuple[Config, bytes]]) -> bytes:
    """Build the message that configures a supervisor."""
    ended = (*records, (Config.END, b""))
    return b"".join(RECORD.pack(kind, len(value)) + value for kind, value in ended)


def pack_request(
    request: Request,
    directory: bytes,
    limits: Limits,
    ask: int = 0,
    idle_seconds: float = 0.0,
    node: int = 0,
) -> bytes:
    """Build the message that runs an input in `directory`; `ask` holds further flags (`Ask`).

    A persistent shell ends after waiting `idle_seconds` for its next line. `node` is the kept state
    from which a forked line starts.

    Raises InputError if the input cannot be an argument of a program.
    """
    text = request.argument()
    if request.separate:
        ask |= Ask.SEPARATE
    if request.tty:
        ask |= Ask.TERMINAL
    if request.rows:
        ask |= Ask.ROWS
    ask |= _ORDERS[request.order]
    if ask & (Ask.SHELL | Ask.ENTER):
        refuse_limit("idle_seconds", idle_seconds, LONGEST_IDLE)
    seconds = limits.wall_seconds if request.wall_seconds is None else request.wall_seconds
    head = REQUEST.pack(
        ask,
        round(seconds * 1000),
        round(limits.background_seconds * 1000),
        limits.output_bytes,
        limits.drain_bytes,
        limits.memory_bytes,
        round(limits.scan_seconds * 1000),
        round(idle_seconds * 1000),
        len(directory),
        len(text),
        len(request.stdin),
        node,
    )
    return head + directory + text + request.stdin


class Reply(NamedTuple):
    """The head of a reply. Four parts follow it; their lengths are its last four members."""

    error: int
    """0, or an errno if the run failed or its changes could not be read (`Stage.SCAN`)."""
    stage: int
    status: int
    """The shell's wait status, as from wait(2)."""
    flags: int
    """`ReplyFlags`."""
    started_ns: int
    ended_ns: int
    processes: int
    """Processes started before the shell ended, including the shell; 0 if unknown."""
    output_length: int
    errors_length: int
    state_length: int
    changes_length: int

    def execution(self, body: memoryview, limits: Limits, *, separate: bool) -> Execution:
        """Build the execution from the bytes that followed this head.

        Hostname and network are missing: the caller reads them if `meaning` reports a change.
        Raises SandboxError for bytes that do not follow the protocol.
        """
        said = meaning(self.flags)
        output_end = self.output_length
        errors_end = output_end + self.errors_length
        state_end = errors_end + self.state_length
        output, errors = bytes(body[:output_end]), bytes(body[output_end:errors_end])
        shell, cwd = None, None
        long_state = self.state_length >= min(limits.state_bytes, LONGEST_STATE)
        if self.state_length and not long_state:
            shell, cwd = _split_state(bytes(body[errors_end:state_end]))
        died_of = os.WTERMSIG(self.status) if os.WIFSIGNALED(self.status) else None
        if said.timed_out:
            exit_code = 124
        elif died_of is not None:
            exit_code = 128 + died_of
        else:
            exit_code = os.WEXITSTATUS(self.status)
        return Execution(
            exit_code=exit_code,
            output=output + errors if separate else output,
            stdout=output if separate else None,
            stderr=errors if separate else None,
            changes=parse_changes(body[state_end:]) if self.changes_length else (),
            changes_truncated=said.changes_truncated,
            shell=shell,
            cwd=cwd,
            started=self.started_ns / 1e9,
            ended=self.ended_ns / 1e9,
            timed_out=said.timed_out,
            waited=said.waited,
            output_truncated=said.output_truncated,
            limits_hit=(*said.limits_hit, "state_bytes") if long_state else said.limits_hit,
            signal=died_of,
            processes=self.processes,
            stays=said.stays,
            busy=said.busy,
            frozen=said.frozen,
            outlived=said.outlived,
        )


class Meaning(NamedTuple):
    """The flags of a reply, decoded."""

    timed_out: bool
    waited: bool
    output_truncated: bool
    changes_truncated: bool
    network: bool
    hostname: bool
    needs_new_sandbox: bool
    limits_hit: tuple[str, ...]
    stays: bool
    busy: bool
    frozen: bool
    outlived: bool
    traffic: bool


@lru_cache(maxsize=1024)
def meaning(flags: int) -> Meaning:
    """Decode the `flags` of a reply. Few combinations occur, so the results are cached."""
    said = ReplyFlags(flags)
    return Meaning(
        timed_out=bool(said & ReplyFlags.TIMED_OUT),
        waited=bool(said & ReplyFlags.WAITED),
        output_truncated=bool(said & (ReplyFlags.OUTPUT_TRUNCATED | ReplyFlags.OUTPUT_KILLED)),
        changes_truncated=bool(said & ReplyFlags.CHANGES_TRUNCATED),
        network=bool(said & ReplyFlags.NETWORK),
        hostname=bool(said & ReplyFlags.HOSTNAME),
        needs_new_sandbox=bool(said & NEEDS_NEW_SANDBOX),
        limits_hit=tuple(name for flag, name in _LIMITS_HIT if said & flag),
        stays=bool(said & ReplyFlags.STAYS),
        busy=bool(said & ReplyFlags.BUSY),
        frozen=bool(said & ReplyFlags.FROZEN),
        outlived=bool(said & ReplyFlags.OUTLIVED),
        traffic=bool(said & ReplyFlags.TRAFFIC),
    )


def _split_state(state: bytes) -> tuple[bytes, bytes | None]:
    """Split off the dump's last section, which holds the working directory.

    The directory is None if the section is empty or missing.
    """
    head, mark, cwd = state.rpartition(b"\0cwd\n")
    return (head, cwd or None) if mark else (state, None)


def read_reply(receive: Callable[[int, bytes], bytes], limits: Limits) -> tuple[Reply, memoryview]:
    """Read the next reply, and return its head and the bytes that follow.

    `receive` takes a number and the bytes so far. It returns all bytes once there are at least that
    many. Raises SandboxError for lengths that exceed these limits, before waiting for such bytes.
    """
    said = receive(REPLY.size, b"")
    reply = Reply._make(REPLY.unpack_from(said))
    longest = (limits.output_bytes, limits.output_bytes, LONGEST_STATE, LONGEST_CHANGES)
    lengths = reply[-4:]
    if any(length > most for length, most in zip(lengths, longest, strict=True)):
        raise scan_error(f"lengths of {lengths} bytes, of {longest} at most")
    body = receive(REPLY.size + sum(lengths), said)
    if len(body) > REPLY.size + sum(lengths):
        raise scan_error("it is longer than announced")
    return reply, memoryview(body)[REPLY.size :]


class Connection(Protocol):
    """The connection to a supervisor: a socket, or an object with the same methods."""

    def settimeout(self, seconds: float, /) -> None:
        """Set for how many seconds the supervisor may be silent."""

    def gettimeout(self) -> float | None:
        """Return the seconds for which the supervisor may be silent; None if never set."""

    def sendall(self, data: bytes, /) -> None:
        """Send these bytes to the supervisor."""

    def recv(self, most: int, /) -> bytes:
        """Return some of the bytes that the supervisor wrote; none once it has ended."""
        ...

    def close(self) -> None:
        """Close the connection, which ends the supervisor."""


class Supervisor(Protocol):
    """The supervisor's process; when it ends, all processes of the sandbox end."""

    @property
    def pid(self) -> int:
        """The process id on this host."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the process has ended, and return its exit status."""
        ...

    def kill(self) -> None:
        """End the process at once."""

    def poll(self) -> int | None:
        """Return the exit status; None while the process runs."""


T = TypeVar("T")


class SupervisorSocket:
    """A socket to the supervisor `process` (pid) on this host.

    Its timeout is the time for which the supervisor may be silent. The time is counted in polling
    intervals, so time in which this process itself is stopped does not count.
    """

    def __init__(self, connection: socket.socket, process: int) -> None:
        self._connection, self._process = connection, process
        self._seconds = connection.gettimeout()
        connection.settimeout(stopped.LOOK_SECONDS)

    def gettimeout(self) -> float | None:
        """Return the seconds for which the supervisor may be silent."""
        return self._seconds

    def settimeout(self, seconds: float) -> None:
        """Set the seconds for which the supervisor may be silent."""
        self._seconds = seconds

    def sendall(self, data: bytes) -> None:
        """Send these bytes. Errors: those of `recv`."""
        sent = 0
        while sent < len(data):
            sent += self._patiently(partial(self._connection.send, memoryview(data)[sent:]))

    def send_with(self, data: bytes, descriptor: int) -> None:
        """Send these bytes with a descriptor. Errors: those of `recv`."""
        given = partial(socket.send_fds, self._connection, [data], [descriptor])
        self.sendall(data[self._patiently(given) :])

    def recv(self, most: int) -> bytes:
        """Return some of the bytes that the supervisor wrote; none once it has ended.

        Errors: TimeoutError if it is silent for too long, ConnectionError if it stays stopped.
        """
        return self._patiently(partial(self._connection.recv, most))

    def receive_descriptors(self, count: int) -> list[int]:
        """Return the descriptors that come with the next byte. Errors: those of `recv`."""
        flags = socket.MSG_CMSG_CLOEXEC
        return self._patiently(partial(socket.recv_fds, self._connection, 1, count, flags))[1]

    def close(self) -> None:
        """Close the socket, which ends the supervisor."""
        self._connection.close()

    def _patiently(self, call: Callable[[], T]) -> T:
        """Return the result of `call`, retried on timeouts while the supervisor may answer."""
        silent, watch = 0.0, stopped.StopWatch()
        while True:
            try:
                return call()
            except TimeoutError:
                silent += stopped.LOOK_SECONDS
                if watch.is_lost(self._process):
                    raise ConnectionAbortedError("a signal stopped it (SIGSTOP)") from None
                if self._seconds is not None and silent >= self._seconds:
                    raise
