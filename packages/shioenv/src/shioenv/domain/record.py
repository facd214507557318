"""Dataset records: their fields, encoding and decoding.

The structs below are the only declaration of a record, with the paper's seven fields first. The
JSON, the columns of an export, the dataset card and `docs/reference/record.md` are derived from
them.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Iterable
from itertools import chain
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, field

from shioenv.domain.behavior import Behavior, output_text
from shioenv.domain.inputs import published_input
from shioenv.domain.patch import ContextPatch
from shioenv.errors import PatchError, RecordError, did_you_mean
from shioenv.files.documents import fault
from shioenv.text import html_table, short_repr

SCHEMA_VERSION: Final = 6
"""Incremented whenever a field is added, removed, or changes its meaning."""
READ: Final = (3, 4, 5, SCHEMA_VERSION)
"""Supported record versions.

A dataset keeps the version of its records; older ones cannot be extended. Version 3 lacks
`necessary`, which is then computed from the runs that omit one argument. Versions 3 and 4 lack
`mistake` and `history`, which are then null and empty. In versions 3 to 5, `content_digests` is an
object keyed by file names, and segments lack `executed`. Their patches have no operation for a
change of content alone. In inputs after a history, a moved file may be listed as removed and added.
"""

Whole: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""A signed 64-bit integer."""
Number: TypeAlias = Annotated[float, Meta(gt=-(2.0**63), lt=2.0**63)]
"""A finite number strictly between -2^63 and 2^63."""
Unscored: TypeAlias = Number | UnsetType | None
"""A `Number`, null, or absent."""


def describe(meaning: str) -> Meta:
    """Return the description of a field, for its annotation."""
    return Meta(description=meaning)


class ContentDigest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The digest of one file's content."""

    name: Annotated[str, describe("the file's name in the context")]
    sha256: Annotated[str, describe("SHA-256 of the content, hexadecimal")]


