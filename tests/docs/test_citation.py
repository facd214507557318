"""CITATION.cff agrees with README.md and the core's pyproject.toml."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
CITATION: dict[str, Any] = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
DECLARED = (ROOT / "packages/shioenv/pyproject.toml").read_text(encoding="utf-8")
PROJECT = tomllib.loads(DECLARED)["project"]
README = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())


def test_the_citation_has_what_its_format_requires() -> None:
    assert CITATION["cff-version"] == "1.2.0"
    for document in (CITATION, CITATION["preferred-citation"]):
        assert document["title"]
        for author in document["authors"]:
            assert set(author) in ({"name"}, {"given-names", "family-names"})
    assert CITATION["message"]


def test_the_citation_is_of_this_package() -> None:
    assert CITATION["version"] == PROJECT["version"]
    assert CITATION["license"] == PROJECT["license"]
    assert [author["name"] for author in PROJECT["authors"]] == [
        author["name"] for author in CITATION["authors"]
    ]


def test_the_readme_names_the_paper_that_is_cited() -> None:
    paper = CITATION["preferred-citation"]
    assert f"[{paper['title']}]({paper['url']})" in README
    (number,) = re.findall(r"\d{4}\.\d{5}", paper["url"])
    assert f"arXiv {number}" in README
    assert paper["identifiers"][0]["value"] == f"arXiv:{number}"
    for author in paper["authors"]:
        assert author["family-names"] in README


PARTS = {
    "Section": ["3.1", "3.2", "3.3", "4.1", "4.2", "4.3", "4.4", "5", "C.1.1", "C.1.2", "C.1.3"],
    "Appendix": ["A", "B", "C"],
    "Table": ["1", "2", "3", "4"],
    "Figure": ["1", "2", "3", "4", "5", "6", "7"],
    "Algorithm": ["1"],
}
"""The parts of the paper that the project may cite, as the paper's source numbers them."""

SUBJECTS = {"Table 3": "record", "Table 4": "commands", "Figure 5": "Operations"}
"""Words beside a citation, by the part's subject."""


def test_cited_parts_of_the_paper_exist_and_have_that_subject() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("packages/*/src/**/*.py")]
    cited = set()
    for page in pages:
        for line in page.read_text(encoding="utf-8").splitlines():
            for kind, number in re.findall(r"\b([A-Z][a-z]+) ([A-C\d]+(?:\.\d+)*)\b", line):
                if kind in PARTS:
                    cited.add((kind, number))
                    assert number in PARTS[kind], f"{page}: {line}"
                    assert re.search(SUBJECTS.get(f"{kind} {number}", ""), line), f"{page}: {line}"
    assert len(cited) > 10
