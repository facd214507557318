"""Words that made the project's prose hard to read, counted per 10,000 words of a text.

The list comes from a comparison with docstrings and comments of structlog, Gymnasium, Hypothesis,
inspect_ai and verifiers, in which the sum is about 11 per 10,000.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

DIALECT = re.compile(
    r"\b(?:tells?|told|says?|said|stands?|stood|nobody|whoever|whichever"
    r"|of which|of whom|of (?:its|their) own|of (?:theirs|ours|others))\b",
    re.IGNORECASE,
)
"""Words and phrases of the dialect."""

CLAUSE = re.compile(r"(?:What|Which|Where|How|Who|When)\b")
"""The beginning of a docstring that is a noun clause instead of a verb or a noun."""

_NO_TEXT = re.compile(r"#\s*(?:noqa|type:|fmt:)")

_TOKEN = re.compile(
    r'"""(?:[^\\]|\\.)*?"""|'
    r"'''(?:[^\\]|\\.)*?'''|"
    r'"(?:[^"\\\n]|\\.)*"|'
    r"'(?:[^'\\\n]|\\.)*'|(#[^\n]*)",
    re.DOTALL,
)
"""A string, or a comment (the group). Python's tokenizer takes ten times as long."""


def comments(source: str) -> Iterator[str]:
    """Yield each comment of a module that is text, without its mark."""
    for token in _TOKEN.finditer(source):
        if token[1] and not _NO_TEXT.match(token[1]):
            yield token[1].lstrip("# ")


def prose(page: str) -> str:
    """Return a Markdown page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page, flags=re.DOTALL | re.MULTILINE)


def rate(texts: Iterable[str]) -> float:
    """Return the dialect's words per 10,000 words. A piece of code counts as one word."""
    plain = [re.sub(r"``?[^`]*``?", "code", text) for text in texts]
    words = sum(len(re.findall(r"[A-Za-z']+", text)) for text in plain)
    found = sum(len(DIALECT.findall(text)) for text in plain)
    return 10_000 * found / max(words, 1)


def share_of_clauses(texts: Iterable[str]) -> float:
    """Return the share of docstrings that begin with a noun clause, 0 to 1."""
    beginnings = [bool(CLAUSE.match(text.strip())) for text in texts]
    return sum(beginnings) / max(len(beginnings), 1)
