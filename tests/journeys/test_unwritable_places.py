"""Long commands of several packages refuse an unwritable output path at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from shioenv.cli.main import app
from shioenv.errors import DatasetStorageError


@pytest.mark.parametrize(
    "words",
    [
        ["suite", "record", "public-dev"],
        ["conform", "--against", "trivial"],
        ["train", "memory", "nowhere"],
    ],
)
def test_commands_that_take_long_refuse_it_at_once(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "directory").mkdir()
    out = tmp_path / ("file" if words[0] == "conform" else "directory")
    found = CliRunner().invoke(app, [*words, "--out", str(out)])
    assert found.exit_code != 0
    assert isinstance(found.exception, DatasetStorageError) or "SHIO-D04" in found.output
