"""The mounts of a preview: the host's files below layers in memory, with the rest hidden.

Process 1 of the preview calls `arrange` in a separate mount namespace.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

from shioenv_agents.preview import kernel

LONGEST = 4 << 20
"""Maximum bytes of a plan, and of process 1's report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewPlan:
    """A command and its environment. Undecodable bytes in file names become surrogates."""

    command: tuple[str, ...]
    start: str
    """The start directory of the command."""
    directories: tuple[str, ...]
    """Directories to overlay if the whole root cannot be overlaid; the last one is mandatory."""
    hidden: tuple[str, ...]
    """Paths that are hidden from the command."""
    sockets: tuple[str, ...]
    """Socket files in the caller's network namespace."""
    whole: bool
    """Whether to try to overlay the whole root."""
    processes: int
    disk_bytes: int
    disk_inodes: int
    background_seconds: float
    scan_seconds: float
    open_files: tuple[int, int]
    """The soft and the hard limit of the caller's open files."""
    own_id: bool
    """Whether the keeper runs in a user namespace that maps only the caller, as id 0."""
    uid: int
    gid: int
    parent: int
    """The caller's process id."""

    def to_line(self) -> bytes:
        """Encode the plan as a line of JSON."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Self:
        """Decode a line of `to_line`."""
        document: dict[str, Any] = json.loads(line)
        lists = {name: tuple(value) for name, value in document.items() if isinstance(value, list)}
        return cls(**document | lists)


MOST_LAYERS = 60
"""Maximum layers of a preview: a message between processes carries at most 253 descriptors."""

_STAGING = b"/tmp"
_ROOT = _STAGING + b"/root"
_OF_THE_KERNEL = frozenset(
    {
        "autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts",
        "devtmpfs", "efivarfs", "fusectl", "hugetlbfs", "mqueue", "nsfs", "proc", "pstore",
        "rpc_pipefs", "securityfs", "sysfs", "tracefs",
    }
)  # fmt: skip
"""File systems without user files."""
_OWN = (b"/proc", b"/sys", b"/dev")
_DEVICES = ("null", "zero", "full", "random", "urandom")
_LINKS = {
    "fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "ptmx": "pts/ptmx",
}  # fmt: skip
_READ_ONLY_IN_PROC = ("acpi", "bus", "fs", "irq", "scsi", "sys", "sysrq-trigger")
_HIDDEN_IN_PROC = ("kcore", "keys", "key-users", "sched_debug", "timer_list")
_TEMPORARY = (b"/tmp", b"/var/tmp", b"/run")
"""Directories to which programs write, besides the user's and `XDG_RUNTIME_DIR`."""
_MOST_QUIET = 1024
"""Maximum read-only overlays of a preview."""


class Layer(NamedTuple):
    """A layered directory: its path, and descriptors of three roots for `scan.c`."""

    path: bytes
    lower: int
    upper: int
    merged: int


@dataclass(slots=True)
class Arranged:
    """The mounts made by `arrange`."""

    whole: bool
    """Whether the host's whole root is layered, not only some directories."""
    layers: list[Layer] = field(default_factory=list)
    read_only: list[bytes] = field(default_factory=list)
    """Read-only mount points and directories, which could not be layered."""
    reachable: list[bytes] = field(default_factory=list)
    """Sockets and FIFOs that lead to the host, and directories whose sockets and FIFOs remain."""
    quiet: int = 0
    """The number of read-only overlays."""


class _Mount(NamedTuple):
    """A mount of the host."""

    path: bytes
    writable: bool
    descriptor: int


