"""Datasets of one system are merged."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from shioenv.dataset.record_reader import read_records
from shioenv.dataset.verify import verify
from shioenv.errors import UsageError
from shioenv_eval.merge import merge
from support.dataset_fakes import alike, contents, make, plan, samples, shards_of


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("merge") / "dataset"
    make(directory, 336, stream=alike())
    return directory


def test_datasets_of_one_system_are_put_together(dataset: Path, tmp_path: Path) -> None:
    make(tmp_path / "other", 20, asked=plan(seed=8))
    make(tmp_path / "same", 30, stream=alike())
    merged = merge([dataset, tmp_path / "other", tmp_path / "same"], tmp_path / "all")
    assert merged.equal == 30
    assert merged.manifest.records == 336 + 20
    assert verify(tmp_path / "all").ok
    records = list(read_records(tmp_path / "all"))
    assert [one.session_id for one in records] == list(range(356))
    assert [one.input for one in records[336:]] == [
        one.input for one in read_records(tmp_path / "other")
    ]
    origin = merged.manifest.plan.origin
    assert origin is not None
    assert [parent["records"] for parent in origin["parents"]] == [336, 20, 30]


def test_datasets_that_do_not_fit_are_not_put_together(dataset: Path, tmp_path: Path) -> None:
    asked = plan()
    make(tmp_path / "other", 5, asked=replace(asked, version="9.9"))
    with pytest.raises(UsageError, match=r"versions\.shioenv") as caught:
        merge([dataset, tmp_path / "other"], tmp_path / "all")
    assert "in the first" in caught.value.message
    with pytest.raises(UsageError, match="two datasets"):
        merge([dataset], tmp_path / "all")
    assert not (tmp_path / "all").exists()


COUNT = 210


def make_part(directory: Path, number: int, parts: int, count: int = COUNT, seed: int = 7) -> Path:
    """Make a part of the fakes' stream: every number with the same remainder."""
    stream = islice(samples(), number - 1, count, parts)
    asked = plan(seed=seed, part=f"{number}/{parts}")
    numbers = range(number - 1, count, parts)
    make(directory, len(numbers), asked=asked, stream=stream, numbers=numbers)
    return directory


def test_all_parts_make_the_bytes_of_a_single_run(tmp_path: Path) -> None:
    with shards_of(100):
        make(tmp_path / "whole", COUNT)
        parts = [make_part(tmp_path / str(number), number, 3) for number in (2, 3, 1)]
        assert all(verify(part).ok for part in parts)
        merged = merge(parts, tmp_path / "all")
    assert [shard.records for shard in merged.manifest.shards] == [100, 100, 10]
    assert (merged.manifest.records, merged.equal) == (COUNT, 0)
    assert contents(tmp_path / "all") == contents(tmp_path / "whole")


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([(1, 3), (2, 3)], "missing: 3/3"),
        ([(1, 2), (2, 2), (1, 2)], "does not fit"),
        ([(1, 2), (2, 3)], "does not fit"),
    ],
)
def test_parts_that_are_not_all_are_not_put_together(
    parts: list[tuple[int, int]], message: str, tmp_path: Path
) -> None:
    made = [make_part(tmp_path / str(place), *part, count=30) for place, part in enumerate(parts)]
    with pytest.raises(UsageError, match=message):
        merge(made, tmp_path / "all")


def test_parts_of_other_streams_and_counts_are_not_put_together(tmp_path: Path) -> None:
    first = make_part(tmp_path / "first", 1, 2, count=30)
    with pytest.raises(UsageError, match="another stream: seed"):
        merge([first, make_part(tmp_path / "seed", 2, 2, count=30, seed=8)], tmp_path / "all")
    with pytest.raises(UsageError, match="record 21 of the whole dataset is in no part"):
        merge([first, make_part(tmp_path / "short", 2, 2, count=20)], tmp_path / "all")
    make(tmp_path / "whole", 30)
    with pytest.raises(UsageError, match="part 1/1, which does not fit"):
        merge([first, tmp_path / "whole"], tmp_path / "all")
