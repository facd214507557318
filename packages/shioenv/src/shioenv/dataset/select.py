"""Select records of a dataset into a new one: training sets, as in the paper."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from shioenv.dataset.manifest import MANIFEST, Manifest, Plan, finished_manifest
from shioenv.dataset.record_reader import read_contexts, read_records
from shioenv.dataset.write import ShardWriter
from shioenv.domain.record import Record
from shioenv.errors import UsageError, did_you_mean
from shioenv.files.durable import new_directory
from shioenv.files.regular import read_regular


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Inclusive bounds for selecting records. Selected records meet all of them.

    A record without a score (no argument can be removed) meets no bound on irreducibility, not even
    0 (D-2). A record with an unknown `necessary` meets no bound on `necessary`. Errors: UsageError
    for bounds on scores, arguments or exit codes that no record can meet.
    """

    min_irreducibility: float | None = None
    max_irreducibility: float | None = None
    strict: bool = False
    """Whether the bounds on irreducibility apply to `irreducibility_strict`."""
    min_necessary: float | None = None
    max_necessary: float | None = None
    commands: tuple[str, ...] = ()
    """Allowed commands: every command of the input must be one of these; empty: any command."""
    exclude_volatile: bool = False
    exit_codes: tuple[int, ...] = ()
    """Allowed exit codes; empty: any exit code."""
    min_arguments: int | None = None
    max_arguments: int | None = None
    count: int | None = None
    """Maximum number of records that meet the bounds: the first ones, or all if None."""

    def __post_init__(self) -> None:
        for name, low, high, most in (
            ("irreducibility", self.min_irreducibility, self.max_irreducibility, 1),
            ("necessary", self.min_necessary, self.max_necessary, 1),
            ("arguments", self.min_arguments, self.max_arguments, None),
        ):
            given = [bound for bound in (low, high) if bound is not None]
            if any(bound < 0 or (most is not None and bound > most) for bound in given):
                raise UsageError(f"{name} out of range: {', '.join(map(str, given))}")
            if low is not None and high is not None and low > high:
                raise UsageError(f"the minimum of {name}, {low}, exceeds the maximum, {high}")
        if self.count is not None and self.count < 0:
            raise UsageError(f"cannot keep {self.count} records", hint="give a count of 0 or more")
        for code in self.exit_codes:
            if not 0 <= code <= 255:
                raise UsageError(f"{code} is not an exit code", hint="exit codes are 0 to 255")

    def keeps(self, record: Record) -> bool:
        """Whether a record meets the bounds other than `count`."""
        score = record.irreducibility_strict if self.strict else record.irreducibility
        return (
            _within(score, self.min_irreducibility, self.max_irreducibility)
            and _within(record.necessary, self.min_necessary, self.max_necessary)
            and _within(record.n_arguments, self.min_arguments, self.max_arguments)
            and not (self.exclude_volatile and record.volatile)
            and (not self.exit_codes or record.exit_code in self.exit_codes)
            and (not self.commands or _commands(record) <= set(self.commands))
        )

    def to_json(self) -> dict[str, Any]:
        """Return the bounds that are given."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
            if value is not None and value is not False and value != ()
        }


def _within(value: float | None, low: float | None, high: float | None) -> bool:
    if low is None and high is None:
        return True
    return value is not None and (low is None or value >= low) and (high is None or value <= high)


def _commands(record: Record) -> set[str]:
    return {segment.command for segment in record.segments}


def select(
    source: str | Path,
    directory: str | Path,
    selection: Selection,
    *,
    report: Callable[[int, int], None] = lambda done, count: None,
) -> Manifest:
    """Make a new dataset in `directory` of the selected records of `source`, in order.

    The lines are those of the source, `session_id` included, so that a record can be found in the
    source (and executed again). The manifest contains the source's plan, the digest of the source's
    manifest, and the selection. The same source and selection give the same bytes. `report` is
    called with the number of records read so far, and the total.

    Errors: UsageError if no record is selected, a command of the selection has no record, or the
    source is not finished. DatasetCorruptError if a shard differs from the manifest.
    UnknownDatasetError, OutputExistsError, DatasetStorageError.
    """
    source, directory = Path(source), Path(directory)
    manifest = finished_manifest(source)
    plan = selected_plan(source, manifest, selection.to_json())
    seen: set[str] = set()
    with new_directory(directory) as temporary:
        writer = ShardWriter(temporary, plan, manifest.kernels, manifest.layers)
        writer.keep_contexts(read_contexts(source).values())
        kept = 0
        for done, record in enumerate(read_records(source, check=True), 1):
            seen |= _commands(record)
            if kept != selection.count and selection.keeps(record):
                writer.add(record)
                kept += 1
            report(done, manifest.records)
        for name in selection.commands:
            if name not in seen:
                raise UsageError(
                    f"no record has the command {name!r}", hint=did_you_mean(name, seen)
                )
        if not kept:
            raise UsageError(
                f"none of the {manifest.records:,} records of {source} meets all conditions",
                hint="relax a condition; shioenv dataset stats shows the distribution of records",
            )
        return writer.finish()


def selected_plan(source: Path, manifest: Manifest, selection: Mapping[str, Any]) -> Plan:
    """Return the plan of a selection from the dataset `source`, whose manifest is given."""
    digest = hashlib.sha256(read_regular(source / MANIFEST)).hexdigest()
    parent: dict[str, Any] = {"manifest_sha256": digest, "records": manifest.records}
    if manifest.plan.origin is not None:
        parent["origin"] = manifest.plan.origin
    origin = {"kind": "filter", "parent": parent, "selection": dict(selection)}
    return replace(manifest.plan, origin=origin)
