"""Links between the pages have valid targets: a file, and a heading in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.headings import headings

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("packages/*/README.md")]


def broken(page: Path, text: str) -> list[str]:
    """Return the broken relative links of a page."""
    found = []
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", text):
        if "://" in target or target.startswith("mailto:"):
            continue
        led = page.parent / target if target else page
        if not led.exists() or (
            anchor and led.suffix == ".md" and anchor not in headings(led.read_text())
        ):
            found.append(f"{target}#{anchor}")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_to_files_and_headings(page: Path) -> None:
    assert broken(page, page.read_text()) == []


def test_links_to_nothing_are_found() -> None:
    page = ROOT / "README.md"
    text = "[a](nothing.md) [b](README.md#nowhere) [c](#nor-here) [d](README.md) [e](https://x/y#z)"
    assert broken(page, text) == ["nothing.md#", "README.md#nowhere", "#nor-here"]
