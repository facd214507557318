"""Docstrings, comments and pages use few words of the dialect. The limits may only fall."""

from __future__ import annotations

import pytest

from support.dialect import comments, prose, rate, share_of_clauses
from support.paths import ROOT
from support.sources import FILES, PACKAGES, TOGETHER, docstrings, package_of, text_of

pytestmark = TOGETHER
MOST_WORDS = 12
"""Words of the dialect per 10,000 words of a package's docstrings and comments."""

MOST_CLAUSES = 0.01
"""The share of a package's docstrings that begin with a noun clause."""

MOST_WORDS_OF_PAGES = 17
"""Words of the dialect per 10,000 words of the pages that people wrote. The aim is 10."""

GENERATED = ("docs/reference/", "docs/grammars.md")
PAGES = [
    path
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    if not path.relative_to(ROOT).as_posix().startswith(GENERATED) and path.name != "CHANGELOG.md"
]


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_and_comments_are_plain(package: str) -> None:
    sources = [text_of(path) for path in FILES if package_of(path) == package]
    documented = [text for source in sources for text, _ in docstrings(source)]
    commented = [text for source in sources for text in comments(source)]
    assert rate([*documented, *commented]) <= MOST_WORDS
    assert share_of_clauses(documented) <= MOST_CLAUSES


def test_pages_are_plain() -> None:
    assert rate(prose(path.read_text(encoding="utf-8")) for path in PAGES) <= MOST_WORDS_OF_PAGES


def test_words_of_the_dialect_are_counted() -> None:
    assert rate(["It is told, and nobody says of which."]) == pytest.approx(10_000 * 4 / 8)
    assert rate(["The saying of a teller: `told`."]) == 0
    assert share_of_clauses(["What it is.", "Return it.", "Whether it is."]) == pytest.approx(1 / 3)
    source = '"""Doc."""\nx = 1  # a comment\n"""Of x."""\ny = 2  # noqa: X\n'
    assert [*docstrings(source)] == [("Doc.", 0), ("Of x.", 0)]
    assert [*comments(source)] == ["a comment"]
    assert prose("a\n```sh\nsaid\n```\nb\n") == "a\n\nb\n"
