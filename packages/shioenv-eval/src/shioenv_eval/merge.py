"""Merge several datasets of one system."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from msgspec.structs import replace as replaced

from shioenv.dataset.input_lines import Distinct
from shioenv.dataset.manifest import MANIFEST, Manifest, Plan, finished_manifest
from shioenv.dataset.record_reader import read_contexts, read_records
from shioenv.dataset.write import ShardWriter
from shioenv.domain.context import Context
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

    Errors: UsageError for fewer than two sources, or one that is not finished. UsageError is also
    raised if system, limits, scoring, sampler, release or layout differ. DatasetCorruptError,
    UnknownDatasetError, OutputExistsError, DatasetStorageError.
    """
    paths = [Path(source) for source in sources]
    if len(paths) < 2:
        raise UsageError("a merge needs at least two datasets", hint="give another one")
    manifests = [finished_manifest(path) for path in paths]
    plan = _plan(paths, manifests)
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
        for path in paths:
            for record in read_records(path, check=True):
                done += 1
                key = json.dumps([record.input, record.history]).encode()
                if seen.refusal(key) is None:
                    writer.add(replaced(record, session_id=writer.written))
                report(done, total)
        return Merged(writer.finish(), total - writer.written)


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
