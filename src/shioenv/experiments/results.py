"""What an experiment leaves behind: data, a picture, a table, and what they were made with."""

from __future__ import annotations

import json
import os
import platform
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from shioenv.errors import DatasetCorruptError, DatasetMismatchError, MissingExtraError
from shioenv.experiments.charts import Spec, drawn
from shioenv.experiments.setting import Setting
from shioenv.files.durable import lock, replacing, storage_errors
from shioenv.version import package_version

RUN, TABLE, PLOT = "run.json", "table.md", "plot"
LIBRARIES = ("numpy", "pyarrow", "vl-convert-python")


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under a heading, and what has to be known to read them."""

    title: str
    note: str
    headers: tuple[str, ...]
    rows: Sequence[Sequence[str]]

    @property
    def markdown(self) -> str:
        """The table as Markdown; columns of numbers to the right."""
        lines = [f"## {self.title}", "", self.note, ""]
        if not self.rows:
            return "\n".join(lines)
        columns = zip(*self.rows, strict=True)
        rules = ("---:" if all(map(_is_number, column)) else "---" for column in columns)
        lines += [_row(self.headers), f"|{'|'.join(rules)}|", *map(_row, self.rows)]
        return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _is_number(cell: str) -> bool:
    return not cell or cell[0] in "-+0123456789"


@dataclass(frozen=True, slots=True)
class Findings:
    """What an experiment found, before it is written."""

    title: str
    data: Mapping[str, Mapping[str, Sequence[Any]]]
    """Columns by name, of each file of data."""
    tables: Sequence[Table]
    chart: Spec
    counts: Mapping[str, Any]
    """How many inputs of what, and how many of them an earlier call made."""
    parameters: Mapping[str, Any]
    summary: Mapping[str, Any] = field(default_factory=dict)
    """The figures that matter most, for programs."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Where the results lie, and `run.json`'s content."""

    directory: Path
    document: Mapping[str, Any]
    tables: Sequence[Table]


def check_libraries() -> None:
    """MissingExtraError where data or pictures could not be written."""
    for module, extra in (("pyarrow", "export"), ("vl_convert", "report")):
        if find_spec(module) is None:
            raise MissingExtraError("an experiment", module, extra)


def write(setting: Setting, name: str, found: Findings, *, started: float) -> Outcome:
    """Writes the findings into the directory of this name; `started` is of `time.monotonic`.

    Errors: DatasetStorageError.
    """
    directory = setting.out / name
    with storage_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
        for file, columns in found.data.items():
            write_columns(directory / f"{file}.parquet", columns)
        svg, png = drawn(found.chart)
        _write(directory / f"{PLOT}.svg", svg)
        _write(directory / f"{PLOT}.png", png)
        text = f"# {found.title}\n\n" + "\n".join(table.markdown for table in found.tables)
        _write(directory / TABLE, text.encode())
        system = setting.system
        document = {
            "experiment": name,
            "command": setting.command,
            "seed": setting.seed,
            "parameters": dict(found.parameters),
            "workers": setting.executor.workers,
            "system": {"name": system.name, "digest": system.digest},
            "versions": {
                "shioenv": package_version(),
                "python": platform.python_version(),
                "kernel": platform.release(),
                **{library: version(library) for library in LIBRARIES},
            },
            "counts": dict(found.counts),
            "summary": dict(found.summary),
            "wall_seconds": round(time.monotonic() - started, 1),
            "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "files": sorted({path.name for path in directory.iterdir()} | {RUN}),
        }
        _write(directory / RUN, (json.dumps(document, indent=2) + "\n").encode())
    return Outcome(directory, document, found.tables)


def _write(path: Path, content: bytes) -> None:
    with replacing(path) as file:
        file.write(content)


def write_columns(path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    """Writes columns as Parquet."""
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table(dict(columns))
    with replacing(path) as file:
        pyarrow.parquet.write_table(table, file, compression="zstd")


def read_columns(path: Path) -> dict[str, list[Any]]:
    """The columns that `write_columns` wrote. Errors: DatasetCorruptError."""
    import pyarrow
    import pyarrow.parquet

    try:
        found: dict[str, list[Any]] = pyarrow.parquet.read_table(path).to_pydict()
    except (pyarrow.ArrowException, OSError) as error:
        raise DatasetCorruptError(
            f"{path} cannot be read: {error}", hint="remove it, then run the same command again"
        ) from None
    return found


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Nobody else writes there meanwhile. Errors: DatasetBusyError."""
    handle = lock(directory)
    try:
        yield
    finally:
        os.close(handle)


def differences(there: Any, asked: Mapping[str, Any]) -> list[str]:
    """What is asked for otherwise than what is there was made with, a line each.

    ValueError where what is there is no document.
    """
    if not isinstance(there, Mapping):
        raise ValueError("it holds no plan")
    return [
        f"{name}: {there.get(name)!r} there, {value!r} asked for"
        for name, value in asked.items()
        if there.get(name) != value
    ]


def agree(path: Path, plan: Mapping[str, Any]) -> None:
    """Keeps a plan in a file. Errors: DatasetMismatchError where another plan is there."""
    if not path.exists():
        _write(path, json.dumps(plan, indent=2).encode() + b"\n")
        return
    try:
        different = differences(json.loads(path.read_bytes()), plan)
    except ValueError as error:
        raise DatasetCorruptError(
            f"{path} cannot be read: {error}", hint="choose another directory"
        ) from None
    if different:
        raise DatasetMismatchError(str(path.parent), different)


def shown_command() -> str:
    """The command line of this process, as a shell takes it."""
    return shlex.join(["shioenv", *sys.argv[1:]])
