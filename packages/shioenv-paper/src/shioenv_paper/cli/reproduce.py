"""`shioenv reproduce`: committed values and the paper's results, made again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shioenv.cli import printing, shared
from shioenv.cli.progress import Meter
from shioenv_paper.cli.experiment import Run, experiment_lines

_RUN = Run()

app = typer.Typer(
    name="reproduce",
    no_args_is_help=True,
    help="Reproduce the results in the repository and compare them.",
)


@app.callback()
def _group() -> None: ...


@shared.command(app, "shioenv reproduce quick --out ./reproduction")
def quick(
    out: Annotated[
        Path,
        typer.Option(metavar="DIR", help="Directory for records, answers and the report. Resumes."),
    ],
    workers: shared.Workers = None,
) -> shared.Printout:
    """Reproduce 1,000 records and the table of the default model.

    If the default system is missing, it is built from its lock. To download it instead, run
    `shioenv system pull` first. Each record is compared with its committed digest. Records that are
    volatile in either run are not compared. At most 3 records may be volatile in only one of the
    runs. The exit status is 1 for any other difference.
    """
    from shioenv.system.store import build_system
    from shioenv_paper.reproduction import REPORT, made_values, reproduce

    build_system(report=printing.note)
    stopped = "stopped; what was made is kept: run this again"
    with Meter(lasting=True, stopped=stopped) as meter:
        made = made_values(
            out,
            workers=workers,
            records=lambda progress: meter.update("records", progress.done, progress.count),
            answers=lambda name, *counts: meter.update(f"answers of {name}", *counts),
        )
    found = reproduce(made, out)
    document = found.to_json()
    lines = [
        f"system {document['system']}, digest {document['system_digest']}",
        f"{document['compared_records']} of {document['records']} records compared, digest "
        f"{document['compared_records_digest'][:16]}",
        f"table of {document['table']['all']}",
        *found.faults,
        f"{'reproduced' if not found.faults else 'not reproduced'}: {out / REPORT}",
    ]
    return shared.Printout(document, lines, indent=2, status=1 if found.faults else 0)


@shared.command(app, "shioenv reproduce paper --out ./paper")
def paper(
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Directory for data, tables and pictures. Resumes.")
    ],
    paper_size: Annotated[
        bool, typer.Option("--paper-size", help="The paper's number of inputs, instead of a few.")
    ] = False,
    run: Run = _RUN,
) -> shared.Printout:
    """Run the paper's experiments and draw its figures.

    These are sampling efficiency, estimators, irreducibility by length, training sets, the steps
    from our sampling to the paper's, and the figures of the method. Models are not trained.
    """
    from shioenv_paper.whole_paper import SIZES, reproduce_paper

    size = SIZES["paper" if paper_size else "reduced"]
    with run.setting(out) as setting:
        found = list(reproduce_paper(setting, size))
    lines = (line for results in found for line in experiment_lines(results))
    documents = {results.document["experiment"]: results.document["summary"] for results in found}
    return shared.Printout({"directory": str(out), "summaries": documents}, lines, indent=2)
