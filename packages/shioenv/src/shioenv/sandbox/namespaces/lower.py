"""The lower layer, below everything that an input writes: the system's tree, kept in memory.

A file system decides the order, sizes and inode numbers of a directory's entries, the room that
files take, and when they were last read. Inputs would see those of the file system that the cache
directory lies on. So the lower layer of the overlay is a tmpfs that holds the tree alone, filled in
the same order on every host. The data comes from the host's files.

The layer is made once for all sandboxes of a system that a process has open, with the user
namespace that owns the layer. Devices, /sys and the files that stand for processes have no overlay
above them, so an input could hold or lock them. Each sandbox has its own of these, for all
supervisors that it starts.
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
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from weakref import WeakValueDictionary

from shioenv.errors import HostError, SandboxError
from shioenv.system.idmap import find_idmap, read_line, spawn, spawn_mapped
from shioenv.system.refusals import failure
from shioenv.system.store import DEVICES


class LowerForm(StrEnum):
    """How much of a system's tree is in memory."""

    NAMES = "names"
    """All names and attributes; the host's file system gives the data alone (Linux 6.16)."""
    PART = "part"
    """All but /usr, where the order, sizes and times of access are those of the host's file
    system."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class KeptNamespaces:
    """Descriptors of two namespaces, which live without a process as long as this object does."""

    user: int
    """The user namespace that owns the mounts."""
    mounts: int
    form: LowerForm
    sum: str
    """The sum of the host's directory when the tree was filled from it. `System.tree_sums` has the
    sum that it should be."""
    nodes: tuple[tuple[int, int], ...]
    """(device, inode) of the host's device nodes at that time; sandboxes of ordinary users have
    them."""
    owner: KeptNamespaces | None = None
    """The namespaces whose lower layer and user namespace these share; None where they have their
    own."""
    number: int = 1
    """The number among the namespaces that share a user namespace: from 1, below `_MOST`."""
    others: Iterator[int] = field(default_factory=lambda: iter(range(2, _MOST)))
    """The numbers of namespaces that are still to share this user namespace."""

    def __post_init__(self) -> None:
        weakref.finalize(self, _close, self.mounts, *([] if self.owner else [self.user]))

    def current(self) -> bool:
        """Whether the host still has the same device nodes.

        A node that somebody replaced is shown as deleted, and cannot be mounted again.
        """
        return self.nodes == _nodes()


_DIRECTORY = Path(os.path.commonpath(DEVICES))
_SETTLED_SECONDS = 0.1
"""Seconds after which a change surely has another time than the change before it. Ours, because the
clocks of file systems go in steps of at most 10 ms."""


def _nodes() -> tuple[tuple[int, int], ...]:
    """The host's device nodes now.

    Whoever makes, removes or renames a node changes the directory of the nodes. While the directory
    is unchanged, so are the nodes, and the last look at them counts.
    """
    now = _DIRECTORY.stat()
    if abs(time.time() - now.st_ctime) < _SETTLED_SECONDS:
        return _nodes_looked_at()
    return _nodes_of(now.st_dev, now.st_ino, now.st_ctime_ns)


@lru_cache(maxsize=1)
def _nodes_of(*directory: int) -> tuple[tuple[int, int], ...]:
    """The device nodes in a directory of this device, inode and time of change (ns)."""
    return _nodes_looked_at()


def _nodes_looked_at() -> tuple[tuple[int, int], ...]:
    found = map(os.stat, DEVICES)
    return tuple((status.st_dev, status.st_ino) for status in found)


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


_MOST = 60_000
"""Above the largest number of a sandbox in a user namespace, where the number is the id of a user.
Further sandboxes share another user namespace."""

_open: WeakValueDictionary[tuple[object, ...], KeptNamespaces] = WeakValueDictionary()
"""The namespaces with a lower layer of their own that this process has, by what they are made
of."""


def keep(
    directory: Path, instant: int, *, best: LowerForm = LowerForm.NAMES, plain: Path | None = None
) -> KeptNamespaces:
    """The namespaces of a sandbox of the system in `directory`; see `KeptNamespaces`.

    `instant` (seconds since 1970) is when every file was last read. `best` is the form to try
    first, `plain` is as in `NamespaceSandbox`. Where this process has namespaces of the same system
    open, their lower layer is shared. Errors: HostError where the host forbids what is needed,
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
    """The best form that this host's kernel takes, found out by reading a file through it.

    Errors: HostError where namespaces cannot be had at all, SandboxError.
    """
    with TemporaryDirectory(prefix="shioenv-lower-") as name:
        directory = Path(name)
        directory.chmod(0o711)  # for the root inside, whose id has no rights on this host
        for name in ("rootfs", "rootfs/sys", "processes"):
            (directory / name).mkdir(mode=0o755)
        (directory / "rootfs" / "file").write_text("read through the layers\n")
        return keep(directory, 0).form


@cache
def file_system_of(path: Path) -> str:
    """The kernel's name of the file system that a path lies on, such as `ext4`; else `unknown`."""
    found, longest = "unknown", -1
    real = path.resolve()
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        here, _, there = line.partition(" - ")
        point = here.split()[4].encode().decode("unicode_escape")
        if real.is_relative_to(point) and len(point) >= longest:
            found, longest = there.split()[0], len(point)
    return found


def opening_failed(line: str) -> HostError | SandboxError:
    """The error that a supervisor's last line ("E<errno> <step>") means to the user."""
    number, step = failure(line)
    reason = os.strerror(number) if number else "it ended without a word"
    message = f"the sandbox could not be opened: {step or 'supervisor'}: {reason}"
    if "overlay" in step or "opaque" in step:
        return HostError(
            message,
            hint="Linux 6.6 or newer is needed (on Debian 12: apt-get install "
            "-t bookworm-backports linux-image-amd64)",
        )
    gone = number in (errno.ENOENT, errno.ESRCH)  # somebody killed a process that opening needs
    if re.search(r"\bproc\b", step) and not gone:
        return HostError(
            message,
            hint="this looks like a container with a masked /proc: run it with "
            "--security-opt systempaths=unconfined --security-opt seccomp=unconfined",
        )
    if number in (errno.EPERM, errno.EACCES, errno.ENOSPC):
        return HostError(message, hint="shioenv doctor names what this host forbids")
    return SandboxError(message, hint="shioenv doctor checks each step")
