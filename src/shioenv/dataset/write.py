"""Files and datasets written whole or not at all, and never over something that is there."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from shioenv.dataset.manifest import (
    DATA,
    MANIFEST,
    SHARD_RECORDS,
    Manifest,
    Plan,
    Shard,
    shard_file,
)
from shioenv.dataset.store import TEMPORARY, inputs_line, lock, replacing, storage_errors, sync
from shioenv.domain.record import Record, encode
from shioenv.errors import OutputExistsError, UsageError


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
        handle = lock(temporary)
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
        finally:
            os.close(handle)


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


class Writer:
    """Records written in order into shards of 1,000, a shard in memory at most."""

    def __init__(self, directory: Path, plan: Plan, kernels: tuple[str, ...]) -> None:
        self._directory = directory
        self._pending: list[tuple[Record, bytes]] = []
        self._manifest = Manifest(plan=plan, count=0, kernels=kernels)
        (directory / DATA).mkdir()

    @property
    def written(self) -> int:
        """Records added so far."""
        return self._manifest.records + len(self._pending)

    def add(self, record: Record) -> None:
        """Adds the next record. Errors: RecordError for text that UTF-8 cannot hold."""
        self._pending.append((record, encode(record)))
        if len(self._pending) == SHARD_RECORDS:
            self._seal()

    def finish(self, plan: Plan | None = None) -> Manifest:
        """Writes what is left, then the manifest, with `plan` where it is known only now."""
        if self._pending:
            self._seal()
        manifest = replace(self._manifest, count=self._manifest.records)
        if plan is not None:
            manifest = replace(manifest, plan=plan)
        with replacing(self._directory / MANIFEST) as file:
            file.write(manifest.encode())
        return manifest

    def _seal(self) -> None:
        name = shard_file(len(self._manifest.shards))
        shard = sealed(name, self._pending)
        with replacing(self._directory / name) as file:
            file.writelines(content for _, content in self._pending)
        self._manifest = self._manifest.with_shard(shard)
        self._pending.clear()


def sealed(name: str, records: list[tuple[Record, bytes]]) -> Shard:
    """What the manifest says of a shard of these records and lines."""
    whole, inputs = hashlib.sha256(), hashlib.sha256()
    for record, content in records:
        whole.update(content)
        inputs.update(inputs_line(record.session_id, record.input, record.input_args))
    return Shard(
        file=name,
        records=len(records),
        sha256=whole.hexdigest(),
        inputs_sha256=inputs.hexdigest(),
        volatile=sum(record.volatile for record, _ in records),
        executions=sum(record.n_executions for record, _ in records),
    )
