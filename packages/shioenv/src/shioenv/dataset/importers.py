"""Formats of `shioenv dataset import`: their detection, and formats that other packages add.

A package adds a format by an entry point with the format's name. The group is `shioenv.readers` if
the inputs are to be executed, else `shioenv.importers`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from shioenv.dataset.external import Reader, read_list
from shioenv.dataset.input_lines import MOST_REJECTED, PARQUET, Rejection, read_lines
from shioenv.dataset.manifest import MANIFEST
from shioenv.errors import ImportFileError, UsageError, did_you_mean, missing_guest
from shioenv.files.compressed import unpacking
from shioenv.files.documents import parse_json
from shioenv.files.regular import is_directory
from shioenv.guests import find_guest

GROUP = "shioenv.importers"
READERS = "shioenv.readers"

KINDS = {"commands": "", "records": "eval", "released": "paper", "sessions": "serve"}
"""Kinds of imports, each with the extra that provides it: inputs, records of this package, records
of the paper's authors, and logs of honeypots."""

SOURCE_MANIFEST = "source-manifest.json"
"""The exported dataset's own manifest, kept in the Hugging Face layout."""

SUFFIXES = (".parquet", ".ndjson", ".jsonl", ".json")


class Imported(Protocol):
    """The result of an import."""

    @property
    def rejected(self) -> tuple[Rejection, ...]:
        """Return the lines that were left out."""
        ...

    def to_json(self) -> dict[str, Any]:
        """Return the import as JSON for programs."""
        ...

    def rows(self) -> dict[str, str]:
        """Return labels and texts for people, the directory first."""
        ...


class Importer(Protocol):
    """Creates a dataset in `directory` from the files at `source`.

    `sampler` is the sampler's name in the records, by default the format's name. `report` is called
    with the number of lines read.
    """

    def __call__(
        self, source: Path, directory: Path, *, sampler: str | None, report: Callable[[int], None]
    ) -> Imported:
        """Make the dataset."""
        ...


def find_importer(name: str) -> Importer:
    """Return the importer for a format.

    Errors: UsageError for an unknown format. MissingExtraError if its package is not installed.
    """
    importer: Importer = _found(GROUP, name)
    return importer


def find_reader(name: str) -> Reader | None:
    """Return the reader of inputs in a format; None if the format has an importer instead.

    Errors: those of `find_importer`.
    """
    if name == "commands":
        return read_list
    reader: Reader | None = find_guest(READERS, name)
    return reader if reader or name != "sessions" else _found(READERS, name)


def _found(group: str, name: str) -> Any:
    found = find_guest(group, name)
    if found is not None:
        return found
    if name in KINDS:
        raise missing_guest(f"shioenv dataset import --format {name}", KINDS[name])
    raise UsageError(f"unknown format {name!r}", hint=did_you_mean(name, KINDS))


def kind_of(source: str | Path) -> str:
    """Detect which of `KINDS` a file or directory is, from its content.

    The kind `released` is never detected: it has to be requested. Errors: ImportFileError for a
    source of no kind, and for records of other packages.
    """
    source = directory = Path(source)
    if is_directory(source):
        if os.path.lexists(source / MANIFEST):
            raise ImportFileError(
                f"{source} is a dataset, not an export of one",
                hint="use it directly, or copy it: shioenv dataset filter SRC --out NEW",
            )
        source = record_files(source)[0]
    if is_parquet(source):
        return "records"
    begin = islice(read_lines(source), MOST_REJECTED)
    first = next((line for _, line in begin if line.strip()), b"").lstrip()
    try:
        document = parse_json(first) if first.startswith(b"{") else {}
    except ValueError:
        document = {}
    if {"schema_version", "input_args", "context_patch"} <= document.keys():
        return "records"
    if {"eventid", "session"} <= document.keys():
        return "sessions"
    if {"input", "output", "exit_code"} <= document.keys():
        raise ImportFileError(
            f"{source} has records of another program, or with other fields than those of ShIOEnv",
            hint="keep their content with --format released, or execute their inputs with "
            "--format commands",
        )
    if source != directory:
        raise ImportFileError(
            f"{directory} is a directory of lists of inputs, not of records: {source.name}",
            hint="import each list into a separate dataset, or all into one: "
            f"cat {directory}/* | shioenv dataset import - --out DIR",
        )
    return "commands"


def record_files(source: Path) -> list[Path]:
    """Return the files of records in a directory or its `data`, in the order of their numbers."""
    for place in (source / "data", source):
        paths = [path for path in place.glob("*") if _may_hold_records(path)]
        if paths:
            return sorted(paths, key=numbered)
    raise ImportFileError(
        f"the directory {source} has no files of records",
        hint=f"their names end in {', '.join(SUFFIXES)}, optionally with .gz or .zst",
    )


def _may_hold_records(path: Path) -> bool:
    name = path.name.removesuffix(".gz").removesuffix(".zst")
    return name.endswith(SUFFIXES) and not name.startswith(".") and path.name != SOURCE_MANIFEST


def numbered(path: Path) -> list[int | str]:
    """Return a sort key with which `x10` comes after `x9`."""
    parts = re.split(r"([0-9]+)", f"a{path.name}")
    return [int(part) if place % 2 else part for place, part in enumerate(parts)]


def is_parquet(path: Path) -> bool:
    """Whether a file is a Parquet file, compressed or not. Errors: ImportFileError."""
    try:
        with unpacking(path) as stream:
            return PARQUET.match(stream.peek(5)) is not None
    except OSError as error:
        raise ImportFileError(f"{path} cannot be read: {error.strerror}") from None
