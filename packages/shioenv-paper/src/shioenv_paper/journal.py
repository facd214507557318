"""What an experiment executed so far, and its plan: a call after a stopped one goes on there."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import msgspec
from msgspec import Struct

from shioenv.errors import DatasetCorruptError, DatasetMismatchError, InputError
from shioenv.files import journal as files
from shioenv.files.durable import atomic_write, locked, storage_errors

JOURNAL = "inputs.ndjson"
"""One line for every input that was tried, in the order in which inputs were finished."""

_PLAN = -1
"""The plan's line holds no number: it is kept under this one."""


def compare(path: Path, there: Any, plan: Mapping[str, Any]) -> None:
    """Holds the plan that is there against the plan that is asked for.

    Errors: DatasetCorruptError where `there` is no plan. DatasetMismatchError where it has another
    value for a name in `plan`, with a line for each; other names are not looked at.
    """
    if not isinstance(there, Mapping):
        raise unreadable(path, "it holds no plan")
    different = [
        f"{name}: {there.get(name)!r} there, {value!r} asked for"
        for name, value in plan.items()
        if there.get(name) != value
    ]
    if different:
        raise DatasetMismatchError(str(path.parent), different)


def unreadable(path: Path, why: object) -> DatasetCorruptError:
    """The error for a file that holds something else than it should."""
    return DatasetCorruptError(f"{path} cannot be read: {why}", hint="choose another directory")


def agree(path: Path, plan: Mapping[str, Any]) -> None:
    """Keeps a plan in a file, or compares it with the plan that is there. Errors: as `compare`."""
    if not path.exists():
        atomic_write(path, json.dumps(plan, indent=2).encode() + b"\n")
        return
    try:
        there = json.loads(path.read_bytes())
    except ValueError as error:
        raise unreadable(path, error) from None
    compare(path, there, plan)


class Tried(Struct, frozen=True):
    """An input that was executed, or passed over."""

    number: int
    """The input's place in the stream of samples, from 0."""


Line = TypeVar("Line", bound=Tried)


class InputJournal(Generic[Line]):
    """The inputs tried so far, in a directory of their own. A context manager that locks it.

    A line of an input that is damaged or was not finished is forgotten, so its input is executed
    again.

    `plan` decides which inputs they are and what is kept of them. `read` decodes a line that was
    added (ValueError or InputError where it is none). Errors on entering: DatasetMismatchError
    where the directory has another plan; DatasetCorruptError where lines have no plan, or `read`
    fails; DatasetBusyError; DatasetStorageError.
    """

    def __init__(
        self, directory: Path, plan: Mapping[str, Any], read: Callable[[bytes], Line]
    ) -> None:
        self._path = directory / JOURNAL
        self._plan = json.loads(json.dumps(plan))  # tuples as they come back
        self._decode = read
        self.tried: dict[int, Line] = {}

    def __enter__(self) -> Self:
        with storage_errors(self._path), ExitStack() as opened:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            opened.enter_context(locked(self._path.parent))
            try:
                self._journal = files.Journal[Any](self._path, self._read)
            except (TypeError, ValueError, InputError) as error:
                raise unreadable(self._path, repr(error)) from None
            opened.callback(self._journal.close)
            if not self._journal.values:
                self._journal.append(_PLAN, self._plan, json.dumps(self._plan).encode())
            compare(self._path, self._journal.values.pop(_PLAN, None), self._plan)
            self.tried = self._journal.values
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        with storage_errors(self._path):
            self._opened.close()

    def add(self, tried: Line) -> None:
        """Appends an input's line. Errors: DatasetStorageError."""
        with storage_errors(self._path):
            self._journal.append(tried.number, tried, msgspec.json.encode(tried))

    def _read(self, content: bytes) -> tuple[int, Any]:
        document = json.loads(content)
        if "number" in document:
            tried = self._decode(content)
            return tried.number, tried
        compare(self._path, document, self._plan)  # before a line of another release is decoded
        return _PLAN, document
