"""Datasets are split without leaks."""

from __future__ import annotations

from pathlib import Path

import pytest

from shioenv.dataset.manifest import read_manifest
from shioenv.dataset.record_reader import read_records
from shioenv.dataset.select import Selection, select
from shioenv.dataset.split import Shares, group_of, split
from shioenv.dataset.verify import verify
from shioenv.domain.record import Record
from shioenv.errors import UsageError
from support.dataset_fakes import HOME, alike, contents, make


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("split") / "dataset"
    make(directory, 336, stream=alike())
    return directory


def test_no_part_gives_another_away(dataset: Path, tmp_path: Path) -> None:
    shares = Shares(test=0.25, validation=0.2)
    parts = split(dataset, tmp_path / "parts", shares)
    assert list(parts) == ["train", "test", "validation"]
    kept = [record for name in parts for record in read_records(tmp_path / "parts" / name)]
    kept.sort(key=lambda record: record.session_id)
    assert kept == list(read_records(dataset))
    for name in parts:
        assert verify(tmp_path / "parts" / name).ok
        assert parts[name] == read_manifest(tmp_path / "parts" / name)
    groups = [
        {group_of(record) for record in read_records(tmp_path / "parts" / name)} for name in parts
    ]
    assert sum(map(len, groups)) == len(set.union(*groups))


def test_the_same_seed_gives_the_same_parts(dataset: Path, tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        split(dataset, tmp_path / name, Shares(test=0.3), seed=seed)
    assert contents(tmp_path / "a" / "test") == contents(tmp_path / "b" / "test")
    assert contents(tmp_path / "a" / "test") != contents(tmp_path / "c" / "test")


def test_a_longer_dataset_keeps_its_parts(dataset: Path, tmp_path: Path) -> None:
    make(tmp_path / "short", 150, stream=alike())
    for source, name in ((dataset, "long"), (tmp_path / "short", "short-parts")):
        split(source, tmp_path / name, Shares(test=0.3))
    longer = {one.input for one in read_records(tmp_path / "long" / "test")}
    assert {one.input for one in read_records(tmp_path / "short-parts" / "test")} <= longer


def test_parts_that_would_be_empty_are_refused(dataset: Path, tmp_path: Path) -> None:
    make(tmp_path / "one", 1)
    with pytest.raises(UsageError, match="is too small"):
        split(tmp_path / "one", tmp_path / "parts")
    assert not (tmp_path / "parts").exists()
    for shares in ({"test": 0}, {"test": 1}, {"test": 0.6, "validation": 0.4}, {"test": -0.1}):
        with pytest.raises(UsageError):
            Shares(**shares)


def record(text: str, *history: str) -> Record:
    return Record(
        session_id=0,
        input=f"cd {HOME}; {text}",
        input_args=[],
        context_patch="[]",
        irreducibility=None,
        cwd=HOME,
        history=list(history),
        output=f"{text}!\n",
        exit_code=1,
    )


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("ls -la a", "ls -a -l b", True),
        ("ls a -l", "ls -l b", True),
        ("head -n 5 x", "head -n 12 y", True),
        ("ls -l a", "ls -l a | wc", False),
        ("for i in 1 2; do echo $i; done", "for i in 3 4; do echo $i; done", True),
        ("echo 'unclosed", "echo 'other", False),
    ],
)
def test_what_is_one_group(one: str, other: str, same: bool) -> None:
    assert (group_of(record(one)) == group_of(record(other))) is same


def test_a_session_is_one_group() -> None:
    assert group_of(record("rm x", "touch x", "ls x")) == group_of(record("ls x", "touch x"))


def test_a_selection_of_nothing_says_so(dataset: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="none of the 336 records"):
        select(dataset, tmp_path / "new", Selection(min_arguments=50))
    assert not (tmp_path / "new").exists()
