"""The manifest of a dataset: its files, and the plan that determines its bytes."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta, Struct

from shioenv.domain.record import READ as RECORDS_READ
from shioenv.domain.record import SCHEMA_VERSION as RECORD_SCHEMA_VERSION
from shioenv.domain.record import Record
from shioenv.errors import (
    DatasetCorruptError,
    DatasetMismatchError,
    DatasetStorageError,
    LimitsError,
    UnknownDatasetError,
    UsageError,
)
from shioenv.files.compressed import SUFFIX
from shioenv.files.documents import fault, parse_json
from shioenv.files.regular import is_directory, read_regular
from shioenv.irreducibility.scoring import USUAL, Scoring
from shioenv.sandbox.base import Limits, limits_from
from shioenv.synthesis.drawing import Drawing
from shioenv.text import short_repr

FORMAT = "shioenv-dataset"
SCHEMA_VERSION = 7
"""The version of the manifest, raised whenever a key is added, removed, or changes its meaning."""
READ = (4, 5, 6, SCHEMA_VERSION)
"""Supported versions of manifests.

In version 4 a missing `estimator` means the paper's. Before version 6 `session_length` is named
`history`, and limits have a separate key, `inside`, for the sandbox inside a microVM. Before
version 7 there are no user-supplied grammars, and no merged or split datasets.
"""

MANIFEST = "manifest.json"
DATA = "data"
SHARD_ENDING = ".ndjson"
CONTEXTS = "contexts"
ORIGINS = ("filter", "merge", "commands", "records", "released")
"""Kinds of datasets whose inputs were not sampled by this package."""
COMPRESSIONS = {"zstd": SUFFIX}
"""Compressions of shards by name, with the suffix that they add to the shards' names."""
JOURNAL = re.compile(r"([0-9]{5,})\.journal\Z")
"""Names of journals, which contain the finished records of a shard that is not full yet."""
_CONTEXT = re.compile(rf"{CONTEXTS}/[0-9]{{5,}}\.json\Z")
_LATER = {"mistakes": 0.0, "session_length": 1, "part": ""}
"""Sampling settings that manifests may lack, with the values to assume."""

