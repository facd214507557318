"""Importing an export returns the original records, in every format, for all valid records."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shioenv.behavior.compare import CAP, Channel
from shioenv.dataset.importers import kind_of
from shioenv.dataset.manifest import Plan
from shioenv.dataset.record_reader import read_records
from shioenv.dataset.verify import verify
from shioenv.dataset.write import ShardWriter
from shioenv.domain.behavior import Behavior
from shioenv.domain.context import Context
from shioenv.domain.inputs import Input, session_text
from shioenv.domain.record import (
    READ,
    Effect,
    Record,
    ScoredSegment,
    behavior_fields,
    decode,
    encode,
    share_necessary,
)
from shioenv.domain.runner import ScriptedRunner
from shioenv.irreducibility.scoring import Scoring
from shioenv.sandbox.base import LONGEST_INPUT, Limits
from shioenv.synthesis.drawing import Drawing
from shioenv_eval.export import export
from shioenv_eval.exported_records import import_records

NAMES = ("a.parquet", "a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "hub")
PLAN = Plan(
    drawing=Drawing(sampler="gcs", seed=1, commands=("echo",), start_directories=("/",)),
    scoring=Scoring(budget=8, noise_runs=3),
    system="s",
    system_digest="d",
    grammar_digest="g",
    limits=Limits(),
    version="1",
    origin={
        "kind": "filter",
        "parent": {"manifest_sha256": "0" * 64, "records": 9},
        "selection": {},
    },
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SCORE = st.floats(0, 1) | st.none()

SHA256 = st.binary(min_size=32, max_size=32).map(bytes.hex)
TOKENS = st.lists(TEXT.filter(lambda text: text.replace("<ns>", "")), max_size=4)
LIMITS = ("cpu_seconds", "processes")
"""Limits that are independent of other fields."""


@st.composite
def effects(draw: st.DrawFn) -> Effect:
    """Generate the effects of an argument left out alone, or the mark that it was not left out."""
    matters = draw(st.booleans() | st.none())
    channel = draw(st.sampled_from(Channel)) if matters else None
    contribution = draw(st.floats(-1, 1) | st.none())
    return Effect(leave_one_out=matters, channel=channel, contribution=contribution)


@st.composite
def segments(draw: st.DrawFn, bare: ScoredSegment) -> ScoredSegment:
    """A segment with its score, where it has an argument."""
    told = [draw(effects()) for _ in range(bare.n_arguments)]
    strict = draw(st.floats(0, 1)) if told else None
    return ScoredSegment(
        command=bare.command,
        n_arguments=bare.n_arguments,
        irreducibility=None if strict is None else draw(st.floats(0, strict)),
        irreducibility_strict=strict,
        necessary=share_necessary(told),
        exact=draw(st.booleans()),
        standard_error=draw(SCORE),
        noise_threshold=draw(SCORE),
        volatile=draw(st.booleans()),
        arguments=told,
    )


def pooled(parts: Sequence[ScoredSegment], name: str) -> float | None:
    """The mean of the segments' scores, weighed by their arguments."""
    scored = [(part.n_arguments, getattr(part, name)) for part in parts if part.n_arguments]
    total = sum(weight for weight, _ in scored)
    return math.fsum(weight * score for weight, score in scored) / total if total else None


@st.composite
def scores(draw: st.DrawFn, bare: list[ScoredSegment]) -> dict[str, Any]:
    """The fields of a record's score."""
    parts = [draw(segments(one)) for one in bare]
    n_arguments = sum(part.n_arguments for part in parts)
    exact = n_arguments < 4  # with a budget of 8
    strict = pooled(parts, "irreducibility_strict")
    return {
        "segments": parts,
        "irreducibility": pooled(parts, "irreducibility"),
        "irreducibility_strict": strict,
        "necessary": share_necessary(one for part in parts for one in part.arguments or ()),
        "exact": exact,
        "standard_error": draw(st.sampled_from([0.0, None]) if exact else SCORE),
        "n_executions": draw(st.integers(1, 99)),
        "noise_threshold": draw(st.floats(0, CAP) | st.none()),
    }


