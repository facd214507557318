"""A writer of datasets, for short tasks that need not survive an interruption.

Records are added in order. A README in the directory lets the Hugging Face library open the
records. The README's header lists the record files and the types of all fields. Without this
header, the library would take every JSON file for records, and would guess the type of a field from
the first shard.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from msgspec import UNSET, inspect, structs

from shioenv.dataset.manifest import (
    CONTEXTS,
    DATA,
    MANIFEST,
    SHARD_ENDING,
    SHARD_RECORDS,
    ContextFile,
    Manifest,
    Plan,
    Tally,
    shard_file,
)
from shioenv.domain.context import Context
from shioenv.domain.record import SCHEMA_VERSION, Record, encode
from shioenv.files.compressed import SUFFIX, open_compressed
from shioenv.files.durable import atomic_write, replacing


class ShardWriter:
    """Writes records in order into shards of 1,000; at most one shard is in memory."""

    def __init__(
        self,
        directory: Path,
        plan: Plan,
        kernels: tuple[str, ...] = (),
        layers: tuple[str, ...] = (),
    ) -> None:
        """`kernels` and `layers` describe the hosts where records were made, as in `Manifest`."""
        self._directory = directory
        self._pending: list[bytes] = []
        self._tally = Tally()
        self._manifest = Manifest(plan=plan, count=0, kernels=kernels, layers=layers)
        (directory / DATA).mkdir()

    @property
    def written(self) -> int:
        """Number of records added so far."""
        return self._manifest.records + len(self._pending)

    def add(self, record: Record) -> None:
        """Add the next record. Errors: RecordError for text that UTF-8 cannot encode."""
        content = encode(record)
        self._tally.record(record, content)
        self._pending.append(content)
        if len(self._pending) == SHARD_RECORDS:
            self._seal()

    def keep_contexts(self, contexts: Iterable[Context]) -> None:
        """Write the contexts to which the patches apply."""
        written = tuple(write_context(self._directory, *item) for item in enumerate(contexts))
        self._manifest = replace(self._manifest, contexts=written)

    def finish(self, plan: Plan | None = None) -> Manifest:
        """Write the remaining records, the manifest and the README.

        `plan` replaces the constructor's plan.
        """
        if self._pending:
            self._seal()
        manifest = self._manifest
        manifest = replace(manifest, count=manifest.records, plan=plan or manifest.plan)
        atomic_write(self._directory / MANIFEST, manifest.encode())
        write_readme(self._directory, manifest.plan)
        return manifest

    def _seal(self) -> None:
        name = shard_file(len(self._manifest.shards), self._manifest.plan.compression)
        with replacing(self._directory / name) as file, open_compressed(file, name) as lines:
            for line in self._pending:
                lines.write(line)
        self._manifest = self._manifest.with_shard(self._tally.shard(name))
        self._pending.clear()
        self._tally = Tally()


README = "README.md"

_DTYPES: Mapping[Any, str] = {
    inspect.StrType: "string",
    inspect.IntType: "int64",
    inspect.FloatType: "float64",
    inspect.BoolType: "bool",
}

_TEXT = """
# Shell inputs and what they did

Records of [ShIOEnv](https://arxiv.org/abs/2505.18374), one a line: bash inputs, each with its exit
code, its output and what it changed. `{manifest}` describes how the records were made.

```python
from datasets import load_dataset

records = load_dataset("PATH_OF_THIS_DIRECTORY"{split})
```
"""


def write_readme(directory: Path, plan: Plan, parts: Iterable[str] = ()) -> None:
    """Write the README of a dataset, or of a directory with several datasets of one plan.

    The same plan and parts give the same bytes. A README that exists is not replaced. Errors:
    OSError.
    """
    if os.path.lexists(directory / README):
        return
    files = f"{DATA}/*{SHARD_ENDING}{SUFFIX if plan.compression else ''}"
    paths = {part: f"{part}/{files}" for part in parts}
    header = [*data_files(paths or {"train": files}), *feature_lines(plan)]
    text = _TEXT.format(
        manifest=f"{next(iter(paths))}/{MANIFEST}" if paths else MANIFEST,
        split="" if paths else ', split="train"',
    )
    atomic_write(directory / README, "\n".join(["---", *header, "---", text]).encode())


def data_files(paths: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of a README's header that name the files of each split."""
    yield "configs:"
    yield "- config_name: default"
    yield "  data_files:"
    for split, path in paths.items():
        yield f"  - split: {split}"
        yield f"    path: {path}"


def feature_lines(plan: Plan) -> Iterator[str]:
    """Yield the lines of a header with the type of each field.

    Older records yield no line: their `content_digests` have file names as keys, for which the
    library has no type.
    """
    if plan.record_schema == SCHEMA_VERSION:
        yield "dataset_info:"
        yield "  features:"
        yield from _fields(inspect.type_info(Record), plan.executed, "  ")


def _fields(kind: Any, executed: bool, indent: str) -> Iterator[str]:
    absent = {field.name for field in structs.fields(kind.cls) if field.default is UNSET}
    for field in kind.fields:
        if executed or field.name not in absent:  # records of a released dataset lack these fields
            yield f"{indent}- name: {field.name}"
            yield from _type(field.type, executed, f"{indent}  ", "dtype")


def _type(kind: Any, executed: bool, indent: str, key: str) -> Iterator[str]:
    match kind:
        case inspect.Metadata():
            yield from _type(kind.type, executed, indent, key)
        case inspect.UnionType():
            yield from _type(kind.types[0], executed, indent, key)
        case inspect.ListType():
            yield from _type(kind.item_type, executed, indent, "list")
        case inspect.StructType():
            yield f"{indent}{key}:"
            yield from _fields(kind, executed, indent)
        case _:
            yield f"{indent}{key}: {_DTYPES[type(kind)]}"


def write_context(directory: Path, number: int, context: Context) -> ContextFile:
    """Write the context of a start directory to the disk, and return its entry for the manifest.

    `number` is the index of the start directory in the plan. The file contains one JSON object on
    one line, with every field of a context. The same context gives the same bytes.
    """
    (directory / CONTEXTS).mkdir(exist_ok=True)
    content = context.to_json().encode() + b"\n"
    file = f"{CONTEXTS}/{number:05}.json"
    atomic_write(directory / file, content)
    digest = hashlib.sha256(content).hexdigest()
    return ContextFile(cwd=context.document["cwd"], file=file, sha256=digest)
