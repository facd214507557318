"""Selections are complete datasets: the same lines and numbers, with the parent's name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shioenv.dataset.manifest import read_manifest
from shioenv.dataset.record_reader import read_contexts, read_records
from shioenv.dataset.select import Selection, select
from shioenv.dataset.verify import replay, verify
from shioenv.domain.record import Record
from shioenv.errors import (
    DatasetBusyError,
    DatasetCorruptError,
    DatasetMismatchError,
    OutputExistsError,
    UsageError,
)
from shioenv.files.durable import locked
from support.dataset_fakes import HOME, contents, make, open_fake

COUNT = 40


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("select") / "dataset"
    make(directory, COUNT)
    return directory


def score(record: Record) -> float:
    return -1.0 if record.irreducibility is None else record.irreducibility


SELECTIONS: list[tuple[dict[str, Any], Callable[[Record], bool]]] = [
    ({}, lambda one: True),
    ({"min_irreducibility": 0.5}, lambda one: score(one) >= 0.5),
    ({"min_irreducibility": 0}, lambda one: one.irreducibility is not None),
    ({"max_irreducibility": 0.5}, lambda one: 0 <= score(one) <= 0.5),
    ({"min_necessary": 1}, lambda one: one.necessary == 1),
    ({"max_necessary": 0.5}, lambda one: one.necessary is not None and one.necessary <= 0.5),
    ({"min_arguments": 2, "max_arguments": 3}, lambda one: 2 <= one.n_arguments <= 3),
    ({"exit_codes": (0,)}, lambda one: one.exit_code == 0),
    ({"commands": ("touch",)}, lambda one: [s.command for s in one.segments] == ["touch"]),
    ({"exclude_volatile": True}, lambda one: not one.volatile),
]


@pytest.mark.parametrize(("bounds", "kept"), SELECTIONS)
def test_a_selection_holds_exactly_what_meets_its_bounds(
    dataset: Path, tmp_path: Path, bounds: dict[str, Any], kept: Callable[[Record], bool]
) -> None:
    told: list[tuple[int, int]] = []
    made = select(
        dataset, tmp_path / "new", Selection(**bounds), report=lambda *done: told.append(done)
    )
    wanted = [record for record in read_records(dataset) if kept(record)]
    assert list(read_records(tmp_path / "new")) == wanted
    assert made == read_manifest(tmp_path / "new")
    assert made.records == made.count == len(wanted) > 0
    assert verify(tmp_path / "new").ok
    assert told[-1] == (COUNT, COUNT)
    assert made.plan.origin is not None
    assert made.plan.origin["selection"] == Selection(**bounds).to_json()


def test_lines_and_numbers_are_the_parents(dataset: Path, tmp_path: Path) -> None:
    select(dataset, tmp_path / "new", Selection(min_arguments=3))
    old = (dataset / "data/00000.ndjson").read_bytes().splitlines()
    new = (tmp_path / "new/data/00000.ndjson").read_bytes().splitlines()
    assert new == [old[json.loads(line)["session_id"]] for line in new]
    scratch = str(tmp_path)
    assert replay(tmp_path / "new", 5, system=scratch, opener=open_fake).ok


def test_the_same_selection_gives_the_same_bytes(dataset: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        select(dataset, tmp_path / name, Selection(max_irreducibility=0.5))
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_a_selection_of_a_selection_names_both(dataset: Path, tmp_path: Path) -> None:
    select(dataset, tmp_path / "a", Selection(min_irreducibility=0.1))
    made = select(tmp_path / "a", tmp_path / "b", Selection(max_irreducibility=0.9))
    assert made.plan.origin is not None
    parent = made.plan.origin["parent"]
    assert parent["origin"]["selection"] == {"min_irreducibility": 0.1}
    assert verify(tmp_path / "b").ok


def test_shards_have_a_thousand_records(tmp_path: Path) -> None:
    make(tmp_path / "long", 1100)
    made = select(tmp_path / "long", tmp_path / "new", Selection())
    assert [shard.records for shard in made.shards] == [1000, 100]
    old, new = contents(tmp_path / "long"), contents(tmp_path / "new")
    old.pop("manifest.json")
    new.pop("manifest.json")
    assert old == new


def test_nothing_is_overwritten_and_nothing_half_done_stays(dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there/mine").write_text("x")
    with pytest.raises(OutputExistsError, match="there already exists"):
        select(dataset, tmp_path / "there", Selection())
    with pytest.raises(UsageError, match="no record has the command 'tuoch'") as caught:
        select(dataset, tmp_path / "new", Selection(commands=("tuoch",)))
    assert caught.value.hint == "did you mean touch?"

    def killed(done: int, count: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        select(dataset, tmp_path / "new", Selection(), report=killed)
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_the_current_directory_is_not_replaced(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (".", "", f"../{tmp_path.name}"):
        with pytest.raises(UsageError, match="is the current directory") as caught:
            select(dataset, name, Selection())
        assert caught.value.hint == "choose a directory inside it"
    (tmp_path / "mine").write_text("x")
    with pytest.raises(OutputExistsError):
        select(dataset, ".", Selection())
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_what_a_killed_call_left_is_removed(dataset: Path, tmp_path: Path) -> None:
    left = tmp_path / ".tmp-new/data"
    left.mkdir(parents=True)
    (left / "00000.ndjson").write_text("torn")
    select(dataset, tmp_path / "new", Selection())
    assert verify(tmp_path / "new").ok
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_two_calls_do_not_write_the_same(dataset: Path, tmp_path: Path) -> None:
    (tmp_path / ".tmp-new").mkdir()
    with locked(tmp_path / ".tmp-new"), pytest.raises(DatasetBusyError):
        select(dataset, tmp_path / "new", Selection())


def test_a_damaged_source_is_not_selected_from(dataset: Path, tmp_path: Path) -> None:
    shard = dataset / "data/00000.ndjson"
    content = shard.read_bytes()
    try:
        shard.write_bytes(content.replace(b'"exit_code":0', b'"exit_code":1', 1))
        with pytest.raises(DatasetCorruptError, match="was changed"):
            select(dataset, tmp_path / "new", Selection())
    finally:
        shard.write_bytes(content)
    assert list(tmp_path.iterdir()) == []


def test_an_unfinished_source_is_refused(dataset: Path, tmp_path: Path) -> None:
    manifest = json.loads((dataset / "manifest.json").read_text())
    (tmp_path / "manifest.json").write_text(json.dumps({**manifest, "count": 99}))
    with pytest.raises(UsageError, match="not finished: 40 of 99 records"):
        select(tmp_path, tmp_path / "new", Selection())


def test_a_selection_cannot_be_generated_into(dataset: Path, tmp_path: Path) -> None:
    select(dataset, tmp_path / "new", Selection())
    with pytest.raises(DatasetMismatchError, match="origin"):
        make(tmp_path / "new", COUNT)


@pytest.mark.parametrize(
    "bounds",
    [
        {"min_irreducibility": -0.1},
        {"max_irreducibility": 1.5},
        {"min_irreducibility": 0.6, "max_irreducibility": 0.5},
        {"min_arguments": 3, "max_arguments": 2},
        {"exit_codes": (256,)},
    ],
)
def test_bounds_that_nothing_meets_are_refused(bounds: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Selection(**bounds)


def test_a_selection_has_the_contexts_of_its_parent(dataset: Path, tmp_path: Path) -> None:
    select(dataset, tmp_path / "new", Selection(min_arguments=1))
    assert read_contexts(tmp_path / "new") == read_contexts(dataset)
    assert read_contexts(dataset).keys() == {HOME}
    (tmp_path / "new" / "contexts" / "00000.json").write_text("{}")
    with pytest.raises(DatasetCorruptError, match="was changed"):
        read_contexts(tmp_path / "new")


def test_a_selection_of_less_than_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot keep -1 records"):
        Selection(count=-1)
