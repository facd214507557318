"""Files written whole or not at all, and directories locked while they are."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from shioenv.errors import DatasetBusyError, DatasetStorageError, OutputExistsError, UsageError
from shioenv.files.regular import open_regular

TEMPORARY = ".tmp-"
"""How the names of half-written files begin; the next run removes them."""


def atomic_write(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all, through to the disk."""
    with replacing(path) as file:
        file.write(content)


@contextmanager
def replacing(path: Path) -> Iterator[Any]:
    """A new file that takes the path's name when all of it is on the disk."""
    temporary = path.with_name(f"{TEMPORARY}{path.name}")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    sync(path.parent)


def sync(directory: Path) -> None:
    """Brings the names in a directory to the disk."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # file systems without it
            raise
    finally:
        os.close(handle)


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turns what the operating system says about a path into a DatasetStorageError."""
    try:
        yield
    except OSError as error:
        place = error.filename or path
        again = "then run the same command again: nothing finished is lost"
        hints = {
            errno.ENOSPC: f"free some space, {again}",
            errno.EDQUOT: f"free some of your quota, {again}",
            errno.EACCES: f"make it writable for this user, {again}",
            errno.EPERM: f"make it writable for this user, {again}",
            errno.EROFS: "it lies on a read-only file system: choose another directory",
            errno.ENOTDIR: "choose a directory, not a file",
            errno.EEXIST: "choose a directory, not a file",
        }
        raise DatasetStorageError(
            f"{place}: {error.strerror or error}", hint=hints.get(error.errno or 0)
        ) from error


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Nobody else writes into a directory meanwhile. Errors: DatasetBusyError."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DatasetBusyError(
                f"another process is writing into {directory}",
                hint="wait until it has ended, or choose another directory",
            ) from None
        yield
    finally:
        os.close(handle)


def sha256_of(path: Path) -> str:
    """SHA-256 (hex) of a regular file's bytes. Errors: as `open_regular` raises them."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def refuse_existing(path: Path) -> None:
    """OutputExistsError where something is at the path; an empty directory is nothing.

    UsageError for the current directory, because another one would take its place.
    """
    if path.is_dir() and not path.is_symlink() and not any(path.iterdir()):
        if path.samefile("."):
            raise UsageError(
                f"{path} is the current directory, which cannot be replaced",
                hint="name a directory inside it",
            )
        return
    _refuse(path)


def _refuse(path: Path) -> None:
    if path.exists() or path.is_symlink():
        raise _exists(path)


def _exists(path: Path) -> OutputExistsError:
    return OutputExistsError(
        f"{path} exists already", hint="choose another name, or remove what is there"
    )


@contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """A directory beside `path` that takes its name at the end, when all in it is on the disk.

    Who writes into it brings each file to the disk. What an earlier, killed call left there is
    removed. Errors: OutputExistsError, UsageError for the current directory, DatasetBusyError where
    another process is writing the same, DatasetStorageError.
    """
    with storage_errors(path):
        refuse_existing(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{TEMPORARY}{path.name}")
        temporary.mkdir(exist_ok=True)
        with locked(temporary):
            try:
                for entry in temporary.iterdir():
                    if entry.is_dir() and not entry.is_symlink():
                        shutil.rmtree(entry)
                    else:
                        entry.unlink()
                yield temporary
                refuse_existing(path)
                temporary.rename(path)
                sync(path.parent)
            except BaseException:
                shutil.rmtree(temporary, ignore_errors=True)
                raise


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """A file name beside `path`, of this call alone, that takes its name when it is on the disk.

    Errors: OutputExistsError, also where something came to be at `path` meanwhile,
    DatasetStorageError.
    """
    with storage_errors(path):
        _refuse(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{TEMPORARY}{path.name}-{secrets.token_hex(4)}")
        try:
            yield temporary
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            _take_name(temporary, path)
        finally:
            with suppress(OSError):
                temporary.unlink()
        sync(path.parent)


def _take_name(temporary: Path, path: Path) -> None:
    """Gives a file a name that nothing has; a rename alone would replace what has it."""
    try:
        path.hardlink_to(temporary)
    except FileExistsError:
        raise _exists(path) from None
    except OSError:  # a file system without hard links
        _refuse(path)
        temporary.rename(path)
