"""The glossary contains the terms in use, and the terms that it rules out are used nowhere."""

from __future__ import annotations

import re

import pytest

from support.paths import ROOT
from support.sources import FILES

GLOSSARY = (ROOT / "docs/glossary.md").read_text()
PAGES = [
    *(page for page in (ROOT / "docs").rglob("*.md") if page.name != "glossary.md"),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
]
CODE = [*FILES]
TERMS = re.findall(r"\*\*([^*]+)\*\*", GLOSSARY)
RULED_OUT = [
    word
    for row in re.findall(r"^\| (.+?) \|", GLOSSARY.partition("## Not used")[2], re.MULTILINE)
    for word in row.split(", ")
    if word != "not"
]


def said(word: str, text: str) -> bool:
    """Whether a word occurs in a text, also as a plural, or broken over two lines."""
    spaced = r"[\s#]+".join(map(re.escape, word.split()))
    return re.search(rf"(?i)(?<![\w-]){spaced}(?:s|es)?(?![\w-])", text) is not None


@pytest.mark.parametrize("term", TERMS)
def test_each_term_is_used_in_the_pages_or_in_help(term: str) -> None:
    assert any(said(term, page.read_text()) for page in PAGES)


def test_no_term_is_explained_twice() -> None:
    names = [term.lower() for term in TERMS]
    assert sorted(names) == sorted(set(names))


def test_the_names_of_code_exist() -> None:
    code = "\n".join(file.read_text() for file in CODE)
    names = {name.split(".")[-1] for name in re.findall(r"`([A-Za-z_][\w.]*)`", GLOSSARY)}
    missing = [name for name in sorted(names) if not re.search(rf"\b{name}\b", code)]
    assert len(names) > 20
    assert missing == []


@pytest.mark.parametrize("word", RULED_OUT)
def test_words_that_are_not_used_stand_nowhere(word: str) -> None:
    files = [file for file in [*PAGES, *CODE] if said(word, file.read_text())]
    assert [str(file.relative_to(ROOT)) for file in files] == []


def test_there_are_terms_and_words_that_are_ruled_out() -> None:
    assert len(TERMS) > 40
    assert "behaviour" in RULED_OUT
