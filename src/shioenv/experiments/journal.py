"""What was executed so far, one line for each input: a call that is stopped goes on behind it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Generic, Protocol, Self, TypeVar

from shioenv.errors import DatasetCorruptError, DatasetMismatchError, InputError
from shioenv.experiments.results import differences
from shioenv.files.durable import lock, storage_errors
from shioenv.files.lines import checksummed, sound

JOURNAL = "inputs.ndjson"
"""One line for every input that was tried, in the order in which they were finished."""


class Tried(Protocol):
    """An input that was executed, or passed over."""

    @property
    def number(self) -> int:
        """Its place in the stream of samples."""
        ...

    def to_json(self) -> dict[str, Any]:
        """The input as a line of the journal."""
        ...


Entry = TypeVar("Entry", bound=Tried)


class Journal(Generic[Entry]):
    """The inputs tried so far, in a directory of their own; what is damaged or was not finished is
    forgotten, hence executed again. A context manager that locks the directory.

    `plan` is what decides which inputs they are and what is kept of them; `read` makes an entry of
    a line's document (KeyError, TypeError, ValueError, InputError for none). Errors on entering:
    DatasetMismatchError where the directory's plan is another one, DatasetBusyError,
    DatasetCorruptError, DatasetStorageError.
    """

    def __init__(
        self,
        directory: Path,
        plan: Mapping[str, Any],
        read: Callable[[Mapping[str, Any]], Entry],
    ) -> None:
        self._path = directory / JOURNAL
        self._plan, self._decode = plan, read
        self.tried: dict[int, Entry] = {}

    def __enter__(self) -> Self:
        with storage_errors(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = lock(self._path.parent)
            try:
                self._file: BinaryIO = self._path.open("ab+")
                self._read()
            except BaseException:
                os.close(self._lock)
                raise
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            with storage_errors(self._path):
                self._file.close()
        finally:
            os.close(self._lock)

    def add(self, one: Entry) -> None:
        """Keeps it."""
        self.tried[one.number] = one
        self._write(one.to_json())

    def _write(self, document: Mapping[str, Any]) -> None:
        with storage_errors(self._path):
            self._file.write(checksummed(json.dumps(document).encode()) + b"\n")
            self._file.flush()

    def _read(self) -> None:
        self._file.seek(0)
        content = self._file.read()
        *lines, torn = content.split(b"\n")
        self._file.truncate(len(content) - len(torn))
        if not lines:
            self._write(self._plan)
            return
        plan, *entries = map(sound, lines)
        try:
            different = differences(json.loads(plan or b""), self._plan)
            tried = [self._decode(json.loads(line)) for line in entries if line is not None]
        except (KeyError, TypeError, ValueError, InputError) as error:
            raise DatasetCorruptError(
                f"{self._path} cannot be read: {error!r}", hint="choose another directory"
            ) from None
        if different:
            raise DatasetMismatchError(str(self._path.parent), different)
        self.tried = {one.number: one for one in tried}
