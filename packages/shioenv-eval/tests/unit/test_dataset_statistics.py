"""Statistics of a dataset count correctly."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from shioenv.dataset.manifest import read_manifest
from shioenv.dataset.store import Store
from shioenv.domain.record import Record, encode
from shioenv.errors import DatasetCorruptError
from shioenv.irreducibility.scoring import Scoring
from shioenv.recording.effort import Line
from shioenv.recording.session import SessionRecorder
from shioenv.seeding import generator
from shioenv.synthesis.traces import Sample
from shioenv_eval.report.statistics import statistics, statistics_of
from support.dataset_fakes import FakeRunner, keep_contexts, plan, sample

STREAM = [
    sample("echo", "n0"),
    sample("touch", "n1", "a", "useless", "bytes"),
    sample("echo"),
    sample("echo", "n3", "-l<ns>", "<ns>a", "b", "c", "d"),
    sample("echo", "n4", "a", "&&", "ls", "useless", "x"),
    sample("touch", "n5", "|", "grep", "-q", "a", ">", "out.txt"),
]


def record_of(
    one: Sample, number: int, runner: FakeRunner, budget: int, rng: Random, **how: Any
) -> Record:
    recorder = SessionRecorder(scoring=Scoring(budget=budget), **how)
    recorded = recorder.record(one.session, runner, rng, volatile=one.volatile)
    return recorded.record(number, system="fake", sampler="gcs")


def made(number: int, one: Sample, **changes: Any) -> Record:
    rng = generator(plan().drawing.seed, "score", number)
    return replace(record_of(one, number, FakeRunner("/nonexistent"), 8, rng), **changes)


def write(directory: Path, records: list[Record]) -> Path:
    with Store(directory, plan(), len(records), kernel="6.1.0") as store:
        keep_contexts(store)
        for number, one in enumerate(records):
            store.accept(number, one.input, one.input_args)
            store.append(Line(number, encode(one), one.volatile, one.n_executions))
    return directory


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return [made(number, one) for number, one in enumerate(STREAM)]


def test_statistics_count_what_is_there(tmp_path: Path, records: list[Record]) -> None:
    found = statistics(write(tmp_path, records))
    assert found.records == 6
    assert (found.sampler, found.seed, found.budget, found.system) == ("gcs", 7, 8, "fake")
    assert {name: group.records for name, group in found.by_command.items()} == {
        "echo": 4, "touch": 2,
    }  # fmt: skip
    assert {n: group.records for n, group in found.by_arguments.items()} == {
        0: 1, 1: 1, 3: 1, 4: 2, 6: 1,
    }  # fmt: skip
    assert found.by_segments.keys() == {1, 2}
    assert {name: group.records for name, group in found.by_composition.items()} == {
        "one command": 4, "and-or": 1, "pipe + redirection": 1,
    }  # fmt: skip
    assert sum(found.by_exit_code.values()) == 6
    assert found.failed == 6 - found.by_exit_code.get(0, 0)
    assert found.changed == sum(one.context_patch != "[]" for one in records)
    scores = [one.irreducibility for one in records if one.irreducibility is not None]
    assert found.irreducibility.scored == len(scores) == 5
    assert found.irreducibility.mean == pytest.approx(sum(scores) / 5)
    assert sum(found.irreducibility.bins) == 5
    assert found.mean_executions == pytest.approx(sum(one.n_executions for one in records) / 6)
    assert found.mean_executions == read_manifest(tmp_path).mean_executions
    json.dumps(found.to_json())


def test_statistics_are_of_what_the_manifest_describes(
    tmp_path: Path, records: list[Record]
) -> None:
    shard = write(tmp_path, records) / "data/00000.ndjson"
    shard.write_bytes(shard.read_bytes().replace(b'"irreducibility":1.0', b'"irreducibility":0.5'))
    with pytest.raises(DatasetCorruptError, match="was changed"):
        statistics(tmp_path)


def test_statistics_count_the_limits_reached(records: list[Record]) -> None:
    reached = [
        replace(one, limits_hit=["cpu_seconds", "processes"][number % 2 :])
        for number, one in enumerate(records)
    ]
    found = statistics_of(reached, plan())
    assert list(found.limits_hit.items()) == [("processes", 6), ("cpu_seconds", 3)]


def test_statistics_of_nothing_are_empty() -> None:
    def none() -> Iterator[Record]:
        yield from ()

    found = statistics_of(none(), plan())
    assert found.records == 0
    assert found.mean_executions is None
    assert found.irreducibility.mean is None