def arrange(plan: PreviewPlan, *, network: bool) -> Arranged:
    """Make the mounts, and enter their root. OSError if the kernel refuses.

    With `network`, the command can use the host's network.
    """
    mounts = list(_mounts())
    points = {path for path, _, _ in _mount_points()}
    sockets = {*map(os.fsencode, plan.sockets), *(mount.path for mount in mounts)}
    special = {path: place for path in sorted(sockets) if (place := _special(path)) is not None}
    wanted = [os.fsencode(path) for path in plan.directories]
    temporary = [os.path.realpath(path) for path in _TEMPORARY]
    if runtime := os.environb.get(b"XDG_RUNTIME_DIR", b""):
        temporary.append(os.path.realpath(runtime))
    places = {path: _opened(path) for path in (b"/", *wanted, *temporary)}
    devices = {name: kernel.clone_mount(f"/dev/{name}") for name in _DEVICES}
    everything = kernel.clone_mount("/", recursive=True)
    sys = kernel.clone_mount("/sys", recursive=True)
    resolver = os.path.realpath(b"/etc/resolv.conf")
    names = kernel.clone_mount(resolver) if network and os.path.exists(resolver) else None
    options = f"mode=755,size={plan.disk_bytes},nr_inodes={plan.disk_inodes}"
    kernel.mount("tmpfs", _STAGING, kernel.MS_NOSUID | kernel.MS_NODEV, options)
    os.mkdir(_ROOT)
    arranged = None
    if plan.whole:
        with suppress(OSError):
            arranged = _layer_root(places[b"/"], mounts)
    if arranged is None:
        arranged = _layer_directories(everything, wanted, temporary, places, points)
    else:
        _attach(sys, b"/sys", read_only=True)
    _make_devices(devices)
    kernel.mount("proc", _ROOT + b"/proc", kernel.MS_NOSUID | kernel.MS_NODEV, "")
    if names is not None and not os.path.lexists(_ROOT + resolver):
        os.makedirs(os.path.dirname(_ROOT + resolver), exist_ok=True)
        _new_file(_ROOT + resolver)
        _attach(names, resolver, read_only=True)
    _arrange_special(special, arranged, network=network)
    _hide(map(os.fsencode, plan.hidden))
    kernel.enter_root(_ROOT)
    os.chdir(os.fsencode(plan.start))
    return arranged


def guard_proc() -> None:
    """Make control files in /proc read-only, and hide files that expose kernel state."""
    for name in _READ_ONLY_IN_PROC:
        _cover(f"/proc/{name}", f"/proc/{name}")
    for name in _HIDDEN_IN_PROC:
        _cover("/dev/null", f"/proc/{name}")


def _cover(source: str, target: str) -> None:
    if os.path.exists(target):
        tree = kernel.clone_mount(source)
        kernel.make_read_only(tree, devices=source == "/dev/null")
        kernel.attach(tree, os.fsencode(target))


def _mounts() -> Iterator[_Mount]:
    """Yield the host's mounts outside `_OWN`, outer ones first."""
    seen: set[bytes] = {b"/"}
    for path, kind, writable in _mount_points():
        if path in seen or kind in _OF_THE_KERNEL or any(_inside(path, own) for own in _OWN):
            continue
        seen.add(path)
        descriptor = _opened(path)
        if descriptor is not None:
            yield _Mount(path, writable, descriptor)


def _mount_points() -> Iterator[tuple[bytes, str, bool]]:
    """Yield path, file system and writability of each mount of this process."""
    return map(_parse_mount, Path("/proc/self/mountinfo").read_bytes().splitlines())


def _parse_mount(line: bytes) -> tuple[bytes, str, bool]:
    """Parse one line of mountinfo; see `_mount_points`."""
    before, _, after = line.partition(b" - ")
    fields = before.split()
    path = re.sub(rb"\\([0-7]{3})", lambda octal: bytes([int(octal[1], 8)]), fields[4])
    return path, after.split()[0].decode(), b"rw" in fields[5].split(b",")


