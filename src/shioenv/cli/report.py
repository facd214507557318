"""`shioenv dataset report`: a dataset as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shioenv.cli import shared
from shioenv.cli.progress import counting


def report(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The dataset's directory.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE.html",
            help="Where the page is written (default: report.html in DIR).",
            show_default=False,
        ),
    ] = None,
    json: shared.Json = False,
) -> None:
    """Draw a dataset as one HTML page: charts, facts, and samples to search and browse.

    The page needs no network and no other file. With --json the numbers are printed, and the page
    is written only where --out asks for it.
    """
    from shioenv.dataset.manifest import read_manifest
    from shioenv.report.page import FILE, collect, write_report

    shared.note_unfinished(directory, read_manifest(directory))
    with counting("records") as progress:
        if json and out is None:
            found = collect(directory, report=progress)[1]
        else:
            found = write_report(directory, out, report=progress)
    if json:
        shared.print_json(found.to_json(), indent=2)
    else:
        path = directory / FILE if out is None else out
        size = path.stat().st_size / 1e6
        print(f"{path}: {found.records} records, {size:.1f} MB")
