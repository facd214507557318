"""Regular expressions with the same meaning in every supported Python."""

from __future__ import annotations

import ast
import re

import pytest

from shioenv.behavior.shell_state import _ALIAS, _ARRAY, _DECLARATION
from support.sources import FILES, TOGETHER, relative, text_of, walked

pytestmark = TOGETHER
POSSESSIVE = re.compile(r"\)(?:[*+?]|\{[\d,]+\})\+")
NO_PATTERN = " \t|)*+?"
"""A text of the grammar's notation."""


def test_no_group_is_possessive() -> None:
    """Python before 3.11.5, which Debian 12 has, matches such groups wrongly (gh-106052): it does
    not give back their whole match. Atomic groups do the same and are right everywhere.
    """
    found = [
        (relative(path), node.value)
        for path in FILES
        for node in walked(text_of(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
        if POSSESSIVE.search(
            node.value if isinstance(node.value, str) else node.value.decode("latin-1")
        )
        if node.value != NO_PATTERN
    ]
    assert found == []


@pytest.mark.parametrize(
    ("pattern", "text", "end"),
    [
        (re.compile(_ARRAY), b"([0]=\"a\" [1]=$'b\\'c')\n", 21),
        (re.compile(_ARRAY), b"($'a' \"b)\n", None),
        (re.compile(_ARRAY), b"(a$'b)c'\n", None),
        (_DECLARATION, b'declare -x a="b\\"c"\n', 20),
        (_DECLARATION, b'declare -a a=([0]="b" $\')\n', None),
        (_DECLARATION, b"declare -- a\n", 13),
        (_ALIAS, b"alias a='it'\\''s'\n", 18),
        (_ALIAS, b"alias a='it'\\''s\n", None),
    ],
)
def test_what_a_shell_dumps_is_read_whole_or_not_at_all(
    pattern: re.Pattern[bytes], text: bytes, end: int | None
) -> None:
    match = pattern.match(text)
    assert (match.end() if match else None) == end
