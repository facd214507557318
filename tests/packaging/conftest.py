from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from support.paths import ROOT

HOOKS = sorted(ROOT.glob("packages/*/hatch_build.py"))


def _loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"hook_of_{path.parent.name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def hooks() -> dict[str, ModuleType]:
    """The build hooks of the packages with C programs, by the package's name."""
    return {path.parent.name: _loaded(path) for path in HOOKS}
