"""CONTRIBUTING names every package and every folder of tests."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
TESTS = [path for path in (ROOT / "tests").iterdir() if any(path.glob("test_*.py"))]
TESTS += [ROOT / "tests" / "unit"]
SOURCE = ROOT / "src" / "shioenv"
PACKAGES = [path.parent.name for path in SOURCE.glob("*/__init__.py")]
PACKAGES += [path.stem for path in SOURCE.glob("*.py") if path.stem != "__init__"]


@pytest.mark.parametrize("name", sorted(f"tests/{path.name}" for path in TESTS))
def test_folders_of_tests_are_named(name: str) -> None:
    assert f"`{name}`" in TEXT


def test_packages_are_named_in_the_order_of_their_layers() -> None:
    assert len(PACKAGES) > 15
    assert [name for name in PACKAGES if f"`{name}`" not in TEXT] == []
