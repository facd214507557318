"""Write files whole or not at all, and lock directories against other writers."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from shioenv.errors import DatasetBusyError, DatasetStorageError, OutputExistsError, UsageError
from shioenv.files.regular import open_regular, refuse_to_replace

TEMPORARY = ".tmp-"
"""The beginning of the names of unfinished files and directories.

The next run that writes into a dataset removes such files from its directory."""


def atomic_write(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, and bring it to the disk."""
    with replacing(path) as file:
        file.write(content)


@contextmanager
def replacing(path: Path) -> Iterator[Any]:
    """A new file, open for writing, that gets the name `path` at the end of the block.

    By then all of the file is on the disk. After an error in the block the file is removed,
    and `path` stays as it was. OSError where `path` is something else than a regular file.
    """
    refuse_to_replace(path)
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


def refuse_unwritable(path: Path) -> None:
    """Fail before long work where `atomic_write` could not write its result at `path`.

    Directories that are missing above it are made. Errors: DatasetStorageError.
    """
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        refuse_to_replace(path)
        with tempfile.TemporaryFile(prefix=TEMPORARY, dir=path.parent):
            pass


def sync(directory: Path) -> None:
    """Bring the names in a directory to the disk."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # not every file system can
            raise
    finally:
        os.close(handle)


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn an OSError in the block into a DatasetStorageError that names the file or the path."""
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
def locked(directory: Path) -> Iterator[int]:
    """Lock a directory during the block, so that no other process that locks it writes into it.

    The block gets the descriptor of the directory that is locked.

    Errors: DatasetBusyError where another process has the lock.
    """
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DatasetBusyError(
                f"another process is writing into {directory}",
                hint="wait until it has ended, or choose another directory",
            ) from None
        yield handle
    finally:
        os.close(handle)


@contextmanager
def waiting(directory: Path) -> Iterator[None]:
    """Lock a directory during the block, once no other process has the lock."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def sha256_of(path: Path) -> str:
    """SHA-256 (hex) of a regular file's bytes. Errors: as `open_regular` raises them."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def refuse_existing(path: Path) -> None:
    """Raise OutputExistsError where something is at the path, except for an empty directory.

    UsageError where the empty directory is the current one, which cannot be replaced.
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
    """An empty directory beside `path` that gets the name `path` at the end of the block.

    The caller brings each file in the directory to the disk. After an error the directory is
    removed. Whatever an earlier, killed call left in the directory is removed first. Errors:
    OutputExistsError, UsageError for the current directory, DatasetBusyError where another process
    is writing the same directory, DatasetStorageError.
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
    """The name of a file beside `path`, for the caller to write, that no other call uses.

    At the end of the block the file is brought to the disk and gets the name `path`. Errors:
    OutputExistsError, also where something was put at `path` during the block, DatasetStorageError.
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
    """Give a file a name that nothing has yet; a rename would replace whatever has the name."""
    try:
        path.hardlink_to(temporary)
    except FileExistsError:
        raise _exists(path) from None
    except OSError:  # a file system without hard links
        _refuse(path)
        temporary.rename(path)
