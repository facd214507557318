"""What Bash says of a text that it refuses to read."""

from __future__ import annotations

import re

from shioenv.bash.read import Reader
from shioenv.bash.scan import Refused

_UNCLOSED = re.compile(r"a (\S+) is never closed")
_CLOSING = {"${": "}", "$(": ")"}
_CONDITION = re.compile(r"\]\] is missing|an expression is missing|no operand$|no operator$")


def syntax_error(refused: Refused, text: str) -> tuple[str, int] | None:
    """What Bash says behind the place, and on which line of the text; None where nobody knows.

    Only a text of one line is looked at: of other texts Bash runs the lines before the refused one.
    """
    line = text.rstrip(" \t\n")
    if "\n" in line or not line or refused.text != text:
        return None
    unclosed = _UNCLOSED.fullmatch(refused.why)
    if unclosed:
        mark = _CLOSING.get(unclosed[1], unclosed[1])
        if mark not in {'"', "'", "`", "}", ")"}:
            return None
        said = f"unexpected EOF while looking for matching `{mark}'"
        return said, 2 if unclosed[1] == "$(" else 1
    if _CONDITION.search(refused.why) or "[[" in line or "((" in line:
        return None
    place = refused.place
    if refused.why == "( after a word":
        place += 1
    token = _token(text, place)
    if token is None:
        return None
    if not token and refused.why == "a word is missing":
        token = "newline"
    if not token:
        return "syntax error: unexpected end of file", 2
    return f"syntax error near unexpected token `{token}'", 1


def _token(text: str, place: int) -> str | None:
    """The token at a place; empty at the end, None where there is none that can be read."""
    reader = Reader(text, place)
    try:
        token = reader.peek()
        return reader.text[reader.place : reader.word_end(reader.place)] or token
    except Refused:
        return None
