"""Datasets of one system are merged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from shioenv.dataset.record_reader import read_records
from shioenv.dataset.verify import verify
from shioenv.errors import UsageError
from shioenv_eval.merge import merge
from support.dataset_fakes import alike, make, plan


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
