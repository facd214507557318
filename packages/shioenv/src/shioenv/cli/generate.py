"""`shioenv generate`: a dataset of executed and scored inputs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shioenv.cli import printing, shared
from shioenv.cli.progress import Meter
from shioenv.text import share

if TYPE_CHECKING:
    from shioenv.dataset.generate import Progress, Summary

app = typer.Typer()


@shared.command(app, "shioenv generate ./dataset --count 1000 --seed 7")
def generate(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="Directory of the dataset, created if missing. The same command resumes it.",
        ),
    ],
    *,
    sampler: shared.SamplerName = "gcs",
    count: Annotated[int, typer.Option(min=1, metavar="N", help="Number of records.")] = 1000,
    seed: Annotated[
        int, typer.Option(help="Random seed. The same seed gives the same dataset.")
    ] = 0,
    scoring: shared.ScoringSettings,
    compress: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            autocompletion=shared.completing("zstd"),
            help="Compress the shards: zstd. All commands can read them.",
        ),
    ] = None,
    without_scores: Annotated[
        bool,
        typer.Option(
            "--without-scores",
            help="Execute inputs without scoring them; `shioenv dataset score` can do it later.",
        ),
    ] = False,
    workers: shared.Workers = None,
    engine: shared.EngineName = "local",
    address: shared.Address = None,
    drawing: shared.DrawingOptions,
    part: Annotated[
        str,
        typer.Option(
            metavar="I/N",
            help="Make only part I of N of the dataset; `dataset merge` joins all parts.",
        ),
    ] = "",
    limits: shared.RecordLimits,
    cache_size: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="MB",
            help="Maximum size of the cache of executions. The oldest are removed first.",
        ),
    ] = 512,
    no_cache: Annotated[
        bool,
        typer.Option("--no-cache", help="Execute everything; do not use the cache of executions."),
    ] = False,
    system: shared.SystemName = None,
) -> shared.Printout:
    """Generate a dataset: sample, execute and score inputs.

    Ctrl-C or a crash loses no finished record. The same command resumes, and the result has the
    same bytes as without the interruption. A larger --count extends a dataset. New records are
    scored with the settings of existing ones, unless an option overrides them.
    """
    from shioenv.dataset.generate import Destination
    from shioenv.dataset.generate import generate as generate_records
    from shioenv.dataset.manifest import scoring_there
    from shioenv.errors import UsageError
    from shioenv.execution.local import executor_named
    from shioenv.irreducibility.scoring import UNSCORED
    from shioenv.sandbox.base import MEBIBYTE

    chosen = scoring.applied_to(UNSCORED if without_scores else scoring_there(directory))
    if without_scores and chosen.budget:
        raise UsageError(
            "--without-scores and --budget cannot be combined", hint="omit one of them"
        )
    stopped = f"stopped; finished records are kept in {directory}; the same command resumes"
    cache_bytes = 0 if no_cache else cache_size * MEBIBYTE
    with Meter("records", lasting=True, stopped=stopped) as meter:
        unseen = iter([True])

        def report(progress: Progress) -> None:
            meter.report(progress)
            if progress.done and not progress.kept and next(unseen, False):
                meter.print_note(_first(directory))

        summary = generate_records(
            Destination(directory, compress),
            count=count,
            drawing=drawing.drawing(sampler, seed).but(part=part),
            scoring=chosen,
            system=system,
            limits=limits.limits(),
            executor=executor_named(engine, workers, address, cache_bytes=cache_bytes),
            report=report,
        )
    return summarize(summary)


def _first(directory: Path) -> str:
    """Describe the first finished record of a new dataset in one line."""
    from shioenv.dataset.record_reader import read_records

    record = next(read_records(directory, unfinished=True))
    score = record.irreducibility
    scored = "" if score is None else f", irreducibility {score:.3f}"
    said = f"first record  {record.input}  (exit code {record.exit_code}{scored})"
    return printing.printable(said)


def summarize(summary: Summary) -> shared.Printout:
    """Summarise a generated dataset as a printout."""
    return shared.Printout(summary.to_json(), _lines(summary))


def _lines(summary: Summary) -> Iterator[str]:
    from shioenv.dataset.record_reader import read_records

    manifest = summary.manifest
    timed_out = sum(record.timed_out for record in read_records(summary.directory))
    mean = manifest.mean_executions
    rate = summary.new / summary.seconds if summary.seconds else 0.0
    rows = {
        "dataset": str(summary.directory),
        "records": f"{manifest.records}, {summary.new} of them new",
        "time": f"{summary.seconds:.1f} s" + (f", {rate:.1f} records/s" if summary.new else ""),
        "executions": f"{mean:.1f} per record" if mean else "not scored",
        "volatile": f"{manifest.volatile} ({share(manifest.volatile, manifest.records)})",
        "timed out": f"{timed_out} ({share(timed_out, manifest.records)})",
    }
    effort = summary.effort
    if effort.ran and summary.seconds:
        rows["executed"] = f"{effort.ran}, {effort.ran / summary.seconds:.1f}/s"
        whole = sum(effort.places.values())
        rows["time spent"] = ", ".join(
            f"{share(spent, whole)} {place}" for place, spent in effort.places.items()
        )
    limits = manifest.plan.limits
    if limits is not None and limits.without_shell_state:
        rows["shell"] = "state not read: patches lack the changes of the shell itself"
    if effort.asked:
        rows["shared"] = (
            f"{effort.found} of {effort.asked} sub-inputs "
            f"({share(effort.found, effort.asked)}) were in the cache"
        )
    if summary.retried or summary.restarts:
        rows["retried"] = f"{summary.retried} records, {summary.restarts} workers replaced"
    yield from printing.rows(rows)
