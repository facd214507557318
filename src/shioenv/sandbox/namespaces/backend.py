"""The default backend: Linux namespaces over an overlay of the system, without daemon or root.

One supervisor process (C, `shioenv.native`) per sandbox makes the namespaces, has a fork server
inside the system's own bash run one input at a time, and makes everything pristine again
afterwards. This module configures it, sends it inputs and reads what they did.
`docs/design/sandbox.md` says how and why.
"""

from __future__ import annotations

import errno
import os
import platform
import resource
import struct
import subprocess
import time
from collections.abc import Mapping
from enum import IntEnum, IntFlag, StrEnum
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from shioenv import native
from shioenv.errors import (
    HostError,
    InputError,
    SandboxError,
    StartDirectoryError,
)
from shioenv.sandbox.base import Execution, FileChange, FileStat, Limits
from shioenv.sandbox.namespaces.netlink import network_messages
from shioenv.sandbox.namespaces.seccomp import filter_program
from shioenv.system.declare import UNLIMITED
from shioenv.system.idmap import find_idmap, spawn_mapped
from shioenv.system.profile import live_proc_files
from shioenv.system.store import System


class ShellMode(StrEnum):
    """Where the fork server in bash stops and waits for inputs; see `native/inside/preload.c`."""

    LATE = "late"
    """After bash's own initialisation: fastest."""
    MAIN = "main"
    """Before bash's main()."""
    FRESH = "fresh"
    """Nowhere: every input starts a bash of its own, and its shell state stays unknown."""


LONGEST_INPUT: Final = 128 * 1024 - 1
"""Bytes of the longest input: what Linux takes as one argument (MAX_ARG_STRLEN)."""


class _Config(IntEnum):  # CONFIG_* of protocol.h
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


class _Flag(IntFlag):  # REPLY_*
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


_FRESH, _SEPARATE, _KEEP, _TERMINAL = 1, 2, 4, 8  # REQUEST_*
_LIMITS_HIT = (
    (_Flag.TIMED_OUT, "wall_seconds"),
    (_Flag.CPU, "cpu_seconds"),
    (_Flag.MEMORY, "memory_bytes"),
    (_Flag.PROCESSES, "processes"),
    (_Flag.DISK, "disk_bytes"),
    (_Flag.INODES, "disk_inodes"),
    (_Flag.OUTPUT_TRUNCATED | _Flag.OUTPUT_KILLED, "output_bytes"),
    (_Flag.OUTPUT_KILLED, "drain_bytes"),
    (_Flag.BACKGROUND, "background_seconds"),
)
_STAGE_DIRECTORY = 2
_NEEDS_NEW_NAMESPACES = (  # NEEDS_NEW_SANDBOX
    _Flag.NETWORK | _Flag.IPC | _Flag.HOSTNAME | _Flag.INIT | _Flag.MOUNTS | _Flag.SOCKETS
)
"""Where a run leaves other traces, the supervisor undoes them."""

_REQUEST = struct.Struct("=4I2Q2I")
_REPLY = struct.Struct("=iIiIqq4I")
_RECORD = struct.Struct("=II")
_STAT = struct.Struct("=4IQqIQ2I")
_LENGTH = struct.Struct("=I")
_LONGEST_PATH = 4096  # CWD_MAX
_LONGEST_STATE = 4 << 20  # STATE_MAX
_PIECE = 1 << 16  # bytes; hardly an answer is longer
_GRACE_SECONDS = 120.0
"""How long past a run's own limits the supervisor may stay silent before it counts as broken."""

_PROBE_SECONDS = 30.0
"""Wall time of reading the network, which takes a hundredth of it."""

