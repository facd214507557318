"""A dataset record: the paper's seven fields, then ours; encode and decode."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from shioenv.domain.behavior import Behavior
from shioenv.errors import RecordError, did_you_mean

SCHEMA_VERSION = 2
"""Raised whenever a field is added, removed, or changes its meaning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One executed and scored input. Field order is the order on disk: the paper's seven first."""

    session_id: int
    """Identifies the sample in its dataset."""
    input: str
    """The whole input, the start directory's `cd` included."""
    input_args: list[str]
    """Its tokens with no-space marks, the command first; without the `cd`."""
    exit_code: int
    """Of the last command; 124 where the wall time ran out."""
    output: str
    """Standard output and error in arrival order; undecodable bytes are U+FFFD."""
    context_patch: str
    """What changed: minified JSON list of `a`, `=`, `r`, `m` operations."""
    irreducibility: float | None
    """0 to 1; None where no argument can be removed."""
    irreducibility_strict: float | None = None
    """The same from byte-equal outputs where the runs allow it (ours, because a deterministic
    output's small differences are effects too)."""
    exact: bool = False
    """Every proper sub-input was looked at, not a sample."""
    standard_error: float | None = None
    """Of `irreducibility`; 0 where exact, None where undefined."""
    n_arguments: int = 0
    """How many arguments could be removed."""
    n_executions: int = 0
    """How many executions the score took."""
    noise_threshold: float | None = None
    """Similarity above which outputs count as the same; of the full input."""
    segments: list[dict[str, Any]] = field(default_factory=list)
    """Per command: `command`, `n_arguments`, `irreducibility`, what else its score says, and the
    effect of each of its `arguments`."""
    stdout: str | None = None
    """Standard output of a run with two pipes, as text."""
    stderr: str | None = None
    """Standard error of a run with two pipes, as text."""
    output_b64: str | None = None
    """The output's bytes in base64 where `output` could not hold them, else None."""
    content_digests: dict[str, str] = field(default_factory=dict)
    """SHA-256 of each file added or modified, by its name in the context."""
    timed_out: bool = False
    """The wall time ran out."""
    output_truncated: bool = False
    """More was written than is kept."""
    limits_hit: list[str] = field(default_factory=list)
    """The limits of the run that it reached, by their names in `Limits` and in its order."""
    patch_truncated: bool = False
    """More changed than `context_patch` may hold."""
    volatile: bool = False
    """Another run may do something else."""
    cwd: str = ""
    """The start directory."""
    system: str = ""
    """The system's name."""
    sampler: str = ""
    """What wrote the input."""
    schema_version: int = SCHEMA_VERSION
    """Of this layout."""

    @property
    def output_bytes(self) -> bytes:
        """The output's own bytes."""
        if self.output_b64 is None:
            return self.output.encode()
        return base64.b64decode(self.output_b64)


NAMES = tuple(item.name for item in fields(Record))
"""Every field in the order it is written."""

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
"""The escape of half a character."""


def behavior_fields(behavior: Behavior) -> dict[str, Any]:
    """The record fields that a behavior fills, by name: `Record(**behavior_fields(b), ...)`."""
    output, output_b64 = output_text(behavior.output)
    return {
        "exit_code": behavior.exit_code,
        "output": output,
        "context_patch": behavior.patch.to_json(),
        "stdout": _text(behavior.stdout),
        "stderr": _text(behavior.stderr),
        "output_b64": output_b64,
        "content_digests": dict(sorted(behavior.content_digests.items())),
        "timed_out": behavior.timed_out,
        "output_truncated": behavior.output_truncated,
        "limits_hit": list(behavior.limits_hit),
        "patch_truncated": behavior.patch_truncated,
        "volatile": behavior.volatile,
    }


def output_text(output: bytes) -> tuple[str, str | None]:
    """The output as text, and its base64 where the text does not hold all of it (D-8)."""
    try:
        return output.decode("utf-8"), None
    except UnicodeDecodeError:
        return output.decode("utf-8", "replace"), base64.b64encode(output).decode("ascii")


