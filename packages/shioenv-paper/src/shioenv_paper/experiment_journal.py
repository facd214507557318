"""The plan and progress of an experiment, so that an interrupted call can be resumed."""

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
"""One line for every tried input, in order of completion."""

_PLAN = -1
"""Key of the plan's line, which has no number."""


def compare_plans(path: Path, there: Any, plan: Mapping[str, Any]) -> None:
    """Compare the existing plan with the requested one.

    Errors: DatasetCorruptError if `there` is not a plan. DatasetMismatchError if it has other
    values for names in `plan`, with a line for each; other names are ignored.
    """
    if not isinstance(there, Mapping):
        raise journal_error(path, "it does not contain a plan")
    different = [
        f"{name}: {there.get(name)!r} in the directory, {value!r} requested"
        for name, value in plan.items()
        if there.get(name) != value
    ]
    if different:
        raise DatasetMismatchError(str(path.parent), different)


def journal_error(path: Path, why: object) -> DatasetCorruptError:
    """Return the error for a file with unexpected content."""
    return DatasetCorruptError(f"{path} cannot be read: {why}", hint="choose another directory")


def agree(path: Path, plan: Mapping[str, Any]) -> None:
    """Save a plan to a file, or compare it with the existing plan. Errors: as `compare_plans`."""
    if not path.exists():
        atomic_write(path, json.dumps(plan, indent=2).encode() + b"\n")
        return
    try:
        there = json.loads(path.read_bytes())
    except ValueError as error:
        raise journal_error(path, error) from None
    compare_plans(path, there, plan)


class Tried(Struct, frozen=True):
    """An input that was executed or skipped."""

    number: int
    """The input's index in the stream of samples, from 0."""


Line = TypeVar("Line", bound=Tried)


class InputJournal(Generic[Line]):
    """The inputs tried so far, in a directory that this context manager locks.

    Damaged or incomplete lines are ignored, so their inputs are executed again.

    `plan` determines the inputs and the saved data. `read` decodes an added line (ValueError or
    InputError if invalid). Errors on entering: DatasetMismatchError if the directory has another
    plan; DatasetCorruptError if lines have no plan, or `read` fails; DatasetBusyError;
    DatasetStorageError.
    """

    def __init__(
        self, directory: Path, plan: Mapping[str, Any], read: Callable[[bytes], Line]
    ) -> None:
        self._path = directory / JOURNAL
        self._plan = json.loads(json.dumps(plan))  # tuples become lists, as in a saved plan
        self._decode = read
        self.tried: dict[int, Line] = {}

    def __enter__(self) -> Self:
        with storage_errors(self._path), ExitStack() as opened:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            opened.enter_context(locked(self._path.parent))
            try:
                self._journal = files.Journal[Any](self._path, self._read)
            except (TypeError, ValueError, InputError) as error:
                raise journal_error(self._path, repr(error)) from None
            opened.callback(self._journal.close)
            if not self._journal.values:
                self._journal.append(_PLAN, self._plan, json.dumps(self._plan).encode())
            compare_plans(self._path, self._journal.values.pop(_PLAN, None), self._plan)
            self.tried = self._journal.values
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        with storage_errors(self._path):
            self._opened.close()

    def add(self, tried: Line) -> None:
        """Append an input's line. Errors: DatasetStorageError."""
        with storage_errors(self._path):
            self._journal.append(tried.number, tried, msgspec.json.encode(tried))

    def _read(self, content: bytes) -> tuple[int, Any]:
        document = json.loads(content)
        if "number" in document:
            tried = self._decode(content)
            return tried.number, tried
        compare_plans(
            self._path, document, self._plan
        )  # before the lines are decoded, which may fail for those of another release
        return _PLAN, document