_NETWORK_PROBE = (
    "printf '{\"links\":'; ip -json link show; printf ',\"addresses\":'; ip -json address show; "
    "printf ',\"routes\":'; ip -4 -json route show table all; "
    "printf ',\"routes6\":'; ip -6 -json route show table all; "
    "printf ',\"rules\":'; ip -4 -json rule show; printf ',\"rules6\":'; ip -6 -json rule show; "
    'printf \',"firewall":"\'; '
    "nft list ruleset 2>/dev/null | od -An -v -tx1 | tr -d ' \\n'; printf '\"}'"
)
"""Prints the state of the network as JSON, the firewall as hexadecimal text within it."""


class NamespaceSandbox:
    """A pristine system that runs one input at a time; see `shioenv.sandbox.base.Sandbox`.

    Opening costs some milliseconds, a run about as much as `bash -c` alone. Not for use by two
    threads at once. Raises HostError (exit status 3, with the fix) where the host forbids what is
    needed.
    """

    def __init__(
        self,
        system: System,
        limits: Limits | None = None,
        *,
        mode: ShellMode = ShellMode.LATE,
        plain: Path | None = None,
    ) -> None:
        """`plain` is the oracle's file system: a full copy of the system's rootfs, owners included
        and not below /tmp, that inputs run on in place of the overlay. They change it for good: the
        caller restores it.
        """
        self.system = system
        self.limits = limits or Limits()
        self.mode = mode
        self._plain = plain
        self._closed = False
        self._owner = os.getpid()
        self._process: subprocess.Popen[bytes] | None = None
        self._open()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends every process of the sandbox; closing twice does nothing."""
        self._closed = True
        self._end()

    def _end(self) -> None:
        """Ends the supervisor and with it everything; the next run, if any, starts a new one."""
        process, self._process = self._process, None
        if process is None:
            return
        self._socket.close()  # its end of file ends the supervisor, and that everything else
        try:
            process.wait(timeout=_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def run(
        self,
        shell_input: str | bytes,
        *,
        cwd: str | None = None,
        separate: bool = False,
        tty: bool = False,
        wall_seconds: float | None = None,
    ) -> Execution:
        """What a fresh `bash --norc --noprofile -c` of this input did; see `Sandbox.run`.

        Raises InputError where no shell could be given this input (a NUL byte, too long; two output
        channels on one terminal), StartDirectoryError where `cwd` cannot be entered, SandboxError
        where the sandbox broke (the next run gets a new one; this one may be repeated).
        """
        if separate and tty:
            raise InputError("a terminal has one output channel", hint="separate or tty, not both")
        flags = (_SEPARATE if separate else 0) | (_TERMINAL if tty else 0)
        return self._run(shell_input, cwd, flags, wall_seconds)

    def run_fresh(
        self, shell_input: str | bytes, *, cwd: str | None = None, tty: bool = False
    ) -> Execution:
        """The same from a newly executed bash: the oracle that `run` is compared with.

        Slower, and the shell's state stays unknown.
        """
        return self._run(shell_input, cwd, _FRESH | (_TERMINAL if tty else 0))

    def network(self) -> bytes:
        """The pristine network, in the form of `Execution.network`.

        Raises SandboxError where something outside ended what reads it.
        """
        read = self._run(_NETWORK_PROBE, "/", _KEEP, _PROBE_SECONDS)
        if read.exit_code != 0:
            self._end()
            raise SandboxError(f"the network could not be read: exit code {read.exit_code}")
        return read.output

    # ---- the supervisor ----

    def _open(self) -> None:
        directory = self.system.path
        idmap = find_idmap()
        process, connection = spawn_mapped(
            ["run", str(idmap.first_uid), str(idmap.first_gid)],
            idmap,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={},
        )
        self._process, self._socket = process, connection
        try:
            connection.sendall(self._configuration())
            line = b""
            while not line.endswith(b"\n"):
                byte = connection.recv(1)
                if not byte:
                    break
                line += byte
        except OSError as error:
            line = f"E{error.errno} talk to the supervisor".encode()
        if line != b"R\n":
            self._end()
            raise _opening_failed(line.decode("utf-8", "replace").strip())

    def _configuration(self) -> bytes:
        declaration = self.system.declaration
        machine, session = declaration.machine, declaration.session
        inside, gateway = network_messages(machine.interfaces)
        root_disk = next((disk.name for disk in machine.disks if disk.mount == "/"), "root")
        limits = b"".join(
            struct.pack("=3Q", *triple) for triple in _resource_limits(session.limits)
        )
        live = live_proc_files(declaration, now=time.time(), kernel_release=platform.release())
        size = min(self.limits.disk_bytes, machine.disk)
        usage = f"{self.limits.cpu_seconds * 1000:.0f} {self.limits.processes}"
        disk = f"size={size},nr_inodes={self.limits.disk_inodes},mode=755"
        records: list[tuple[_Config, bytes]] = [
            *(
                (_Config.ENVIRONMENT, f"{name}={value}".encode())
                for name, value in session.environment.items()
            ),
            (_Config.HOSTNAME, machine.hostname.encode()),
            (_Config.DOMAINNAME, (machine.domain or "(none)").encode()),
            (_Config.UPTIME, str(machine.uptime).encode()),
            (_Config.PROCESSORS, str(machine.cpu.count).encode()),
            (_Config.DISK, disk.encode()),
            (_Config.DEVICE, f"/dev/{root_disk}".encode()),
            (_Config.USAGE, usage.encode()),
            (_Config.NETLINK, inside),
            (_Config.GATEWAY, gateway),
            (_Config.WEB_DATE, f"{declaration.instant:%a, %d %b %Y %H:%M:%S GMT}".encode()),
            (_Config.SECCOMP, filter_program()),
            (_Config.RLIMITS, limits),
            (_Config.SHELL, self.mode.encode()),
            (_Config.PRELOAD, native.preload_library().read_bytes()),
            (_Config.PLAIN, os.fsencode(self._plain.absolute()) if self._plain else b""),
            (_Config.DIRECTORY, session.start_directories[0].encode()),
            *((_Config.COVER, name.encode() + b"\0" + text) for name, text in live.items()),
            (_Config.END, b""),
        ]
        return b"".join(_RECORD.pack(kind, len(value)) + value for kind, value in records)

    def _run(
        self, shell_input: str | bytes, cwd: str | None, flags: int, seconds: float | None = None
    ) -> Execution:
        text = _argument(shell_input)
        directory = cwd or self.system.declaration.session.start_directories[0]
        where = _directory(directory)
        if self._closed:
            raise SandboxError("the sandbox is closed", hint="open a new one")
        if self._owner != os.getpid():
            raise SandboxError(
                "the sandbox was opened by another process", hint="open one in each process"
            )
        if self._process is None:
            self._open()
        limits = self.limits
        wall_seconds = limits.wall_seconds if seconds is None else seconds
        request = _REQUEST.pack(
            flags,
            round(wall_seconds * 1000),
            round(limits.background_seconds * 1000),
            limits.output_bytes,
            limits.drain_bytes,
            limits.memory_bytes,
            len(where),
            len(text),
        )
        self._socket.settimeout(wall_seconds + limits.background_seconds + _GRACE_SECONDS)
        try:
            self._socket.sendall(request + where + text)
            answer = self._receive(_REPLY.size)
            error, stage, status, raw_flags, started, ended, *lengths = _REPLY.unpack_from(answer)
            body = memoryview(self._receive(_REPLY.size + sum(lengths), answer))[_REPLY.size :]
        except OSError as failure:
            self._end()
            raise SandboxError(f"the supervisor is gone: {failure}") from failure
        except BaseException:
            self._end()  # an interrupt: the answer would be taken for the next run's
            raise
        said = _meaning(raw_flags)
        if error:
            if stage == _STAGE_DIRECTORY:
                raise _no_start(directory, os.strerror(error))
            self._end()
            raise SandboxError(
                f"the input could not be started: {os.strerror(error)} (stage {stage})"
            )
        output_end = lengths[0]
        errors_end = output_end + lengths[1]
        state_end = errors_end + lengths[2]
        output, errors = bytes(body[:output_end]), bytes(body[output_end:errors_end])
        shell, working_directory = None, None
        long_state = lengths[2] >= min(limits.state_bytes, _LONGEST_STATE)
        if lengths[2] and not long_state:
            shell, working_directory = _split_state(bytes(body[errors_end:state_end]))
        network, hostname = None, None
        if said.network and not flags & _KEEP:
            network = self.network()
        if said.hostname and not flags & _KEEP:
            hostname = self._run("uname -n", "/", _KEEP).output.rstrip(b"\n")
            if hostname == self.system.declaration.machine.hostname.encode():
                hostname = None  # it was the domain name that changed
        if said.needs_new_namespaces and not flags & _KEEP:
            self._end()
        timed_out = said.timed_out
        died_of = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        if timed_out:
            exit_code = 124
        elif died_of is not None:
            exit_code = 128 + died_of
        else:
            exit_code = os.WEXITSTATUS(status)
        separate = bool(flags & _SEPARATE)
        return Execution(
            exit_code=exit_code,
            output=output + errors if separate else output,
            stdout=output if separate else None,
            stderr=errors if separate else None,
            changes=_parse_changes(body[state_end:]) if lengths[3] else (),
            changes_truncated=said.changes_truncated,
            shell=shell,
            cwd=working_directory,
            started=started / 1e9,
            ended=ended / 1e9,
            timed_out=timed_out,
            waited=said.waited,
            output_truncated=said.output_truncated,
            limits_hit=(*said.limits_hit, "state_bytes") if long_state else said.limits_hit,
            signal=died_of,
            hostname=hostname,
            network=network,
        )

    def _receive(self, least: int, so_far: bytes = b"") -> bytes:
        """So many bytes of an answer at least: mostly it comes in one piece."""
        data = so_far
        while len(data) < least:
            more = self._socket.recv(max(_PIECE, least - len(data)))
            if not more:
                raise ConnectionResetError("end of file")
            data = data + more if data else more
        return data


class _Meaning(NamedTuple):
    """What the flags of a reply say."""

    timed_out: bool
    waited: bool
    output_truncated: bool
    changes_truncated: bool
    network: bool
    hostname: bool
    needs_new_namespaces: bool
    limits_hit: tuple[str, ...]


@lru_cache(maxsize=1024)
def _meaning(flags: int) -> _Meaning:
    reply = _Flag(flags)
    return _Meaning(
        timed_out=bool(reply & _Flag.TIMED_OUT),
        waited=bool(reply & _Flag.WAITED),
        output_truncated=bool(reply & (_Flag.OUTPUT_TRUNCATED | _Flag.OUTPUT_KILLED)),
        changes_truncated=bool(reply & _Flag.CHANGES_TRUNCATED),
        network=bool(reply & _Flag.NETWORK),
        hostname=bool(reply & _Flag.HOSTNAME),
        needs_new_namespaces=bool(reply & _NEEDS_NEW_NAMESPACES),
        limits_hit=tuple(name for flag, name in _LIMITS_HIT if reply & flag),
    )


def _argument(shell_input: str | bytes) -> bytes:
    """The input as bash gets it. InputError for what cannot be an argument of a program."""
    try:
        text = os.fsencode(shell_input)
    except UnicodeEncodeError as error:
        raise InputError(f"the input cannot be encoded: {error}") from error
    if b"\0" in text:
        raise InputError("the input holds a NUL byte, which no shell argument can")
    if len(text) > LONGEST_INPUT:
        raise InputError(f"the input has {len(text)} bytes; Linux takes {LONGEST_INPUT} at most")
    return text


def _directory(path: str) -> bytes:
    where = os.fsencode(path)
    if not where.startswith(b"/") or b"\0" in where:
        raise _no_start(path, "not an absolute path")
    if len(where) >= _LONGEST_PATH:
        raise _no_start(path[:80] + "...", os.strerror(errno.ENAMETOOLONG))
    return where


def _no_start(path: str, reason: str) -> StartDirectoryError:
    return StartDirectoryError(
        f"cannot start in {path}: {reason}",
        hint="a start directory is an absolute path of a directory in the system",
    )


def _opening_failed(line: str) -> HostError | SandboxError:
    """What the supervisor's last line ("E<errno> <step>") means to the user."""
    number, _, step = line.removeprefix("E").partition(" ")
    reason = os.strerror(int(number)) if number.isdigit() else "it ended without a word"
    message = f"the sandbox could not be opened: {step or 'supervisor'}: {reason}"
    if "overlay" in step or "opaque" in step:
        return HostError(
            message,
            hint="Linux 6.6 or newer is needed (on Debian 12: apt-get install "
            "-t bookworm-backports linux-image-amd64)",
        )
    if "proc" in step:
        return HostError(
            message,
            hint="this looks like a container with a masked /proc: run it with "
            "--security-opt systempaths=unconfined --security-opt seccomp=unconfined",
        )
    if number in ("1", "13", "28"):
        return HostError(message, hint="shioenv doctor names what this host forbids")
    return SandboxError(message, hint="shioenv doctor checks each step")


