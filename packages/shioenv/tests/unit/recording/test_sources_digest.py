"""Kept work belongs to the code that did it, wherever that code is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from shioenv.recording.execution_cache import sources_digest


def test_the_digest_follows_the_code_of_modules_and_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    package, module = tmp_path / "digested_package", tmp_path / "digested_module.py"
    package.mkdir()
    inner = package / "__init__.py"

    def digest(first: str, second: str) -> str:
        inner.write_text(first)
        module.write_text(second)
        sources_digest.cache_clear()
        return sources_digest("digested_package", "digested_module")

    one = digest("1", "1")
    assert len({one, digest("2", "1"), digest("1", "2")}) == 3
    (package / "__init__.pyc").touch()
    assert digest("1", "1") == one


def test_a_module_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ModuleNotFoundError):
        sources_digest("shioenv.nosuchmodule")
