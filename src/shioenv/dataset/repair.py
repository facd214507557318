"""Shards that were damaged or lost, made again from what the manifest says.

Inputs are drawn again by the seed, so their digest tells at once whether system, grammars and
version still give them. Records that are not volatile come out byte for byte; the shard's own
SHA-256 proves it. Of volatile records the old lines are kept where they survived; those that are
lost may come out otherwise, and the manifest then says so. Nothing else explains other bytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from shioenv.dataset.generate import Progress, Teller, plan_of
from shioenv.dataset.job import recording
from shioenv.dataset.manifest import MANIFEST, SHARD_RECORDS, Manifest, Shard, read_manifest
from shioenv.dataset.store import OTHER_INPUTS
from shioenv.dataset.verify import record_problems
from shioenv.dataset.write import sealed
from shioenv.domain.record import NAMES, Record, decode, encode
from shioenv.errors import DatasetMismatchError, RecordError, RepairError
from shioenv.execution.job import Executor
from shioenv.execution.local import LocalExecutor
from shioenv.files.durable import atomic_write, lock, sha256_of, storage_errors
from shioenv.grammar.library import load_grammars
from shioenv.irreducibility.scoring import Scoring
from shioenv.synthesis.sample import Sample, sample_on
from shioenv.system.store import find_system

Samples = Callable[[int], Iterator[Sample]]
"""The stream's first samples, so many of them."""

Lines = list[tuple[Record, bytes]]
"""The records of a shard, and how they are written."""

_GIVEN = ("input", "input_args", "cwd", "system", "sampler")
"""Fields of a record that are known before it is made."""

INSTEAD = {
    "commands": "import the same list again: shioenv dataset import SRC DIR",
    "released": "import the same files again: shioenv dataset import SRC DIR --format released",
    "filter": "select from its parent again: shioenv dataset filter SRC DIR",
}
"""What makes a dataset again that was not generated."""


@dataclass(frozen=True, slots=True)
class Repaired:
    """One shard that was made again."""

    file: str
    was: str
    """What was wrong: `gone` or `changed`."""
    identical: bool
    """The bytes are those that the manifest describes."""
    volatile: int
    """Volatile records among them."""
    salvaged: int
    """Volatile records that came out otherwise, and were taken from what was left of the file."""
    differing: dict[int, tuple[str, ...]]
    """Records that came out other than they still stood in the file, with the fields."""

    def to_json(self) -> dict[str, Any]:
        """The repair for programs."""
        return asdict(self)


def damaged_shards(directory: Path, manifest: Manifest) -> dict[Shard, str]:
    """The shards that are `gone` or `changed`."""
    found = {}
    for shard in manifest.shards:
        try:
            if sha256_of(directory / shard.file) != shard.sha256:
                found[shard] = "changed"
        except OSError:
            found[shard] = "gone"
    return found


def repair(
    directory: str | Path,
    *,
    system: str | None = None,
    policy: str | None = None,
    executor: Executor | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
) -> tuple[Repaired, ...]:
    """Makes the damaged shards of a generated dataset again; nothing where none is damaged.

    `system` names the system where it was built from a file, `policy` the file of counts where the
    inputs were drawn by one, `executor` is as `generate` takes it. Errors: UnknownDatasetError;
    RepairError for a dataset that was not generated, or other inputs than the manifest's;
    DatasetMismatchError where system, grammars or version are others; DatasetBusyError,
    DatasetStorageError, those of `find_system` and of opening a sandbox. Nothing is changed then,
    but for the shards that were finished before.
    """
    directory = Path(directory)
    manifest = read_manifest(directory)
    plan = manifest.plan
    if not damaged_shards(directory, manifest):
        return ()
    if plan.kind != "generate":
        raise RepairError(
            f"{directory} was not made by shioenv generate, so its records cannot be drawn again",
            hint=INSTEAD[plan.kind],
        )
    built = find_system(system or plan.system)
    drawing = replace(plan.drawing, policy=policy or plan.drawing.policy)
    grammars = load_grammars(drawing.commands, versions=built.packages)
    now = plan_of(built, grammars, drawing, plan.scoring or Scoring(), plan.limits)
    differences = plan.differences(now)
    if differences:
        raise DatasetMismatchError(str(directory), differences)
    return repair_with(
        directory,
        lambda count: sample_on(built, drawing, count, grammars=grammars),
        system=system or plan.system,
        executor=executor,
        report=report,
    )


def repair_with(
    directory: Path,
    samples: Samples,
    *,
    system: str,
    executor: Executor | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
) -> tuple[Repaired, ...]:
    """What `repair` does once the stream is known."""
    with storage_errors(directory):
        handle = lock(directory)
    try:
        return tuple(_repair(directory, samples, system, executor or LocalExecutor(), report))
    finally:
        os.close(handle)


