"""Decisions cited in code and docs are explained."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "design" / "decisions.md"
CITED = re.compile(r"\bD-\d+[a-z]?\b|\(([EI]\d{1,2})\)|(?<=, )I13\b")


def cited() -> dict[str, Path]:
    """Yield the cited names by file."""
    found = {}
    for folder, pattern in (
        ("packages", "*.py"),
        ("packages", "*.[ch]"),
        ("docs", "*.md"),
        ("tests", "*.py"),
    ):
        for path in sorted((ROOT / folder).rglob(pattern)):
            if path not in (PAGE, Path(__file__)):
                for match in CITED.finditer(path.read_text(encoding="utf-8")):
                    found[match[1] or match[0]] = path
    return found


def test_every_decision_that_is_cited_is_explained() -> None:
    explained = set(re.findall(r"^\| ([A-Z]-?\d+[a-z]?) \|", PAGE.read_text(), re.MULTILINE))
    names = cited()
    assert {"D-2v", "D-4", "D-27", "I13"} <= names.keys()
    for name, path in names.items():
        assert name in explained, f"{path} cites {name}"
