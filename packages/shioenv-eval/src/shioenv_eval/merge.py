"""Merge several datasets of one system."""

from __future__ import annotations

import hashlib
import heapq
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from msgspec.structs import replace as replaced

from shioenv.dataset.input_lines import Distinct
from shioenv.dataset.manifest import MANIFEST, Manifest, Plan, finished_manifest
from shioenv.dataset.record_reader import read_contexts, read_records
from shioenv.dataset.write import ShardWriter
from shioenv.domain.context import Context
from shioenv.domain.record import Record
from shioenv.errors import UsageError
from shioenv.files.durable import new_directory
from shioenv.files.regular import read_regular


@dataclass(frozen=True, slots=True)
class Merged:
    """The result of a merge."""

    manifest: Manifest
    equal: int
    """Records left out because an earlier one has the same input, directory and history."""


def merge(
    sources: Sequence[str | Path],
    directory: str | Path,
    *,
    report: Callable[[int, int], None] = lambda done, count: None,
) -> Merged:
    """Make a new dataset in `directory` from the records of all `sources`, in their order.

    Records get new numbers and are otherwise unchanged. If inputs are equal, the first is kept. The
    manifest names each source by the SHA-256 of its manifest. The settings of drawing are those of
    the first source, with the commands and start directories of all sources. `report` is called
    with the number of records read and the total.

    If the sources are all parts of one stream (`generate --part`), the result has the same bytes as
    a single run. In this case records keep their numbers, and each number must occur once.

    Errors: UsageError for fewer than two sources, or one that is not finished. UsageError is also
    raised if system, limits, scoring, sampler, release or layout differ. It is also raised if parts
    are missing, occur twice, or belong to another stream or count. DatasetCorruptError,
    UnknownDatasetError, OutputExistsError, DatasetStorageError.
    """
    paths = [Path(source) for source in sources]
    if len(paths) < 2:
        raise UsageError("a merge needs at least two datasets", hint="give another one")
    manifests = [finished_manifest(path) for path in paths]
    in_parts = any(manifest.plan.drawing.part for manifest in manifests)
    plan = _whole(paths, manifests) if in_parts else _plan(paths, manifests)
    contexts: dict[str, Context] = {}
    for path in paths:
        contexts = {**read_contexts(path), **contexts}
    total = sum(manifest.records for manifest in manifests)
    seen = Distinct()
    done = 0
    with new_directory(Path(directory)) as temporary:
        kernels = tuple(sorted({name for manifest in manifests for name in manifest.kernels}))
        layers = tuple(sorted({name for manifest in manifests for name in manifest.layers}))
        writer = ShardWriter(temporary, plan, kernels, layers)
        ordered = [contexts[cwd] for cwd in plan.drawing.start_directories if cwd in contexts]
        writer.keep_contexts(ordered)
        streams = [read_records(path, check=True) for path in paths]
        for record in _by_number(streams) if in_parts else chain.from_iterable(streams):
            done += 1
            if in_parts and record.session_id != writer.written:
                raise UsageError(
                    f"record {writer.written} of the whole dataset is in no part",
                    hint="make all parts with the same --count",
                )
            key = json.dumps([record.input, record.history]).encode()
            if seen.refusal(key) is None:
                writer.add(replaced(record, session_id=writer.written))
            elif in_parts:
                raise UsageError(f"record {record.session_id} has an input of an earlier one")
            report(done, total)
        return Merged(writer.finish(), total - writer.written)


def _by_number(streams: Sequence[Iterator[Record]]) -> Iterator[Record]:
    return heapq.merge(*streams, key=lambda record: record.session_id)


def _whole(paths: Sequence[Path], manifests: Sequence[Manifest]) -> Plan:
    """Return the plan of the whole dataset. UsageError unless these are exactly its parts."""
    plans = [
        replace(manifest.plan, drawing=replace(manifest.plan.drawing, part=""))
        for manifest in manifests
    ]
    parts = [manifest.plan.drawing.numbered_part for manifest in manifests]
    missing = sorted(set(range(1, parts[0][1] + 1)).difference(number for number, _ in parts))
    for path, plan, (number, several) in zip(paths, plans, parts, strict=True):
        if differing := plans[0].differences(plan):
            raise UsageError(f"{path} is a part of another stream: {'; '.join(differing)}")
        if several != parts[0][1] or parts.count((number, several)) > 1:
            raise UsageError(
                f"{path} is part {number}/{several}, which does not fit the other parts",
                hint="give each part of one division once",
            )
    if missing:
        raise UsageError(
            f"parts are missing: {', '.join(f'{number}/{parts[0][1]}' for number in missing)}",
            hint="make them with shioenv generate --part",
        )
    return plans[0]


def _plan(paths: Sequence[Path], manifests: Sequence[Manifest]) -> Plan:
    """Return the plan of the merged dataset. UsageError if sources do not fit together."""
    plans = [manifest.plan for manifest in manifests]
    first = plans[0]
    for path, plan in zip(paths[1:], plans[1:], strict=True):
        differing = first.differences(
            replace(
                first,
                drawing=replace(first.drawing, sampler=plan.drawing.sampler),
                **{
                    name: getattr(plan, name)
                    for name in ("scoring", "system", "system_digest", "limits", "version")
                },
                record_schema=plan.record_schema,
            )
        )
        if first.record_schema != plan.record_schema:
            differing += (f"record_schema_version: {first.record_schema} and {plan.record_schema}",)
        if differing:
            listed = "".join(f"\n  {each}" for each in differing)
            raise UsageError(
                f"{path} differs from {paths[0]}, the first dataset:{listed}".replace(
                    "in the dataset", "in the first"
                ).replace("requested", "in this one"),
                hint="merged datasets must have the same system, limits, scoring and release",
            )
    parents: list[dict[str, Any]] = []
    for path, manifest in zip(paths, manifests, strict=True):
        digest = hashlib.sha256(read_regular(path / MANIFEST)).hexdigest()
        parents.append({"manifest_sha256": digest, "records": manifest.records})
    drawings = [plan.drawing for plan in plans]
    directories = [cwd for drawing in drawings for cwd in drawing.start_directories]
    commands = {name for drawing in drawings for name in drawing.commands}
    return replace(
        first,
        drawing=replace(
            first.drawing,
            commands=tuple(sorted(commands)),
            start_directories=tuple(dict.fromkeys(directories)),
        ),
        origin={"kind": "merge", "parents": parents},
    )