def _special(path: bytes) -> int | None:
    """Return a descriptor of a socket or FIFO that this process may write to; None for others."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return None
    if not (stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode)) or not os.access(path, os.W_OK):
        return None
    return _opened(path)


def _opened(path: bytes) -> int | None:
    try:
        return os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return None


def _inside(path: bytes, directory: bytes) -> bool:
    return path == directory or path.startswith(directory.rstrip(b"/") + b"/")


def _layer_root(root: int | None, mounts: Iterable[_Mount]) -> Arranged:
    """Layer the whole root and each mounted file system. OSError if the root cannot be layered."""
    arranged = Arranged(True, [_layer(0, b"/", root)])
    for mount in mounts:
        if not os.path.lexists(_ROOT + mount.path):
            continue
        is_directory = stat.S_ISDIR(os.fstat(mount.descriptor).st_mode)
        number = len(arranged.layers)
        if mount.writable and is_directory and number < MOST_LAYERS:
            with suppress(OSError):
                arranged.layers.append(_layer(number, mount.path, mount.descriptor))
                continue
        arranged.read_only.append(mount.path)
        if not is_directory or not _quiet(mount.path, mount.descriptor, arranged):
            tree = kernel.clone_mount(f"/proc/self/fd/{mount.descriptor}")
            _attach(tree, mount.path, read_only=True)
    return arranged


def _layer_directories(
    everything: int,
    wanted: list[bytes],
    temporary: list[bytes],
    places: Mapping[bytes, int | None],
    points: Collection[bytes],
) -> Arranged:
    """Mount the whole root read-only, and layer some directories, outer ones first.

    OSError if the last of `wanted` is neither layered nor inside a layered directory.
    """
    _attach(everything, b"", read_only=True)
    arranged = Arranged(False, [], [b"/"])
    _quiet_below(b"/", points, arranged)
    for number, path in enumerate(sorted({*wanted, *temporary}, key=lambda p: (p.count(b"/"), p))):
        if any(_inside(path, layer.path) for layer in arranged.layers):
            continue
        place = places[path]
        try:
            if not os.access(f"/proc/self/fd/{place}", os.W_OK):
                raise PermissionError("not writable")
            arranged.layers.append(_layer(number, path, place))
        except OSError as error:
            if path == wanted[-1]:
                said = f"{os.fsdecode(path)} cannot be layered: {error.strerror or error}"
                raise OSError(error.errno, said) from error
            is_used = path in temporary and not any(_inside(each, path) for each in wanted)
            if is_used and not isinstance(error, PermissionError | FileNotFoundError):
                _attach(_empty(path, place), path)  # no overlay: it may have mounts inside
    return arranged


def _layer(number: int, path: bytes, place: int | None) -> Layer:
    """Mount an overlay over a place. OSError if the kernel refuses it."""
    if place is None:
        raise FileNotFoundError(f"{os.fsdecode(path)} cannot be opened")
    upper, work = (os.path.join(_STAGING, b"%d" % number, name) for name in (b"upper", b"work"))
    os.makedirs(upper)
    os.mkdir(work)
    here = f"/proc/self/fd/{place}"
    lower = kernel.clone_mount(here)
    flags = os.statvfs(here).f_flag & (kernel.MS_NOSUID | kernel.MS_NOEXEC) | kernel.MS_NODEV
    status = os.stat(here)
    with suppress(OSError):  # an owner that is not mapped
        os.chown(upper, status.st_uid, status.st_gid)
    os.chmod(upper, stat.S_IMODE(status.st_mode))
    os.utime(upper, ns=(status.st_atime_ns, status.st_mtime_ns))
    options = f"lowerdir={here},upperdir={os.fsdecode(upper)},workdir={os.fsdecode(work)}"
    target = _ROOT + path
    kernel.mount("overlay", target, flags, f"{options},userxattr,xino=on")
    return Layer(path, lower, _directory(upper), kernel.clone_mount(target))


def _quiet_below(path: bytes, points: Collection[bytes], arranged: Arranged) -> None:
    """Cover the sockets and FIFOs of a directory and of all mounts in it.

    The kernel makes no overlay of a directory with mounts inside; the entries of such a directory
    are covered instead.
    """
    if path in _OWN:
        return
    if not any(point != path and _inside(point, path) for point in points):
        try:
            place = os.open(_ROOT + path, os.O_PATH | os.O_CLOEXEC)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EACCES):  # its content is not reachable then
                arranged.reachable.append(path)
            return
        try:
            covered = _quiet(path, place, arranged)
        finally:
            os.close(place)
        if not covered:
            arranged.reachable.append(path)
        return
    try:
        names = sorted(os.listdir(_ROOT + path))
    except OSError:
        if os.access(_ROOT + path, os.X_OK):
            arranged.reachable.append(path)
        return
    for name in names:
        inner = os.path.join(path, name)
        with suppress(OSError):  # a path that cannot be read is not reachable
            mode = os.lstat(_ROOT + inner).st_mode
            if stat.S_ISDIR(mode):
                _quiet_below(inner, points, arranged)
            elif stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode):
                _cover_file(inner)


def _quiet(path: bytes, place: int, arranged: Arranged) -> bool:
    """Cover a directory by a read-only overlay, whose sockets and FIFOs have no peer.

    Return whether the kernel permits the overlay.
    """
    empty = _STAGING + b"/nothing"
    os.makedirs(empty, exist_ok=True)
    here = f"/proc/self/fd/{place}"
    options = f"lowerdir={here}:{os.fsdecode(empty)},userxattr,xino=on"
    if arranged.quiet == _MOST_QUIET:
        return False
    try:
        flags = os.statvfs(here).f_flag & (kernel.MS_NOSUID | kernel.MS_NOEXEC)
        kernel.mount("overlay", _ROOT + path, flags | kernel.MS_NODEV | kernel.MS_RDONLY, options)
    except OSError:
        return not os.access(here, os.X_OK)
    arranged.quiet += 1
    return True


def _directory(path: bytes) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _attach(tree: int, path: bytes, *, read_only: bool = False, devices: bool = False) -> None:
    if read_only:
        kernel.make_read_only(tree, devices=devices)
    kernel.attach(tree, _ROOT + path)
    os.close(tree)


def _empty(path: bytes, place: int | None) -> int:
    """Return a detached mount of an empty, writable directory in memory."""
    empty = _STAGING + b"/empty" + path.replace(b"/", b"-")
    os.mkdir(empty)
    os.chmod(empty, stat.S_IMODE(os.stat(f"/proc/self/fd/{place}").st_mode))
    return kernel.clone_mount(empty)


def _new_file(path: bytes) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))


def _make_devices(devices: Mapping[str, int]) -> None:
    """Make a /dev with the devices that every program needs, and none of the host's disks."""
    made = _STAGING + b"/dev"
    for inner in (b"", b"/pts", b"/shm"):
        os.mkdir(made + inner)
    os.chmod(made + b"/shm", 0o1777)
    for name, target in _LINKS.items():
        os.symlink(target, os.fsdecode(made) + f"/{name}")
    for name in devices:
        _new_file(made + f"/{name}".encode())
    _attach(kernel.clone_mount(made), b"/dev")
    for name, tree in devices.items():
        _attach(tree, f"/dev/{name}".encode(), read_only=True, devices=True)
    flags = kernel.MS_NOSUID | kernel.MS_NOEXEC
    kernel.mount("devpts", _ROOT + b"/dev/pts", flags, "newinstance,ptmxmode=0666")


