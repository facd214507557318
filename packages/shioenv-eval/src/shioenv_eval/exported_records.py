"""Import records that this package exported, without executing anything.

A Hugging Face layout contains the manifest of the exported dataset. With it, the dataset is
restored byte for byte. JSON Lines and a Parquet file contain only records, which stay as they are.
Facts that only a manifest has (digest of the system, seed, limits, contexts) stay unknown.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from shioenv.dataset.importers import SOURCE_MANIFEST, Imported, is_parquet, numbered, record_files
from shioenv.dataset.input_lines import Distinct, Rejection, read_lines
from shioenv.dataset.manifest import MANIFEST, Manifest, Plan, decode_manifest
from shioenv.dataset.record_reader import checked_contexts
from shioenv.dataset.verify import record_problems
from shioenv.dataset.write import ShardWriter, write_readme
from shioenv.domain.context import Context
from shioenv.domain.record import DIGESTS_BY_NAME, NAMES, Record, decode
from shioenv.errors import ImportFileError, RecordError, UsageError
from shioenv.files.durable import atomic_write, new_directory, sha256_of
from shioenv.files.regular import is_directory, open_regular, read_regular
from shioenv.synthesis.drawing import Drawing
from shioenv.text import share
from shioenv_eval.export import SOURCE_MANIFESTS, by_custom, parquet_library

_ROWS = 100
"""Number of Parquet records that are converted to Python values at a time."""

Report = Callable[[int], None]


def import_records(
    source: str | Path, directory: str | Path, *, report: Report = lambda done: None
) -> Manifest:
    """Make a dataset in `directory` from the records that `shioenv_eval.export` wrote.

    `source` is a Parquet file, a file of JSON Lines (compressed or not), a directory of such files,
    or the Hugging Face layout. Each record stays as it is, its number, scores and flags included.
    `report` is called with the number of records done.

    With the layout's `source-manifest.json` the exported dataset is restored byte for byte. Without
    that file the manifest has the origin `records`, and no values for facts that records lack.

    Errors: ImportFileError with file and line:

    - if something is no record, or a record contradicts itself (`record_problems`);
    - if records are of several samplers, systems or schema versions;
    - if records are not in the order of their numbers, or an input occurs twice;
    - if the records are not those of the manifest.

    DatasetCorruptError for a damaged `source-manifest.json`. MissingExtraError without pyarrow
    (Parquet). OutputExistsError, DatasetStorageError.
    """
    source, directory = Path(source), Path(directory)
    if has_parts(source):
        names = sorted((path.stem for path in (source / SOURCE_MANIFESTS).glob("*")), key=by_custom)
        raise ImportFileError(
            f"{source} contains several datasets: {', '.join(names)}",
            hint="use `shioenv dataset import`, or import_parts in Python, to import all of them",
        )
    if os.path.lexists(source / SOURCE_MANIFEST):
        return _exported(source, directory, report)
    files = record_files(source) if is_directory(source) else [source]
    with new_directory(directory) as temporary:
        records = _told(chain.from_iterable(map(_read, files)), report)
        first = next(records, None)
        if first is None:
            raise ImportFileError(f"{source} contains no record")
        plan = _plan(first[1])
        writer = ShardWriter(temporary, plan)
        same, directories = _Same(), set()
        for place, record in chain([first], records):
            same.check(place, record)
            _refuse_damaged(place, record, plan)
            writer.add(record)
            directories.add(record.cwd)
        origin = {"kind": "records", "files": {path.name: sha256_of(path) for path in files}}
        drawing = replace(plan.drawing, start_directories=tuple(sorted(directories)))
        return writer.finish(replace(plan, drawing=drawing, origin=origin))


@dataclass(frozen=True, slots=True)
class ImportedRecords:
    """The result of an import of one dataset."""

    directory: Path
    manifest: Manifest
    rejected: tuple[Rejection, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the import as JSON for programs."""
        plan = self.manifest.plan
        return {
            "records": self.manifest.records,
            "directory": str(self.directory),
            "kind": plan.kind,
            "system": {"name": plan.system, "digest": plan.system_digest or None},
            "volatile": self.manifest.volatile,
        }

    def rows(self) -> dict[str, str]:
        """Return labels and texts for people."""
        plan, records = self.manifest.plan, self.manifest.records
        return {
            "dataset": str(self.directory),
            "records": f"{records:,}, unchanged from the export; nothing was executed",
            "system": f"{plan.system}, digest {plan.system_digest[:12] or 'unknown'}",
            "volatile": f"{self.manifest.volatile} ({share(self.manifest.volatile, records)})",
        }


