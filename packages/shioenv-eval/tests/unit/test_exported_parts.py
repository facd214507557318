"""An export of several datasets gives each of them back."""

from __future__ import annotations

from pathlib import Path

import pytest

from shioenv.dataset.split import Shares, split
from shioenv.errors import ImportFileError, OutputExistsError
from shioenv_eval.export import export
from shioenv_eval.exported_records import import_parts, import_records
from support.dataset_fakes import contents, make

PARTS = ("train", "validation", "test")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("exported") / "dataset"
    make(directory, 40)
    return directory


@pytest.fixture(scope="module")
def parts(dataset: Path) -> Path:
    directory = dataset.with_name("parts")
    split(dataset, directory, Shares(test=0.3, validation=0.3), seed=2)
    return directory


def test_an_export_of_parts_gives_the_parts_back(parts: Path, tmp_path: Path) -> None:
    export(parts, tmp_path / "hub", format="hf")
    made = import_parts(tmp_path / "hub", tmp_path / "back")
    assert list(made) == list(PARTS)
    assert contents(tmp_path / "back") == contents(parts)
    with pytest.raises(ImportFileError, match="train"):
        import_records(tmp_path / "hub", tmp_path / "one")
    with pytest.raises(OutputExistsError):
        import_parts(tmp_path / "hub", tmp_path / "back")
