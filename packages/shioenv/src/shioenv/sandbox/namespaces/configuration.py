"""The configuration sent to a supervisor before its first run: declared machine and limits."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from shioenv import native
from shioenv.sandbox.base import Limits, ShellMode
from shioenv.sandbox.namespaces.netlink import network_messages
from shioenv.sandbox.namespaces.wire import (
    PROCESS,
    RLIMIT,
    SOCKET,
    Config,
    pack_configuration,
)
from shioenv.system.declare import Socket, SystemDeclaration
from shioenv.system.proc import idle_time, live_proc_files
from shioenv.system.processes import owned_processes
from shioenv.system.store import System
from shioenv.system.values import UNLIMITED

FILTER = Path(__file__).with_name("filter.txt")
"""The instructions of the seccomp filter, one per line, compiled by `scripts/filter.py`."""

PARENT = "parent"
"""The placeholder in `filter.txt` for the process id of the shells' parent."""


@cache
def filter_program(parent: int) -> bytes:
    """Return the filter as BPF instructions for prctl(2); `parent` is the shells' parent (pid).

    Calls of other architectures (32-bit, x32) fail with ENOSYS, as on a kernel without them.
    """
    return native.read_filter(FILTER, {PARENT: parent})


class ShownKernel(NamedTuple):
    """The attributes of the supervisor's kernel that a system may show."""

    release: str
    now: float
    """The kernel's time, seconds since 1970."""


def configuration(
    system: System, limits: Limits, mode: ShellMode, kernel: ShownKernel, *, plain: bool
) -> bytes:
    """Return the message that configures a supervisor under this kernel.

    With `plain`, inputs run on a plain copy of the system's files instead of an overlay.
    """
    declaration, told = system.declaration, system.answers
    machine, session = declaration.machine, declaration.session
    inside, gateway = network_messages(machine.interfaces)
    root_disk = next((disk.name for disk in machine.disks if disk.mount == "/"), "root")
    live = live_proc_files(
        declaration,
        now=declaration.instant.timestamp() if told.clock == "declared" else kernel.now,
        release=machine.kernel.release if told.kernel == "declared" else kernel.release,
    )
    size = min(limits.disk_bytes, machine.disk - told.disk_used)
    usage = f"{limits.cpu_seconds * 1000:.0f} {limits.processes}"
    disk = f"size={size},nr_inodes={limits.disk_inodes},mode=755"
    return pack_configuration(
        [
            *(
                (Config.ENVIRONMENT, f"{name}={value}".encode())
                for name, value in session.environment.items()
            ),
            (Config.HOSTNAME, machine.hostname.encode()),
            (Config.DOMAINNAME, (machine.domain or "(none)").encode()),
            (Config.UPTIME, f"{machine.uptime} {idle_time(machine)}".encode()),
            (Config.CLOCK, told.clock.encode()),
            (Config.PROCESSORS, str(machine.cpu.count).encode()),
            (Config.DISK, disk.encode()),
            (Config.DEVICE, f"/dev/{root_disk}".encode()),
            (Config.USAGE, usage.encode()),
            (Config.NETLINK, inside),
            (Config.GATEWAY, gateway),
            (Config.WEB_DATE, f"{declaration.instant:%a, %d %b %Y %H:%M:%S GMT}".encode()),
            (Config.SECCOMP, filter_program(session.parent)),
            (Config.RLIMITS, b"".join(_resource_limits(session.limits))),
            (Config.PARENT, str(session.parent).encode()),
            (Config.PROCESSES, b"".join(_processes(declaration))),
            (Config.SOCKETS, b"".join(_sockets(machine.sockets))),
            (Config.SHELL, mode.encode()),
            (Config.PRELOAD, native.preload_library().read_bytes()),
            (Config.PLAIN, b"1" if plain else b""),
            (Config.DIRECTORY, declaration.start_directory.encode()),
            *((Config.COVER, name.encode() + b"\0" + text) for name, text in live.items()),
        ]
    )


_RESOURCES = (
    "cpu", "fsize", "data", "stack", "core", "rss", "nproc", "nofile",
    "memlock", "as", "locks", "sigpending", "msgqueue", "nice", "rtprio",
)  # fmt: skip
"""Names of the resources of setrlimit(2), indexed by their number on Linux."""


def _resource_limits(declared: Mapping[str, tuple[int, int]]) -> Iterator[bytes]:
    """Pack (resource, soft, hard) of each declared limit for setrlimit(2)."""
    for name, (soft, hard) in declared.items():
        number = _RESOURCES.index(name)
        if name == "core" and soft == 0:
            # `ulimit -c` shows 1 as 0, and with 1 a crash never starts the host's core handler
            soft = 1
        infinite = 2**64 - 1
        yield RLIMIT.pack(
            number, *(infinite if limit == UNLIMITED else limit for limit in (soft, hard))
        )


def _processes(declaration: SystemDeclaration) -> Iterator[bytes]:
    """Pack (number, owner, group, name) of each process of the machine."""
    for process, uid, gid in owned_processes(declaration):
        yield PROCESS.pack(process.pid, uid, gid, process.name.encode())


def _sockets(declared: Sequence[Socket]) -> Iterator[bytes]:
    """Pack (family, port, peer's port, address, peer, banner) of each socket of the machine."""
    for one in declared:
        family = socket.AF_INET6 if ":" in one.address else socket.AF_INET
        address, peer = (
            socket.inet_pton(family, text) if text else b"" for text in (one.address, one.peer)
        )
        yield SOCKET.pack(family, one.port, one.peer_port, address, peer, one.banner.encode())
