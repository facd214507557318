"""The code that becomes part of a system's files is committed, and what its sources give."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from types import ModuleType

import pytest

from support.needs import needs

ROOT = Path(__file__).parents[2]


def committed_script() -> ModuleType:
    """Import scripts/committed.py, which compiles it."""
    spec = importlib.util.spec_from_file_location("committed", ROOT / "scripts/committed.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


committed = committed_script()
NAMES: list[str] = list(committed.CODE)


@pytest.mark.parametrize("name", NAMES)
def test_it_was_compiled_from_the_sources_as_they_are(name: str) -> None:
    written = (committed.NATIVE / f"committed/{name}.made").read_text("utf-8")
    assert written == committed.account(name), "`make committed` compiles it again"


def test_nothing_else_lies_there() -> None:
    found = {path.name for path in (committed.NATIVE / "committed").iterdir()}
    assert found == {f"{name}.{kind}" for name in NAMES for kind in ("so", "made")}


@needs("gcc 12.2.0")
def test_its_compiler_gives_the_same_bytes_in_another_directory(tmp_path: Path) -> None:
    copy = tmp_path / "native"
    shutil.copytree(committed.NATIVE, copy, ignore=shutil.ignore_patterns("bin", "*.so"))
    committed.compile_here(copy)
    for name in NAMES:
        made = f"committed/{name}.so"
        assert (copy / made).read_bytes() == (committed.NATIVE / made).read_bytes()


def test_a_source_that_was_changed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "native"
    shutil.copytree(committed.NATIVE, copy, ignore=shutil.ignore_patterns("bin"))
    monkeypatch.setattr(committed, "NATIVE", copy)
    header = copy / "library/devices.h"
    header.write_text(header.read_text("utf-8") + "\n", "utf-8")
    written = (copy / "committed/answers.made").read_text("utf-8").splitlines()
    now = committed.account("answers").splitlines()
    assert [line.split()[-1] for line in set(now) - set(written)] == ["library/devices.h"]
