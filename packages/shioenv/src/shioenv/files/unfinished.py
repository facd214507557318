"""Finished parts of long work, kept after an interruption for the next call with the same plan."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from msgspec import MsgspecError

from shioenv.errors import DatasetBusyError, ShioenvError
from shioenv.files.durable import cache_directory, locked, storage_errors
from shioenv.files.journal import Journal

Task = TypeVar("Task")
Value = TypeVar("Value")


def plan_digest(plan: object) -> str:
    """Return the SHA-256 (hex) of a plan, a JSON value."""
    return hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()


@contextmanager
def unfinished(what: str, plan: object) -> Iterator[Path]:
    """Provide a directory below the cache directory for the parts of some work.

    `what` names the work. `plan` is everything that determines the parts, as JSON; each plan has
    its own directory. At the end of the block the directory is removed, so the block must also
    write the result. After an error or a kill the directory is kept for the next call. If another
    call with the same plan is running, an empty temporary directory is used, which is always
    removed. Errors: DatasetStorageError.
    """
    directory = cache_directory() / "unfinished" / f"{what}-{plan_digest(plan)[:24]}"
    with ExitStack() as opened:
        with storage_errors(directory):
            try:
                while not _is_locked(directory, opened):
                    opened.close()
            except DatasetBusyError:
                given = tempfile.TemporaryDirectory(prefix=f"shioenv-{what}-")
                directory = Path(opened.enter_context(given))
        yield directory
        shutil.rmtree(directory, ignore_errors=True)


def _is_locked(directory: Path, opened: ExitStack) -> bool:
    """Create and lock a directory; `opened` holds the lock.

    Return False if the directory was removed in between, because the previous owner of the lock
    just finished. Errors: DatasetBusyError.
    """
    directory.mkdir(parents=True, exist_ok=True)
    try:
        handle = opened.enter_context(locked(directory))
        return os.path.samestat(os.fstat(handle), directory.stat())
    except FileNotFoundError:
        return False


class Parts(Generic[Value]):
    """The finished parts of some work by key, in a journal; a context manager.

    `encode` converts a part to JSON, and `decode` is its inverse. The journal is in `directory`. If
    that is None, parts are only kept in memory, and the context need not be entered. Lines that are
    damaged or that `decode` refuses are skipped, so their parts are computed again. Errors:
    DatasetStorageError.
    """

    def __init__(
        self,
        directory: Path | None,
        name: str,
        encode: Callable[[Value], Any],
        decode: Callable[[Any], Value],
    ) -> None:
        self._path = None if directory is None else directory / f"{name}.ndjson"
        self._journal: Journal[None] | None = None
        self._encode, self._decode = encode, decode
        self._numbers = count()
        self.values: dict[str, Value] = {}
        """The finished parts, including those of earlier calls."""
        self.kept = 0
        """The number of parts from earlier calls."""

    def __enter__(self) -> Self:
        if self._path is not None:
            with storage_errors(self._path):
                self._journal = Journal(self._path, self._read)
            self.kept = len(self.values)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._journal is not None:
            with storage_errors(self._journal.path):
                self._journal.close()

    def add(self, key: str, part: Value) -> Value:
        """Store a part, and return it as later calls read it, so that all use the same value."""
        content = json.dumps([key, self._encode(part)]).encode()
        read = self._decode(json.loads(content)[1])
        if self._journal is not None:
            with storage_errors(self._journal.path):
                self._journal.append(next(self._numbers), None, content)
        self.values[key] = read
        return read

    def completed(
        self,
        run: Callable[[Iterator[tuple[int, Task]]], Iterable[tuple[int, Value]]],
        tasks: Iterable[tuple[int, Task]],
    ) -> Iterator[tuple[int, Value]]:
        """Yield the part of each numbered task: first the stored ones, then those made by `run`.

        Errors: those of `run`; DatasetStorageError.
        """
        missing = []
        for number, task in tasks:
            if str(number) in self.values:
                yield number, self.values[str(number)]
            else:
                missing.append((number, task))
        for number, part in run(iter(missing)) if missing else ():
            yield number, self.add(str(number), part)

    def _read(self, content: bytes) -> tuple[int, None] | None:
        try:
            key, part = json.loads(content)
            self.values[str(key)] = self._decode(part)
        except (ValueError, TypeError, LookupError, ShioenvError, MsgspecError):
            return None
        return next(self._numbers), None