@st.composite
def behaviors(draw: st.DrawFn) -> Behavior:
    """Generate an input's behavior, with consistent flags."""
    timed_out, truncated = draw(st.booleans()), draw(st.booleans())
    hit = {name for name in LIMITS if draw(st.booleans())}
    hit |= {"wall_seconds"} if timed_out else set()
    hit |= {"output_bytes"} if truncated else set()
    apart = draw(st.booleans())
    return Behavior(
        124 if timed_out else draw(st.integers(0, 255)),
        draw(st.binary(max_size=20)),
        timed_out=timed_out,
        output_truncated=truncated,
        patch_truncated=draw(st.booleans()),
        volatile=timed_out or not apart or draw(st.booleans()),
        stdout=draw(st.binary(max_size=9)) if apart else None,
        stderr=draw(st.binary(max_size=9)) if apart else None,
        content_digests=draw(st.dictionaries(TEXT, SHA256, max_size=3)),
        limits_hit=tuple(field.name for field in fields(Limits) if field.name in hit),
    )


@st.composite
def records(draw: st.DrawFn) -> list[Record]:
    """Records of one dataset, of any release, scored or not, with numbers that have gaps."""
    scored = draw(st.booleans())
    version = draw(st.sampled_from(READ))
    numbers = draw(st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=5, unique=True))
    made = [
        record(
            number,
            [*draw(TOKENS), str(number)],
            draw if scored else None,
            mistake=draw(TEXT | st.none()),
            history=draw(st.lists(TEXT, max_size=3)),
            schema_version=version,
            **behavior_fields(draw(behaviors())),
        )
        for number in sorted(numbers)
    ]
    return [decode(encode(one)) for one in made]


def record(number: int, tokens: list[str], draw: st.DrawFn | None, **others: Any) -> Record:
    """A record of an input, with a score where one is drawn."""
    shell_input = Input.from_marked(tokens)
    bare = [
        ScoredSegment(command=segment.command, n_arguments=len(segment.arguments))
        for segment in shell_input.segments
    ]
    return Record(
        session_id=number,
        input=session_text("/", shell_input),
        input_args=shell_input.input_args,
        n_arguments=shell_input.n_arguments,
        cwd="/",
        system="s",
        sampler="gcs",
        **(draw(scores(bare)) if draw else {"segments": bare, "irreducibility": None}),
        **others,
    )


def huge() -> list[Record]:
    """An input of the greatest length on Linux, of characters that JSON escapes."""
    text = "\x01" * (LONGEST_INPUT - len("cd /; "))
    return [
        Record(
            session_id=7,
            input=f"cd /; {text}",
            input_args=[text],
            irreducibility=None,
            segments=[ScoredSegment(command=text, n_arguments=0)],
            system="s",
            sampler="gcs",
            cwd="/",
            **behavior_fields(Behavior(0, b"\xff" * 100_000, volatile=True)),
        )
    ]


def written(directory: Path, made: Sequence[Record], **changes: Any) -> bytes:
    """Write a dataset of these records; return its lines."""
    directory.mkdir()
    writer = ShardWriter(directory, replace(PLAN, record_schema=made[0].schema_version, **changes))
    before: Context = ScriptedRunner().context("/")
    writer.keep_contexts([before])
    for record in made:
        writer.add(record)
    writer.finish()
    return b"".join(map(encode, made))


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=12, deadline=None)
@given(made=records(), compression=st.sampled_from([None, "zstd"]))
def test_an_import_undoes_an_export(name: str, made: list[Record], compression: str | None) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        returns(Path(scratch), name, made, compression)


@pytest.mark.parametrize("name", NAMES)
def test_an_input_as_long_as_linux_takes_is_imported(name: str, tmp_path: Path) -> None:
    returns(tmp_path, name, huge(), None)


def returns(there: Path, name: str, made: list[Record], compression: str | None) -> None:
    """Export and import records."""
    scoring = PLAN.scoring if made[0].n_executions else Scoring(budget=0)
    lines = written(there / "dataset", made, compression=compression, scoring=scoring)
    export(there / "dataset", there / name)
    assert kind_of(there / name) == "records"
    manifest = import_records(there / name, there / "again")
    assert not verify(there / "again").problems
    assert b"".join(map(encode, read_records(there / "again", check=True))) == lines
    if name == "hub":
        assert contents(there / "again") == contents(there / "dataset")
    else:
        assert manifest.plan.kind == "records"
        assert (manifest.plan.system, manifest.plan.system_digest) == ("s", "")
        assert manifest.plan.record_schema == made[0].schema_version
