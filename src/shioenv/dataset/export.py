"""Datasets in formats that other tools open: Parquet, the Hugging Face layout, JSON Lines.

Records are read and written in batches, so memory does not grow with the dataset. pyarrow is an
optional extra and loaded when it is needed.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from importlib.resources import files
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import IO, Any

from shioenv.dataset.manifest import Manifest, finished_manifest
from shioenv.dataset.read import read_records
from shioenv.domain.record import NAMES, Record, encode
from shioenv.errors import MissingExtraError, UsageError, did_you_mean
from shioenv.files.durable import atomic_write, new_directory, new_file

FORMATS = ("parquet", "hf", "jsonl")

SOURCE_MANIFEST = "source-manifest.json"
"""The exported dataset's own manifest, kept in the Hugging Face layout."""

FILE_RECORDS = 100_000
"""Records of one Parquet file of the Hugging Face layout at most."""

GROUP_RECORDS = 10_000
"""Records of a Parquet row group at most: what a reader has to hold at once."""

GROUP_BYTES = 64 * 1024 * 1024
"""Text of a row group, roughly; outputs may be a mebibyte each."""

SEGMENT_FIELDS: Mapping[str, str] = {
    "command": "string",
    "n_arguments": "int64",
    "irreducibility": "float64",
    "irreducibility_strict": "float64",
    "exact": "bool",
    "standard_error": "float64",
    "noise_threshold": "float64",
    "volatile": "bool",
    "arguments": "list of struct",
}
"""Arrow types of what a segment's score says."""

ARGUMENT_FIELDS: Mapping[str, str] = {
    "leave_one_out": "bool",
    "channel": "string",
    "contribution": "float64",
}
"""Arrow types of what is known of an argument's effect."""

FIELDS: Mapping[str, tuple[str, str]] = {
    "session_id": ("int64", "identifies the sample in the dataset it was made in"),
    "input": ("string", "the whole input, with the start directory's `cd`"),
    "input_args": (
        "list of string",
        "its tokens with no-space marks, the command first; without the `cd`",
    ),
    "exit_code": ("int64", "of the last command; 124 where the wall time ran out"),
    "output": (
        "string",
        "standard output and error in arrival order; undecodable bytes are U+FFFD",
    ),
    "context_patch": (
        "string",
        "what changed in the system: JSON list of `a`, `=`, `r`, `m` operations",
    ),
    "irreducibility": (
        "float64",
        "share of the arguments that matter, 0 to 1; null where none can go",
    ),
    "irreducibility_strict": ("float64", "the same from byte-equal outputs"),
    "exact": ("bool", "every proper sub-input was looked at, not a sample"),
    "standard_error": ("float64", "of `irreducibility`; 0 where exact"),
    "n_arguments": ("int64", "arguments that can be removed"),
    "n_executions": ("int64", "runs the score rests on"),
    "noise_threshold": ("float64", "similarity above which outputs count as the same"),
    "segments": ("list of struct", "per command: its scores, and the effect of each argument"),
    "stdout": ("string", "standard output of a run with two pipes"),
    "stderr": ("string", "standard error of a run with two pipes"),
    "output_b64": ("string", "the output's bytes in base64, where `output` cannot hold them"),
    "content_digests": ("list of struct", "`name` and `sha256` of each file added or modified"),
    "timed_out": ("bool", "the wall time ran out"),
    "output_truncated": ("bool", "more was written than is kept"),
    "limits_hit": ("list of string", "the limits of the run that it reached"),
    "patch_truncated": ("bool", "more changed than a patch may hold"),
    "volatile": ("bool", "another run may do something else"),
    "cwd": ("string", "the start directory"),
    "system": ("string", "the system's name"),
    "sampler": ("string", "what wrote the input"),
    "schema_version": ("int64", "of the record's layout"),
}
"""Arrow type and meaning of a record's fields, whatever a shard holds (D-8). `content_digests`
becomes a list of `name` and `sha256`, because a column has the same keys in every row."""

NULLABLE = frozenset(
    {
        "irreducibility", "irreducibility_strict", "standard_error", "noise_threshold",
        "stdout", "stderr", "output_b64",
    }
)  # fmt: skip

EXECUTED = """\
Bash inputs, each executed on the same pristine system and recorded with its exit code, its output,
what it changed, and how much of it mattered (*irreducibility*). Made with
[ShIOEnv](https://arxiv.org/abs/2505.18374); `source-manifest.json` says everything needed to make
the records again."""
RELEASED = """\
Bash inputs with what they did, as their publishers recorded them, brought into the layout of
[ShIOEnv](https://arxiv.org/abs/2505.18374) without being executed again. What the publishers did
not record is null or empty; exit codes of theirs are known to be 0 where a command failed."""
"""How the card begins."""

