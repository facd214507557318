"""Regenerate damaged or lost shards from the manifest.

Inputs are drawn again with the seed. A digest of the inputs shows whether system, grammars and
version still produce the same ones. Records that are not volatile are reproduced byte for byte, as
the shard's SHA-256 proves. The old lines of volatile records are kept if they survived. New
volatile records may differ from lost ones; then the manifest notes this. No other reason for
different bytes is accepted.

The store treats a damaged shard like a lost one. This module chooses the lines of the new shard.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from shioenv.dataset.generate import Progress, ProgressCounter, plan_of
from shioenv.dataset.manifest import SHARD_RECORDS, Shard, read_manifest
from shioenv.dataset.record_reader import context_problems
from shioenv.dataset.record_tasks import RecordTask, missing, recording
from shioenv.dataset.store import Store
from shioenv.dataset.verify import record_problems
from shioenv.domain.context import Context
from shioenv.domain.record import Record, decode, different_fields, encode
from shioenv.errors import DatasetMismatchError, RecordError, RepairError, UsageError
from shioenv.execution.job import Executor
from shioenv.execution.local import LocalExecutor
from shioenv.files.compressed import decompressed_sha256, reading, stream_lines
from shioenv.irreducibility.scoring import Scoring
from shioenv.recording.effort import Line
from shioenv.synthesis.sample import grammars_for, numbers_of, sample
from shioenv.synthesis.traces import Sample
from shioenv.system.store import find_system

Samples = Callable[[int], Iterator[Sample]]
"""A function that returns the first samples of a stream, given their number."""

_GIVEN = ("input", "input_args", "cwd", "system", "sampler")
"""Fields of a record that are known before its input is executed."""

INSTEAD = {
    "commands": "import the same list again: shioenv dataset import SRC --out DIR",
    "records": "import the same records again: shioenv dataset import SRC --out DIR",
    "released": "import the same files: shioenv dataset import SRC --out DIR --format released",
    "filter": "select from its parent again: shioenv dataset filter SRC --out DIR",
    "merge": "merge its sources again: shioenv dataset merge SRC SRC --out DIR",
}
"""Instructions for recreating a dataset that was not generated, by its kind."""


@dataclass(frozen=True, slots=True)
class Repaired:
    """One recreated file: a shard, or a context (whose counts are 0)."""

    file: str
    """Path relative to the dataset's directory."""
    was: str
    """The file's damage: `gone` or `changed`."""
    identical: bool
    """Whether the new bytes match the manifest."""
    volatile: int
    """Number of volatile records in the shard."""
    salvaged: int
    """Number of records that differed from the new ones, and were taken from what was left of the
    file."""
    differing: dict[int, tuple[str, ...]]
    """The fields in which a written record differs from the file's, by record number."""

    def to_json(self) -> dict[str, Any]:
        """The repair for programs."""
        return asdict(self)


def repair(
    directory: str | Path,
    *,
    system: str | None = None,
    policy: str | None = None,
    own_grammars: str | None = None,
    executor: Executor | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
) -> tuple[Repaired, ...]:
    """Recreate the damaged shards and contexts of a generated dataset; () if none is damaged.

    `system` names the system if it was built from a file. `policy` is the policy's file if a policy
    drew the inputs. `own_grammars` is the directory of own grammars if the inputs were drawn from
    such grammars. `executor` is as for `generate`.

    Errors: RepairError for a dataset that was not generated, or for unexplained differences.
    UsageError if the inputs were drawn from own grammars, and their directory is not given.
    DatasetCorruptError if inputs or contexts differ from those that the manifest describes.
    DatasetMismatchError if system, grammars or version differ. UnknownDatasetError,
    DatasetBusyError, DatasetStorageError, those of `find_system` and of opening a sandbox. After an
    error only the files that were finished before are changed.
    """
    directory = Path(directory)
    manifest = read_manifest(directory)
    plan = manifest.plan
    whole = all(_intact(directory, shard) for shard in manifest.shards)
    if whole and not any(context_problems(directory, manifest.contexts)):
        return ()
    if plan.kind != "generate":
        raise RepairError(
            f"{directory} was not made by shioenv generate, so its inputs cannot be sampled again",
            hint=INSTEAD[plan.kind],
        )
    if plan.drawing.own_grammars and not own_grammars:
        raise UsageError(
            f"{directory} was sampled from your own grammars ({plan.drawing.own_grammars})",
            hint="give their directory: --grammars DIR",
        )
    built = find_system(system or plan.system)
    drawing = replace(
        plan.drawing,
        policy=policy or plan.drawing.policy,
        own_grammars=own_grammars if plan.drawing.own_grammars and own_grammars else "",
    )
    grammars = grammars_for(built, drawing)
    last = max((shard.number for shard in manifest.shards), default=0) + 1
    numbers = numbers_of(drawing, last * SHARD_RECORDS, system=built, grammars=grammars)
    now = plan_of(built, grammars, drawing, plan.scoring or Scoring(), plan.limits)
    differences = plan.differences(now)
    if differences:
        raise DatasetMismatchError(str(directory), differences)
    return repair_with(
        directory,
        lambda count: sample(drawing, system=built, count=count, grammars=grammars),
        system=system or plan.system,
        numbers=numbers[: manifest.count],
        executor=executor,
        report=report,
    )


