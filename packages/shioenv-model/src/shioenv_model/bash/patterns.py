"""Bash's patterns: what `*`, `?` and brackets match, in words and in path names."""

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
"""POSIX's character classes in the C locale, as they are written in a set of Python's `re`."""

_NAMED = re.compile(r"\[([:.=])(.[^]:.=]*)\1\]", re.DOTALL)
_CLASSES = {**CLASSES, "word": "a-zA-Z0-9_"}
"""The character classes of Bash, which has one more than POSIX."""


_MOST_PARTS = 100
"""Names in a path pattern at most (ours: PATH_MAX would allow for two thousand)."""
_COMPILED = 5
"""Steps that one character of a path pattern takes."""
_LOOK_UP = 20
"""Steps that one look at a directory takes."""


def is_pattern(text: str) -> bool:
    """Whether a text is a pattern; its quoted characters stand behind backslashes."""
    plain = re.sub(r"\\.", "", text, flags=re.DOTALL)
    return "*" in plain or "?" in plain or 0 <= plain.find("[") < plain.rfind("]") - 1


def unescaped(pattern: str) -> str:
    """The text that a pattern without special characters matches."""
    return re.sub(r"\\(.)", r"\1", pattern, flags=re.DOTALL)


def escaped(text: str) -> str:
    """The pattern that matches this text alone."""
    return re.sub(r"([*?\[\]\\!^-])", r"\\\1", text)


def matches(pattern: str, text: str) -> bool:
    """Whether a pattern matches the whole text, as in `case` and `${x#…}`."""
    # the end of each bracket may be looked for up to the pattern's end
    spend(1 + len(pattern) * pattern.count("[") + (len(pattern) + len(text)) // COPIED)
    return _compiled(pattern).fullmatch(text) is not None


def paths(pattern: str, state: State) -> list[str]:
    """The path names that a pattern matches in a state, sorted by their bytes.

    A leading `.` of a name matches only a `.` that is written. `.` and `..` match nothing where the
    shell has the option `globskipdots`, which is on by default since Bash 5.2. Errors: Abstained
    for a pattern of too many parts.
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
    """The names in a directory. The work grows with all files where the state has a context of its
    own: they are all looked through.
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
    # a piece between two stars matches where it first can, and is never tried again
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
    """The set that a bracket expression stands for, as Python's `re` writes it, and where it ends.

    `index` is behind the `[`. None where the expression never ends. Unless `shell`, the expression
    is one of a regular expression: a backslash stands for itself and `!` negates nothing.

    Errors: ValueError where a regular expression with this bracket is refused. Abstained for a
    character by its name (`[.space.]`) and for a class that is never closed.
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
    """The member of a bracket expression at `index`: how `re` writes it, its character, its end.

    The character is "" where no range may begin or end with the member, as with a class. With
    `is_end`, the member ends a range, where Bash knows no class.
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
