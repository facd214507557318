"""A writer of records in order, for work of which nothing has to survive an interruption."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from shioenv.dataset.contexts import write_context
from shioenv.dataset.manifest import (
    DATA,
    MANIFEST,
    SHARD_RECORDS,
    Manifest,
    Plan,
    Tally,
    shard_file,
)
from shioenv.dataset.readme import write_readme
from shioenv.domain.context import Context
from shioenv.domain.record import Record, encode
from shioenv.files.compressed import writing
from shioenv.files.durable import atomic_write, replacing


class ShardWriter:
    """Writes records in order into shards of 1,000; holds a shard in memory at most."""

    def __init__(
        self,
        directory: Path,
        plan: Plan,
        kernels: tuple[str, ...] = (),
        layers: tuple[str, ...] = (),
    ) -> None:
        """`kernels` and `layers` are the manifest's, of the hosts where records were made."""
        self._directory = directory
        self._pending: list[bytes] = []
        self._tally = Tally()
        self._manifest = Manifest(plan=plan, count=0, kernels=kernels, layers=layers)
        (directory / DATA).mkdir()

    @property
    def written(self) -> int:
        """Records added so far."""
        return self._manifest.records + len(self._pending)

    def add(self, record: Record) -> None:
        """Adds the next record. Errors: RecordError for text that UTF-8 cannot hold."""
        content = encode(record)
        self._tally.record(record, content)
        self._pending.append(content)
        if len(self._pending) == SHARD_RECORDS:
            self._seal()

    def keep_contexts(self, contexts: Iterable[Context]) -> None:
        """Writes the contexts to which the patches apply."""
        written = tuple(write_context(self._directory, *item) for item in enumerate(contexts))
        self._manifest = replace(self._manifest, contexts=written)

    def finish(self, plan: Plan | None = None) -> Manifest:
        """Write what is left, the manifest and the README; `plan` replaces the first plan."""
        if self._pending:
            self._seal()
        manifest = self._manifest
        manifest = replace(manifest, count=manifest.records, plan=plan or manifest.plan)
        atomic_write(self._directory / MANIFEST, manifest.encode())
        write_readme(self._directory, manifest.plan)
        return manifest

    def _seal(self) -> None:
        name = shard_file(len(self._manifest.shards), self._manifest.plan.compression)
        with replacing(self._directory / name) as file, writing(file, name) as lines:
            for line in self._pending:
                lines.write(line)
        self._manifest = self._manifest.with_shard(self._tally.shard(name))
        self._pending.clear()
        self._tally = Tally()