def encode(record: Record) -> bytes:
    """The record as one line of minified JSON, UTF-8, ended by a newline; equal records give equal
    bytes. RecordError for text that UTF-8 cannot hold (a lone surrogate).
    """
    document = {name: getattr(record, name) for name in NAMES}
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return _utf8(f"{text}\n", record.session_id)


def _utf8(text: str, session_id: int) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise RecordError(
            f"record {session_id}: UTF-8 cannot hold {error.object[error.start]!r}"
        ) from None


def decode(line: bytes | str) -> Record:
    """The record that `encode` wrote.

    Errors: RecordError where the line is not a JSON object, lacks one of the paper's fields, has an
    unknown one, holds a value of another type (path and both types named), a number that is not
    finite or does not fit into 64 bits, or text that UTF-8 cannot hold, or is of another schema
    version.
    """
    try:
        text = line if isinstance(line, str) else line.decode()
        document = json.loads(text, parse_constant=_finite, parse_float=_finite, parse_int=_whole)
    except ValueError as error:
        raise RecordError(f"not a record: {error}") from None
    except RecursionError:
        raise RecordError("not a record: nested too deeply") from None
    if not isinstance(document, dict):
        raise RecordError(f"not a record: expected an object, got {type(document).__name__}")
    version = document.get("schema_version")
    if version != SCHEMA_VERSION:
        raise RecordError(
            f"record of schema version {version!r}, this is {SCHEMA_VERSION}",
            hint="read it with the release that wrote it",
        )
    unknown = [name for name in document if name not in NAMES]
    if unknown:
        raise RecordError(
            f"a record has no field {unknown[0]!r}", hint=did_you_mean(unknown[0], NAMES)
        )
    _check(document)
    if isinstance(line, str) or _SURROGATE.search(text):
        _utf8(json.dumps(document, ensure_ascii=False), document["session_id"])
    return Record(**document)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text:.40} is no finite number")
    return number


def _whole(text: str) -> int:
    number = int(text)
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"{text:.40} does not fit into 64 bits")
    return number


_TYPES: Mapping[str, tuple[type, ...]] = {
    "session_id": (int,),
    "input": (str,),
    "input_args": (list,),
    "exit_code": (int,),
    "output": (str,),
    "context_patch": (str,),
    "irreducibility": (float, int, type(None)),
    "irreducibility_strict": (float, int, type(None)),
    "exact": (bool,),
    "standard_error": (float, int, type(None)),
    "n_arguments": (int,),
    "n_executions": (int,),
    "noise_threshold": (float, int, type(None)),
    "segments": (list,),
    "stdout": (str, type(None)),
    "stderr": (str, type(None)),
    "output_b64": (str, type(None)),
    "content_digests": (dict,),
    "timed_out": (bool,),
    "output_truncated": (bool,),
    "limits_hit": (list,),
    "patch_truncated": (bool,),
    "volatile": (bool,),
    "cwd": (str,),
    "system": (str,),
    "sampler": (str,),
    "schema_version": (int,),
}


def _check(document: Mapping[str, Any]) -> None:
    for name in NAMES:
        if name not in document:
            raise RecordError(f"a record lacks {name!r}")
        value, expected = document[name], _TYPES[name]
        if not isinstance(value, expected) or (isinstance(value, bool) and bool not in expected):
            wanted = " or ".join("null" if t is type(None) else t.__name__ for t in expected)
            raise RecordError(f"expected {wanted}, got {type(value).__name__} - at $.{name}")
    _check_items("input_args", document["input_args"], str)
    _check_items("segments", document["segments"], dict)
    _check_items("limits_hit", document["limits_hit"], str)
    _check_items("content_digests", list(document["content_digests"].values()), str)


def _check_items(name: str, items: Sequence[Any], expected: type) -> None:
    for number, item in enumerate(items):
        if not isinstance(item, expected):
            got = type(item).__name__
            raise RecordError(f"expected {expected.__name__}, got {got} - at $.{name}[{number}]")


def _text(output: bytes | None) -> str | None:
    return None if output is None else output.decode("utf-8", "replace")
