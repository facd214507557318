"""Bash's patterns: what `*`, `?` and brackets match, in words and in path names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from shioenv.domain.runner import State

SPECIAL = frozenset("*?[")
"""What makes a word a pattern."""

CLASSES = {
    "alpha": "a-zA-Z", "digit": "0-9", "alnum": "a-zA-Z0-9", "upper": "A-Z", "lower": "a-z",
    "space": r" \t\n\r\f\v", "blank": r" \t", "xdigit": "0-9A-Fa-f",
    "punct": r"!-/:-@\[-`{-~", "cntrl": r"\x00-\x1f\x7f", "print": " -~", "graph": "!-~",
}  # fmt: skip
"""POSIX's classes of characters in the C locale, as they stand in a bracket of Python's `re`."""

_CLASSES = {**CLASSES, "word": "a-zA-Z0-9_"}
"""Those of Bash, which has one more."""


def is_pattern(text: str) -> bool:
    """Whether a text, its quoted characters behind backslashes, matches more than itself."""
    plain = re.sub(r"\\.", "", text, flags=re.DOTALL)
    return "*" in plain or "?" in plain or re.search(r"\[.+\]", plain, re.DOTALL) is not None


def unescaped(pattern: str) -> str:
    """The text that a pattern without special characters is."""
    return re.sub(r"\\(.)", r"\1", pattern, flags=re.DOTALL)


def escaped(text: str) -> str:
    """The pattern that matches this text alone."""
    return re.sub(r"([*?\[\]\\!^-])", r"\\\1", text)


def matches(pattern: str, text: str) -> bool:
    """Whether a pattern matches the whole text, as in `case` and `${x#…}`."""
    return _compiled(pattern).fullmatch(text) is not None


def paths(pattern: str, state: State) -> list[str]:
    """The path names that a pattern matches in a state, sorted by their bytes; none is an empty
    list. A leading `.` has to be written.
    """
    absolute = pattern.startswith("/")
    parts = [part for part in pattern.split("/") if part]
    found = list(_walk("/" if absolute else "", parts, state))
    if pattern.endswith("/"):
        found = [f"{path}/" for path in found if _is_directory(path, state)]
    return sorted(found, key=lambda path: path.encode("utf-8", "surrogateescape"))


def _walk(base: str, parts: list[str], state: State) -> Iterator[str]:
    if not parts:
        yield base
        return
    first, *rest = parts
    if not is_pattern(first):
        path = base + unescaped(first)
        if not rest:
            if _exists(path, state):
                yield path
        elif _is_directory(path, state):
            yield from _walk(path + "/", rest, state)
        return
    names = state.names(base or ".")
    if first.startswith("."):
        names = [".", "..", *names]
    for name in names:
        if name.startswith(".") and not first.startswith((".", "\\.")):
            continue
        if name in (".", "..") and first not in (".", "..", ".*", ".?", "..?"):
            continue
        if not matches(first, name):
            continue
        path = base + name
        if not rest:
            yield path
        elif _is_directory(path, state):
            yield from _walk(path + "/", rest, state)


def _exists(path: str, state: State) -> bool:
    parent, _, name = path.rstrip("/").rpartition("/")
    if not name or name in (".", ".."):
        return _is_directory(path or ".", state)
    return name in state.names(parent or ("/" if path.startswith("/") else "."))


def _is_directory(path: str, state: State) -> bool:
    entry = state.entry(path)
    return entry is not None and entry.perms.startswith("d")


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    # what stands between two stars is found where it comes first: nothing is tried twice
    pieces = [""]
    index = 0
    while index < len(pattern):
        character = pattern[index]
        index += 1
        if character == "*":
            pieces.append("")
        elif character == "\\" and index < len(pattern):
            pieces[-1] += re.escape(pattern[index])
            index += 1
        elif character == "?":
            pieces[-1] += "."
        elif character == "[":
            bracket, index = _bracket(pattern, index)
            pieces[-1] += bracket
        else:
            pieces[-1] += re.escape(character)
    first, *between = pieces
    last = f".*{between.pop()}" if between else ""
    inner = "".join(f"(?>.*?{piece})" for piece in between if piece)
    try:
        return re.compile(first + inner + last, re.DOTALL)
    except re.error:  # a range whose end comes first, which matches nothing
        return re.compile(r"(?!)")


def _bracket(pattern: str, index: int) -> tuple[str, int]:
    """The set that begins behind a `[`, and where it ends; the bracket itself where none does."""
    start = index
    negated = pattern[index : index + 1] in ("!", "^")
    index += negated
    members: list[str] = []
    first = True
    while index < len(pattern):
        if pattern[index] == "]" and not first:
            inside = "".join(members)
            return f"[{'^' if negated else ''}{inside}]", index + 1
        first = False
        named = re.compile(r"\[:(\w+):\]").match(pattern, index)
        if named and named[1] in _CLASSES:
            members.append(_CLASSES[named[1]])
            index = named.end()
            continue
        if pattern[index] == "\\" and index + 1 < len(pattern):
            index += 1
            members.append(re.escape(pattern[index]))
        elif pattern[index] == "-":
            is_range = members and pattern[index + 1 : index + 2] not in ("]", "")
            members.append("-" if is_range else r"\-")
        else:
            members.append(re.escape(pattern[index]))
        index += 1
    return r"\[", start
