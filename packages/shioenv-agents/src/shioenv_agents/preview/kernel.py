"""System calls that Python does not provide, with Python's exceptions.

Every function raises OSError with the step as its text if the kernel refuses.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import socket
import struct
from collections.abc import Collection
from pathlib import Path

CLONE_NEWNS = 0x0002_0000
CLONE_NEWUTS = 0x0400_0000
CLONE_NEWIPC = 0x0800_0000
CLONE_NEWUSER = 0x1000_0000
CLONE_NEWPID = 0x2000_0000
CLONE_NEWNET = 0x4000_0000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
_MS_REC, _MS_PRIVATE, _MNT_DETACH = 0x4000, 1 << 18, 2
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442  # on every processor
_PIVOT_ROOT = 155  # on x86-64, the only processor of the filter
_OPEN_TREE_CLONE, _AT_EMPTY_PATH, _AT_RECURSIVE = 1, 0x1000, 0x8000
_MOVE_MOUNT_F_EMPTY_PATH, _MOUNT_ATTR_RDONLY, _MOUNT_ATTR_NODEV = 4, 1, 4
_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 24, 38
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
RENAME_NOREPLACE, RENAME_EXCHANGE = 1, 2
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, step: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{step}: {os.strerror(number)}")
    return result


def unshare(flags: int) -> None:
    """Move this process into new namespaces."""
    _checked(_libc.unshare(flags), "make namespaces")


def end_with_parent(parent: int) -> None:
    """Make the kernel kill this process when its parent ends.

    The process ends immediately if `parent` is no longer its parent. The kernel drops the request
    when the process enters a user namespace.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def drop_capabilities(kept: Collection[int]) -> None:
    """Remove all capabilities but these from programs that this process executes later."""
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    for number in set(range(last + 1)).difference(kept):
        _checked(_libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0), "drop a capability")


def no_new_privileges() -> None:
    """Make set-user-id programs run with the caller's ids."""
    _checked(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "give up new privileges")


def filter_calls(program: bytes) -> None:
    """Filter every system call from now on by the instructions of a seccomp program."""
    instructions = ctypes.create_string_buffer(program)
    filtered = struct.pack("@HP", len(program) // 8, ctypes.addressof(instructions))
    _checked(_libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, filtered, 0, 0), "filter calls")


def private_mounts() -> None:
    """Move this process into a new mount namespace, without propagation to the original one."""
    unshare(CLONE_NEWNS)
    _checked(_libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None), "make mounts private")


def mount(kind: str, target: bytes, flags: int, options: str) -> None:
    """Mount a new file system of a kind."""
    arguments = (kind.encode(), target, kind.encode(), flags, options.encode())
    _checked(_libc.mount(*arguments), f"mount {kind} on {os.fsdecode(target)}")


def clone_mount(path: bytes | str, *, recursive: bool = False) -> int:
    """Return a descriptor of a detached copy of the mount at a path.

    Without `recursive`, mounts inside it are not copied.
    """
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC | (_AT_RECURSIVE if recursive else 0)
    number = _libc.syscall(_OPEN_TREE, -100, os.fsencode(path), flags)
    return _checked(number, f"copy the mount of {os.fsdecode(path)}")


def attach(tree: int, target: bytes) -> None:
    """Attach a copied mount at a path."""
    arguments = (tree, b"", -100, target, _MOVE_MOUNT_F_EMPTY_PATH)
    _checked(_libc.syscall(_MOVE_MOUNT, *arguments), f"attach a mount at {os.fsdecode(target)}")


def make_read_only(tree: int, *, devices: bool = False) -> None:
    """Make a copied mount read-only, with all mounts inside.

    Its device files can no longer be opened, unless `devices` is true.
    """
    given = _MOUNT_ATTR_RDONLY | (0 if devices else _MOUNT_ATTR_NODEV)
    attributes = struct.pack("=4Q", given, 0, 0, 0)
    flags = _AT_EMPTY_PATH | _AT_RECURSIVE
    arguments = (tree, b"", flags, attributes, ctypes.c_size_t(len(attributes)))
    _checked(_libc.syscall(_MOUNT_SETATTR, *arguments), "make a mount read-only")


def enter_root(root: bytes) -> None:
    """Make a mount the root of this process, and detach the previous root."""
    os.chdir(root)
    _checked(_libc.syscall(_PIVOT_ROOT, b".", b"."), "change the root")
    _checked(_libc.umount2(b".", _MNT_DETACH), "leave the old root")
    os.chdir("/")


def raise_loopback() -> None:
    """Bring up the interface `lo` of this process's network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        request = struct.pack("16sH14x", b"lo", 0)
        name, flags = struct.unpack("16sH14x", fcntl.ioctl(asked, _SIOCGIFFLAGS, request))
        fcntl.ioctl(asked, _SIOCSIFFLAGS, struct.pack("16sH14x", name, flags | _IFF_UP))


def rename(old: int, old_name: bytes, new: int, new_name: bytes, how: int) -> None:
    """Rename a file between two open directories, never over another one.

    `RENAME_NOREPLACE` fails if the new name exists; `RENAME_EXCHANGE` swaps two files.
    """
    result = _libc.renameat2(old, old_name, new, new_name, how)
    _checked(result, f"rename {os.fsdecode(new_name)}")
