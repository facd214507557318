"""`shioenv generate`: a dataset of executed and scored inputs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from shioenv.cli import shared
from shioenv.cli.progress import PLAIN_SECONDS, time_left
from shioenv.report.text import share

if TYPE_CHECKING:
    from shioenv.dataset.generate import Progress, Summary


def generate(
    directory: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Made where it is missing; run again to go on."),
    ],
    sampler: shared.SamplerName = "gcs",
    count: Annotated[int, typer.Option(min=1, metavar="N", help="Records wanted.")] = 1000,
    seed: Annotated[int, typer.Option(help="The same seed gives the same dataset.")] = 0,
    budget: shared.Budget = 64,
    workers: shared.Workers = None,
    engine: Annotated[
        str,
        typer.Option(
            metavar="ENGINE",
            help="Where they run: local (this machine), or ray (the nodes of a Ray cluster).",
        ),
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="The Ray cluster's, HOST:PORT or auto (default: RAY_ADDRESS, else this machine).",
            show_default=False,
        ),
    ] = None,
    noise_runs: shared.NoiseRuns = 3,
    estimator: shared.EstimatorName = "paper",
    target_se: shared.TargetError = None,
    command: shared.CommandNames = None,
    horizon: shared.Horizon = 12,
    composite_share: shared.CompositeShare = 0.25,
    composites: shared.Composites = None,
    policy: shared.PolicyName = "weighted",
    timeout: shared.RecordTimeout = None,
    cache_size: Annotated[
        int,
        typer.Option(
            min=1, metavar="MB", help="Of the file of shared executions; the oldest make room."
        ),
    ] = 512,
    no_cache: Annotated[
        bool,
        typer.Option("--no-cache", help="Execute everything; share nothing with other runs."),
    ] = False,
    system: shared.SystemName = None,
    json: shared.Json = False,
) -> None:
    """Generate a dataset: sample inputs, execute and score them, keep the records.

    Ctrl-C, or even a crash, loses nothing that was finished: the same call goes on, and gives the
    same bytes as a run that was never interrupted. A larger count makes a dataset longer.
    """
    from shioenv.dataset.generate import generate as generate_records
    from shioenv.execution.engines import executor_named
    from shioenv.irreducibility.scoring import Scoring
    from shioenv.sandbox.base import MEBIBYTE
    from shioenv.synthesis.drawing import Drawing

    share = shared.share_of_composites(composites, composite_share)
    shown = meter()
    started = time.monotonic()
    try:
        with shown:
            summary = generate_records(
                directory,
                count=count,
                drawing=Drawing(
                    sampler=sampler,
                    policy=policy,
                    seed=seed,
                    commands=tuple(command or ()),
                    horizon=horizon,
                    composite_share=share,
                ),
                scoring=Scoring(
                    budget=budget,
                    noise_runs=noise_runs,
                    estimator=estimator,
                    target_se=target_se,
                ),
                system=system,
                limits=shared.limits_of(timeout),
                executor=executor_named(
                    engine,
                    workers,
                    address,
                    cache_bytes=0 if no_cache else cache_size * MEBIBYTE,
                ),
                report=shown.report,
            )
    except KeyboardInterrupt:
        shared.note(f"stopped; what is finished is kept in {directory}, the same command goes on")
        raise
    if json:
        shared.print_json(summary.to_json())
    else:
        _print(summary, time.monotonic() - started)


class Meter(Protocol):
    """Shows progress; a context manager."""

    def report(self, progress: Progress) -> None:
        """Shows how far the run has come."""

    def __enter__(self) -> object: ...

    def __exit__(self, *exception: object) -> None: ...


def meter() -> Meter:
    """A bar on a terminal, plain lines elsewhere."""
    import sys

    return _Bar() if sys.stderr.isatty() else _Lines()


class _Lines:
    """A line at the start, every ten seconds, and at the end."""

    def __init__(self) -> None:
        self._last: float | None = None
        self._shown = -1

    def __enter__(self) -> _Lines:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def report(self, progress: Progress) -> None:
        if progress.note:
            shared.note(progress.note)
            return
        now = time.monotonic()
        due = self._last is None or now - self._last >= PLAIN_SECONDS
        if not due and not (progress.done == progress.count and self._shown != progress.done):
            return
        self._last, self._shown = now, progress.done
        new = progress.done - progress.kept
        rate = f", {new / progress.seconds:.1f} records/s" if new and progress.seconds else ""
        kept = f" ({progress.kept} reused)" if progress.kept else ""
        left = time_left(new, progress.count - progress.done, progress.seconds)
        shared.note(f"{progress.done}/{progress.count} records{kept}{rate}{left}")


class _Bar:
    """A progress bar on standard error."""

    def __init__(self) -> None:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        self._bar = Progress(
            TextColumn("records"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            console=shared.console(stderr=True),
        )
        self._task = self._bar.add_task("records", total=None, rate="")

    def __enter__(self) -> _Bar:
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def report(self, progress: Progress) -> None:
        if progress.note:
            self._bar.console.print(progress.note)
        new = progress.done - progress.kept
        rate = f"{new / progress.seconds:.1f}/s" if new and progress.seconds else ""
        self._bar.update(self._task, total=progress.count, completed=progress.done, rate=rate)


def _print(summary: Summary, seconds: float) -> None:
    from shioenv.dataset.read import read_records

    manifest = summary.manifest
    timed_out = sum(record.timed_out for record in read_records(summary.directory))
    mean = manifest.mean_executions
    rate = summary.new / summary.seconds if summary.seconds else 0.0
    rows = {
        "dataset": str(summary.directory),
        "records": f"{manifest.records}, {summary.new} of them new",
        "time": f"{seconds:.1f} s" + (f", {rate:.1f} records/s" if summary.new else ""),
        "executions": f"{mean:.1f} per record" if mean is not None else "-",
        "volatile": f"{manifest.volatile} ({share(manifest.volatile, manifest.records)})",
        "timed out": f"{timed_out} ({share(timed_out, manifest.records)})",
    }
    effort = summary.effort
    if effort.ran and summary.seconds:
        rows["executed"] = (
            f"{effort.ran}, {effort.ran / summary.seconds:.1f}/s, "
            f"{share(effort.own_seconds, effort.lane_seconds)} of the time in the commands"
        )
    if effort.asked:
        rows["shared"] = (
            f"{effort.found} of {effort.asked} sub-inputs "
            f"({share(effort.found, effort.asked)}) were known"
        )
    if summary.retried or summary.restarts:
        rows["repeated"] = f"{summary.retried} records, {summary.restarts} workers replaced"
    shared.print_rows(rows)
