"""Replacement of matches in a text."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from shioenv_model.bash.patterns import translated
from shioenv_model.bash.work import spend
from shioenv_model.memory.functions.space import ESCAPES


def replace_matches(
    text: str,
    search: Callable[[int], re.Match[str] | None],
    by: Callable[[re.Match[str]], str],
    nth: int = 1,
    everywhere: bool = False,
) -> tuple[str, int]:
    """Replace the `nth` match, or this and all later ones.

    Return the text, and the number of replaced matches. An empty match directly after another match
    does not count.
    """
    made: list[str] = []
    at = number = count = 0
    behind = -1
    while at <= len(text):
        match = search(at)
        if match is None:
            break
        start, end = match.span()
        if start == end == behind:
            made.append(text[at : at + 1])
            at, behind = at + 1, -1
            continue
        number += 1
        made.append(text[at:start])
        if number >= nth:
            made.append(by(match))
            count += 1
        else:
            made.append(match[0])
        at, behind = end, end
        if number >= nth and not everywhere:
            break
        if start == end:
            made.append(text[at : at + 1])
            at += 1
            behind = -1
    return "".join(made) + text[at:], count


_ESCAPES = {letter: ESCAPES[letter] for letter in "ntfvar"}
_CASES: dict[str, Callable[[str], str]] = {"U": str.upper, "L": str.lower}


def replacement_of(text: str) -> tuple[str | int, ...]:
    r"""Parse a replacement into texts, group numbers and case conversions (`\U`)."""
    made: list[str | int] = []
    at = 0
    while at < len(text):
        character = text[at]
        at += 1
        if character == "&":
            made.append(0)
        elif character == "\\" and at < len(text):
            follows = text[at]
            at += 1
            if follows.isdigit():
                made.append(int(follows))
            elif follows in "ULEul":
                made.append(f"\\{follows}")
            elif follows in "cdox":
                raise ValueError("a number of a character")
            else:
                made.append(_ESCAPES.get(follows, follows))
        else:
            made.append(character)
    return tuple(made)


def expanded(parts: Sequence[str | int], match: re.Match[str]) -> str:
    """Expand the replacement for one match."""
    made, case, once = "", "", ""
    for part in parts:
        if isinstance(part, str) and part[:1] == "\\" and len(part) == 2:
            if part[1] in "ul":
                once = part[1]
            else:
                case = part[1] if part[1] != "E" else ""
            continue
        piece = (match[part] or "") if isinstance(part, int) else part
        piece = _CASES[case](piece) if case else piece
        if once and piece:
            first = piece[0].upper() if once == "u" else piece[0].lower()
            piece, once = first + piece[1:], ""
        made += piece
    return made


def pattern_of(source: str, syntax: str, folds: bool) -> re.Pattern[str]:
    r"""Compile a regular expression with escapes `\n` and `\t`. Errors: ValueError, re.error."""
    source = re.sub(r"\\([nt])", lambda match: _ESCAPES[match[1]], source)
    spend(5 * len(source))
    return re.compile(translated(source, syntax), re.IGNORECASE if folds else 0)


def check_choice(source: str) -> None:
    """Raise ValueError if an alternative is a prefix of another, or is not plain text.

    Programs prefer the longest alternative, Python the first.
    """
    if "|" not in source:
        return
    inner = re.search(r"\\?\(([^()]*\|[^()]*)\\?\)", source)
    choice = (inner[1] if inner else source).replace("\\|", "|").removesuffix("\\")
    words = choice.strip("^$").split("|")
    if not all(re.fullmatch(r"(\w|[ \[\]:,/=-])+[$]?", each) for each in words):
        raise ValueError("alternatives")
    for one in words:
        if any(other != one and other.startswith(one) for other in words):
            raise ValueError("alternatives")