Report = Callable[[int, int], None]


def _silent(done: int, count: int) -> None:
    """Report to nobody."""


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export wrote."""

    output: Path
    format: str
    records: int
    files: int
    bytes: int

    def to_json(self) -> dict[str, Any]:
        """The export for programs."""
        return {
            "output": str(self.output),
            "format": self.format,
            "records": self.records,
            "files": self.files,
            "bytes": self.bytes,
        }


def export(
    directory: str | Path,
    output: str | Path,
    *,
    format: str | None = None,  # noqa: A002 - what every such function calls it
    licence: str = "unknown",
    report: Report = _silent,
) -> Exported:
    """Writes a finished dataset to `output`, whole or not at all.

    `parquet` is one file; `hf` a directory that `datasets.load_dataset(output)` opens, with a card
    that names `licence` (an identifier as the Hugging Face hub knows them); `jsonl` one file of the
    records as they are, compressed where its name ends in `.gz` or `.zst`; None is the one that
    `output` ends in, `hf` where it ends in none. The same dataset gives
    the same bytes with the same pyarrow. `report` is told records done and in all. Errors:
    UnknownDatasetError, DatasetCorruptError where a shard is not what the manifest says,
    OutputExistsError, MissingExtraError without pyarrow (Parquet and `.zst`), UsageError for
    another format, or a dataset that is not finished or has no records.
    """
    directory, output = Path(directory), Path(output)
    if format is None:
        format = _format_of(output)  # noqa: A001
    if format not in FORMATS:
        raise UsageError(f"no format is called {format!r}", hint=did_you_mean(format, FORMATS))
    manifest = finished_manifest(directory)
    if not manifest.records:
        raise UsageError(f"{directory} has no records", hint="nothing is there to export")
    if format != "jsonl":
        _pyarrow()  # a missing one is told before anything is written
    records = _told(read_records(directory, check=True), manifest.records, report)
    count = 1
    if format == "jsonl":
        with new_file(output) as temporary:
            _write_lines(records, temporary, output.suffix)
        size = output.stat().st_size
    elif format == "parquet":
        with new_file(output) as temporary:
            _write_parquet(records, temporary)
        size = output.stat().st_size
    else:
        with new_directory(output) as temporary:
            count = _write_layout(records, manifest, temporary, licence)
        size = sum(path.stat().st_size for path in output.rglob("*") if path.is_file())
    return Exported(output, format, manifest.records, count, size)


def _format_of(output: Path) -> str:
    name = output.name.removesuffix(".gz").removesuffix(".zst")
    return next((kind for kind in ("parquet", "jsonl") if name.endswith(f".{kind}")), "hf")


def schema(arrow: Any) -> Any:
    """The Arrow schema of a record, the same for every dataset."""
    simple = {
        "string": arrow.string(),
        "int64": arrow.int64(),
        "float64": arrow.float64(),
        "bool": arrow.bool_(),
    }
    effects = arrow.list_(
        arrow.struct([(name, simple[kind]) for name, kind in ARGUMENT_FIELDS.items()])
    )
    lists = {
        "input_args": arrow.list_(arrow.string()),
        "limits_hit": arrow.list_(arrow.string()),
        "segments": arrow.list_(
            arrow.struct(
                [(name, simple.get(kind, effects)) for name, kind in SEGMENT_FIELDS.items()]
            )
        ),
        "content_digests": arrow.list_(
            arrow.struct([("name", simple["string"]), ("sha256", simple["string"])])
        ),
    }
    return arrow.schema(
        arrow.field(name, lists.get(name) or simple[kind], nullable=name in NULLABLE)
        for name, (kind, _) in FIELDS.items()
    )


def _pyarrow() -> tuple[ModuleType, ModuleType]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError("exporting Parquet", "pyarrow", "export") from None
    return pyarrow, pyarrow.parquet


def _told(records: Iterator[Record], count: int, report: Report) -> Iterator[Record]:
    for done, record in enumerate(records, 1):
        yield record
        report(done, count)


def _write_lines(records: Iterator[Record], path: Path, suffix: str) -> None:
    with path.open("wb") as file, closing(_compressed(file, suffix)) as stream:
        for record in records:
            stream.write(encode(record))


def _compressed(file: IO[bytes], suffix: str) -> Any:
    if suffix == ".gz":  # no name and no time inside: the same records give the same bytes
        return io.BufferedWriter(gzip.GzipFile("", "wb", 6, file, 0))
    if suffix == ".zst":
        try:
            import pyarrow
        except ImportError:
            raise MissingExtraError("writing .zst", "pyarrow", "export") from None
        return pyarrow.CompressedOutputStream(file, "zstd")
    return file


def _write_parquet(records: Iterator[Record], path: Path) -> None:
    arrow, parquet = _pyarrow()
    columns = schema(arrow)
    with parquet.ParquetWriter(path, columns, compression="zstd") as writer:
        for group in _groups(records):
            rows = [_row(record) for record in group]
            writer.write_table(arrow.Table.from_pylist(rows, schema=columns))


def _groups(records: Iterator[Record]) -> Iterator[list[Record]]:
    group: list[Record] = []
    size = 0
    for record in records:
        group.append(record)
        size += sum(len(text or "") for text in _texts(record))
        if len(group) == GROUP_RECORDS or size >= GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _texts(record: Record) -> tuple[str | None, ...]:
    return (
        record.input, record.output, record.stdout, record.stderr, record.output_b64,
        record.context_patch,
    )  # fmt: skip


def _row(record: Record) -> dict[str, Any]:
    row = {name: getattr(record, name) for name in NAMES}
    row["segments"] = [
        {name: segment.get(name) for name in SEGMENT_FIELDS} for segment in record.segments
    ]
    row["content_digests"] = [
        {"name": name, "sha256": digest} for name, digest in record.content_digests.items()
    ]
    return row


def _write_layout(
    records: Iterator[Record], manifest: Manifest, directory: Path, licence: str
) -> int:
    count = -(-manifest.records // FILE_RECORDS)
    (directory / "data").mkdir()
    for number in range(count):
        name = f"train-{number:05}-of-{count:05}.parquet"
        with new_file(directory / "data" / name) as temporary:
            _write_parquet(islice(records, FILE_RECORDS), temporary)
    next(records, None)  # the last shard's bytes are held against the manifest at its end
    atomic_write(directory / SOURCE_MANIFEST, manifest.encode())
    atomic_write(directory / "README.md", card(manifest, licence).encode())
    return count


def card(manifest: Manifest, licence: str) -> str:
    """The dataset card: a YAML header for the hub, then what the records are and hold."""
    plan = manifest.plan
    template = files("shioenv.dataset").joinpath("card.md").read_text(encoding="utf-8")
    rows = [
        f"| `{name}` | {kind}{', or null' * (name in NULLABLE)} | {meaning} |"
        for name, (kind, meaning) in FIELDS.items()
    ]
    mean = manifest.mean_executions
    facts = {
        "records": f"{manifest.records:,} ({manifest.volatile:,} volatile)",
        "made by": plan.kind if plan.kind == "generate" else _origin(plan.origin or {}),
        "sampler": f"{plan.drawing.sampler}, {plan.drawing.policy} policy"
        if plan.drawing.policy
        else plan.drawing.sampler,
        "seed": plan.drawing.seed,
        "budget": "unknown"
        if plan.scoring is None
        else f"{plan.scoring.budget} sub-inputs a record, {plan.scoring.noise_runs} noise runs",
        "executions": "unknown" if not mean else f"{mean:.1f} a record",
        "system": f"{plan.system}, digest `{plan.system_digest}`",
        "start directories": ", ".join(f"`{one}`" for one in plan.drawing.start_directories if one),
        "commands": f"{len(plan.drawing.commands)}: {', '.join(plan.drawing.commands)}",
        "grammars": f"digest `{plan.grammar_digest}`",
        "versions": f"shioenv {plan.version}, kernel {', '.join(manifest.kernels)}",
    }
    if not plan.executed:
        for unknown in ("seed", "system", "commands", "grammars"):
            facts[unknown] = "unknown"
    size = next(
        label
        for most, label in (
            (10**3, "n<1K"),
            (10**4, "1K<n<10K"),
            (10**5, "10K<n<100K"),
            (10**6, "100K<n<1M"),
            (10**9, "1M<n<10M"),
        )
        if manifest.records < most
    )
    return template.format(
        about=EXECUTED if plan.executed else RELEASED,
        licence=licence,
        size=size,
        facts="\n".join(f"| {name} | {value or '-'} |" for name, value in facts.items()),
        fields="\n".join(rows),
    )


def _origin(origin: Mapping[str, Any]) -> str:
    if origin["kind"] == "filter":
        bounds = ", ".join(f"{name} {value}" for name, value in origin["selection"].items())
        parent = origin["parent"]["manifest_sha256"]
        return f"selection ({bounds or 'everything'}) from the dataset with manifest `{parent}`"
    return f"import ({origin['kind']})"
