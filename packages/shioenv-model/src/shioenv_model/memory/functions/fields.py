"""Texts split into fields (awk(1))."""

from __future__ import annotations

import re
from collections.abc import Callable

from shioenv_model.memory.functions.match import search_steps
from shioenv_model.memory.functions.values import compiled


def pieces(
    text: str, separator: str, spend: Callable[[int], None], *, lines: bool = False
) -> list[str]:
    """The fields of a text. `lines`: newlines separate them as well. `spend` counts steps.

    A blank separates by any number of blanks, no separator each character; one character stands for
    itself, more are a pattern. Errors: ValueError.
    """
    spend(1 + len(text) // 8)
    if not text:
        return []
    if separator == " ":
        return [each for each in re.split(r"[ \t\n]+", text) if each]
    if lines:
        apart = re.escape(separator) if len(separator) == 1 else separator
        return re.split(rf"\n|{apart}", text)
    if separator == "":
        return list(text)
    if len(separator) == 1 and separator != "\\":
        return text.split(separator)
    return divided(text, compiled(separator), spend)


def divided(text: str, pattern: re.Pattern[str], spend: Callable[[int], None]) -> list[str]:
    """The parts of a text between matches that are not empty."""
    spend(search_steps(text, pattern.pattern))
    made, at = [], 0
    for match in pattern.finditer(text):
        if match[0]:
            made.append(text[at : match.start()])
            at = match.end()
    return [*made, text[at:]]