def repair_with(
    directory: Path,
    samples: Samples,
    *,
    system: str,
    numbers: Sequence[int] | None = None,
    executor: Executor | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
) -> tuple[Repaired, ...]:
    """Do the work of `repair` with a given stream of samples, which have these `numbers`."""
    manifest = read_manifest(directory)
    plan, count = manifest.plan, manifest.count
    numbers = numbers or range(count)
    with Store(directory, plan, count, numbers=numbers, kernel=None, remake=True) as store:
        damaged = {shard.number: shard for shard in manifest.shards if shard.number in store.gone}
        last = bisect_left(numbers, (max(damaged, default=-1) + 1) * SHARD_RECORDS)
        counter = ProgressCounter(sum(shard.records for shard in damaged.values()), report)
        finished: dict[int, list[Record]] = {number: [] for number in damaged}
        repaired = []
        with executor or LocalExecutor() as executor:
            lost: list[tuple[int, RecordTask]] = [*store.missing_contexts()]
            tasks = chain(lost, missing(store, samples(last), numbers[:last]))
            for session_id, answer in executor.map(recording(manifest.plan, system), tasks):
                if isinstance(answer, Context):
                    repaired.append(_remade_context(store, session_id, answer))
                    continue
                (line,) = answer
                counter.add(line)
                number = session_id // SHARD_RECORDS
                if number not in damaged:
                    store.append(line)
                    continue
                finished[number].append(decode(line.content))
                if len(finished[number]) == damaged[number].records:
                    new = sorted(finished.pop(number), key=lambda record: record.session_id)
                    repaired.append(_remade(store, damaged[number], new))
    return tuple(repaired)


def _remade_context(store: Store, number: int, context: Context) -> Repaired:
    """Add a context to the store again. DatasetCorruptError if it differs from the manifest."""
    cwd = context.document["cwd"]
    listed = (known.file for known in store.manifest.contexts if known.cwd == cwd)
    was = "changed" if (store.directory / next(listed, "")).is_file() else "gone"
    store.keep_context(number, context)
    file = next(known.file for known in store.manifest.contexts if known.cwd == cwd)
    return Repaired(file, was, True, 0, 0, {})


def _intact(directory: Path, shard: Shard) -> bool:
    try:
        return decompressed_sha256(directory / shard.file) == shard.sha256
    except OSError:
        return False


def _remade(store: Store, shard: Shard, new: list[Record]) -> Repaired:
    """Add the records of a shard to the store. RepairError for unexplained differences."""
    path = store.directory / shard.file
    was = "changed" if path.exists() else "gone"
    left = _left(path)
    best = _best(shard, path, new, left)
    for record in best:
        line = Line(record.session_id, encode(record), record.volatile, record.n_executions)
        store.append(line)
    return Repaired(
        file=shard.file,
        was=was,
        identical=_sha256(best) == shard.sha256,
        volatile=sum(record.volatile for record in best),
        salvaged=sum(record != other for record, other in zip(best, new, strict=True)),
        differing={
            record.session_id: names
            for record in best
            if (names := different_fields(left.get(record.session_id, record), record))
        },
    )


def _best(shard: Shard, path: Path, new: list[Record], left: Mapping[int, Record]) -> list[Record]:
    """Return the records to write: those that match the manifest's SHA-256, else a mixture.

    The mixture has the new records, but old volatile ones if they survived. RepairError
    if no volatile record explains the different bytes.
    """
    old = {
        record.session_id: left[record.session_id]
        for record in new
        if record.session_id in left and _fits(left[record.session_id], record)
    }
    kept = []
    for record in new:
        survivor = old.get(record.session_id, record)
        kept.append(survivor if record.volatile or survivor.volatile else record)
    for records in (kept, new):
        if _sha256(records) == shard.sha256:
            return records
    survived = sum(record.volatile for record in old.values())
    if survived < shard.volatile or any(r.volatile and r.session_id not in old for r in new):
        return kept
    if survived and all(old.get(record.session_id) == record for record in kept):
        return new  # all records in the file are valid, so a volatile one had been altered
    raise RepairError(
        f"{path}: the new bytes differ from the manifest, although no volatile record was lost",
        hint="check whether inputs behave differently here: shioenv dataset verify --replay 50",
    )


def _left(path: Path) -> dict[int, Record]:
    """Return the records in a damaged shard whose lines are valid, by number."""
    standing: dict[int, Record] = {}
    with suppress(OSError), reading(path) as stream:
        for line in stream_lines(stream):
            with suppress(RecordError):
                record = decode(line)
                if encode(record) == line:
                    standing.setdefault(record.session_id, record)
    return standing


def _fits(old: Record, new: Record) -> bool:
    """Whether an old record is possibly a record of the same input."""
    return all(getattr(old, name) == getattr(new, name) for name in _GIVEN) and not any(
        record_problems(old)
    )


def _sha256(records: list[Record]) -> str:
    """Return the SHA-256 of a shard of these records."""
    return hashlib.sha256(b"".join(map(encode, records))).hexdigest()
