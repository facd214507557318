"""Sentences of docstrings are as short as those of the pages."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from support.sentences import too_long
from support.sources import FILES, TOGETHER, docstrings, relative, text_of

pytestmark = TOGETHER


def running(docstring: str, margin: int) -> Iterator[str]:
    """Return the paragraphs and items of a docstring, without indented text and tables."""
    first, *lines = docstring.splitlines()
    shown = "\n".join([first.strip(), *(line[margin:] for line in lines)])
    for paragraph in re.split(r"\n\s*\n|\n(?=(?:[-*]|\d+\.) )", shown):
        if not paragraph.startswith(("  ", "|")):
            yield re.sub(r"^[-*] ", "", " ".join(paragraph.split()))


def long_ones(source: str) -> list[str]:
    return [
        sentence
        for docstring, margin in docstrings(source)
        if docstring.strip()
        for paragraph in running(docstring, margin)
        for sentence in too_long(paragraph)
    ]


def test_a_long_sentence_is_seen() -> None:
    words = " ".join(["word"] * 26)
    assert long_ones(f'"""Short.\n\n{words}.\n"""')
    assert long_ones(f'def f():\n    """{words}."""')
    assert long_ones(f'x = 1\n"""Short.\n\n- {words}\n"""')
    assert not long_ones(f'"""Short:\n\n    {words} {words}\n"""')
    assert not long_ones(f'"""Short. {words[:99]}. {words[:99]}."""')
    assert not long_ones(f'print("{words}")')


FOLDERS = sorted({relative(path).rpartition("/")[0] for path in FILES})


@pytest.mark.parametrize("folder", FOLDERS)
def test_sentences_of_docstrings_are_short(folder: str) -> None:
    found = {
        path.name: sentences
        for path in FILES
        if relative(path).rpartition("/")[0] == folder
        if (sentences := long_ones(text_of(path)))
    }
    assert found == {}
