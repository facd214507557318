"""Words of a command: how they are quoted, and which must keep their place."""

from __future__ import annotations

import re

from shioenv.domain.inputs import OPERATORS
from shioenv.grammar.spelling import spelt

FIRST_NUMBER = re.compile(r"[0-9]+")

_OPEN_QUOTE = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.|([\"'])")

BEFORE_VALUE = re.compile(r"[ =:,/]\Z|\A(?:<ns>|-)\w\Z")
"""Matches the text before a value that does not stand in the middle of a word."""

OPEN_TOKENS = frozenset({"File", "NewFile", "NewDirectory", "Word", "Pattern", "Glob"})
"""System tokens in whose place other values of their kind may stand. Tokens that name files of one
sort (`<TarFile>`, `<CsvFile>`) keep to the files that there are."""

EXPANDED = frozenset({"path", "url"})
"""Kinds of values that the shell shall expand, so that they are not quoted for it."""


def depth_later(words: list[str]) -> list[str]:
    """The words of `find` with `-maxdepth` moved behind the test that follows it, if any does."""
    for place, word in enumerate(words[:-1]):
        following = words[place + 1]
        if word.startswith("-maxdepth ") and re.match(r"-(?:i?name|type|size|mtime) ", following):
            return [*words[:place], following, word, *words[place + 2 :]]
    return words


def stays(word: str) -> bool:
    """Whether a word must keep its place: `--`, a redirection, the number of `head -5`."""
    return word == "--" or word in OPERATORS or re.match(r"-[0-9]", word) is not None


def needs_quotes(text: str) -> bool:
    """Whether a word must be quoted to stand for itself."""
    return spelt(text) != text


def open_quote(text: str) -> str:
    """The quote that is open at the end of a text, "" where none is open."""
    matches = [match[1] for match in _OPEN_QUOTE.finditer(text)]
    return matches[-1] or "" if matches and matches[-1] else ""
