"""Functions that select the lines matching a pattern."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate, compress
from operator import not_

from shioenv_model.bash.patterns import translated
from shioenv_model.bash.work import spend
from shioenv_model.memory.functions.space import (
    Flags,
    Given,
    Result,
    Roles,
    as_lines,
    check_length,
    is_text,
    parse_number,
    remembered,
    split_lines,
)

MOST_WORK = 3e7
"""Maximum number of matching steps for one text, since a pattern may be hostile.

The steps are estimated beforehand.
"""


@lru_cache(maxsize=256)
def _pattern(source: str, syntax: str, folds: bool, whole: str) -> re.Pattern[str]:
    if syntax == "perl":
        if _PERL_ONLY.search(source):
            raise ValueError(source)
        made = source
    else:
        made = re.escape(source) if syntax == "fixed" else translated(source, syntax)
    if whole == "words":
        made = rf"(?<!\w)(?:{made})(?!\w)"
    elif whole == "lines":
        made = rf"\A(?:{made})\Z"
    return re.compile(made, re.IGNORECASE if folds else 0)


_PERL_ONLY = re.compile(r"\\[^\W\dbBdDsSwWntrfv]|\(\?(?!:|=|!|<=|<!)|[*+?}]\+|\[\[:")
"""Parts of Perl patterns that Python's patterns lack or interpret differently."""


@remembered
def _reckoned(text: str, pattern: str) -> float:
    """Return an upper bound of the steps for matching a pattern with all lines; see `_searched`."""
    return sum(_searched(line, pattern) for line in split_lines(text))


def _searched(text: str, pattern: str) -> float:
    """Return an upper bound of the steps of a search in a text.

    It is infinite if a group is repeated, or if too many parts are optional. A search may start at
    every position, and each repetition may end wherever the character after it occurs.
    """
    followers = _followers(pattern)
    if followers is None:
        return math.inf
    places = float(len(text) + 1)
    if not followers and not _REPETITION.search(pattern):
        return places
    folded = text.lower()
    steps = places * places
    for character in followers:
        steps *= 1 + folded.count(character) if character else places
    return steps


_REPETITION = re.compile(
    r"""(?<!\\)(?:\\\\)*          # not behind a backslash
    (?:[*+]|\{[^}]*\})\)*        # repeated; groups end
    (\\[^\w]|[\w\s,:;=/@<>!"'%&~-])?(?![*+?{])  # a character that stands for itself""",
    re.VERBOSE,
)


@lru_cache(maxsize=256)
def _followers(pattern: str) -> tuple[str, ...] | None:
    """Return the character after each repetition except the last; "" if any may follow.

    Return None for a pattern whose cost cannot be bounded.
    """
    if re.search(r"(?<!\\)\)[*+?{]", pattern) or len(re.findall(r"[?{]", pattern)) > _OPTIONAL:
        return None
    found = [(match[1] or "")[-1:].lower() for match in _REPETITION.finditer(pattern)]
    return tuple(found[:-1])


def search_steps(text: str, pattern: str) -> int:
    """Return the steps of a search in a text. Errors: ValueError for more than `MOST_WORK`."""
    steps = _searched(text, pattern)
    if steps > MOST_WORK:
        raise ValueError("the search may take too long")
    return 1 + int(steps) // _MATCHED


_MATCHED = 50
"""Matching steps that take as long as one step of other work."""

_COMPILED = 5
"""Steps to compile one character of a pattern."""

_OPTIONAL = 9
"""Maximum number of optional parts; each doubles the work. The match of whole words adds three."""


_NAMES = ("name", "name without")

_LITERAL = re.compile(r"[\w /:;,=<>@#%&~'\"-]+")
"""Patterns that are literal in every syntax."""


def matching_lines_of_each(given: Given, roles: Roles, flags: Flags) -> Result | None:
    """Select matching lines of several texts, each prefixed with its file name (grep(1)).

    Return None if `matching_lines` returns None for a text.
    """
    made = []
    for name, text in zip(given.operands, given.texts, strict=True):
        one = replace(given, text=text, texts=(), operands=(name,))
        found = matching_lines(one, roles, flags)
        if found is None:
            return None
        if flags["shown"] in _NAMES:
            made.append(found)
            continue
        check_length(len(found[0]) * (1 + len(name)))
        made.append(("".join(f"{name}:{line}\n" for line in split_lines(found[0])), found[1]))
    return "".join(text for text, _ in made), min(code for _, code in made)


