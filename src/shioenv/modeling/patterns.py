"""Bash's patterns: what `*`, `?` and brackets match, in words and in path names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from shioenv.domain.runner import State
from shioenv.domain.work import COPIED, spend
from shioenv.errors import Abstained

SPECIAL = frozenset("*?[")
"""What makes a word a pattern."""

CLASSES = {
    "alpha": "a-zA-Z", "digit": "0-9", "alnum": "a-zA-Z0-9", "upper": "A-Z", "lower": "a-z",
    "space": r" \t\n\r\f\v", "blank": r" \t", "xdigit": "0-9A-Fa-f",
    "punct": r"!-/:-@\[-`{-~", "cntrl": r"\x00-\x1f\x7f", "print": " -~", "graph": "!-~",
}  # fmt: skip
"""POSIX's classes of characters in the C locale, as they stand in a bracket of Python's `re`."""

_NAMED = re.compile(r"\[:(\w{1,9}):\]")
_CLASSES = {**CLASSES, "word": "a-zA-Z0-9_"}
"""Those of Bash, which has one more."""


_MOST_PARTS = 100
"""Names in a path at most (ours): PATH_MAX would allow for two thousand."""
_COMPILED = 5
"""Steps that a character of a pattern takes."""
_LOOK_UP = 20
"""Steps that a look at a directory takes."""


def is_pattern(text: str) -> bool:
    """Whether a text, its quoted characters behind backslashes, matches more than itself."""
    plain = re.sub(r"\\.", "", text, flags=re.DOTALL)
    return "*" in plain or "?" in plain or 0 <= plain.find("[") < plain.rfind("]") - 1


def unescaped(pattern: str) -> str:
    """The text that a pattern without special characters is."""
    return re.sub(r"\\(.)", r"\1", pattern, flags=re.DOTALL)


def escaped(text: str) -> str:
    """The pattern that matches this text alone."""
    return re.sub(r"([*?\[\]\\!^-])", r"\\\1", text)


def matches(pattern: str, text: str) -> bool:
    """Whether a pattern matches the whole text, as in `case` and `${x#…}`."""
    # each bracket may be looked for up to the end
    spend(1 + (len(pattern) * (1 + pattern.count("[")) + len(text)) // COPIED)
    return _compiled(pattern).fullmatch(text) is not None


def paths(pattern: str, state: State) -> list[str]:
    """The path names that a pattern matches in a state, sorted by their bytes; none is an empty
    list. A leading `.` has to be written.
    """
    spend(_COMPILED * len(pattern))
    absolute = pattern.startswith("/")
    parts = [part for part in pattern.split("/") if part]
    if len(parts) > _MOST_PARTS:
        raise Abstained("a pattern of path names has too many parts")
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
    names = _names(base or ".", state)
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


def _names(path: str, state: State) -> list[str]:
    """What a directory holds. Of a machine on which something was run, all its files are looked
    through for that.
    """
    spend(_LOOK_UP + (len(state.context.document["fs"]) // 10 if state.context else 0))
    names = state.names(path)
    spend(len(names))
    return names


def _exists(path: str, state: State) -> bool:
    parent, _, name = path.rstrip("/").rpartition("/")
    if not name or name in (".", ".."):
        return _is_directory(path or ".", state)
    return name in _names(parent or ("/" if path.startswith("/") else "."), state)


def _is_directory(path: str, state: State) -> bool:
    spend(_LOOK_UP)
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
        named = _NAMED.match(pattern, index)
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