def _arrange_special(special: Mapping[bytes, int], arranged: Arranged, *, network: bool) -> None:
    """Cover the known sockets and FIFOs outside layers; with `network`, keep them usable."""
    layers = {layer.path for layer in arranged.layers}
    places = sorted({*layers, *arranged.read_only}, key=len)
    for path, place in special.items():
        inside = [each for each in places if _inside(path, each)]
        if (inside and inside[-1] in layers) or not os.path.lexists(_ROOT + path):
            continue
        if network:
            _attach(kernel.clone_mount(f"/proc/self/fd/{place}"), path, read_only=True)
            arranged.reachable.append(path)
        else:
            _cover_file(path)


def _cover_file(path: bytes) -> None:
    """Cover a path with an empty file that cannot be opened."""
    file = _STAGING + b"/no-socket"
    if not os.path.exists(file):
        _new_file(file)
        os.chmod(file, 0o000)
    _attach(kernel.clone_mount(file), path, read_only=True)


def _hide(paths: Iterable[bytes]) -> None:
    """Cover each path with an empty read-only file or directory."""
    directory, file = _STAGING + b"/hidden-directory", _STAGING + b"/hidden-file"
    os.mkdir(directory, 0o000)
    _new_file(file)
    os.chmod(file, 0o000)
    for path in paths:
        if os.path.lexists(_ROOT + path):
            empty = directory if os.path.isdir(_ROOT + path) else file
            _attach(kernel.clone_mount(empty), path, read_only=True)
