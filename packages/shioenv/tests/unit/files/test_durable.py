"""An unwritable output path is refused before the work begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from shioenv.errors import DatasetStorageError
from shioenv.files.durable import refuse_unwritable


def test_a_place_that_can_be_written_stays_as_it_is(tmp_path: Path) -> None:
    refuse_unwritable(tmp_path / "new" / "deeper" / "result")
    assert list((tmp_path / "new" / "deeper").iterdir()) == []
    (tmp_path / "old").write_text("earlier")
    refuse_unwritable(tmp_path / "old")
    assert (tmp_path / "old").read_text() == "earlier"


@pytest.mark.parametrize("name", ["directory", "link", "file/result"])
def test_another_place_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(DatasetStorageError):
        refuse_unwritable(tmp_path / name)
