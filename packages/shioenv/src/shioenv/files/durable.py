"""Atomic, durable writing of files, and locks on directories."""

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
"""Prefix of the names of unfinished files and directories.

The next run that writes into a dataset removes such files from its directory."""


def atomic_write(path: Path, content: bytes) -> None:
    """Write a file atomically and sync it to disk."""
    with replacing(path) as file:
        file.write(content)


@contextmanager
def replacing(path: Path) -> Iterator[Any]:
    """Open a new file for writing, and rename it to `path` at the end of the block.

    The file is synced to disk before the rename. After an error in the block the new file is
    removed, and `path` is unchanged. Errors: OSError if `path` exists and is not a regular file.
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
    """Fail before long work if `atomic_write` could not write its result at `path`.

    Missing parent directories are created. Errors: DatasetStorageError.
    """
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        refuse_to_replace(path)
        with tempfile.TemporaryFile(prefix=TEMPORARY, dir=path.parent):
            pass


def sync(directory: Path) -> None:
    """Sync a directory's entries to disk."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some file systems do not support it
            raise
    finally:
        os.close(handle)


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Convert an OSError in the block to a DatasetStorageError that names its file or `path`."""
    try:
        yield
    except OSError as error:
        place = error.filename or path
        again = "then run the same command to resume"
        hints = {
            errno.ENOSPC: f"free some space, {again}",
            errno.EDQUOT: f"free some of your quota, {again}",
            errno.EACCES: f"make it writable for this user, {again}",
            errno.EPERM: f"make it writable for this user, {again}",
            errno.EROFS: "its file system is read-only: choose another directory",
            errno.ENOTDIR: "choose a directory, not a file",
            errno.EEXIST: "choose a directory, not a file",
        }
        raise DatasetStorageError(
            f"{place}: {error.strerror or error}", hint=hints.get(error.errno or 0)
        ) from error


@contextmanager
def locked(directory: Path, *, wait: bool = False) -> Iterator[int]:
    """Lock a directory against other cooperating processes during the block.

    The block gets the descriptor of the locked directory.

    Errors: DatasetBusyError if another process has the lock; with `wait`, wait for it instead.
    """
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DatasetBusyError(
                f"another process is writing into {directory}",
                hint="wait until it ends, or choose another directory",
            ) from None
        yield handle
    finally:
        os.close(handle)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 (hex) of a regular file's bytes. Errors: those of `open_regular`."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def refuse_existing(path: Path) -> None:
    """Raise OutputExistsError if the path exists, unless it is an empty directory.

    Errors: UsageError if the empty directory is the current one, which cannot be replaced.
    """
    if path.is_dir() and not path.is_symlink() and not any(path.iterdir()):
        if path.samefile("."):
            raise UsageError(
                f"{path} is the current directory, which cannot be replaced",
                hint="choose a directory inside it",
            )
        return
    _refuse(path)


def _refuse(path: Path) -> None:
    if path.exists() or path.is_symlink():
        raise _exists(path)


def _exists(path: Path) -> OutputExistsError:
    return OutputExistsError(f"{path} already exists", hint="choose another name, or remove it")


@contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """Create an empty directory next to `path`, and rename it to `path` at the end of the block.

    The caller syncs each file in the directory to disk. After an error the directory is removed.
    Leftovers of an earlier, killed call are removed first. Errors: OutputExistsError, UsageError
    for the current directory, DatasetBusyError if another process is writing the same directory,
    DatasetStorageError.
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
    """Yield a unique name next to `path`, where the caller writes a file.

    At the end of the block the file is synced to disk and renamed to `path`. Errors:
    OutputExistsError, also if `path` was created during the block; DatasetStorageError.
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
    """Rename a file to an unused name; a plain rename would replace an existing file."""
    try:
        path.hardlink_to(temporary)
    except FileExistsError:
        raise _exists(path) from None
    except OSError:  # a file system without hard links
        _refuse(path)
        temporary.rename(path)


def cache_directory() -> Path:
    """Return `$SHIOENV_CACHE`, else `shioenv` in `$XDG_CACHE_HOME` or `~/.cache`. May not exist."""
    if chosen := os.environ.get("SHIOENV_CACHE"):
        return Path(chosen).absolute()
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base).absolute() / "shioenv"
    return Path.home() / ".cache" / "shioenv"
