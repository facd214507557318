"""CONTRIBUTING fits on one screen; the page behind it names every package and test folder."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from support.paths import ROOT
from support.sources import DISTRIBUTIONS, PACKAGES

PAGE = ROOT / "CONTRIBUTING.md"
TEXT = (ROOT / "docs/how-to/develop.md").read_text(encoding="utf-8")
SPANNING = [path for path in (ROOT / "tests").iterdir() if any(path.glob("test_*.py"))]
OWN = {
    path.name
    for home in DISTRIBUTIONS.values()
    for path in (home / "tests").iterdir()
    if any(path.rglob("test_*.py"))
}


@pytest.mark.parametrize("name", sorted(f"tests/{path.name}" for path in SPANNING))
def test_folders_of_tests_are_named(name: str) -> None:
    assert f"\n| `{name}`" in TEXT or f", `{name}` |" in TEXT


@pytest.mark.parametrize("name", sorted(OWN))
def test_folders_of_a_packages_tests_are_named(name: str) -> None:
    assert f"\n| `{name}` |" in TEXT


def test_contributing_fits_on_one_screen() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 30
    assert len(text.split()) <= 350


def parts(package: Path) -> set[str]:
    """The directories of a package with modules; of the core the single modules too."""
    found = {path.parent.name for path in package.glob("*/__init__.py")}
    if package.name == "shioenv":
        found |= {path.stem for path in package.glob("*.py") if not path.stem.startswith("__")}
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_the_layers_of_each_package_are_named(package: str) -> None:
    row = re.search(rf"^\| `{package}` \| (.*) \|$", TEXT, re.MULTILINE)
    assert row is not None
    assert {*re.findall(r"`(\w+)`", row[1])} == parts(PACKAGES[package])


def test_all_distributions_have_one_version() -> None:
    texts = [(home / "pyproject.toml").read_text() for home in DISTRIBUTIONS.values()]
    assert len({tomllib.loads(text)["project"]["version"] for text in texts}) == 1
