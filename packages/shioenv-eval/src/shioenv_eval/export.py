"""Export datasets in formats of other tools: Parquet, the Hugging Face layout, JSON Lines.

Records are read and written in batches, so memory does not grow with the dataset. pyarrow comes
with an optional extra and is loaded when it is needed. In the format `chat` records are
conversations: the user types an input, the assistant answers with the output.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from importlib.resources import files
from itertools import chain, islice
from pathlib import Path
from types import ModuleType
from typing import IO, Any

from msgspec import Struct, inspect, to_builtins

from shioenv.dataset.importers import SOURCE_MANIFEST
from shioenv.dataset.manifest import MANIFEST, Manifest, finished_manifest
from shioenv.dataset.record_reader import read_contexts, read_records
from shioenv.dataset.split import PARTS, REST
from shioenv.dataset.write import README, data_files, feature_lines, write_context
from shioenv.domain.context import Context
from shioenv.domain.record import Record, encode
from shioenv.errors import MissingExtraError, UsageError, did_you_mean
from shioenv.files.compressed import open_compressed
from shioenv.files.durable import atomic_write, new_directory, new_file
from shioenv.files.regular import is_directory

FORMATS = ("parquet", "hf", "jsonl", "chat")

ENDINGS: Mapping[str, str] = {
    ".parquet": "parquet",
    ".jsonl": "jsonl",
    ".jsonl.gz": "jsonl",
    ".jsonl.zst": "jsonl",
}
"""The format of a file by the end of its name."""

SOURCE_MANIFESTS = "source-manifests"
"""The directory of the manifests if several datasets are exported: `train.json` and so on."""

FILE_RECORDS = 100_000
"""Maximum number of records in one Parquet file of the Hugging Face layout."""

GROUP_RECORDS = 10_000
"""Maximum number of records in a Parquet row group; a reader has to load a whole group."""

GROUP_BYTES = 32 * 1024 * 1024
"""Maximum size of a row group in bytes of JSON Lines; a larger record has a separate group."""

_TYPES: Mapping[Any, str] = {
    inspect.StrType: "str",
    inspect.IntType: "int",
    inspect.FloatType: "float",
    inspect.BoolType: "bool",
    inspect.NoneType: "null",
    inspect.StructType: "object",
}

EXECUTED = """\
Bash inputs, each executed on the same pristine system and recorded with its exit code, its output,
what it changed, and how much of it mattered (*irreducibility*). Made with
[ShIOEnv](https://arxiv.org/abs/2505.18374); the source manifest (`source-manifest.json`,
or `source-manifests/` of several splits) says everything needed to make the records again."""
RELEASED = """\
Bash inputs with what they did, as their publishers recorded them, brought into the layout of
[ShIOEnv](https://arxiv.org/abs/2505.18374) without being executed again. What the publishers did
not record is null or empty. Some of their exit codes are 0 although the command failed."""
"""Introductions of a card: for inputs executed by this package, and for released records."""

_SIZES = ("n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M")
"""The hub's size categories for counts of up to 3, 4, 5, 6 and more digits."""

_PARQUET = "exporting Parquet"

_SPLIT = re.compile(r"\w+(\.\w+)*\Z", re.ASCII)
"""Names of splits that the Hugging Face library accepts."""

Report = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Exported:
    """The result of an export: path, format, and number of records."""

    output: Path
    format: str
    records: int
    files: int
    bytes: int

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON for programs."""
        return {**asdict(self), "output": str(self.output)}


def export(
    directory: str | Path,
    output: str | Path,
    *,
    format: str | None = None,  # noqa: A002 - what every such function calls it
    licence: str = "unknown",
    report: Report = lambda done, count: None,
) -> Exported:
    """Write a finished dataset to `output`, completely or not at all.

    `directory` may also contain several datasets, as written by `shioenv.dataset.split`. Each is a
    split of the format `hf`, named after its directory; the other formats hold one dataset.
    `format` is one of:

    - `parquet`: one file;
    - `hf`: a directory that `datasets.load_dataset(output)` opens. Its card names `licence`, an
      identifier of the Hugging Face hub;
    - `jsonl`: one file of the records as they are, compressed if its name ends in `.gz` or `.zst`;
    - `chat`: such a file with a conversation on each line (`chats`);
    - None: the format that `ENDINGS` has for the end of the name `output`; `hf` for a name without
      an ending.

    The same dataset gives the same bytes with the same libraries. `report` is called with the
    number of records done and the total.

    Errors: UsageError for an unknown format, or a name whose ending is unknown or belongs to
    another format. UsageError is also raised for an unfinished or empty dataset, and for datasets
    of different systems. DatasetCorruptError if a shard differs from the manifest.
    MissingExtraError without pyarrow (`parquet`, `hf`). UnknownDatasetError, OutputExistsError.
    """
    directory, output = Path(directory), Path(output)
    format = _format_of(output, format)  # noqa: A001
    parts = parts_in(directory)
    if parts and format != "hf":
        raise UsageError(
            f"{directory} contains several datasets ({', '.join(parts)}); {format} supports one",
            hint="export them as splits with --format hf, or export each separately: "
            f"{next(iter(parts.values()))}",
        )
    parts = parts or {REST: directory}
    manifests = {name: finished_manifest(path) for name, path in parts.items()}
    for name, manifest in manifests.items():
        if not manifest.records:
            raise UsageError(f"{parts[name]} has no records", hint="remove it, or generate records")
    total = sum(manifest.records for manifest in manifests.values())
    if format not in {"jsonl", "chat"}:
        parquet_library(_PARQUET)  # without the library, fail before anything is written
    contexts = _common_contexts(parts, manifests)
    read = (read_records(path, check=True) for path in parts.values())
    records = _told(chain.from_iterable(read), total, report)
    count, written = 1, [output]
    if format == "hf":
        with new_directory(output) as temporary:
            count = _write_layout(records, contexts, manifests, temporary, licence)
        written = [path for path in output.rglob("*") if path.is_file()]
    else:
        with new_file(output) as temporary:
            if format == "jsonl":
                _write_lines(map(encode, records), temporary, output.suffix)
            elif format == "chat":
                _write_lines(chats(records), temporary, output.suffix)
            else:
                _write_parquet(records, temporary)
    size = sum(path.stat().st_size for path in written)
    return Exported(output, format, total, count, size)


def parts_in(directory: Path) -> Mapping[str, Path]:
    """Return the datasets in a directory that is not a dataset itself, by name.

    The order is train, validation, test, then others. UsageError for a directory's name that cannot
    be the name of a split.
    """
    if os.path.lexists(directory / MANIFEST) or not is_directory(directory):
        return {}
    parts = {path.parent.name: path.parent for path in directory.glob(f"*/{MANIFEST}")}
    for name in parts:
        if not _SPLIT.match(name):
            raise UsageError(
                f"invalid split name of the dataset {directory / name}",
                hint="names have letters, digits and underscores, such as train, validation, test",
            )
    return {name: parts[name] for name in sorted(parts, key=by_custom)}


def by_custom(part: str) -> tuple[int, str]:
    """Return a key that sorts parts as other tools do: train, validation, test, others by name."""
    return (PARTS.index(part) if part in PARTS else len(PARTS)), part


def _common_contexts(
    parts: Mapping[str, Path], manifests: Mapping[str, Manifest]
) -> Sequence[Context]:
    """Return the contexts of all parts. UsageError if they have different systems."""
    (first, one), *others = manifests.items()
    for name, other in others:
        for what in ("system", "system_digest"):
            here, there = getattr(one.plan, what), getattr(other.plan, what)
            if here != there:
                raise UsageError(
                    f"{what} is {here!r} in {parts[first]}, {there!r} in {parts[name]}",
                    hint="splits of one export must have the same system: export each separately",
                )
        if other.contexts != one.contexts:
            raise UsageError(
                f"{parts[first]} and {parts[name]} have different start directories",
                hint="merge them and split the result: shioenv dataset merge, dataset split",
            )
    return [*read_contexts(parts[first]).values()]


def _format_of(output: Path, asked: str | None) -> str:
    """Return the format to write.

    UsageError if the name's extension and the requested format disagree, or if the extension is
    unknown and no format is requested.
    """
    named = next((kind for ending, kind in ENDINGS.items() if output.name.endswith(ending)), None)
    if asked is not None and asked not in FORMATS:
        raise UsageError(f"unknown format {asked!r}", hint=did_you_mean(asked, FORMATS))
    endings = f"known extensions: {', '.join(ENDINGS)}; hf writes a directory without one"
    if asked is None and named is None and output.suffix:
        raise UsageError(
            f"{output}: unknown extension {output.suffix!r}",
            hint=f"{endings}; use --format NAME for other names",
        )
    if asked == "chat" and named is None and output.suffix != ".jsonl":
        raise UsageError(
            f"{output}: the extension {output.suffix!r} does not match the format chat",
            hint=endings,
        )
    if asked is not None and named not in (None, "jsonl" if asked == "chat" else asked):
        raise UsageError(
            f"{output}: the extension means {named}, but the format is {asked}", hint=endings
        )
    return asked or named or "hf"


def fields_table(kind: type[Struct]) -> str:
    """Return the fields of `kind`, a record or a part of one, as rows of a Markdown table."""
    return "\n".join(
        f"| `{field.name}` | {_words(field.type)} | {field.type.extra_json_schema['description']} |"
        for field in _fields(kind)
    )


def _fields(kind: type[Struct]) -> Sequence[Any]:
    about: Any = inspect.type_info(kind)
    return about.fields  # type: ignore[no-any-return]


def _words(kind: Any) -> str:
    """Return a type as text for people: `list of str`, `float or null`."""
    match kind:
        case inspect.Metadata():
            return _words(kind.type)
        case inspect.UnionType():
            return " or ".join(map(_words, kind.types))
        case inspect.ListType():
            return f"list of {_words(kind.item_type)}"
    return _TYPES[type(kind)]


def schema(arrow: Any) -> Any:
    """Return the Arrow schema of a record, the same for every dataset and shard (D-8).

    `arrow` is the module pyarrow.
    """
    simple: Mapping[Any, Any] = {
        inspect.StrType: arrow.string(),
        inspect.IntType: arrow.int64(),
        inspect.FloatType: arrow.float64(),
        inspect.BoolType: arrow.bool_(),
    }

    def column(kind: Any) -> Any:
        match kind:
            case inspect.Metadata():
                return column(kind.type)
            case inspect.UnionType():
                return column(kind.types[0])
            case inspect.ListType():
                return arrow.list_(column(kind.item_type))
            case inspect.StructType():
                return arrow.struct([(field.name, column(field.type)) for field in kind.fields])
        return simple[type(kind)]

    return arrow.schema(
        arrow.field(field.name, column(field.type), nullable="null" in _words(field.type))
        for field in _fields(Record)
    )


def parquet_library(what: str) -> tuple[ModuleType, ModuleType]:
    """Return the modules pyarrow and pyarrow.parquet.

    Errors: MissingExtraError, which names `what`, if pyarrow is not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError(what, "export", "pyarrow") from None
    return pyarrow, pyarrow.parquet


def _told(records: Iterator[Record], count: int, report: Report) -> Iterator[Record]:
    for done, record in enumerate(records, 1):
        yield record
        report(done, count)


def _write_lines(lines: Iterable[bytes], path: Path, suffix: str) -> None:
    with path.open("wb") as file, _compressed(file, suffix) as stream:
        for line in lines:  # zstandard's writer has no `writelines`
            stream.write(line)


def _compressed(file: IO[bytes], suffix: str) -> AbstractContextManager[IO[bytes]]:
    if suffix == ".gz":  # no name and no time inside: the same records give the same bytes
        return io.BufferedWriter(gzip.GzipFile("", "wb", 6, file, 0))
    return open_compressed(file, suffix)


def _write_parquet(records: Iterator[Record], path: Path) -> None:
    arrow, parquet = parquet_library(_PARQUET)
    columns = schema(arrow)
    with parquet.ParquetWriter(
        path, columns, compression="zstd", write_page_checksum=True
    ) as writer:
        for group in _groups(records):
            rows = [to_builtins(record) for record in group]
            writer.write_table(arrow.Table.from_pylist(rows, schema=columns))


def _groups(records: Iterator[Record]) -> Iterator[list[Record]]:
    group: list[Record] = []
    size = 0
    for record in records:
        more = len(encode(record))
        if len(group) == GROUP_RECORDS or (group and size + more > GROUP_BYTES):
            yield group
            group, size = [], 0
        group.append(record)
        size += more
    if group:
        yield group


def _write_layout(
    records: Iterator[Record],
    contexts: Iterable[Context],
    manifests: Mapping[str, Manifest],
    directory: Path,
    licence: str,
) -> int:
    """Write the Hugging Face layout with a split of each manifest; return the number of files."""
    (directory / "data").mkdir()
    files = 0
    for split, manifest in manifests.items():
        count = -(-manifest.records // FILE_RECORDS)
        left = manifest.records
        for number in range(count):
            name = f"{split}-{number:05}-of-{count:05}.parquet"
            with new_file(directory / "data" / name) as temporary:
                _write_parquet(islice(records, min(left, FILE_RECORDS)), temporary)
            left -= FILE_RECORDS
        files += count
    next(records, None)  # reaching the end compares the last shard with the manifest
    for number, context in enumerate(contexts):
        write_context(directory, number, context)
    if tuple(manifests) == (REST,):
        atomic_write(directory / SOURCE_MANIFEST, manifests[REST].encode())
    else:
        (directory / SOURCE_MANIFESTS).mkdir()
        for split, manifest in manifests.items():
            atomic_write(directory / SOURCE_MANIFESTS / f"{split}.json", manifest.encode())
    atomic_write(directory / README, card(manifests, licence).encode())
    return files


def card(manifests: Mapping[str, Manifest], licence: str) -> str:
    """Return the dataset card: a YAML header for the hub, then a description of the records.

    `manifests` are those of the splits, by name.
    """
    template = files("shioenv_eval").joinpath("card.md").read_text(encoding="utf-8")
    facts = {split: _facts(manifest) for split, manifest in manifests.items()}
    first = next(iter(manifests))
    about = EXECUTED if manifests[first].plan.executed else RELEASED
    rows = {
        name: value
        if all(one[name] == value for one in facts.values())
        else "; ".join(f"{split}: {one[name] or '-'}" for split, one in facts.items())
        for name, value in facts[first].items()
    }
    return template.format(
        about=about,
        licence=licence,
        size=size_category(sum(one.records for one in manifests.values())),
        data_files="\n".join(data_files({split: f"data/{split}-*" for split in manifests})),
        information="\n".join(_information(manifests)),
        first=first,
        facts="\n".join(f"| {name} | {value or '-'} |" for name, value in rows.items()),
        fields=fields_table(Record),
    )


def _information(manifests: Mapping[str, Manifest]) -> Iterator[str]:
    """Yield the lines of a header with the fields, and the number of records of each split."""
    features = list(feature_lines(next(iter(manifests.values())).plan))
    yield from features or ["dataset_info:"]
    yield "  splits:"
    for split, manifest in manifests.items():
        yield f"  - name: {split}"
        yield f"    num_examples: {manifest.records}"


def _facts(manifest: Manifest) -> dict[str, Any]:
    """Return the facts on a card about one dataset, by name."""
    plan = manifest.plan
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
        else "not scored"
        if not plan.scoring.budget
        else f"{plan.scoring.budget} sub-inputs a record, {plan.scoring.noise_runs} noise runs"
        + (f", {plan.scoring.process_budget:,} processes" if plan.scoring.process_budget else ""),
        "executions": "unknown" if not mean else f"{mean:.1f} a record",
        "system": f"{plan.system}, digest `{plan.system_digest}`",
        "start directories": ", ".join(f"`{cwd}`" for cwd in plan.drawing.start_directories if cwd),
        "commands": f"{len(plan.drawing.commands)}: {', '.join(plan.drawing.commands)}",
        "grammars": f"digest `{plan.grammar_digest}`",
        "versions": ", ".join(
            [f"shioenv {plan.version}", "kernel " + ", ".join(manifest.kernels), *manifest.layers]
        ),
    }
    if plan.limits is None:  # records without a manifest: only their fields are known
        facts |= dict.fromkeys(("seed", "commands", "grammars", "versions"), "unknown")
        facts["system"] = plan.system or "unknown"
    return facts


def size_category(count: int) -> str:
    """Return the hub's name for a number of rows."""
    return _SIZES[min(max(len(str(count)), 3), 7) - 3]


def _origin(origin: Mapping[str, Any]) -> str:
    if origin["kind"] == "filter":
        bounds = ", ".join(f"{name} {value}" for name, value in origin["selection"].items())
        parent = origin["parent"]["manifest_sha256"]
        return f"selection ({bounds or 'everything'}) from the dataset with manifest `{parent}`"
    if origin["kind"] == "merge":
        return f"merge of {len(origin['parents'])} datasets"
    return f"import ({origin['kind']})"


SYSTEM = (
    "You are the Bash shell of the machine {system}, and {cwd} is the working directory. The user "
    "types one input a turn. Answer with what the terminal shows, and with nothing else."
)
"""The system message of every conversation."""


def chats(records: Iterable[Record]) -> Iterator[bytes]:
    """Yield a line of JSON for each conversation, in the order of the records.

    `messages` has the turns: the system's, then one of the user and one of the assistant for each
    input. `exit_codes` has an exit code for each answer, and `session_ids` the number of its
    record. Inputs that were typed in one shell are one conversation, as long as their records are
    consecutive. If the records of earlier inputs are missing, the system's turn lists these inputs.
    """
    session: list[Record] = []
    for record in records:
        if session and not _goes_on(session[-1], record):
            yield _chat(session)
            session = []
        session.append(record)
    if session:
        yield _chat(session)


def _goes_on(before: Record, record: Record) -> bool:
    return record.cwd == before.cwd and record.history == [*before.history, before.typed]


def _chat(session: list[Record]) -> bytes:
    first = session[0]
    said = SYSTEM.format(system=first.system or "Linux", cwd=first.cwd or "the home directory")
    if first.history:
        said += "\nThese inputs were typed before:\n" + "\n".join(first.history)
    messages = [{"role": "system", "content": said}]
    for record in session:
        messages.append({"role": "user", "content": record.typed})
        messages.append({"role": "assistant", "content": record.output})
    document = {
        "messages": messages,
        "exit_codes": [record.exit_code for record in session],
        "session_ids": [record.session_id for record in session],
    }
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass") + b"\n"