SHARD_RECORDS = 1000
"""Number of records of every shard but the last (Appendix A: "files of 1K entries")."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that determines a dataset's bytes, except the number of records.

    Two datasets with equal plans begin with the same records. Only volatile records may differ, and
    these have the same number, input and arguments.
    """

    drawing: Drawing
    """The complete sampling settings: the policy's label, all commands and all start directories.
    If the inputs were not sampled, `sampler` names their source."""
    scoring: Scoring | None
    """The scoring settings; None if unknown."""
    system: str
    """The system's name; "" if unknown."""
    system_digest: str
    """The system's digest; "" if unknown. On systems with equal digests, the same inputs have the
    same behavior."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Versions of the system's packages. The digest determines them, so they are never compared."""
    grammar_digest: str
    """SHA-256 of everything from which inputs were drawn (`grammar_digest`); "" if unknown."""
    limits: Limits | None
    """Limits of every execution; None if unknown."""
    version: str
    """The version of this package that drew, executed and scored; "" if unknown."""
    record_schema: int = RECORD_SCHEMA_VERSION
    """The schema version of all records of the dataset."""
    compression: str | None = None
    """The compression of the shards, one of `COMPRESSIONS`; None without compression."""
    origin: Mapping[str, Any] | None = None
    """The origin of the inputs; None if a sampler of this package drew them.

    `kind` is one of `ORIGINS`. `filter` is a selection from another dataset, or a part of a split
    dataset; `merge` combines several datasets. `commands` is a list of inputs, `records` an export
    without its manifest, `released` records of the paper's authors.
    """

    def __post_init__(self) -> None:
        drawing = replace(self.drawing, policy=self.drawing.chosen_policy)
        object.__setattr__(self, "drawing", drawing)

    @property
    def kind(self) -> str:
        """The kind of the dataset's source: `generate`, or the origin's kind."""
        return "generate" if self.origin is None else str(self.origin["kind"])

    @property
    def executed(self) -> bool:
        """Whether this package executed the inputs, unlike those of a released dataset."""
        return bool(self.system)

    def to_json(self) -> dict[str, Any]:
        """Return the plan in the form of the manifest."""
        drawing = msgspec.to_builtins(self.drawing)
        grammar = {"digest": self.grammar_digest, "commands": drawing.pop("commands")}
        if own := drawing.pop("own_grammars"):
            grammar["own"] = own
        for name, usual in _LATER.items():
            if drawing[name] == usual:
                del drawing[name]
        return {
            **{name: drawing.pop(name) for name in ("sampler", "policy", "seed")},
            **_scoring_json(self.scoring),
            "system": {
                "name": self.system,
                "digest": self.system_digest,
                "packages": dict(sorted(self.packages.items())),
            },
            "grammar": grammar,
            **drawing,
            "limits": msgspec.to_builtins(self.limits),
            "versions": {"shioenv": self.version},
            **({} if self.compression is None else {"compression": self.compression}),
            **({} if self.origin is None else {"origin": dict(self.origin)}),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Plan:
        """Parse the plan in a manifest.

        Errors for an invalid document: KeyError, TypeError, ValueError, LimitsError, UsageError.
        """
        beside = ("commands", "own_grammars")  # which the manifest has under `grammar`
        names = [item.name for item in fields(Drawing) if item.name not in beside]
        grammar = _part(document["grammar"], _Grammar, "$.grammar")
        if "history" in document:
            document = {**document, "session_length": document["history"]}
        document = {**_LATER, **document}
        drawn = {name: document[name] for name in names}
        drawn |= {"commands": grammar.commands, "own_grammars": grammar.own}
        system = _part(document["system"], _System, "$.system")
        limits = document["limits"]
        named = {}  # limits with text values
        if isinstance(limits, dict):
            for name in limits.keys() & {"sandbox", "inside"}:
                named[name] = _part(limits[name], str, f"$.limits.{name}")
            limits = {name: value for name, value in limits.items() if name not in named}
        limits = _part(limits, dict[str, bool | int | float] | None, "$.limits")
        return cls(
            drawing=_part(drawn, Drawing),
            scoring=None if limits is None else _scoring(document),
            system=system.name,
            system_digest=system.digest,
            packages=system.packages,
            grammar_digest=grammar.digest,
            limits=None if limits is None else limits_from({**limits, **named}),
            version=_part(document["versions"]["shioenv"], str, "$.versions.shioenv"),
            compression=_compression(document.get("compression")),
            record_schema=document.get("record_schema_version", RECORD_SCHEMA_VERSION),
            origin=_origin(document.get("origin")),
        )

    def differences(self, asked: Plan) -> tuple[str, ...]:
        """Return the differences from another plan: `seed: 7 in the dataset, 8 requested`.

        Versions of packages inside the system are not compared: the system's digest determines
        them.
        """
        here, there = (dict(_leaves(plan.to_json())) for plan in (self, asked))
        return tuple(
            f"{name}: {_show(here.get(name))} in the dataset, {_show(there.get(name))} requested"
            for name in {**here, **there}
            if here.get(name) != there.get(name) and not name.startswith("system.packages.")
        )


def refuse_older_records(directory: str | Path, plan: Plan) -> None:
    """Raise DatasetMismatchError if the records have an older version, so that none can be added.

    A new record would have the old version number, but the contents of the current version. The
    versions differ in how they record changes of content, moves after a history, and the leading
    `cd`.
    """
    if plan.record_schema != RECORD_SCHEMA_VERSION:
        versions = f"{plan.record_schema} in the dataset, {RECORD_SCHEMA_VERSION} requested"
        raise DatasetMismatchError(str(directory), [f"record_schema_version: {versions}"])


Count: TypeAlias = Annotated[int, Meta(ge=0, le=2**53)]
"""A number of records, or of executions."""


class Shard(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One finished file of records."""

    file: str
    """Path relative to the dataset's directory: `data/00000.ndjson`, or `data/00000.ndjson.zst`."""
    records: Count
    sha256: str
    """The SHA-256 of the lines, whether the file is compressed or not."""
    inputs_sha256: str
    """The SHA-256 of the numbers, inputs and arguments of the records. It is the same in every run,
    even if records are volatile."""
    volatile: Count
    """Number of volatile records."""
    executions: Count
    """Number of executions for the scores of the records."""
    repeated: dict[str, Count] = {}
    """Number of records whose history had to be run again, by reason."""

    @property
    def number(self) -> int:
        """The shard's number in the dataset, from 0, which is part of its name."""
        return int(Path(self.file).name.partition(".")[0])


class ContextFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file with the context before every input of one start directory."""

    cwd: str
    file: str
    """Path relative to the dataset's directory: `contexts/00000.json`."""
    sha256: str
    """The SHA-256 of the file."""


class _System(Struct, forbid_unknown_fields=True):
    name: str
    digest: str
    packages: dict[str, str]


class _Grammar(Struct, forbid_unknown_fields=True):
    digest: str
    commands: tuple[str, ...]
    own: str = ""


class _Parent(Struct):
    manifest_sha256: str
    records: int


class _MergedOrigin(Struct):
    parents: list[_Parent]


class _Filtered(Struct):
    parent: _Parent
    selection: dict[str, Any]


def inputs_line(session_id: int, text: str, input_args: Sequence[str]) -> bytes:
    """Return the bytes of a record that enter its shard's `inputs_sha256`."""
    document = [session_id, text, input_args]
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


class Tally:
    """The manifest's facts about a shard, counted record by record."""

    def __init__(self) -> None:
        self.records = self.volatile = self.executions = 0
        self.repeated: Counter[str] = Counter()
        self._whole, self._inputs = hashlib.sha256(), hashlib.sha256()

    @property
    def sha256(self) -> str:
        """The SHA-256 of the lines so far."""
        return self._whole.hexdigest()

    @property
    def inputs_sha256(self) -> str:
        """The SHA-256 of the inputs so far."""
        return self._inputs.hexdigest()

    def input(self, line: bytes) -> None:
        """Count an input, given as the bytes of `inputs_line`."""
        self._inputs.update(line)

    def line(
        self, content: bytes, *, volatile: bool, executions: int, repeated: Iterable[str] = ()
    ) -> None:
        """Count a record, given as its line; its input is counted by `input`.

        `repeated` holds the reason if the record's history had to be run again, else nothing.
        """
        self._whole.update(content)
        self.records += 1
        self.volatile += volatile
        self.executions += executions
        self.repeated.update(repeated)

    def record(self, record: Record, content: bytes) -> None:
        """Count a record with its input."""
        self.input(inputs_line(record.session_id, record.input, record.input_args))
        self.line(content, volatile=record.volatile, executions=record.n_executions)

    def shard(self, file: str) -> Shard:
        """Return the shard of the records that were counted."""
        facts = {name: getattr(self, name) for name in Shard.__struct_fields__[1:]}
        return Shard(file=file, **facts | {"repeated": dict(sorted(self.repeated.items()))})


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The description of a dataset, rewritten whenever a shard is finished."""

    plan: Plan
    count: int
    """The requested number of records; for a part, the number of these that the part has."""
    kernels: tuple[str, ...]
    """Releases of the host kernels under which records were made. Outputs may show them
    (`uname -r`)."""
    layers: tuple[str, ...] = ()
    """The storage of the overlay's lower layer on each host, as described by `layer_of`."""
    contexts: tuple[ContextFile, ...] = ()
    """The contexts to which patches apply, one per start directory; none if this package executed
    nothing."""
    shards: tuple[Shard, ...] = ()
    """The finished shards, in order."""
    repaired: tuple[Mapping[str, Any], ...] = ()
    """Shards that were recreated with other bytes, which only volatile records may cause. Each has
    the keys `file`, `was_sha256`, `volatile`."""

    def __repr__(self) -> str:
        facts = {"records": self.records, "count": self.count, "system": self.plan.system}
        return short_repr(self, {**facts, "drawing": self.plan.drawing})

    @cached_property
    def records(self) -> int:
        """Records in finished shards."""
        return sum(shard.records for shard in self.shards)

    @property
    def complete(self) -> bool:
        """Whether every requested record is in a finished shard."""
        return self.records == self.count

    @property
    def volatile(self) -> int:
        """Volatile records in finished shards."""
        return sum(shard.volatile for shard in self.shards)

    @property
    def executions(self) -> int:
        """Number of executions for the scores of records in finished shards."""
        return sum(shard.executions for shard in self.shards)

    @property
    def mean_executions(self) -> float | None:
        """Executions per record; None without records."""
        return self.executions / self.records if self.records else None

    def with_shard(self, shard: Shard) -> Manifest:
        """Return the manifest after `shard` was finished."""
        shards = [*self.without_shard(shard.number).shards, shard]
        return replace(self, shards=tuple(sorted(shards, key=lambda shard: shard.number)))

    def with_repaired(self, shard: Shard) -> Manifest:
        """Return the manifest after a listed shard was recreated with other bytes."""
        was = next(other.sha256 for other in self.shards if other.number == shard.number)
        note = {"file": shard.file, "was_sha256": was, "volatile": shard.volatile}
        others = (other for other in self.repaired if other["file"] != shard.file)
        return replace(self.with_shard(shard), repaired=(*others, note))

    def without_shard(self, number: int) -> Manifest:
        """Return the manifest without the shard of this number, which is to be recreated."""
        return replace(self, shards=tuple(shard for shard in self.shards if shard.number != number))

    def to_json(self) -> dict[str, Any]:
        """Return the manifest as a JSON document, independent of the number of workers."""
        return {
            "format": FORMAT,
            "schema_version": SCHEMA_VERSION,
            "record_schema_version": self.plan.record_schema,
            "count": self.count,
            "records": self.records,
            "volatile": self.volatile,
            "mean_executions": self.mean_executions,
            **self.plan.to_json(),
            "host_kernels": list(self.kernels),
            **({"host_layers": list(self.layers)} if self.layers else {}),
            "contexts": msgspec.to_builtins(self.contexts),
            "shards": msgspec.to_builtins(self.shards),
            **({"repaired": [dict(note) for note in self.repaired]} if self.repaired else {}),
        }

    def encode(self) -> bytes:
        """Return the bytes of the manifest's file: indented JSON, ended by a newline."""
        return (json.dumps(self.to_json(), indent=2, ensure_ascii=False) + "\n").encode()


def finished_manifest(directory: str | Path) -> Manifest:
    """Return the manifest of a finished dataset: all requested records are in shards.

    Errors: UnknownDatasetError, DatasetCorruptError, UsageError for an unfinished dataset.
    """
    manifest = read_manifest(directory)
    if not manifest.complete:
        raise UsageError(
            f"{directory} is not finished: {manifest.records} of {manifest.count} records",
            hint="resume it with the command that made it; shioenv dataset show, stats and report "
            "read the finished records",
        )
    return manifest


def scoring_there(directory: str | Path) -> Scoring:
    """Return the scoring settings of the dataset in a directory.

    `USUAL` if there is no dataset, or its settings are unknown. Errors: DatasetCorruptError.
    """
    with suppress(UnknownDatasetError):
        return read_manifest(directory).plan.scoring or USUAL
    return USUAL


def decode_manifest(content: bytes, source: str) -> Manifest:
    """Parse the bytes of `Manifest.encode`.

    Errors: DatasetCorruptError, which names `source`, if the content is not a valid manifest.
    """
    try:
        document = parse_json(content)
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise DatasetCorruptError(f"{source} is not a manifest of a dataset")
        for key, known in (
            ("schema_version", READ),
            ("record_schema_version", RECORDS_READ),
        ):
            if document[key] not in known:
                raise DatasetCorruptError(
                    f"{source}: unsupported {key} {document[key]!r:.60}; this release reads up to "
                    f"{known[-1]}",
                    hint="use the release that wrote it",
                )
        manifest = Manifest(
            plan=Plan.from_json(document),
            count=_part(document["count"], Count, "$.count"),
            kernels=_part(document["host_kernels"], tuple[str, ...], "$.host_kernels"),
            layers=_part(document.get("host_layers", ()), tuple[str, ...], "$.host_layers"),
            contexts=_part(document["contexts"], tuple[ContextFile, ...], "$.contexts"),
            shards=_part(document["shards"], tuple[Shard, ...], "$.shards"),
            repaired=_part(document.get("repaired", ()), tuple[dict[str, Any], ...], "$.repaired"),
        )
        previous = -1
        for shard in manifest.shards:
            if shard.file != shard_file(shard.number, manifest.plan.compression):
                raise ValueError(f"invalid name of a shard: {shard.file!r:.60}")
            if shard.number <= previous:
                raise ValueError(f"{shard.file} is listed after shard {previous}")
            previous = shard.number
        for context in manifest.contexts:
            if not _CONTEXT.match(context.file):
                raise ValueError(f"invalid name of a context: {context.file!r:.60}")
    except KeyError as error:
        raise DatasetCorruptError(f"{source} has no {error.args[0]!r}") from None
    except (TypeError, ValueError, AttributeError, RecursionError, LimitsError, UsageError) as why:
        raise DatasetCorruptError(
            f"{source} is not a manifest of a dataset: {why!s:.500}"
        ) from None
    return manifest


def read_manifest(directory: str | Path) -> Manifest:
    """Return the manifest of the dataset in a directory.

    Errors: UnknownDatasetError if there is none, DatasetCorruptError for a damaged one,
    DatasetStorageError without permission to read it.
    """
    path = Path(directory) / MANIFEST
    try:
        content = read_regular(path)
    except (FileNotFoundError, NotADirectoryError):
        why = f"is not a dataset: it has no {MANIFEST}"
        if not is_directory(directory):
            why = "is not a directory" if os.path.lexists(directory) else "does not exist"
        raise UnknownDatasetError(
            f"{directory} {why}", hint="make a dataset: shioenv generate DIR --count N"
        ) from None
    except PermissionError as error:
        raise DatasetStorageError(
            f"{directory} cannot be read: {error.strerror}",
            hint="choose another directory, or make this one readable for this user",
        ) from None
    except OSError as error:
        raise DatasetCorruptError(f"{path} cannot be read: {error.strerror}") from None
    return decode_manifest(content, str(path))


def shard_file(number: int, compression: str | None = None) -> str:
    """Return the name of a shard's file, relative to the dataset's directory."""
    return f"{DATA}/{number:05}{SHARD_ENDING}{COMPRESSIONS.get(compression or '', '')}"


def _part(value: Any, kind: Any, place: str = "$") -> Any:
    """Convert a part of a manifest to `kind`. Errors: ValueError that names `place`."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ValueError(fault(error, place)) from None


def _compression(value: Any) -> str | None:
    if value is not None and value not in COMPRESSIONS:
        raise ValueError(f"unknown compression {value!r:.60}")
    return None if value is None else str(value)


def _origin(value: Any) -> Mapping[str, Any] | None:
    if value is None:
        return None
    if not isinstance(value, dict) or value.get("kind") not in ORIGINS:
        raise ValueError(f"invalid origin {value!r:.60}")
    if value["kind"] == "filter":
        _part(value, _Filtered, "$.origin")
    if value["kind"] == "merge":
        _part(value, _MergedOrigin, "$.origin")
    return value


def _scoring_json(scoring: Scoring | None) -> dict[str, Any]:
    """Return a manifest's keys about scores; target and process budget only if they are set."""
    if scoring is None:
        return {"budget": 0, "noise_runs": 0}
    names = ("budget", "noise_runs", "estimator")
    document: dict[str, Any] = {name: getattr(scoring, name) for name in names}
    if scoring.target_se is not None:
        document["target_standard_error"] = scoring.target_se
    if scoring.process_budget:
        document["process_budget"] = scoring.process_budget
    return document


def _scoring(document: Mapping[str, Any]) -> Scoring:
    scored = {
        "budget": document["budget"],
        "noise_runs": document["noise_runs"],
        "estimator": document.get("estimator", "paper"),
        "target_se": document.get("target_standard_error"),
        "process_budget": document.get("process_budget", 0),
    }
    scoring: Scoring = _part(scored, Scoring)
    return scoring


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else str(key))
    else:
        yield path, value


def _show(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else f"{text[:199]}…"