_RESOURCES = (
    "cpu", "fsize", "data", "stack", "core", "rss", "nproc", "nofile",
    "memlock", "as", "locks", "sigpending", "msgqueue", "nice", "rtprio",
)  # fmt: skip
"""Names of setrlimit(2)'s resources by their number on Linux."""


def _resource_limits(declared: Mapping[str, tuple[int, int]]) -> list[tuple[int, int, int]]:
    """(resource, soft, hard) for setrlimit(2), never above what this process itself may have."""
    triples = []
    for name, (soft, hard) in declared.items():
        number = _RESOURCES.index(name)
        if name == "core" and soft == 0:
            # `ulimit -c` shows 0 as well, and a crash never starts the host's own core handler
            soft = 1
        ceiling = resource.getrlimit(number)[1]
        soft, hard = (_at_most(value, ceiling) for value in (soft, hard))
        triples.append((number, soft, hard))
    return triples


def _at_most(value: int, ceiling: int) -> int:
    infinite = 2**64 - 1
    value = infinite if value == UNLIMITED else value
    return min(value, infinite if ceiling == resource.RLIM_INFINITY else ceiling)


def _split_state(state: bytes) -> tuple[bytes, bytes | None]:
    """The dump without its last section, and that section: the working directory."""
    head, found, cwd = state.rpartition(b"\0cwd\n")
    return (head, cwd or None) if found else (state, None)


def _parse_changes(data: memoryview) -> tuple[FileChange, ...]:
    """The supervisor's change records (`scan.c`), the two sides of each path put together."""
    sides: dict[bytes, list[FileStat | None]] = {}
    at, end = 0, len(data)
    while at < end:
        kind = data[at]
        (length,) = _LENGTH.unpack_from(data, at + 1)
        at += 5
        path = bytes(data[at : at + length])
        at += length
        mode, uid, gid, links, size, seconds, nanoseconds, inode, major, minor = _STAT.unpack_from(
            data, at
        )
        at += _STAT.size
        (length,) = _LENGTH.unpack_from(data, at)
        at += 4
        target = bytes(data[at : at + length]) if length else None
        at += length
        has_digest = data[at]
        at += 1
        digest = bytes(data[at : at + 32]).hex() if has_digest else None
        at += 32 if has_digest else 0
        entry = FileStat(
            mode,
            uid,
            gid,
            size,
            links,
            seconds * 1_000_000_000 + nanoseconds,
            inode,
            os.makedev(major, minor),
            target,
            digest,
        )
        sides.setdefault(path, [None, None])[0 if kind == 0x42 else 1] = entry
    return tuple(FileChange(path, before, after) for path, (before, after) in sides.items())
