"""What was exported is imported again as it was, in every format, whatever records hold."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shioenv.dataset.export import export
from shioenv.dataset.manifest import Plan
from shioenv.dataset.read import read_records
from shioenv.dataset.records import import_records, kind_of
from shioenv.dataset.write import Writer
from shioenv.domain.behavior import Behavior
from shioenv.domain.context import Context
from shioenv.domain.record import (
    READ,
    Effect,
    Record,
    ScoredSegment,
    behavior_fields,
    decode,
    encode,
)
from shioenv.domain.scripted import ScriptedRunner
from shioenv.irreducibility.scoring import Scoring
from shioenv.sandbox.base import LONGEST_INPUT, Limits
from shioenv.synthesis.drawing import Drawing

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

EFFECTS = st.builds(Effect, leave_one_out=st.booleans() | st.none(), channel=TEXT | st.none(),
                    contribution=st.floats(-1, 1) | st.none())  # fmt: skip
BARE = st.builds(ScoredSegment, command=TEXT, n_arguments=st.integers(0, 9))
SCORED = st.builds(
    ScoredSegment,
    command=TEXT, n_arguments=st.integers(0, 9), irreducibility=SCORE,
    irreducibility_strict=SCORE, necessary=SCORE, exact=st.booleans(), standard_error=SCORE,
    noise_threshold=SCORE, volatile=st.booleans(), arguments=st.lists(EFFECTS, max_size=3),
)  # fmt: skip
BEHAVIORS = st.builds(
    Behavior,
    st.integers(0, 255), st.binary(max_size=20), timed_out=st.booleans(),
    output_truncated=st.booleans(), patch_truncated=st.booleans(), volatile=st.booleans(),
    stdout=st.binary(max_size=9) | st.none(), stderr=st.binary(max_size=9) | st.none(),
    content_digests=st.dictionaries(TEXT, TEXT, max_size=3),
    limits_hit=st.lists(TEXT, max_size=2).map(tuple),
)  # fmt: skip


@st.composite
def records(draw: st.DrawFn) -> list[Record]:
    """Records of one dataset, of any release, with numbers that have gaps."""
    version = draw(st.sampled_from(READ))
    numbers = draw(st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=5, unique=True))
    made = [
        Record(
            session_id=number,
            input=f"{draw(TEXT)}{number}",
            input_args=draw(st.lists(TEXT, max_size=4)),
            irreducibility=draw(SCORE),
            irreducibility_strict=draw(SCORE),
            necessary=draw(SCORE),
            exact=draw(st.booleans()),
            standard_error=draw(SCORE),
            n_arguments=draw(st.integers(0, 99)),
            n_executions=draw(st.integers(0, 99)),
            noise_threshold=draw(SCORE),
            segments=draw(st.lists(BARE | SCORED, max_size=3)),
            cwd="/",
            system="s",
            sampler="gcs",
            mistake=draw(TEXT | st.none()),
            history=draw(st.lists(TEXT, max_size=3)),
            schema_version=version,
            **behavior_fields(draw(BEHAVIORS)),
        )
        for number in sorted(numbers)
    ]
    return [decode(encode(record)) for record in made]


def huge() -> list[Record]:
    """An input as long as Linux takes, of characters that JSON writes longer."""
    text = "\x01" * LONGEST_INPUT
    return [
        Record(session_id=7, input=text, input_args=[text], irreducibility=0.1, system="s",
               sampler="gcs", cwd="/", **behavior_fields(Behavior(0, b"\xff" * 100_000)))
    ]  # fmt: skip


def written(directory: Path, made: Sequence[Record], **changes: Any) -> bytes:
    """A dataset of these records; their lines."""
    directory.mkdir()
    writer = Writer(directory, replace(PLAN, record_schema=made[0].schema_version, **changes))
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
    """Records go out and come back."""
    lines = written(there / "dataset", made, compression=compression)
    export(there / "dataset", there / name)
    assert kind_of(there / name) == "records"
    manifest = import_records(there / name, there / "again")
    assert b"".join(map(encode, read_records(there / "again", check=True))) == lines
    if name == "hub":
        assert contents(there / "again") == contents(there / "dataset")
    else:
        assert manifest.plan.kind == "records"
        assert (manifest.plan.system, manifest.plan.system_digest) == ("s", "")
        assert manifest.plan.record_schema == made[0].schema_version
