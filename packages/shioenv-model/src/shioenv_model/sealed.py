"""Directories that are used only if unchanged since this user wrote them."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

from shioenv.errors import HostError
from shioenv.files.durable import atomic_write
from shioenv.files.regular import read_regular

SEAL = ".sealed"
"""The file in a sealed directory that lists the other files."""

_LARGEST = 64 * 1024
_FILE = stat.S_IRUSR | stat.S_IWUSR
_OF_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def keep_private(directory: Path) -> None:
    """Close a directory of this user to other users, who could add directories to it.

    Errors: HostError for a directory of another user, and for a link.
    """
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise HostError(
            f"{directory} belongs to another user, who could change its files",
            hint="choose another cache directory: SHIOENV_CACHE=DIR",
        )
    if stat.S_IMODE(status.st_mode) != stat.S_IRWXU:
        directory.chmod(stat.S_IRWXU)


def seal(directory: Path) -> None:
    """Record the files of a directory, and close it to other users.

    All files must exist already.
    """
    for path in directory.iterdir():
        path.chmod(_FILE)
    atomic_write(directory / SEAL, json.dumps(_files(directory)).encode())
    (directory / SEAL).chmod(_FILE)
    directory.chmod(stat.S_IRWXU)


def is_sealed(directory: Path) -> bool:
    """Whether a directory belongs to this user, is writable only by them, and has a valid seal.

    The seal is valid if no file was added, removed, replaced or written to since `seal`.
    """
    try:
        status = directory.lstat()
        if not stat.S_ISDIR(status.st_mode) or not _is_ours(status):
            return False
        known = json.loads(read_regular(directory / SEAL, _LARGEST))
        return bool(known == _files(directory)) and _is_ours((directory / SEAL).lstat())
    except (OSError, ValueError, RecursionError):
        return False


def _is_ours(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & _OF_OTHERS


def _files(directory: Path) -> dict[str, list[int]]:
    """Return inode, size, mtime and ctime (in nanoseconds) of each file, by name.

    Any change of a file sets its ctime, which no user can choose. Errors: ValueError for anything
    but a regular file of this user.
    """
    found: dict[str, list[int]] = {}
    for path in sorted(directory.iterdir()):
        if path.name == SEAL:
            continue
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode) or not _is_ours(status):
            raise ValueError(f"{path} is not this user's own file")
        found[path.name] = [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]
    return found
