"""The overlay's lower layer: the system's directory tree, kept in memory.

The order, sizes and inode numbers of directory entries depend on the file system, and so do the
disk usage and access times of files. Without this layer, inputs would see the values of the file
system that holds the cache directory. So the lower layer of the overlay is a tmpfs that holds the
tree without the data. It is filled in the same order on every host. The data of files comes from
the host's files.

The layer is created once for all sandboxes of a system that a process has open, together with the
user namespace that owns it. Devices, /sys and the files of declared processes are not below an
overlay, so an input could keep them open or lock them. So each sandbox has its own copies, shared
by all its supervisors. The files of processes are read from the host once, into one packed file.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import subprocess
import time
import weakref
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from weakref import WeakValueDictionary

from shioenv.errors import HostError, SandboxError
from shioenv.system.host_diagnosis import failure
from shioenv.system.idmap import find_idmap, read_line, spawn, spawn_mapped
from shioenv.system.store import DEVICES


class LowerForm(StrEnum):
    """The part of a system's tree that is in memory."""

    NAMES = "names"
    """All names and attributes; only data comes from the host's file system (Linux 6.16)."""
    PART = "part"
    """All except /usr, whose order, sizes and access times come from the host's file system."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class KeptNamespaces:
    """Descriptors that keep two namespaces alive, without a process, while this object lives."""

    user: int
    """The user namespace that owns the mounts."""
    mounts: int
    form: LowerForm
    sum: str
    """The checksum of the host's directory when the tree was filled from it. The expected checksum
    is in `System.tree_sums`."""
    nodes: tuple[tuple[int, int], ...]
    """(device, inode) of the host's device nodes at that time, which sandboxes of ordinary users
    mount."""
    owner: KeptNamespaces | None = None
    """The namespaces whose lower layer and user namespace these share; None if not shared."""
    number: int = 1
    """The index among the namespaces that share a user namespace: from 1, and below `_MOST`."""
    others: Iterator[int] = field(default_factory=lambda: iter(range(2, _MOST)))
    """The unused numbers for further namespaces that share this user namespace."""

    def __post_init__(self) -> None:
        weakref.finalize(self, _close, self.mounts, *([] if self.owner else [self.user]))

    def current(self) -> bool:
        """Whether the host still has the same device nodes.

        A node that was replaced is shown as deleted, and cannot be mounted again.
        """
        return self.nodes == _nodes()


_DIRECTORY = Path(os.path.commonpath(DEVICES))
_SETTLED_SECONDS = 0.1
"""Seconds after which a further change certainly gets a different timestamp (our choice). The
clocks of file systems advance in steps of at most 10 ms."""


def _nodes() -> tuple[tuple[int, int], ...]:
    """Return (device, inode) of the host's device nodes.

    Creating, removing or renaming a node changes its directory. While the directory is unchanged,
    the cached result is used.
    """
    now = _DIRECTORY.stat()
    if abs(time.time() - now.st_ctime) < _SETTLED_SECONDS:
        return _nodes_looked_at()
    return _nodes_of(now.st_dev, now.st_ino, now.st_ctime_ns)


@lru_cache(maxsize=1)
def _nodes_of(*directory: int) -> tuple[tuple[int, int], ...]:
    """Return the device nodes, cached by the directory's device, inode and change time (ns)."""
    return _nodes_looked_at()


def _nodes_looked_at() -> tuple[tuple[int, int], ...]:
    found = map(os.stat, DEVICES)
    return tuple((status.st_dev, status.st_ino) for status in found)


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


_MOST = 60_000
"""Upper bound (exclusive) of the numbers of sandboxes that share a user namespace. The numbers are
user ids in the namespace. Further sandboxes share another user namespace."""

_open: WeakValueDictionary[tuple[object, ...], KeptNamespaces] = WeakValueDictionary()
"""This process's namespaces that own a lower layer, keyed by everything that determines it."""


