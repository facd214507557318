"""Bash's patterns: matching of `*`, `?` and brackets, in words and in path names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from shioenv.domain.runner import State
from shioenv.errors import Abstained
from shioenv_model.bash.work import COPIED, spend

SPECIAL = frozenset("*?[")
"""Characters that make a word a pattern."""

CLASSES = {
    "alpha": "a-zA-Z", "digit": "0-9", "alnum": "a-zA-Z0-9", "upper": "A-Z", "lower": "a-z",
    "space": r" \t\n\r\f\v", "blank": r" \t", "xdigit": "0-9A-Fa-f",
    "punct": r"!-/:-@\[-`{-~", "cntrl": r"\x00-\x1f\x7f", "print": " -~", "graph": "!-~",
}  # fmt: skip
"""POSIX's character classes in the C locale, in the notation of Python's `re` sets."""

_NAMED = re.compile(r"\[([:.=])(.[^]:.=]*)\1\]", re.DOTALL)
_CLASSES = {**CLASSES, "word": "a-zA-Z0-9_"}
"""Bash's character classes: those of POSIX, and `word`."""


_MOST_PARTS = 100
"""Maximum names in a path pattern, our own limit (PATH_MAX allows about two thousand)."""
_COMPILED = 5
"""Steps charged for each character of a path pattern."""
_LOOK_UP = 20
"""Steps charged for each directory lookup."""


def is_pattern(text: str) -> bool:
    """Whether a text, with its quoted characters backslash-escaped, is a pattern."""
    plain = re.sub(r"\\.", "", text, flags=re.DOTALL)
    return "*" in plain or "?" in plain or 0 <= plain.find("[") < plain.rfind("]") - 1


def unescaped(pattern: str) -> str:
    """Return the text that a pattern without special characters matches."""
    return re.sub(r"\\(.)", r"\1", pattern, flags=re.DOTALL)


def escaped(text: str) -> str:
    """Return the pattern that matches only this text."""
    return re.sub(r"([*?\[\]\\!^-])", r"\\\1", text)


def matches(pattern: str, text: str) -> bool:
    """Whether a pattern matches the whole text, as in `case` and `${x#…}`."""
    # each bracket may be scanned up to the pattern's end
    spend(1 + len(pattern) * pattern.count("[") + (len(pattern) + len(text)) // COPIED)
    return _compiled(pattern).fullmatch(text) is not None


def paths(pattern: str, state: State) -> list[str]:
    """Return the path names that match a pattern in a state, sorted bytewise.

    A leading `.` of a name must be matched literally. `.` and `..` never match under the shell
    option `globskipdots`, which is on by default since Bash 5.2. Errors: Abstained for a pattern of
    too many parts.
    """
    spend(_COMPILED * len(pattern))
    absolute = pattern.startswith("/")
    parts = [part for part in pattern.split("/") if part]
    if len(parts) > _MOST_PARTS:
        raise Abstained("a pattern of path names has too many parts")
    skips_dots = state.before.document["shell_options"].get("globskipdots", False)
    found = list(_walk("/" if absolute else "", parts, state, skips_dots=skips_dots))
    if pattern.endswith("/"):
        found = [f"{path}/" for path in found if _is_directory(path, state)]
    return sorted(found, key=lambda path: path.encode("utf-8", "surrogateescape"))


def _walk(base: str, parts: list[str], state: State, *, skips_dots: bool) -> Iterator[str]:
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
            yield from _walk(path + "/", rest, state, skips_dots=skips_dots)
        return
    names = _names(base or ".", state)
    if first.startswith(".") and not skips_dots:
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
            yield from _walk(path + "/", rest, state, skips_dots=skips_dots)


def _names(path: str, state: State) -> list[str]:
    """Return the names in a directory.

    The work grows with the number of all files in a state with its own context, because all are
    scanned.
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
    # a piece between two stars takes its first match, without backtracking
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
            made, index = bracket(pattern, index) or (r"\[", index)
            pieces[-1] += made
        else:
            pieces[-1] += re.escape(character)
    first, *between = pieces
    last = f".*{between.pop()}" if between else ""
    inner = "".join(f"(?>.*?{piece})" for piece in between if piece)
    return re.compile(first + inner + last, re.DOTALL)


def bracket(text: str, index: int, *, shell: bool = True) -> tuple[str, int] | None:
    """Translate a bracket expression to a set of Python's `re`; return it with the end offset.

    `index` is the offset after the `[`. None if the expression is not closed. Unless `shell`, the
    syntax is that of regular expressions: a backslash is literal, and `!` does not negate.

    Errors: ValueError for an invalid regular expression. Abstained for a character by name
    (`[.space.]`), and for an unclosed class.
    """
    negated = text.startswith(("!", "^") if shell else "^", index)
    index += negated
    members: list[str] = []
    first = True
    while index < len(text):
        if text[index] == "]" and not first:
            return _set_of(members, negated), index + 1
        first = False
        member, low, index = _member(text, index, shell)
        if not low or not text.startswith("-", index) or text[index + 1 : index + 2] == "]":
            members.append(member)
            continue
        if index + 1 == len(text):
            return (_NOTHING, len(text)) if shell else None
        last, high, index = _member(text, index + 1, shell, is_end=True)
        if low <= high:
            members.append(f"{member}-{last}")
        elif not shell:
            raise ValueError("a range ends before it begins")
    return None


_NOTHING = r"(?!)"


def _set_of(members: list[str], negated: bool) -> str:
    inside = "".join(members)
    if inside:
        return f"[^{inside}]" if negated else f"[{inside}]"
    return r"(?s:.)" if negated else _NOTHING


def _member(text: str, index: int, shell: bool, *, is_end: bool = False) -> tuple[str, str, int]:
    """Parse a member of a bracket expression: its notation in `re`, its character, its end.

    The character is "" for members that cannot delimit a range, such as classes. With `is_end`, the
    member ends a range, where Bash allows no class.
    """
    named = _NAMED.match(text, index)
    if named is None or (shell and is_end and named[1] != "."):
        opens = shell and not named and text.startswith(("[:", "[.", "[="), index)
        if opens and "]" in text[index:]:
            raise Abstained("a class in a pattern is never closed")
        index += shell and text[index] == "\\" and index + 1 < len(text)
        return re.escape(text[index]), text[index], index + 1
    kind, name = named.groups()
    if kind == ":":
        known = _CLASSES if shell else CLASSES
        if name not in known and not shell:
            raise ValueError(f"there is no class {name!r}")
        return known.get(name, ""), "", named.end()
    if len(name) > 1:
        raise Abstained(f"the character called {name:.40} is not known")
    return re.escape(name), name if kind == "." else "", named.end()
