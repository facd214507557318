"""Sentences of texts, and those that are too long.

A sentence ends at a full stop, a question mark or an exclamation mark, and not at a colon or
semicolon. Words are separated by blanks; a piece of code counts as one word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

LONGEST = 25
"""Most words of a sentence."""


def paragraphs(page: str) -> Iterator[str]:
    """Find running text: paragraphs, items of lists, cells of tables."""
    page = re.sub(r"^```.*?^```$", "\n", page, flags=re.DOTALL | re.MULTILINE)
    page = re.sub(r"^<!--.*?-->$", "\n", page, flags=re.DOTALL | re.MULTILINE)
    page = re.sub(r"</?(?:picture|source|img)[^>]*>", "", page)
    page = re.sub(r"^#+ .*$", "\n", page, flags=re.MULTILINE)
    page = re.sub(r"^(?:[-*]|\d+\.) ", "\n\n", page, flags=re.MULTILINE)
    page = re.sub(r"^\|.*\|$", lambda row: "\n\n" + row[0].replace(" | ", "\n\n"), page, flags=re.M)
    for paragraph in re.split(r"\n\s*\n", page):
        text = " ".join(paragraph.split()).strip("| ")
        if text:
            yield text


def sentences(text: str) -> list[str]:
    """Split a paragraph into sentences; each piece of code is the word `code` there."""
    text = re.sub(r"`[^`]*`", "`code`", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return [one for one in re.split(r"(?<=[.?!])[)*_\"]*\s+(?=\S)", text) if one]


def too_long(text: str) -> list[str]:
    return [one for one in sentences(text) if len(one.split()) > LONGEST]
