"""Files and datasets written whole or not at all, and never over something that is there."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from shioenv.dataset.manifest import (
    DATA,
    MANIFEST,
    SHARD_RECORDS,
    Manifest,
    Plan,
    Shard,
    shard_file,
)
from shioenv.dataset.store import inputs_line
from shioenv.domain.record import Record, encode
from shioenv.files.durable import replacing


class Writer:
    """Records written in order into shards of 1,000, a shard in memory at most."""

    def __init__(self, directory: Path, plan: Plan, kernels: tuple[str, ...]) -> None:
        self._directory = directory
        self._pending: list[tuple[Record, bytes]] = []
        self._manifest = Manifest(plan=plan, count=0, kernels=kernels)
        (directory / DATA).mkdir()

    @property
    def written(self) -> int:
        """Records added so far."""
        return self._manifest.records + len(self._pending)

    def add(self, record: Record) -> None:
        """Adds the next record. Errors: RecordError for text that UTF-8 cannot hold."""
        self._pending.append((record, encode(record)))
        if len(self._pending) == SHARD_RECORDS:
            self._seal()

    def finish(self, plan: Plan | None = None) -> Manifest:
        """Writes what is left, then the manifest, with `plan` where it is known only now."""
        if self._pending:
            self._seal()
        manifest = replace(self._manifest, count=self._manifest.records)
        if plan is not None:
            manifest = replace(manifest, plan=plan)
        with replacing(self._directory / MANIFEST) as file:
            file.write(manifest.encode())
        return manifest

    def _seal(self) -> None:
        name = shard_file(len(self._manifest.shards))
        shard = sealed(name, self._pending)
        with replacing(self._directory / name) as file:
            file.writelines(content for _, content in self._pending)
        self._manifest = self._manifest.with_shard(shard)
        self._pending.clear()


def sealed(name: str, records: list[tuple[Record, bytes]]) -> Shard:
    """What the manifest says of a shard of these records and lines."""
    whole, inputs = hashlib.sha256(), hashlib.sha256()
    for record, content in records:
        whole.update(content)
        inputs.update(inputs_line(record.session_id, record.input, record.input_args))
    return Shard(
        file=name,
        records=len(records),
        sha256=whole.hexdigest(),
        inputs_sha256=inputs.hexdigest(),
        volatile=sum(record.volatile for record, _ in records),
        executions=sum(record.n_executions for record, _ in records),
    )
