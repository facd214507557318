"""Shell words of a line as they are written, quotes included."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

CLOSING = {"(": ")", "{": "}"}
OPENINGS = ("$(", "${", "<(", ">(")
"""What begins a substitution."""

_DEEPEST = 50
"""Quotes and substitutions in each other at most: what is deeper reaches to the end."""

_QUOTATION = re.compile(r"\\.?|'[^']*'?|`[^`]*`?|\$'(?:\\.|[^'\\])*\\?'?", re.DOTALL)


def split_words(text: str) -> list[str]:
    r"""The words of a line, separated by unquoted blanks and newlines, their text unchanged.

    Quotes, backslashes, `$(…)`, `${…}`, `` `…` ``, `<(…)` and `>(…)` hold a word together. Never
    fails: what is never closed reaches to the end. Operators are not separated from words.
    """
    words: list[str] = []
    start: int | None = None
    index = 0
    while index < len(text):
        if text[index] in " \t\n":
            if start is not None:
                words.append(text[start:index])
                start = None
            index += 1
            continue
        if start is None:
            start = index
        index = _unit_end(text, index)
    if start is not None:
        words.append(text[start:])
    return words


def substitutions(text: str) -> list[str]:
    """The commands in the `$(…)`, `<(…)`, `>(…)` and `` `…` `` of a text, without those in them.

    What stands in single quotes or is escaped is none, nor is arithmetic. Never fails: what is
    never closed reaches to the end.
    """
    found: list[str] = []
    index, quoted = 0, False
    while index < len(text):
        end = index + 1
        if text[index] == '"':
            quoted = not quoted
        elif text[index] == "`":
            end = quotation_end(text, index)
            found.append(text[index + 1 : end].removesuffix("`"))
        elif text[index] == "\\" or (not quoted and quotation_end(text, index) > index):
            end = quotation_end(text, index)
        elif text.startswith("$((", index):
            end = _bracket_end(text, index + 1)
        elif text.startswith("$(", index) or (not quoted and text.startswith(("<(", ">("), index)):
            end = _bracket_end(text, index + 1)
            found.append(text[index + 2 : end].removesuffix(")"))
        index = end
    return found


def _unit_end(text: str, index: int, depth: int = 0) -> int:
    """Where the character, quotation or substitution that starts at `index` ends."""
    if depth > _DEEPEST:
        return len(text)
    end = quotation_end(text, index)
    if end > index:
        return end
    if text[index] == '"':
        return _double_quote_end(text, index, depth)
    if text.startswith(OPENINGS, index):
        return _bracket_end(text, index + 1, depth)
    return index + 1


def quotation_end(text: str, index: int) -> int:
    r"""Where the `\x`, `'…'`, `` `…` `` or `$'…'` at `index` ends; `index` where none starts."""
    match = _QUOTATION.match(text, index)
    return match.end() if match else index


def _double_quote_end(text: str, index: int, depth: int) -> int:
    end = index + 1
    while end < len(text) and text[end] != '"':
        if text[end] == "\\":
            end += 2
        elif text[end] == "`" or (text[end] == "$" and text[end + 1 : end + 2] in {"(", "{"}):
            end = _unit_end(text, end, depth + 1)
        else:
            end += 1
    return min(end + 1, len(text))


def _bracket_end(text: str, index: int, depth: int = 0) -> int:
    """Where the bracket at `index` is closed, quotes and inner brackets respected."""
    opening, closing = text[index], CLOSING[text[index]]
    nesting, end = 0, index
    while end < len(text):
        if text[end] == opening:
            nesting += 1
        elif text[end] == closing:
            nesting -= 1
            if not nesting:
                return end + 1
        elif text[end] in "'\"\\`":
            end = _unit_end(text, end, depth + 1)
            continue
        end += 1
    return len(text)


def is_assignment(word: str) -> bool:
    """Whether a word sets a variable: `LC_ALL=C`, `PATH+=:/opt`."""
    name, sign, _ = word.partition("=")
    return bool(sign) and name.removesuffix("+").isidentifier() and name.isascii()


def n_assignments(words: Sequence[str]) -> int:
    """How many words set a variable before the command, which is the last word at the latest."""
    return len(list(takewhile(is_assignment, words[:-1])))


def without_assignments(command: str) -> str:
    """A command without the assignments before it: `TZ=UTC date` is `date`."""
    words = split_words(command)
    place = 0
    for word in words[: n_assignments(words)]:
        place = command.index(word, place) + len(word)
    return command[place:].lstrip() if place else command
