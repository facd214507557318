"""Compressed shards work with every reader of plain ones, and contain the same lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import zstandard

from shioenv.dataset.generate import Destination
from shioenv.dataset.manifest import read_manifest
from shioenv.dataset.record_reader import read_records
from shioenv.dataset.repair import repair_with
from shioenv.dataset.select import Selection, select
from shioenv.dataset.verify import replay, verify
from shioenv.errors import (
    DatasetCorruptError,
    DatasetMismatchError,
    GenerationError,
    UsageError,
)
from shioenv.execution.local import SerialExecutor
from shioenv.files.compressed import DamagedFile, open_compressed, reading
from support.dataset_fakes import contents, interspersed, make, open_fake, plan, sample

COUNT = 40
ZSTD = plan(compression="zstd")
SHARD = "data/00000.ndjson.zst"


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("compressed") / "plain"
    make(directory, COUNT)
    return directory


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    make(tmp_path / "packed", COUNT, asked=ZSTD)
    return tmp_path / "packed"


def lines(directory: Path) -> bytes:
    return zstandard.ZstdDecompressor().stream_reader((directory / SHARD).read_bytes()).read()


def test_the_lines_are_those_of_a_plain_dataset(plain: Path, packed: Path) -> None:
    shard, other = (read_manifest(directory).shards[0] for directory in (plain, packed))
    assert other.file == SHARD
    assert (other.sha256, other.inputs_sha256) == (shard.sha256, shard.inputs_sha256)
    whole = (plain / "data/00000.ndjson").read_bytes()
    assert lines(packed) == whole
    assert len((packed / SHARD).read_bytes()) < len(whole) / 3


def test_every_reader_reads_them(plain: Path, packed: Path, tmp_path: Path) -> None:
    assert verify(packed).ok, verify(packed).problems
    assert list(read_records(packed, check=True)) == list(read_records(plain))
    assert replay(packed, 5, system=str(tmp_path), opener=open_fake).ok
    made = select(packed, tmp_path / "part", Selection(min_necessary=0.5))
    assert made.shards[0].file == SHARD
    assert verify(tmp_path / "part").ok


def test_a_longer_one_goes_on_compressed_whether_that_is_asked_for_or_not(
    packed: Path, tmp_path: Path
) -> None:
    make(packed, COUNT + 10)
    make(tmp_path / "whole", COUNT + 10, asked=ZSTD)
    assert contents(packed) == contents(tmp_path / "whole")


def test_another_compression_is_refused(plain: Path) -> None:
    before = contents(plain)
    with pytest.raises(DatasetMismatchError, match='compression: null in the dataset, "zstd"'):
        make(plain, COUNT, asked=ZSTD)
    assert contents(plain) == before
    with pytest.raises(UsageError, match="unknown compression 'zst'") as caught:
        Destination("x", "zst")
    assert "zstd" in str(caught.value.hint)


def test_what_was_finished_before_an_error_is_kept(tmp_path: Path) -> None:
    stream = interspersed({30: sample("echo", "always-broken")})
    with pytest.raises(GenerationError):
        make(tmp_path / "a", COUNT, asked=ZSTD, stream=stream)
    assert not (tmp_path / "a" / SHARD).exists()
    assert make(tmp_path / "a", COUNT).new == COUNT - 30
    make(tmp_path / "whole", COUNT, asked=ZSTD)
    assert contents(tmp_path / "a") == contents(tmp_path / "whole")


def spoil(path: Path, how: str) -> None:
    content = path.read_bytes()
    if how == "cut":
        path.write_bytes(content[:-7])
    elif how == "changed":
        middle = len(content) // 2
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    elif how == "longer":
        path.write_bytes(content + b"\n")
    else:
        path.unlink()


@pytest.mark.parametrize("how", ["cut", "changed", "longer", "gone"])
def test_a_damaged_shard_is_noticed_and_made_again(packed: Path, tmp_path: Path, how: str) -> None:
    before = contents(packed)
    spoil(packed / SHARD, how)
    found = verify(packed)
    assert found.damaged == (SHARD,)
    with pytest.raises(DatasetCorruptError):
        list(read_records(packed, check=True))
    if how != "gone":
        with pytest.raises(DatasetCorruptError, match="was changed") as caught:
            make(packed, COUNT)
        assert "repair" in str(caught.value.hint)

    def stream(count: int) -> Any:
        return interspersed({})

    (shard,) = repair_with(packed, stream, system=str(tmp_path), executor=SerialExecutor(open_fake))
    assert shard.identical
    assert contents(packed) == before


def test_what_is_written_is_read(tmp_path: Path) -> None:
    for content in (b"", b"x", bytes(range(256)) * 40_000):
        for name in ("a", "a.zst"):
            path = tmp_path / name
            with path.open("wb") as file, open_compressed(file, name) as stream:
                for place in range(0, len(content), 70_001):
                    stream.write(content[place : place + 70_001])
            with reading(path) as stream:
                assert stream.read() == content


def test_no_part_of_a_compressed_file_passes_for_all_of_it(tmp_path: Path) -> None:
    path = tmp_path / "a.zst"
    with path.open("wb") as file, open_compressed(file, path.name) as stream:
        stream.write(b"line\n" * 5000)
    whole = path.read_bytes()
    for size in range(1, len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(DamagedFile), reading(path) as stream:
            stream.read()
    path.write_bytes(whole + whole)
    with reading(path) as stream:
        assert stream.read() == b"line\n" * 10_000