def matching_lines(given: Given, roles: Roles, flags: Flags) -> Result | None:
    """Select the lines that match a pattern (grep(1)); None if unknown or too expensive."""
    source, text = roles["pattern"], given.text or ""
    if "\n" in source:
        return None  # several patterns
    binary = not is_text(text)
    if binary and (not _LITERAL.fullmatch(source) or flags["shown"] == "only"):
        return None  # the pattern may match bytes that are not characters
    text, whole = text.replace("\0", "\n"), text  # grep also splits binary files this way
    spend(_COMPILED * len(source))
    folds = bool(flags["case"])
    found = _pattern(source, flags["syntax"], folds, flags["whole"])
    if flags["syntax"] != "fixed":
        spend(int(min(_reckoned(text, found.pattern), MOST_WORK)) // _MATCHED)
    hits = _hits(text, found, flags["syntax"] == "fixed")
    if hits is None:
        return None
    if flags["shown"] == "only" and "|" in source:
        return None  # grep prefers the longest alternative, Python the first
    if flags["negated"]:
        hits = tuple(map(not_, hits))
    if "most" in roles:
        hits = _first_hits(hits, parse_number(roles["most"]))
    code = 0 if any(hits) else 1
    if binary and flags["shown"] in ("", "numbered"):
        return _of_binary(given, whole, hits, flags["shown"], roles), code
    if {"after", "before", "around"} & roles.keys():
        return _around(split_lines(text), hits, roles, flags["shown"]), code
    if flags["shown"] == "count":
        return f"{sum(hits)}\n", code
    if flags["shown"] == "nothing":
        return "", code
    if flags["shown"] in _NAMES:
        name = given.operands[0] if given.operands else "(standard input)"
        shows = (code == 0) == (flags["shown"] == "name")
        return f"{name}\n" if shows else "", code
    if flags["shown"] == "numbered":
        return as_lines(_numbered(compress(enumerate(split_lines(text), 1), hits))), code
    kept = list(compress(split_lines(text), hits))
    if flags["shown"] == "only":
        if flags["negated"]:
            return None
        parts = [match[0] for line in kept for match in found.finditer(line) if match[0]]
        return as_lines(parts), code
    return as_lines(kept), code


def _numbered(lines: Iterable[tuple[int, str]]) -> list[str]:
    return [f"{number}:{line}" for number, line in lines]


def _of_binary(given: Given, text: str, hits: Sequence[bool], shown: str, roles: Roles) -> str:
    """Format matches in a binary file: matching lines that are text, and a notice.

    For a file with a NUL only the notice is printed (GNU grep, `src/grep.c`).
    """
    if {"after", "before", "around"} & roles.keys():
        raise ValueError("lines around what is not shown")
    name = given.operands[0] if given.operands else "(standard input)"
    remark = f"grep: {name}: binary file matches"
    if "\0" in text:
        return as_lines([remark] if any(hits) else [])
    found = list(compress(enumerate(split_lines(text), 1), hits))
    shows = [each for each in found if is_text(each[1])]
    made = _numbered(shows) if shown else [line for _, line in shows]
    return as_lines(made + [remark] * (len(shows) < len(found)))


def _first_hits(hits: Sequence[bool], most: int) -> tuple[bool, ...]:
    """Keep only the first matches."""
    left = accumulate(hits)
    return tuple(hit and count <= most for hit, count in zip(hits, left, strict=True))


def _around(lines: Sequence[str], hits: Sequence[bool], roles: Roles, shown: str) -> str:
    """Return the matching lines with context lines, and `--` between groups."""
    if shown not in ("", "numbered"):
        raise ValueError("lines around nothing that is shown")
    around = parse_number(roles.get("around", "0"))
    before, after = (parse_number(roles.get(name, str(around))) for name in ("before", "after"))
    made: list[str] = []
    last = -1
    wanted: dict[int, None] = {}
    for place in (at for at, hit in enumerate(hits) if hit):
        wanted |= dict.fromkeys(range(max(0, place - before), min(len(lines), place + after + 1)))
    for place in wanted:
        if made and place > last + 1:
            made.append("--")
        last = place
        mark = f"{place + 1}{':' if hits[place] else '-'}" if shown else ""
        made.append(mark + lines[place])
    return as_lines(made)


@remembered
def _hits(text: str, pattern: re.Pattern[str], fixed: bool) -> tuple[bool, ...] | None:
    """Return whether each line matches; None if matching may take too long."""
    if not fixed and _reckoned(text, pattern.pattern) > MOST_WORK:
        return None
    return tuple(pattern.search(line) is not None for line in split_lines(text))
