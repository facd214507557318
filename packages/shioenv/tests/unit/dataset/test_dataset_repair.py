"""A damaged shard is regenerated; verified, kept and differing records are reported."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from shioenv.dataset.generate import run
from shioenv.dataset.manifest import read_manifest
from shioenv.dataset.repair import Repaired, repair, repair_with
from shioenv.dataset.select import Selection, select
from shioenv.dataset.verify import verify
from shioenv.errors import DatasetCorruptError, RepairError
from shioenv.execution.local import SerialExecutor
from shioenv.files.journal import checksummed
from shioenv.synthesis.traces import Sample
from support.dataset_fakes import contents, open_fake, plan, sample, samples, shards_of

SHARD = 60
COUNT = SHARD + 50
SERIAL = SerialExecutor(open_fake)
SECOND = "data/00001.ndjson"


def stream(count: int) -> Iterator[Sample]:
    return islice(samples(), count)


def volatile(count: int) -> Iterator[Sample]:
    for number, one in enumerate(islice(samples(), count)):
        yield sample("echo", f"n{number}", "random") if number in {SHARD + 7, SHARD + 30} else one


@pytest.fixture(scope="module", autouse=True)
def small_shards() -> Iterator[None]:
    with shards_of(SHARD):
        yield


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("scratch"))


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory, scratch: str) -> tuple[Path, Path]:
    directory = tmp_path_factory.mktemp("repair")
    return (
        make(directory / "sound", scratch, stream(COUNT)),
        make(directory / "volatile", scratch, volatile(COUNT)),
    )


@pytest.fixture
def dataset(tmp_path: Path, made_once: tuple[Path, Path]) -> Path:
    return shutil.copytree(made_once[0], tmp_path / "dataset")


@pytest.fixture
def volatile_dataset(tmp_path: Path, made_once: tuple[Path, Path]) -> Path:
    return shutil.copytree(made_once[1], tmp_path / "volatile")


def make(directory: Path, scratch: str, stream: Iterator[Sample]) -> Path:
    run(directory, plan(), stream, count=COUNT, system=scratch, executor=SERIAL)
    return directory


def mend(directory: Path, scratch: str) -> Repaired:
    (one,) = repair_with(directory, stream, system=scratch, executor=SERIAL)
    return one


def test_a_lost_shard_comes_back_byte_for_byte(dataset: Path, scratch: str) -> None:
    before = contents(dataset)
    (dataset / SECOND).unlink()
    assert verify(dataset).damaged == (SECOND,)
    made = mend(dataset, scratch)
    assert (made.file, made.was, made.identical, made.differing) == (SECOND, "gone", True, {})
    assert contents(dataset) == before


def test_a_changed_record_is_named_with_its_fields(dataset: Path, scratch: str) -> None:
    before = contents(dataset)
    lines = (dataset / SECOND).read_bytes().splitlines(keepends=True)
    lines[3] = re.sub(rb'"exit_code":\d+', b'"exit_code":77', lines[3])
    lines[9] = b"garbage\n"
    (dataset / SECOND).write_bytes(b"".join(lines))
    report = verify(dataset)
    assert report.damaged == (SECOND,)
    assert report.to_json()["damaged"] == (SECOND,)
    made = mend(dataset, scratch)
    assert made.was == "changed"
    assert made.identical
    assert made.differing == {SHARD + 3: ("exit_code",)}
    assert contents(dataset) == before


def test_surviving_volatile_records_are_put_back(volatile_dataset: Path, scratch: str) -> None:
    dataset = volatile_dataset
    before = contents(dataset)
    lines = (dataset / SECOND).read_bytes().splitlines(keepends=True)
    (dataset / SECOND).write_bytes(b"".join(lines[:40]))
    (made,) = repair_with(dataset, volatile, system=scratch, executor=SERIAL)
    assert made.identical
    assert made.salvaged == 2
    assert contents(dataset) == before


def lines_of(dataset: Path) -> list[bytes]:
    return (dataset / SECOND).read_bytes().splitlines(keepends=True)


def test_surviving_volatile_records_are_kept_beside_new_ones(
    volatile_dataset: Path, scratch: str
) -> None:
    dataset = volatile_dataset
    before = lines_of(dataset)
    (dataset / SECOND).write_bytes(b"".join(before[:20]))  # of two, the first
    (made,) = repair_with(dataset, volatile, system=scratch, executor=SERIAL)
    assert (made.identical, made.volatile, made.salvaged) == (False, 2, 1)
    after = lines_of(dataset)
    assert [n for n, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1]] == [
        30
    ]
    assert verify(dataset).ok


def test_a_volatile_record_that_contradicts_itself_is_not_kept(
    volatile_dataset: Path, scratch: str
) -> None:
    dataset = volatile_dataset
    lines = lines_of(dataset)[:20]
    lines[7] = re.sub(rb'"exit_code":\d+', b'"exit_code":777', lines[7])
    (dataset / SECOND).write_bytes(b"".join(lines))
    (made,) = repair_with(dataset, volatile, system=scratch, executor=SERIAL)
    assert (made.identical, made.salvaged) == (False, 0)
    assert verify(dataset).ok


def test_a_changed_volatile_record_is_made_again(volatile_dataset: Path, scratch: str) -> None:
    dataset = volatile_dataset
    before = lines_of(dataset)
    changed = re.sub(rb'"exit_code":\d+', b'"exit_code":77', before[7])
    (dataset / SECOND).write_bytes(b"".join([*before[:7], changed, *before[8:]]))
    (made,) = repair_with(dataset, volatile, system=scratch, executor=SERIAL)
    assert (made.identical, made.salvaged) == (False, 0)
    assert b'"exit_code":77,' not in lines_of(dataset)[7]
    assert verify(dataset).ok


def test_volatile_records_explain_no_other_that_comes_out_otherwise(
    volatile_dataset: Path, scratch: str
) -> None:
    dataset = volatile_dataset
    lines = lines_of(dataset)
    lines[9] = re.sub(rb'"exit_code":\d+', b'"exit_code":77', lines[9])
    content = b"".join(lines)
    manifest = json.loads((dataset / "manifest.json").read_bytes())
    manifest["shards"][1]["sha256"] = hashlib.sha256(content).hexdigest()
    (dataset / "manifest.json").write_text(json.dumps(manifest))
    (dataset / SECOND).write_bytes(b"".join(lines[:45]))
    before = contents(dataset)
    with pytest.raises(RepairError, match="no volatile record was lost"):
        tuple(repair_with(dataset, volatile, system=scratch, executor=SERIAL))
    assert contents(dataset) == before


def test_lost_volatile_records_are_said_to_be_others(volatile_dataset: Path, scratch: str) -> None:
    dataset = volatile_dataset
    before = read_manifest(dataset)
    (dataset / SECOND).unlink()
    (made,) = repair_with(dataset, volatile, system=scratch, executor=SERIAL)
    assert not made.identical
    assert made.volatile == 2
    after = read_manifest(dataset)
    assert after.shards[0] == before.shards[0]
    assert after.shards[1].inputs_sha256 == before.shards[1].inputs_sha256
    assert after.shards[1].sha256 != before.shards[1].sha256
    noted = {"file": SECOND, "was_sha256": before.shards[1].sha256, "volatile": 2}
    assert after.repaired == (noted,)
    assert verify(dataset).ok
    again = run(dataset, plan(), volatile(COUNT), count=COUNT, system=scratch, executor=SERIAL)
    assert again.new == 0
    assert again.manifest.repaired == (noted,)


def test_other_inputs_are_never_written(dataset: Path, scratch: str) -> None:
    (dataset / SECOND).write_bytes(b"")
    before = contents(dataset)
    with pytest.raises(DatasetCorruptError, match="inputs of its seed"):
        tuple(
            repair_with(
                dataset,
                lambda count: islice(samples(seed=8), count),
                system=scratch,
                executor=SERIAL,
            )
        )
    assert contents(dataset) == before


def test_other_bytes_without_a_volatile_record_are_never_written(
    dataset: Path, scratch: str
) -> None:
    path = dataset / "manifest.json"
    document = json.loads(path.read_bytes())
    document["shards"][1]["sha256"] = "0" * 64
    path.write_text(json.dumps(document))
    before = contents(dataset)
    with pytest.raises(RepairError, match="no volatile record was lost"):
        mend(dataset, scratch)
    assert contents(dataset) == before


def test_what_a_killed_repair_left_takes_no_part(volatile_dataset: Path, scratch: str) -> None:
    dataset = volatile_dataset
    before = contents(dataset)
    lines = lines_of(dataset)
    (dataset / SECOND).write_bytes(b"".join(lines[:40]))
    other = re.sub(rb'"exit_code":\d+', b'"exit_code":77', lines[7])
    (dataset / "data/00001.journal").write_bytes(checksummed(other))
    (made,) = repair_with(dataset, volatile, system=scratch, executor=SerialExecutor(open_fake))
    assert (made.identical, made.salvaged) == (True, 2)
    assert contents(dataset) == before


def test_every_shard_may_be_lost(dataset: Path, scratch: str) -> None:
    before = contents(dataset)
    for path in (dataset / "data").iterdir():
        path.unlink()
    made = repair_with(dataset, stream, system=scratch, executor=SerialExecutor(open_fake))
    assert [(one.was, one.identical) for one in made] == [("gone", True)] * 2
    assert contents(dataset) == before


def test_nothing_is_done_where_nothing_is_damaged(dataset: Path) -> None:
    assert repair(dataset) == ()


def test_what_was_not_generated_says_what_to_do_instead(dataset: Path, tmp_path: Path) -> None:
    select(dataset, tmp_path / "new", Selection(max_arguments=3))
    (tmp_path / "new/data/00000.ndjson").unlink()
    with pytest.raises(RepairError) as caught:
        repair(tmp_path / "new")
    assert "shioenv dataset filter" in str(caught.value.hint)


@pytest.mark.parametrize("damage", ["changed", "gone"])
def test_a_context_is_made_again(dataset: Path, scratch: str, damage: str) -> None:
    before = contents(dataset)
    path = dataset / "contexts" / "00000.json"
    path.unlink() if damage == "gone" else path.write_text("{}\n")
    (made,) = repair_with(dataset, stream, system=scratch, executor=SerialExecutor(open_fake))
    assert (made.file, made.was, made.identical) == ("contexts/00000.json", damage, True)
    assert contents(dataset) == before


def test_a_manifest_that_names_no_kernel_is_given_none(dataset: Path, scratch: str) -> None:
    path = dataset / "manifest.json"
    document = json.loads(path.read_bytes())
    document["host_kernels"] = []
    path.write_text(json.dumps(document))
    (dataset / SECOND).unlink()
    assert mend(dataset, scratch).identical
    assert json.loads(path.read_bytes())["host_kernels"] == []
