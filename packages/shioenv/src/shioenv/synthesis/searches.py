"""Detection of searches (for files, lines, repetitions) that find nothing.

An expression that is not understood counts as one that finds something.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import translate
from functools import cache
from itertools import pairwise

from shioenv.bash.words import unquoted

LONGEST_LINE = 500
"""Number of characters of a line that are searched (our choice; it bounds the time)."""

UNKNOWN = "a e i n o r s t 0 1 2 : /\n"
"""The assumed content of an unknown output (our choice)."""

_NEVER = frozenset({"-nouser", "-nogroup", "-false", "-quit"})
_NONE = re.compile(
    r"-[acm](?:min -\d+|time (?:-[01]|\+(?:18\d|19\d|[2-9]\d\d|\d{4,})))|-size \+\d+(?:[MG]|\d\dk)"
)
"""Tests for times and sizes that no file of a system has: files are up to half a year old."""

_CLASSES = {"alpha": "a-zA-Z", "lower": "a-z", "upper": "A-Z", "digit": "0-9", "alnum": "a-zA-Z0-9"}
_CLASSES |= {"space": r"\s", "blank": r" \t", "punct": r"!-/:-@\[-`{-~", "xdigit": "0-9a-fA-F"}


def finds_no_file(words: Sequence[str], types: Mapping[str, str]) -> bool:
    """Whether `find` with these words finds none of the paths, given with their types.

    Only tests that must all hold are understood, on names and types.
    """
    if not {"-o", "-or", ",", "\\(", "-prune", "-files0-from"}.isdisjoint(words):
        return False
    top = "" if any(word in types and word != "." for word in words[1:]) else "./"
    left = [(top + path, kind) for path, kind in types.items()]
    negated = False
    for word in words[1:]:
        if word in {"!", "\\!", "-not"}:
            negated = not negated
            continue
        test = _test(word)
        if test is not None:
            left = [(path, kind) for path, kind in left if test(path, kind) is not negated]
        negated = False
    return not left


def _test(word: str) -> Callable[[str, str], bool] | None:
    """Return whether a path of a type passes a test of `find`; None if that is not known."""
    name, _, value = word.partition(" ")
    value = unquoted(value)
    if name in _NEVER or _NONE.fullmatch(word) or (name == "-fstype" and value != "overlay"):
        return lambda path, kind: False
    if name == "-type":
        return lambda path, kind: kind in value.split(",")
    if name == "-maxdepth" and value == "0":
        return lambda path, kind: kind == "d"
    of_name, of_path = name in {"-name", "-iname"}, name in {"-path", "-ipath", "-wholename"}
    pattern = _pattern(value, "E", "") if name in {"-regex", "-iregex"} else None
    if of_name or of_path or name == "-iwholename":
        pattern = re.compile(translate(value), re.IGNORECASE if name[1] == "i" else 0)
    if pattern is None:
        return None
    if of_name:
        return lambda path, kind: pattern.fullmatch(posixpath.basename(path)) is not None
    return lambda path, kind: pattern.fullmatch(path) is not None


def finds_no_repeated(options: Sequence[str], texts: Sequence[str | None]) -> bool:
    """Whether `uniq` with these options asks for repeated lines that the texts lack."""
    asked = {"-d", "-D", "--repeated"} & set(options) or any(
        word.startswith("--all-repeated") or re.match(r"(-|<ns>)[cidDu]*[dD]", word)
        for word in options
    )
    pairs = (pairwise((text or "").splitlines()) for text in texts)
    return bool(asked) and not any(first == second for each in pairs for first, second in each)


def finds_no_column(options: Sequence[str], texts: Sequence[str | None]) -> bool:
    """Whether `comm` with these options prints none of the columns of two texts."""
    if "--total" in options or len(texts) != 2 or None in texts:
        return False
    first, second = (set((text or "").splitlines()) for text in texts)
    columns = {"1": first - second, "2": second - first, "3": first & second}
    left_out = set("".join(word for word in options if not word.startswith("--")))
    return not any(lines for name, lines in columns.items() if name not in left_out)


def finds_no_line(
    options: Sequence[str], operands: Sequence[str], texts: Sequence[str | None]
) -> bool:
    """Whether `grep` with these options finds no line of the texts; None is an unknown text."""
    short = (word.partition(" ")[0] for word in options if not word.startswith("--"))
    letters = set("".join(short))
    others = re.compile("--(file|count|dir)")
    if letters & {"c", "f"} or any(map(others.match, options)):
        return False
    if letters & {"r", "R"} or "--recursive" in options:
        texts = ()
    named = [unquoted(word.partition(" ")[2]) for word in options if word.startswith("-e ")]
    named += [unquoted(w[9:]) for w in options if w.startswith("--regexp=")]
    patterns = named or [unquoted(word) for word in operands[:1]]
    language = next((letter for letter in "PEF" if letter in letters), "G")
    language = {"--extended-regexp": "E", "--fixed-strings": "F", "--perl-regexp": "P"}.get(
        next((word for word in options if word.endswith(("regexp", "strings"))), ""), language
    )
    matches = [
        _pattern(pattern, language, "".join(sorted(letters & {"i", "w", "x"})))
        for pattern in patterns
    ]
    inverted = "v" in letters or "--invert-match" in options
    if not matches or None in matches:
        return False
    lines = [line for text in texts or [UNKNOWN] for line in (text or UNKNOWN).splitlines()]
    return not any(
        any(match.search(line[:LONGEST_LINE]) for match in matches if match) is not inverted
        for line in lines
    )


@cache
def _pattern(text: str, language: str, letters: str) -> re.Pattern[str] | None:
    """Compile a pattern of one of grep's languages (G, E, P or F); None if that is not possible."""
    if language == "F":
        text = re.escape(text)
    for name, members in _CLASSES.items():
        text = text.replace(f"[:{name}:]", members)
    if language == "G":
        text = re.sub(r"(\\?)([+?|(){}])", lambda m: m[2] if m[1] else f"\\{m[2]}", text)
    text = re.sub(r"\\[<>]", r"\\b", text)
    text = re.sub(r"(?<!\\)\[\[", r"[\\[", text)  # otherwise Python warns of nested sets
    if "w" in letters:
        text = rf"\b(?:{text})\b"
    if "x" in letters:
        text = rf"^(?:{text})$"
    try:
        return re.compile(text, re.IGNORECASE if "i" in letters else 0)
    except (re.error, OverflowError, RecursionError):
        return None
