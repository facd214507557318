"""Files and directories named by pages exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.paths import ROOT
from support.sources import DISTRIBUTIONS, PACKAGES

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
TOP = r"(?:packages|tests|soak|benchmarks|examples|containers)/"
PLACES = [
    ROOT,
    *DISTRIBUTIONS.values(),
    *(home / "src" for home in DISTRIBUTIONS.values()),
    *PACKAGES.values(),
]
"""Directories to which names on pages may be relative."""

FOREIGN = {
    "docs/how-to/harbor.md": "tests/",  # of a task's folder, which Harbor reads
    "CHANGELOG.md": "",  # older entries name the files of their time
}
"""Names that belong to something else, by page."""


def named(page: Path) -> list[str]:
    """Return the paths of code and of folders of the clone in a page's inline code."""
    prose = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    path = re.compile(rf"{TOP}[\w./-]+|[a-z_]+/[\w/-]+\.(?:py|c|h|toml|grammar)")
    code = re.findall(r"`([^`\n]+)`", prose)
    return [text for text in code if path.fullmatch(text) and "NAME" not in text]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_pages_name_are_there(page: Path) -> None:
    foreign = FOREIGN.get(str(page.relative_to(ROOT)))
    found = [text for text in named(page) if foreign is None or not text.startswith(foreign)]
    assert [text for text in found if not any((home / text).exists() for home in PLACES)] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_files_of_a_packages_table_are_there(package: str) -> None:
    text = (DISTRIBUTIONS[package] / "README.md").read_text(encoding="utf-8")
    assert f"| topic | look in `src/{package}/` |" in text
    rows = re.findall(r"^\| (?!topic).*? \| (.*) \|$", text, re.MULTILINE)
    names = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]
    assert names
    assert [name for name in names if not (PACKAGES[package] / name).exists()] == []


def test_every_directory_of_a_package_is_in_its_table() -> None:
    for package, home in PACKAGES.items():
        text = (DISTRIBUTIONS[package] / "README.md").read_text(encoding="utf-8")
        names = {path.parent.name for path in home.glob("*/__init__.py")}
        assert {name for name in names if f"`{name}/" not in text} == set(), package
