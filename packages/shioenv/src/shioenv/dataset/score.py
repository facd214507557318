"""Add scores to records that have none, by executing their inputs again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from shioenv.dataset.generate import Progress, Summary, run
from shioenv.dataset.manifest import finished_manifest
from shioenv.dataset.read import read_records
from shioenv.domain.inputs import Input
from shioenv.domain.record import SCHEMA_VERSION as RECORD_SCHEMA_VERSION
from shioenv.errors import DatasetMismatchError, UsageError
from shioenv.execution.job import Executor
from shioenv.guests import package_version
from shioenv.irreducibility.scoring import USUAL, Scoring
from shioenv.synthesis.traces import Sample


def add_scores(
    source: str | Path,
    directory: str | Path,
    *,
    scoring: Scoring = USUAL,
    system: str | None = None,
    executor: Executor | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
) -> Summary:
    """Make a scored dataset in `directory` of the inputs of `source`, which has no scores.

    The records are those that `generate` or the import would have made with this scoring, byte for
    byte, except volatile ones. Every execution is repeated. Repeat an interrupted call to resume
    it. `system` names the system if it was built from a file.

    Errors: UsageError if the source is not finished, was scored, or is a selection, whose record
    numbers have gaps. UsageError too for a `scoring` with a budget of 0. DatasetMismatchError if
    another release made the source. Those of `generate`.
    """
    manifest = finished_manifest(source)
    plan = manifest.plan
    if plan.scoring is None or plan.scoring.budget:
        raise UsageError(
            f"{source} was not made with shioenv generate --without-scores",
            hint="only records without a score get one",
        )
    if not scoring.budget:
        raise UsageError("nothing can be scored with a budget of 0", hint="at least 1")
    if plan.kind == "filter":
        raise UsageError(
            f"{source} is a selection", hint="add the scores to its parent, then select again"
        )
    if plan.version != package_version():
        here = f"{plan.version!r} in the dataset, this is {package_version()!r}"
        raise DatasetMismatchError(str(source), [f"versions.shioenv: {here}"])
    return run(
        directory,
        replace(plan, scoring=scoring, record_schema=RECORD_SCHEMA_VERSION),
        _samples(source),
        count=manifest.records,
        system=system or plan.system,
        executor=executor,
        report=report,
    )


def _samples(source: str | Path) -> Iterator[Sample]:
    """Yield the samples of the records; the sample of a volatile record is declared volatile."""
    for record in read_records(source, check=True):
        yield Sample(
            Input.from_marked(record.input_args),
            record.cwd,
            record.volatile,
            (),
            record.mistake,
            tuple(record.history),
        )