def _repair(
    directory: Path,
    samples: Samples,
    system: str,
    executor: Executor,
    report: Callable[[Progress], None],
) -> Iterator[Repaired]:
    manifest = read_manifest(directory)
    damaged = damaged_shards(directory, manifest)
    numbers = {shard.number for shard in damaged}
    last = max((one.number * SHARD_RECORDS + one.records for one in damaged), default=0)

    def tasks() -> Iterator[tuple[int, Sample]]:
        for number, drawn in enumerate(samples(last)):
            if number // SHARD_RECORDS in numbers:
                yield number, drawn

    teller = Teller(sum(one.records for one in damaged), report)
    finished: dict[int, dict[int, bytes]] = {number: {} for number in numbers}
    with executor:
        for place, line in executor.map(recording(manifest.plan, system), tasks()):
            number = place // SHARD_RECORDS
            finished[number][place] = line.content
            teller.add(line)
            shard = next(one for one in damaged if one.number == number)
            if len(finished[number]) == shard.records:
                lines = [content for _, content in sorted(finished.pop(number).items())]
                made, manifest = _replace(directory, manifest, shard, damaged[shard], lines)
                yield made


def _replace(
    directory: Path, manifest: Manifest, shard: Shard, was: str, lines: list[bytes]
) -> tuple[Repaired, Manifest]:
    """Writes a shard made again, and the manifest where its bytes are others."""
    path = directory / shard.file
    new = [(decode(line), line) for line in lines]
    if sealed(shard.file, new).inputs_sha256 != shard.inputs_sha256:
        raise RepairError(
            f"{path}: its seed gives other inputs now than the manifest describes",
            hint=OTHER_INPUTS,
        )
    old = _left(path)
    best = _best(shard, path, new, old)
    entry = sealed(shard.file, best)
    identical = entry.sha256 == shard.sha256
    differing = {
        record.session_id: fields
        for record, _ in best
        if (fields := _differences(old.get(record.session_id), record))
    }
    with storage_errors(path):
        atomic_write(path, b"".join(line for _, line in best))
        if not identical:
            manifest = manifest.with_repaired(entry)
            atomic_write(directory / MANIFEST, manifest.encode())
    made = Repaired(
        file=shard.file,
        was=was,
        identical=identical,
        volatile=entry.volatile,
        salvaged=sum(one != other for one, other in zip(best, new, strict=True)),
        differing=differing,
    )
    return made, manifest


def _best(shard: Shard, path: Path, new: Lines, old: Mapping[int, Record]) -> Lines:
    """What to write: what the manifest's SHA-256 proves, else the surviving volatile records beside
    new ones. RepairError where no volatile record explains the other bytes.
    """
    left = {
        record.session_id: old[record.session_id]
        for record, _ in new
        if record.session_id in old and _fits(old[record.session_id], record)
    }
    kept = [_volatile_as_left(record, line, left.get(record.session_id)) for record, line in new]
    for lines in (kept, new):
        if sealed(shard.file, lines).sha256 == shard.sha256:
            return lines
    survived = sum(record.volatile for record in left.values())
    if survived < shard.volatile or any(r.volatile and r.session_id not in left for r, _ in new):
        return kept
    if survived and all(left.get(record.session_id) == record for record, _ in kept):
        return new  # all is as it was made, so what was changed is a volatile record
    raise RepairError(
        f"{path}: other bytes than the manifest describes, though no volatile record was lost",
        hint="shioenv dataset verify --replay 50 tells whether inputs behave differently here",
    )


def _left(path: Path) -> dict[int, Record]:
    """The records that still stand in a damaged shard the way records are written."""
    found: dict[int, Record] = {}
    try:
        with path.open("rb") as lines:
            for line in lines:
                try:
                    record = decode(line)
                except RecordError:
                    continue
                if encode(record) == line:
                    found.setdefault(record.session_id, record)
    except OSError:
        pass
    return found


def _fits(old: Record, new: Record) -> bool:
    """Whether an old record can be what was made of the input, as far as it can be told."""
    return all(getattr(old, name) == getattr(new, name) for name in _GIVEN) and not any(
        record_problems(old)
    )


def _volatile_as_left(new: Record, line: bytes, old: Record | None) -> tuple[Record, bytes]:
    """The old record of a volatile one, where there is one."""
    if old is not None and (new.volatile or old.volatile):
        return old, encode(old)
    return new, line


def _differences(old: Record | None, new: Record) -> tuple[str, ...]:
    if old is None:
        return ()
    return tuple(name for name in NAMES if getattr(old, name) != getattr(new, name))