def keep_namespaces(
    directory: Path, instant: int, *, best: LowerForm = LowerForm.NAMES, plain: Path | None = None
) -> KeptNamespaces:
    """Create the namespaces for a sandbox of the system in `directory`; see `KeptNamespaces`.

    `instant` (seconds since 1970) becomes the access time of every file. `best` is the form to try
    first; `plain` is as in `NamespaceSandbox`. If this process has namespaces of the same system
    open, their lower layer is shared. Errors: HostError if the host forbids a required feature,
    SandboxError.
    """
    idmap, nodes = find_idmap(), _nodes()
    files = (directory / "rootfs").stat()
    made_of = (files.st_dev, files.st_ino, files.st_ctime_ns, instant, best, idmap, os.getpid())
    owner = None if plain else _open.get(made_of)
    number = next(owner.others, 0) if owner else 0
    if not number:
        owner = None
    asked = [str(idmap.first_uid), str(idmap.first_gid), str(instant)]
    options: dict[str, Any] = {
        "cwd": directory,
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.DEVNULL,
        "env": {},
    }
    if owner:
        shared = (owner.user, owner.mounts)
        process, connection = spawn(
            ["share", *asked, owner.form, *map(str, shared)], descriptors=shared, **options
        )
    else:
        kept = ["keep", *asked, best, *([str(plain.absolute())] if plain else [])]
        process, connection = spawn_mapped(kept, idmap, **options)
    descriptors: list[int] = []
    with connection:
        try:
            data, descriptors, _, _ = socket.recv_fds(connection, 1, 2)
            said = data.decode("utf-8", "replace") + read_line(connection)
        except OSError as error:
            said = f"E{error.errno or errno.ETIMEDOUT} talk to the supervisor"
            process.kill()
        except BaseException:  # such as KeyboardInterrupt
            process.kill()
            raise
        finally:
            process.wait()
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    if len(descriptors) != 2:
        _close(*descriptors)
        raise opening_failed(said)
    user, mounts = descriptors
    if owner:
        _close(user)  # another descriptor of the owner's user namespace
        return KeptNamespaces(owner.user, mounts, owner.form, owner.sum, nodes, owner, number)
    form, _, total = said.partition(" ")
    kept_here = KeptNamespaces(user, mounts, LowerForm(form), total, nodes)
    if not plain:
        _open[made_of] = kept_here
    return kept_here


@cache
def form_here() -> LowerForm:
    """Return the best form that this host's kernel supports; try it by reading a file.

    Errors: HostError if namespaces are not available at all, SandboxError.
    """
    with TemporaryDirectory(prefix="shioenv-lower-") as name:
        directory = Path(name)
        directory.chmod(0o711)  # for the namespace's root, whose id has no rights on this host
        for name in ("rootfs", "rootfs/sys", "processes"):
            (directory / name).mkdir(mode=0o755)
        (directory / "rootfs" / "file").write_text("read through the layers\n")
        return keep_namespaces(directory, 0).form


@cache
def file_system_of(path: Path) -> str:
    """Return the type of the file system of a path, such as `ext4`; else `unknown`."""
    found, longest = "unknown", -1
    real = path.resolve()
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        here, _, there = line.partition(" - ")
        point = here.split()[4].encode().decode("unicode_escape")
        if real.is_relative_to(point) and len(point) >= longest:
            found, longest = there.split()[0], len(point)
    return found


def opening_failed(line: str) -> HostError | SandboxError:
    """Turn a supervisor's last line ("E<errno> <step>") into an error for the user."""
    number, step = failure(line)
    reason = os.strerror(number) if number else "it ended without an error message"
    message = f"cannot open the sandbox: {step or 'supervisor'}: {reason}"
    if "overlay" in step or "opaque" in step:
        return HostError(
            message,
            hint="install Linux 6.6 or newer (on Debian 12: apt-get install "
            "-t bookworm-backports linux-image-amd64)",
        )
    gone = number in (errno.ENOENT, errno.ESRCH)  # a process that opening needs was killed
    if re.search(r"\bproc\b", step) and not gone:
        return HostError(
            message,
            hint="probably a container with a masked /proc: run it with "
            "--security-opt systempaths=unconfined --security-opt seccomp=unconfined",
        )
    if number in (errno.EPERM, errno.EACCES, errno.ENOSPC):
        return HostError(message, hint="find out what this host forbids: shioenv doctor")
    return SandboxError(message, hint=exhausted(number) or "check each step: shioenv doctor")


def exhausted(number: int) -> str | None:
    """Return a hint that names the limit of this host behind an error number; None for others."""
    if number == errno.ENOMEM:
        rows = (row.split() for row in Path("/proc/meminfo").read_text().splitlines())
        memory = {row[0]: int(row[1]) // 1024 for row in rows}
        return (
            f"{memory['MemAvailable:']:,} of {memory['MemTotal:']:,} MB of memory are available, "
            "and a run ends when less than a twentieth is: close shells (each takes 10 to 15 MB), "
            "or use fewer workers"
        )
    if number == errno.EAGAIN:
        used, most, name = max(_limits_on_processes(), key=lambda limit: limit[0] / limit[1])
        known = f"{used:,} of the {most:,} processes that {name} permits exist"
        cause = known if used >= 0.9 * most else "a limit on processes was met (ulimit -u)"
        return f"{cause}: close shells (each takes about 18 processes), or raise this limit"
    return None


def _limits_on_processes() -> Iterator[tuple[int, int, str]]:
    """Yield the used number, the limit and its name for each limit that this process can read."""
    used = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    for name in ("pid_max", "threads-max"):
        yield used, int(Path("/proc/sys/kernel", name).read_text()), f"kernel.{name}"
    for row in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = row.split(":", 2)
        if controllers not in ("", "pids"):
            continue
        top = Path("/sys/fs/cgroup", controllers)
        for group in (top / path[1:], *(top / path[1:]).parents):
            with suppress(OSError, ValueError):  # the root has no limit, others "max"
                most = max(1, int((group / "pids.max").read_text()))
                yield int((group / "pids.current").read_text()), most, f"{group}/pids.max"