class Effect(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The effect of one argument, derived from the executions that the score needs anyway."""

    leave_one_out: Annotated[
        bool | None,
        describe("whether omitting it alone changes the behavior; null if that was not executed"),
    ]
    channel: Annotated[str | None, describe("the channel that differs then; null if none does")]
    contribution: Annotated[
        Number | None,
        describe(
            "share of the evaluated sub-inputs without the argument that behave differently from "
            "the full input, minus this share among those with the argument, -1 to 1; null if all "
            "of them have the argument, or none has it"
        ),
    ]


class ScoredSegment(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The score of one command.

    Records released elsewhere have only the first three fields; the others are absent.
    """

    command: Annotated[str, describe("name of the command")]
    n_arguments: Annotated[Whole, describe("number of its removable arguments")]
    executed: Annotated[bool | None, describe("whether the shell executed it; null if unknown")] = (
        None
    )
    irreducibility: Annotated[Unscored, describe("0 to 1; null if no argument can be removed")] = (
        UNSET
    )
    irreducibility_strict: Annotated[
        Unscored, describe("the same, but outputs must be equal byte for byte")
    ] = UNSET
    necessary: Annotated[
        Unscored,
        describe("share of its arguments whose omission alone changes the behavior, or null"),
    ] = UNSET
    exact: Annotated[bool | UnsetType, describe("whether all proper sub-inputs were evaluated")] = (
        UNSET
    )
    standard_error: Annotated[Unscored, describe("of `irreducibility`; 0 if exact")] = UNSET
    noise_threshold: Annotated[
        Unscored,
        describe("similarity above which outputs count as equal, for the input up to this command"),
    ] = UNSET
    volatile: Annotated[bool | UnsetType, describe("whether its noise runs differ")] = UNSET
    arguments: Annotated[list[Effect] | UnsetType, describe("one for each argument, in order")] = (
        UNSET
    )


class Record(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One executed and scored input. Fields are in the order on disk, the paper's seven first."""

    session_id: Annotated[Whole, describe("number of the sample, unique in its dataset")]
    input: Annotated[
        str,
        describe(
            "the input, prefixed with `cd DIR; `. The prefix is not executed: the shell starts in "
            "DIR"
        ),
    ]
    input_args: Annotated[
        list[str],
        describe(
            "tokens of the input, command first, without the `cd`; no-space marks (`<ns>`) show "
            "which are written together"
        ),
    ]
    exit_code: Annotated[Whole, describe("of the last command; 124 at the limit of wall time")]
    output: Annotated[
        str, describe("standard output and error in order of arrival; undecodable bytes are U+FFFD")
    ]
    context_patch: Annotated[
        str, describe("all changes: minified JSON list of `a`, `=`, `r`, `m` operations")
    ]
    irreducibility: Annotated[Number | None, describe("0 to 1; null if no argument can be removed")]
    irreducibility_strict: Annotated[
        Number | None, describe("the same, but outputs must be equal byte for byte")
    ] = None
    necessary: Annotated[
        Number | None,
        describe(
            "share of the arguments whose omission alone changes the behavior, 0 to 1; null if no "
            "argument can be removed, or an omission was not executed"
        ),
    ] = None
    exact: Annotated[bool, describe("whether all proper sub-inputs were evaluated")] = False
    standard_error: Annotated[
        Number | None,
        describe(
            "standard error of `irreducibility`: 0 if exact; null if undefined, or if only one "
            "sub-input was sampled"
        ),
    ] = None
    n_arguments: Annotated[Whole, describe("number of removable arguments")] = 0
    n_executions: Annotated[
        Whole, describe("number of executions for the score, including those answered by a cache")
    ] = 0
    noise_threshold: Annotated[
        Number | None, describe("similarity above which outputs count as equal, for the full input")
    ] = None
    segments: Annotated[
        list[ScoredSegment], describe("per command: its scores, and the effect of each argument")
    ] = field(default_factory=list)
    stdout: Annotated[
        str | None,
        describe("standard output; null if the run with separate pipes differed from the first"),
    ] = None
    stderr: Annotated[str | None, describe("standard error; null if `stdout` is")] = None
    output_b64: Annotated[
        str | None, describe("bytes of the output in base64, if `output` cannot represent them")
    ] = None
    content_digests: Annotated[
        list[ContentDigest],
        describe("SHA-256 of each added or modified file, sorted by name in the context"),
    ] = field(default_factory=list)
    timed_out: Annotated[bool, describe("whether the run reached the limit of wall time")] = False
    output_truncated: Annotated[bool, describe("whether the output was truncated")] = False
    limits_hit: Annotated[list[str], describe("names of the limits that the run reached")] = field(
        default_factory=list
    )
    patch_truncated: Annotated[bool, describe("whether the patch lacks changes")] = False
    shell_state_known: Annotated[
        bool, describe("whether `context_patch` includes changes of the shell's state")
    ] = False
    volatile: Annotated[bool, describe("whether the behavior may vary between runs")] = False
    cwd: Annotated[str, describe("the start directory")] = ""
    system: Annotated[str, describe("name of the system")] = ""
    sampler: Annotated[str, describe("source of the input: the sampler, or a label")] = ""
    mistake: Annotated[
        str | None, describe("class of the mistake that was inserted into the input, or null")
    ] = None
    history: Annotated[
        list[str],
        describe(
            "earlier inputs of the same shell, oldest first; the first of them started in `cwd`. "
            "`context_patch` applies to the context after them"
        ),
    ] = field(default_factory=list)
    schema_version: Annotated[Whole, describe("version of this format")] = SCHEMA_VERSION

    def __repr__(self) -> str:
        names = ("session_id", "input", "exit_code", "irreducibility", "n_arguments")
        return short_repr(self, {name: getattr(self, name) for name in names})

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        from shioenv.domain.readable import changes, outcome

        reached = tuple(self.limits_hit)
        ending = Behavior(self.exit_code, b"", timed_out=self.timed_out, limits_hit=reached)
        try:
            patch = ContextPatch.from_json(self.context_patch)
            listed = [str(one) for one in changes(patch.operations, self.cwd)]
        except PatchError:
            listed = [self.context_patch]
        score = "undefined" if self.irreducibility is None else f"{self.irreducibility:.3f}"
        return html_table(
            {
                "record": str(self.session_id),
                "input": self.input,
                "result": outcome(ending),
                "irreducibility": score,
                "output": self.output,
                "changes": listed,
            }
        )

    @property
    def typed(self) -> str:
        """The input without the start directory's `cd`, as in a history."""
        return self.input.removeprefix(published_input(self.cwd, ""))

    @property
    def output_bytes(self) -> bytes:
        """The output as the original bytes."""
        if self.output_b64 is None:
            return self.output.encode()
        return base64.b64decode(self.output_b64)

    @property
    def is_cut(self) -> bool:
        """Whether the input was stopped, or its output or patch cut, by a limit."""
        return self.timed_out or self.output_truncated or self.patch_truncated

    def behavior(self) -> Behavior:
        """The recorded behavior, without the limit flags; see `behavior_fields`.

        `timed_out`, `output_truncated`, `patch_truncated`, `limits_hit` and `shell_state_known`
        have their defaults. Errors: PatchError.
        """

        def data(text: str | None) -> bytes | None:
            return None if text is None else text.encode()

        return Behavior(
            exit_code=self.exit_code,
            output=self.output_bytes,
            patch=ContextPatch.from_json(self.context_patch),
            stdout=data(self.stdout),
            stderr=data(self.stderr),
            content_digests={one.name: one.sha256 for one in self.content_digests},
            volatile=self.volatile,
        )


NAMES = Record.__struct_fields__
"""All fields in written order."""

_WITHOUT_NECESSARY = 3
DIGESTS_BY_NAME: Final = 5
"""The last version in which `content_digests` is an object keyed by file names."""
_SINCE = {"necessary": 4, "mistake": 5, "history": 5, "executed": 6}
"""The record version that introduced a field."""
_PARTS = (ScoredSegment, Effect, ContentDigest)
_KNOWN = (*NAMES, *chain.from_iterable(part.__struct_fields__ for part in _PARTS))
_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`")
_RECORD = msgspec.json.Decoder(Record)


class _DigestsByName(Record, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A record of version 3, 4 or 5."""

    content_digests: dict[str, str] = field(default_factory=dict)  # type: ignore[assignment]


_EARLIER = msgspec.json.Decoder(_DigestsByName)
_KEYS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def behavior_fields(behavior: Behavior) -> dict[str, Any]:
    """Return the record fields that hold a behavior, for `Record(**behavior_fields(b), ...)`."""
    output, output_b64 = output_text(behavior.output)
    same = ("exit_code", "timed_out", "output_truncated", "patch_truncated")
    return {
        **{name: getattr(behavior, name) for name in (*same, "shell_state_known", "volatile")},
        "output": output,
        "context_patch": behavior.patch.to_json(),
        "stdout": _text(behavior.stdout),
        "stderr": _text(behavior.stderr),
        "output_b64": output_b64,
        "content_digests": [
            ContentDigest(name=name, sha256=digest)
            for name, digest in sorted(behavior.content_digests.items())
        ],
        "limits_hit": list(behavior.limits_hit),
    }


def different_fields(first: Record, second: Record) -> tuple[str, ...]:
    """Return the names of the fields that differ between two records, in the order on disk."""
    return tuple(name for name in NAMES if getattr(first, name) != getattr(second, name))


def share_necessary(effects: Iterable[Effect]) -> float | None:
    """Return the share of arguments whose omission alone changes the behavior, 0 to 1.

    None if there are no arguments, or if an argument's omission was not run.
    """
    told = [effect.leave_one_out for effect in effects]
    known = [changes for changes in told if changes is not None]
    return sum(known) / len(told) if told and len(known) == len(told) else None


def encode(record: Record) -> bytes:
    """Encode a record as one line of minified JSON in UTF-8, with a final newline.

    Equal records give equal bytes. A record of an earlier schema version is written in that
    version's format. Errors: RecordError for text that UTF-8 cannot represent (a lone surrogate).
    """
    # msgspec writes some floats differently (1e-7 instead of 1e-07), so the standard library is
    # used
    document = msgspec.to_builtins(record)
    for name, version in _SINCE.items():
        if record.schema_version < version:
            for part in (document, *document["segments"]):
                part.pop(name, None)
    if record.schema_version <= DIGESTS_BY_NAME:
        document["content_digests"] = {one.name: one.sha256 for one in record.content_digests}
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return _utf8(f"{text}\n", record.session_id)


def _utf8(text: str, session_id: Any) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise RecordError(
            f"record {session_id}: not valid UTF-8: {error.object[error.start]!r}"
        ) from None


def decode(line: bytes | str) -> Record:
    """Decode a record written by `encode`.

    Errors: RecordError if the line is no JSON object, lacks a field, or has an unknown one.
    RecordError for a schema version that is not in `READ`. RecordError, with path and both types,
    for a value of a wrong type. RecordError for a number that is not finite or needs more than 64
    bits, and for text that UTF-8 cannot represent.
    """
    try:
        present = _KEYS.decode(line)
        version = msgspec.json.decode(present.get("schema_version", b"0"), type=int)
        record = _earlier(line) if version <= DIGESTS_BY_NAME else _RECORD.decode(line)
    except (ValueError, RecursionError) as error:
        raise _refusal(line, error) from None
    if version not in READ or len(present) < len(_names(version)):
        raise _refusal(line, ValueError())
    return _with_necessary(record) if version == _WITHOUT_NECESSARY else record


def _earlier(line: bytes | str) -> Record:
    """Decode a record of version 3, 4 or 5, and convert `content_digests` to the current form."""
    read = _EARLIER.decode(line)
    fields = {name: getattr(read, name) for name in NAMES}
    digests = [ContentDigest(name=name, sha256=one) for name, one in read.content_digests.items()]
    return Record(**{**fields, "content_digests": digests})


def _names(version: object) -> tuple[str, ...]:
    """Return the names of the fields of a record of this version."""
    known = version if isinstance(version, int) else SCHEMA_VERSION
    return tuple(name for name in NAMES if _SINCE.get(name, 0) <= known)


def _with_necessary(record: Record) -> Record:
    """Add `necessary`, computed from the effects of single arguments, to a record without it."""
    effects = [part.arguments for part in record.segments if part.arguments is not UNSET]
    segments = [
        part
        if part.arguments is UNSET
        else msgspec.structs.replace(part, necessary=share_necessary(part.arguments))
        for part in record.segments
    ]
    necessary = share_necessary(chain.from_iterable(effects))
    return msgspec.structs.replace(record, necessary=necessary, segments=segments)


def _refusal(line: bytes | str, error: Exception) -> RecordError:
    """Return the most informative error for an invalid line. `error` is the one of msgspec."""
    try:
        document = json.loads(line, parse_constant=_finite, parse_float=_finite, parse_int=_whole)
    except ValueError as malformed:
        return RecordError(f"not a record: {malformed}")
    except RecursionError:
        return RecordError("not a record: nested too deeply")
    if not isinstance(document, dict):
        return RecordError(f"not a record: expected an object, got {type(document).__name__}")
    if "schema_version" not in document:
        return RecordError("not a record: it has no 'schema_version'")
    version = document["schema_version"]
    if version not in READ:
        return RecordError(
            f"unsupported schema version {version!r}; this release reads up to {SCHEMA_VERSION}",
            hint="use the release that wrote it",
        )
    try:
        _utf8(json.dumps(document, ensure_ascii=False), document.get("session_id"))
    except RecordError as surrogate:
        return surrogate
    if unknown := _UNKNOWN.match(str(error)):
        return RecordError(fault(error), hint=did_you_mean(unknown[1], _KNOWN))
    for name in _names(version):
        if name not in document:
            return RecordError(f"a record has no field {name!r}")
    return RecordError(fault(error))


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text:.40} is not a finite number")
    return number


def _whole(text: str) -> int:
    number = int(text)
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"{text:.40} exceeds 64 bits")
    return number


def _text(output: bytes | None) -> str | None:
    return None if output is None else output.decode("utf-8", "replace")
