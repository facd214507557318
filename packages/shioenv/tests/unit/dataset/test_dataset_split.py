"""Datasets are split without leaks, merged, and converted to conversations."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from shioenv.dataset.export import chats, export
from shioenv.dataset.manifest import read_manifest
from shioenv.dataset.merge import merge
from shioenv.dataset.record_reader import read_records
from shioenv.dataset.select import Selection, select
from shioenv.dataset.split import Shares, group_of, split
from shioenv.dataset.verify import verify
from shioenv.domain.record import Record
from shioenv.errors import UsageError
from shioenv.files.compressed import unpacking
from support.dataset_fakes import HOME, alike, contents, make, plan


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


def unpacked(path: Path) -> bytes:
    with unpacking(path) as stream:
        return stream.read()


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


def test_inputs_of_one_shell_are_one_conversation() -> None:
    records = [
        record("a"), record("b", "a"), record("c", "a", "b"), record("d"), record("f", "d", "e"),
    ]  # fmt: skip
    told = [json.loads(line) for line in chats(records)]
    turns = [[turn["content"] for turn in one["messages"][1:]] for one in told]
    assert turns == [["a", "a!\n", "b", "b!\n", "c", "c!\n"], ["d", "d!\n"], ["f", "f!\n"]]
    roles = [turn["role"] for turn in told[0]["messages"]]
    assert roles == ["system", *["user", "assistant"] * 3]
    assert HOME in told[0]["messages"][0]["content"]
    assert told[2]["messages"][0]["content"].endswith("were typed before:\nd\ne")
    assert told[0]["exit_codes"] == [1, 1, 1]


def test_a_chat_is_exported_whole(dataset: Path, tmp_path: Path) -> None:
    done = export(dataset, tmp_path / "chat.jsonl", format="chat")
    lines = (tmp_path / "chat.jsonl").read_bytes().splitlines()
    assert len(lines) == done.records == 336
    export(dataset, tmp_path / "chat.jsonl.zst", format="chat")
    assert unpacked(tmp_path / "chat.jsonl.zst") == (tmp_path / "chat.jsonl").read_bytes()
    for name in ("chat.parquet", "chat.txt", "chat"):
        with pytest.raises(UsageError, match="extension"):
            export(dataset, tmp_path / name, format="chat")


def test_a_selection_of_nothing_says_so(dataset: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="none of the 336 records"):
        select(dataset, tmp_path / "new", Selection(min_arguments=50))
    assert not (tmp_path / "new").exists()
