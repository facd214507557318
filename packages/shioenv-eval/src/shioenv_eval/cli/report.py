"""`shioenv dataset report`: a dataset as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shioenv.cli import printing, shared
from shioenv.cli.progress import counting

app = typer.Typer()


@shared.command(app, "shioenv dataset report ./dataset --out report.html")
def report(
    directory: shared.Directory,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.html", help="Where the page is written (default: report.html in DIR)."
        ),
    ] = None,
    json: shared.Json = False,
) -> shared.Printout:
    """Draw a dataset as one HTML page: charts, facts, and samples to search and browse.

    The page needs no network and no other file. With --json the numbers are printed, and the page
    is written only where --out asks for it.
    """
    from shioenv.dataset.manifest import read_manifest
    from shioenv_eval.report.page import FILE, collect, write_report

    printing.note_unfinished(directory, read_manifest(directory))
    path = directory / FILE if out is None else out
    with counting("records") as progress:
        if json and out is None:
            statistics = collect(directory, report=progress)[1]
            return shared.Printout(statistics.to_json(), indent=2)
        statistics = write_report(directory, out, report=progress)
    size = path.stat().st_size / 1e6
    line = f"{path}: {printing.counted(statistics.records, 'record')}, {size:.1f} MB"
    return shared.Printout(statistics.to_json(), [line], indent=2)
