"""What an experiment leaves behind: data, a picture, tables, and what made them."""

from __future__ import annotations

import json
import platform
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from importlib.metadata import version
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeAlias

from shioenv.errors import DatasetCorruptError
from shioenv.files.durable import atomic_write, replacing, storage_errors
from shioenv.guests import package_version
from shioenv_eval.report.drawing import picture, require_libraries
from shioenv_eval.report.tables import Table
from shioenv_paper.setting import ExperimentSetting

if TYPE_CHECKING:
    import altair as alt

RUN, TABLE, PLOT = "run.json", "table.md", "plot"
LIBRARIES = ("altair", "numpy", "pyarrow", "scipy", "vl-convert-python")


@dataclass(frozen=True, slots=True)
class Findings:
    """What an experiment found, before it is written."""

    title: str
    data: Mapping[str, Mapping[str, Sequence[Any]]]
    """Columns by name, for each file of data by its name."""
    tables: Sequence[Table]
    chart: alt.TopLevelMixin
    counts: Mapping[str, Any]
    """How many inputs of each kind there are, and how many of them an earlier call made."""
    parameters: Mapping[str, Any]
    summary: Mapping[str, Any] = field(default_factory=dict)
    """The figures that matter most, for programs to read."""


@dataclass(frozen=True, slots=True)
class Results:
    """Where the results lie, and `run.json`'s content."""

    directory: Path
    document: Mapping[str, Any]
    tables: Sequence[Table]


Options = ParamSpec("Options")
Find: TypeAlias = Callable[Concatenate[ExperimentSetting, Options], Findings]
Experiment: TypeAlias = Callable[Concatenate[ExperimentSetting, Options], Results]


def experiment(name: str) -> Callable[[Find[Options]], Experiment[Options]]:
    """Makes a function that gives findings an experiment of this name, which writes them as well.

    Errors of the experiment: MissingExtraError before anything is executed; DatasetStorageError.
    """

    def framed(find: Find[Options]) -> Experiment[Options]:
        @wraps(find)
        def run(
            setting: ExperimentSetting, /, *args: Options.args, **options: Options.kwargs
        ) -> Results:
            check_libraries()
            started = time.monotonic()
            return write(setting, name, find(setting, *args, **options), started=started)

        return run

    return framed


def check_libraries() -> None:
    """Raises MissingExtraError where libraries that write data or pictures are missing."""
    require_libraries("an experiment", "export", "pyarrow")
    require_libraries("an experiment", "report", "altair", "scipy", "vl_convert")


def write(setting: ExperimentSetting, name: str, findings: Findings, *, started: float) -> Results:
    """Writes the findings into the directory of this name.

    `started` is what `time.monotonic` gave when the experiment began. Errors: DatasetStorageError.
    """
    directory = setting.out / name
    with storage_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
        for file, columns in findings.data.items():
            write_columns(directory / f"{file}.parquet", columns)
        svg, png = picture(findings.chart)
        atomic_write(directory / f"{PLOT}.svg", svg)
        atomic_write(directory / f"{PLOT}.png", png)
        text = f"# {findings.title}\n\n" + "\n".join(table.markdown for table in findings.tables)
        atomic_write(directory / TABLE, text.encode())
        system = setting.system
        document = {
            "experiment": name,
            "command": setting.command,
            "seed": setting.seed,
            "parameters": dict(findings.parameters),
            "workers": setting.executor.workers,
            "system": {"name": system.name, "digest": system.digest},
            "versions": {
                "shioenv": package_version(),
                "python": platform.python_version(),
                "kernel": platform.release(),
                **{library: version(library) for library in LIBRARIES},
            },
            "counts": dict(findings.counts),
            "summary": dict(findings.summary),
            "wall_seconds": round(time.monotonic() - started, 1),
            "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "files": sorted({path.name for path in directory.iterdir()} | {RUN}),
        }
        atomic_write(directory / RUN, (json.dumps(document, indent=2) + "\n").encode())
    return Results(directory, document, findings.tables)


def columns(items: Sequence[Any], *names: str, **paths: str) -> dict[str, list[Any]]:
    """Items as columns. A column of `names` holds the attribute of its name.

    A column of `paths` holds the attribute that its path names (`cwd="sample.cwd"`).
    """
    places = {**{name: name for name in names}, **paths}
    return {name: list(map(attrgetter(place), items)) for name, place in places.items()}


def write_columns(path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    """Writes columns as Parquet, compressed by zstd."""
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
        return dict(pyarrow.parquet.read_table(path).to_pydict())
    except (pyarrow.ArrowException, OSError) as error:
        raise DatasetCorruptError(
            f"{path} cannot be read: {error}", hint="remove it, then run the same command again"
        ) from None


def shown_command() -> str:
    """The command line of this process, as a shell takes it."""
    return shlex.join(["shioenv", *sys.argv[1:]])
