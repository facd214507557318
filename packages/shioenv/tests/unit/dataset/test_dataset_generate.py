"""The records, files and reports of a run, with a fake sandbox in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import msgpack

from shioenv.dataset import record_tasks
from shioenv.dataset.generate import Progress, run
from shioenv.dataset.record_reader import read_records
from shioenv.dataset.verify import verify
from shioenv.errors import GenerationError, SystemMismatchError, UsageError
from shioenv.execution.local import SerialExecutor
from shioenv.sandbox.base import Limits
from shioenv.synthesis.groups import GroupedStream
from shioenv.synthesis.sample import sample as draw
from shioenv.synthesis.traces import Sample
from shioenv.system.store import System
from support.dataset_fakes import (
    FakeRunner,
    contents,
    interspersed,
    make,
    open_fake,
    plan,
    sample,
    samples,
    shards_of,
)


def open_never(system: str, limits: Limits) -> FakeRunner:
    raise AssertionError


def test_running_again_does_nothing_and_opens_nothing(tmp_path: Path) -> None:
    make(tmp_path / "a")
    before = contents(tmp_path / "a")
    again = make(tmp_path / "a", executor=SerialExecutor(open_never))
    assert again.new == 0
    assert contents(tmp_path / "a") == before


def test_progress_counts_what_is_kept(tmp_path: Path) -> None:
    make(tmp_path / "a", 10)
    told: list[Progress] = []
    make(tmp_path / "a", 15, report=told.append)
    assert [one.done for one in told] == [10, 11, 12, 13, 14, 15]
    assert {one.kept for one in told} == {10}
    assert told[-1].executions > 0


def test_a_broken_sandbox_costs_an_attempt_only(tmp_path: Path) -> None:
    stream = [sample("echo", "broken"), *(sample("echo", f"n{number}") for number in range(20))]
    faulty = make(tmp_path / "faulty", 21, stream=stream)
    assert (faulty.retried, faulty.restarts) == (1, 0)
    assert [one.session_id for one in read_records(tmp_path / "faulty")] == list(range(21))
    mended = [sample("echo", "mended"), *stream[1:]]
    assert make(tmp_path / "smooth", 21, stream=mended).retried == 0
    assert (tmp_path / "faulty/data/00000.ndjson").read_bytes().splitlines()[1:] == (
        tmp_path / "smooth/data/00000.ndjson"
    ).read_bytes().splitlines()[1:]


def test_what_fails_every_time_ends_the_run_and_keeps_the_rest(tmp_path: Path) -> None:
    stream = interspersed({5: sample("echo", "always-broken")})
    with pytest.raises(GenerationError, match="record 5 failed in 5 attempts") as caught:
        make(tmp_path / "a", stream=stream)
    assert "its input: echo always-broken" in str(caught.value)
    kept: list[Progress] = []
    make(tmp_path / "a", stream=interspersed({5: sample("echo", "mended")}), report=kept.append)
    assert kept[0].kept == 5
    assert verify(tmp_path / "a").ok


def test_another_system_than_the_plans_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemMismatchError, match="the dataset was made with another build"):
        run(
            tmp_path / "a", plan(system_digest="other"), samples(), count=3,
            system=str(tmp_path), executor=SerialExecutor(open_fake),
        )  # fmt: skip


@pytest.mark.parametrize("count", [0, -3])
def test_nothing_to_do_is_a_wrong_request(tmp_path: Path, count: int) -> None:
    with pytest.raises(UsageError):
        make(tmp_path / "a", count)
    assert not (tmp_path / "a").exists()


def test_what_differs_between_runs_is_volatile(tmp_path: Path) -> None:
    make(tmp_path / "a", 2, stream=[sample("echo", "random"), sample("echo", "steady")])
    assert [one.volatile for one in read_records(tmp_path / "a")] == [True, False]


@pytest.mark.parametrize("fault", ["", "damaged", "of others", "without a shard"])
def test_a_continued_run_draws_only_what_is_not_in_finished_shards(
    tmp_path: Path, system: System, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setattr(record_tasks, "_KEPT_EACH", 2)
    monkeypatch.setattr(record_tasks, "cache_directory", lambda: tmp_path / "cache")
    drawn = []
    new = GroupedStream.new

    def counted(self: GroupedStream, *arguments: Any) -> Sample:
        drawn.append(arguments)
        return new(self, *arguments)

    monkeypatch.setattr(GroupedStream, "new", counted)

    def go(directory: str, count: int) -> int:
        drawn.clear()
        stream = draw(seed=5, policy="mixed", commands=("ls",), count=count, system=system)
        make(tmp_path / directory, count, stream=stream)
        return len(drawn)

    with shards_of(10):
        assert go("whole", 57) == 57
        assert go("a", 45) == 45  # what is kept belongs to other finished shards
        (kept,) = tmp_path.glob("cache/drawn/*")
        if fault == "damaged":
            kept.write_bytes(kept.read_bytes()[:-9])
        if fault == "of others":
            number, inputs, state = msgpack.decode(kept.read_bytes())
            kept.write_bytes(msgpack.encode((number, inputs[::-1], state)))
        if fault == "without a shard":
            (tmp_path / "a/data/00001.ndjson").unlink()
        assert go("a", 57) == (57 if fault else 17)
    assert contents(tmp_path / "a") == contents(tmp_path / "whole")
