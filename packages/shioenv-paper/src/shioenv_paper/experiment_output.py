"""Output of an experiment: data, a picture, tables, and their provenance."""

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
from shioenv_eval.report.chart_style import picture, require_libraries
from shioenv_eval.report.markup import Table
from shioenv_paper.setting import ExperimentSetting

if TYPE_CHECKING:
    import altair as alt

RUN, TABLE, PLOT = "run.json", "table.md", "plot"
LIBRARIES = ("altair", "numpy", "pyarrow", "scipy", "vl-convert-python")


@dataclass(frozen=True, slots=True)
class Findings:
    """The findings of an experiment, before they are written."""

    title: str
    data: Mapping[str, Mapping[str, Sequence[Any]]]
    """Columns by name, for each data file by its name."""
    tables: Sequence[Table]
    chart: alt.TopLevelMixin
    counts: Mapping[str, Any]
    """Number of inputs of each kind, and of those reused from earlier calls."""
    parameters: Mapping[str, Any]
    summary: Mapping[str, Any] = field(default_factory=dict)
    """The most important figures, in machine-readable form."""


@dataclass(frozen=True, slots=True)
class Results:
    """The directory of the results, and the content of `run.json`."""

    directory: Path
    document: Mapping[str, Any]
    tables: Sequence[Table]


Options = ParamSpec("Options")
Find: TypeAlias = Callable[Concatenate[ExperimentSetting, Options], Findings]
Experiment: TypeAlias = Callable[Concatenate[ExperimentSetting, Options], Results]


def experiment(name: str) -> Callable[[Find[Options]], Experiment[Options]]:
    """Turn a function that returns findings into an experiment of this name that writes them.

    Errors of the experiment: MissingExtraError before anything is executed; DatasetStorageError.
    """

    def framed(find: Find[Options]) -> Experiment[Options]:
        @wraps(find)
        def run(
            setting: ExperimentSetting, /, *args: Options.args, **options: Options.kwargs
        ) -> Results:
            check_libraries()
            started = time.monotonic()
            return write_findings(setting, name, find(setting, *args, **options), started=started)

        return run

    return framed


def check_libraries() -> None:
    """Raise MissingExtraError if libraries for data or pictures are missing."""
    require_libraries("an experiment", "export", "pyarrow")
    require_libraries("an experiment", "report", "altair", "scipy", "vl_convert")


def write_findings(
    setting: ExperimentSetting, name: str, findings: Findings, *, started: float
) -> Results:
    """Write the findings to the directory of this name.

    `started` is the value of `time.monotonic` at the start of the experiment. Errors:
    DatasetStorageError.
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
    """Return items as columns. A column of `names` holds the attribute of that name.

    A column of `paths` holds the attribute at its path (`cwd="sample.cwd"`).
    """
    places = {**{name: name for name in names}, **paths}
    return {name: list(map(attrgetter(place), items)) for name, place in places.items()}


def write_columns(path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    """Write columns as Parquet, compressed with zstd."""
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table(dict(columns))
    with replacing(path) as file:
        pyarrow.parquet.write_table(table, file, compression="zstd")


def read_columns(path: Path) -> dict[str, list[Any]]:
    """Read the output of `write_columns`. Errors: DatasetCorruptError."""
    import pyarrow
    import pyarrow.parquet

    try:
        return dict(pyarrow.parquet.read_table(path).to_pydict())
    except (pyarrow.ArrowException, OSError) as error:
        raise DatasetCorruptError(
            f"{path} cannot be read: {error}", hint="delete it, then run the same command again"
        ) from None


def format_command() -> str:
    """Return the command line of this process, quoted for a shell."""
    return shlex.join(["shioenv", *sys.argv[1:]])
