"""`shioenv reproduce`: committed values and the paper's results, made again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shioenv.cli import printing, shared
from shioenv.cli.progress import Meter
from shioenv_paper.cli.experiment import Run, experiment_lines

if TYPE_CHECKING:
    from shioenv_paper.experiment_output import Results
    from shioenv_paper.setting import ExperimentSetting

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
    with run.setting(out) as setting:
        found = list(_paper_results(setting, paper_size))
    lines = (line for results in found for line in experiment_lines(results))
    documents = {results.document["experiment"]: results.document["summary"] for results in found}
    return shared.Printout({"directory": str(out), "summaries": documents}, lines, indent=2)


def _paper_results(setting: ExperimentSetting, paper_size: bool) -> Iterator[Results]:
    """Run the experiments below `setting.out`, and yield the results of each.

    Sections 4.2, 4.3 and 4.4 of the paper, then our steps, and the figures of the method in
    `figures`. Finished executions are not repeated. Without `paper_size` it takes under an hour on
    two idle cores. Errors: those of the experiments and `draw`.
    """
    from shioenv_paper.by_length import PAPER_COUNT, run_by_length
    from shioenv_paper.estimator_errors import run_estimator_errors
    from shioenv_paper.explanatory_figures import draw
    from shioenv_paper.sampling_efficiency import run_sampling_efficiency
    from shioenv_paper.steps import run_steps
    from shioenv_paper.training_sets import run_training_sets

    draw(setting.out / "figures", seed=setting.seed, system=setting.system_name)
    exact, replays = (60, 20) if paper_size else (4, 10)
    yield run_sampling_efficiency(setting, count=exact, replays=replays)
    yield run_estimator_errors(setting, count=exact, replays=replays)
    by_length = PAPER_COUNT if paper_size else 1_200
    yield run_by_length(setting, count=by_length, rules=paper_size)
    yield run_training_sets(setting, count=500_000 if paper_size else 500, rules=paper_size)
    yield run_steps(setting, count=300 if paper_size else 50)