@dataclass(frozen=True, slots=True)
class ImportedParts:
    """The result of an import of several datasets."""

    directory: Path
    counts: Mapping[str, int]
    """The number of records by split."""
    rejected: tuple[Rejection, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the import as JSON for programs."""
        return {"directory": str(self.directory), "parts": dict(self.counts)}

    def rows(self) -> dict[str, str]:
        """Return labels and texts for people."""
        parts = {
            name: f"{n:,} records, unchanged from the export" for name, n in self.counts.items()
        }
        return {"datasets": str(self.directory), **parts}


def import_export(
    source: Path, directory: Path, *, sampler: str | None, report: Report
) -> Imported:
    """Import an export of one or several datasets.

    This is an `Importer`, which `dataset import` calls. Errors: UsageError if a `sampler` is given;
    those of `import_records`.
    """
    if sampler is not None:
        raise UsageError(
            "--sampler-label does not apply to exported records", hint="omit --sampler-label"
        )
    if has_parts(source):
        made = import_parts(source, directory, report=report)
        return ImportedParts(directory, {name: one.records for name, one in made.items()})
    return ImportedRecords(directory, import_records(source, directory, report=report))


def has_parts(source: str | Path) -> bool:
    """Whether a directory is the Hugging Face layout of several datasets."""
    return os.path.lexists(Path(source) / SOURCE_MANIFESTS)


def import_parts(
    source: str | Path, directory: str | Path, *, report: Report = lambda done: None
) -> Mapping[str, Manifest]:
    """Restore the datasets in an export of several datasets, byte for byte.

    Each is a directory below `directory`, named after its split. The manifests are returned by
    split. Errors: those of `import_records`.
    """
    source, directory = Path(source), Path(directory)
    paths = [*(source / SOURCE_MANIFESTS).glob("*.json")]
    if not paths:
        raise ImportFileError(f"{source / SOURCE_MANIFESTS} contains no manifest")
    done = 0
    made: dict[str, Manifest] = {}
    with new_directory(directory) as temporary:
        for name in sorted((path.stem for path in paths), key=by_custom):
            files = sorted((source / "data").glob(f"{name}-[0-9]*.parquet"), key=numbered)
            (temporary / name).mkdir()
            made[name] = _restore(
                source,
                source / SOURCE_MANIFESTS / f"{name}.json",
                files,
                temporary / name,
                _behind(done, report),
            )
            done += made[name].records
        write_readme(temporary, next(iter(made.values())).plan, made)
    return made


def _exported(source: Path, directory: Path, report: Report) -> Manifest:
    """Restore the dataset that the manifest in the records' directory describes."""
    with new_directory(directory) as temporary:
        return _restore(source, source / SOURCE_MANIFEST, record_files(source), temporary, report)


def _restore(
    source: Path, path: Path, files: Iterable[Path], directory: Path, report: Report
) -> Manifest:
    """Write the dataset of the manifest at `path` into a directory, from files of an export."""
    try:
        content = read_regular(path)
    except OSError as error:
        raise ImportFileError(f"{path} cannot be read: {error.strerror}") from None
    manifest = decode_manifest(content, str(path))
    writer = ShardWriter(directory, manifest.plan, manifest.kernels, manifest.layers)
    writer.keep_contexts(_contexts(source, manifest))
    for place, record in _told(chain.from_iterable(map(_read, files)), report):
        _refuse_damaged(place, record, manifest.plan)
        writer.add(record)
    made = writer.finish()
    if (made.shards, made.contexts) != (manifest.shards, manifest.contexts):
        name = path.relative_to(source)
        raise ImportFileError(
            f"{source}: the records differ from {name}",
            hint=f"export the dataset again, or delete {name} to import the records as they are",
        )
    atomic_write(directory / MANIFEST, content)
    return manifest


def _contexts(source: Path, manifest: Manifest) -> Iterator[Context]:
    for kept, context in checked_contexts(source, manifest.contexts):
        if isinstance(context, str):
            raise ImportFileError(
                f"{source / kept.file} {context}", hint="export the dataset again"
            )
        yield context


def _plan(record: Record) -> Plan:
    """Return the plan of a dataset, as far as its first record determines it."""
    drawing = Drawing(
        sampler=record.sampler, policy="", horizon=0, composite_share=0.0, max_segments=0
    )
    return Plan(
        drawing=drawing,
        scoring=None,
        system=record.system,
        system_digest="",
        grammar_digest="",
        limits=None,
        version="",
        record_schema=record.schema_version,
    )


class _Same:
    """Compares records with earlier ones: a dataset has one sampler, system and schema version."""

    def __init__(self) -> None:
        self._first: Record | None = None
        self._previous = -1
        self._distinct = Distinct()

    def check(self, place: str, record: Record) -> None:
        """Raise ImportFileError if a record cannot follow the records before."""
        first = self._first = self._first or record
        for name in ("sampler", "system", "schema_version"):
            one, other = getattr(first, name), getattr(record, name)
            if one != other:
                raise ImportFileError(
                    f"{place}: its {name} is {other!r}, but the first record has {one!r}",
                    hint=f"import records with another {name} into another dataset",
                )
        if record.session_id <= self._previous:
            raise ImportFileError(
                f"{place}: session_id {record.session_id} follows {self._previous}",
                hint="the numbers must be unique and ascending: sort the records, or import each "
                "export into a separate dataset",
            )
        self._previous = record.session_id
        typed = "\n".join((record.input, *record.history))
        if (why := self._distinct.refusal(typed.encode())) is not None:
            raise ImportFileError(f"{place}: {why}: {record.input:.60}")


def _refuse_damaged(place: str, record: Record, plan: Plan) -> None:
    """Raise ImportFileError for a record in which `shioenv dataset verify` finds a problem."""
    problem = next(record_problems(record, plan.scoring, executed=plan.executed), None)
    if problem is not None:
        raise ImportFileError(
            f"{place}: {problem:.400}",
            hint="the record was modified: check its dataset with `shioenv dataset verify`, and "
            "export it again",
        )


def _behind(done: int, report: Report) -> Report:
    """Return a function that calls `report` with its argument plus `done`."""
    return lambda count: report(done + count)


def _told(records: Iterator[tuple[str, Record]], report: Report) -> Iterator[tuple[str, Record]]:
    for done, found in enumerate(records, 1):
        yield found
        report(done)


def _read(path: Path) -> Iterator[tuple[str, Record]]:
    """Yield the records of a file, each with its place."""
    documents = _rows(path) if is_parquet(path) else _lines(path)
    for place, line in documents:
        try:
            yield place, decode(line)
        except RecordError as error:
            raise ImportFileError(f"{place}: {error.message}", hint=error.hint) from None


def _lines(path: Path) -> Iterator[tuple[str, bytes]]:
    return ((f"{path}:{number}", line) for number, line in read_lines(path) if line.strip())


def _rows(path: Path) -> Iterator[tuple[str, bytes | str]]:
    """Yield the rows of a Parquet file as lines of JSON."""
    arrow, parquet = parquet_library("importing Parquet")
    try:
        with open_regular(path) as file:
            opened = parquet.ParquetFile(file, page_checksum_verification=True)
            names = opened.schema_arrow.names
            others = sorted({*names} ^ {*NAMES})
            if others:
                what = "has no column" if others[0] in NAMES else "has an unknown column"
                raise ImportFileError(
                    f"{path} {what} {others[0]!r}",
                    hint="only Parquet files of `shioenv dataset export` can be imported; write "
                    "other inputs as text, one per line",
                )
            number = 0
            for batch in opened.iter_batches(_ROWS):
                for row in batch.to_pylist():
                    number += 1
                    yield f"{path}: row {number}", json.dumps(_document(row), ensure_ascii=False)
    except OSError as error:
        raise ImportFileError(f"{path} cannot be read: {error.strerror or error}") from None
    except (arrow.ArrowException, ValueError, TypeError, KeyError) as error:
        raise ImportFileError(f"{path} is not a valid Parquet file: {error!s:.200}") from None


def _document(row: dict[str, Any]) -> dict[str, Any]:
    """Convert a row that `export` wrote back into the fields of its record."""
    digests = row["content_digests"]
    if row["schema_version"] <= DIGESTS_BY_NAME:
        digests = {pair["name"]: pair["sha256"] for pair in digests}
    segments = [_segment(segment) for segment in row["segments"]]
    return {**row, "content_digests": digests, "segments": segments}


def _segment(segment: dict[str, Any]) -> dict[str, Any]:
    """Return a segment as its record had it.

    Rows have every field. If `exact` is null, the record lacked the null fields.
    """
    if segment["exact"] is not None:
        return segment
    return {name: value for name, value in segment.items() if value is not None}
