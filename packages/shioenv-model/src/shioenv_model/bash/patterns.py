"""Patterns of Bash (`*`, `?`, brackets) and of POSIX, translated to Python's `re`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
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
"""Maximum number of names in a path pattern (our choice; PATH_MAX allows about two thousand)."""
_COMPILED = 5
"""Steps charged for each character of a path pattern."""
_LOOK_UP = 20
"""Steps charged for each directory lookup."""


EXTENDED = re.compile(r"[?*+@!]\(")
"""The beginning of an extended pattern, as in `@(a|b)`."""


def is_pattern(text: str, *, extended: bool = False) -> bool:
    """Whether a text is a pattern; its quoted characters have backslashes."""
    plain = re.sub(r"\\.", "", text, flags=re.DOTALL)
    if extended and EXTENDED.search(plain):
        return True
    return "*" in plain or "?" in plain or 0 <= plain.find("[") < plain.rfind("]") - 1


def unescaped(pattern: str) -> str:
    """Return the text that a pattern without special characters matches."""
    return re.sub(r"\\(.)", r"\1", pattern, flags=re.DOTALL)


def escaped(text: str) -> str:
    """Return the pattern that matches only this text."""
    return re.sub(r"([*?\[\]\\!^()|+@-])", r"\\\1", text)


def matches(pattern: str, text: str, *, extended: bool = False, folds: bool = False) -> bool:
    """Whether a pattern matches the whole text, as in `case` and `${x#…}`.

    `extended`: groups such as `@(a|b)` are special. `folds`: case is ignored.
    """
    if extended and EXTENDED.search(pattern):
        pattern, text = (pattern.lower(), text.lower()) if folds else (pattern, text)
        return len(text) in _ends(pattern, text, {0})
    # each bracket may be scanned up to the pattern's end
    spend(1 + len(pattern) * pattern.count("[") + (len(pattern) + len(text)) // COPIED)
    return _compiled(pattern, folds).fullmatch(text) is not None


def _ends(pattern: str, text: str, starts: set[int]) -> set[int]:
    """Return the offsets at which a match of an extended pattern from `starts` may end."""
    index = 0
    while index < len(pattern) and starts:
        spend(len(starts) + 1)
        sign = pattern[index]
        if EXTENDED.match(pattern, index):
            parts, index = _alternatives(pattern, index + 2)
            starts = _group_ends(sign, parts, text, starts)
            continue
        index += 1
        if sign == "*":
            starts = set(range(min(starts), len(text) + 1))
            continue
        made = re.escape(sign)
        if sign == "?":
            made = "."
        elif sign == "\\" and index < len(pattern):
            made, index = re.escape(pattern[index]), index + 1
        elif sign == "[":
            made, index = bracket(pattern, index) or (made, index)
        one = re.compile(made, re.DOTALL)
        starts = {start + 1 for start in starts if one.match(text, start)}
    return starts


def _group_ends(sign: str, parts: list[str], text: str, starts: set[int]) -> set[int]:
    """Return the ends of a group of alternatives, with the sign before it."""

    def once(starts: set[int]) -> set[int]:
        return {end for part in parts for end in _ends(part, text, starts)}

    if sign == "!":
        return {
            end
            for start in starts
            for end in {*range(start, len(text) + 1)} - once({start})
        }  # fmt: skip
    found = once(starts)
    if sign in "*+":
        new = found
        while new := once(new) - found:
            found |= new
    return found | starts if sign in "?*" else found


def _alternatives(pattern: str, index: int) -> tuple[list[str], int]:
    """Split a group at its `|`; return the parts and the offset after its `)`.

    Errors: Abstained for a group that is not closed.
    """
    parts, depth = [""], 0
    while index < len(pattern):
        character, start = pattern[index], index
        index += 1
        if character == "\\":
            index += 1
        elif character == "[":
            index = (bracket(pattern, index) or ("", index))[1]
        elif character == ")" and not depth:
            return parts, index
        elif character == "|" and not depth:
            parts.append("")
            continue
        depth += (character == "(") - (character == ")")
        parts[-1] += pattern[start:index]
    raise Abstained("an extended pattern that is not closed")


def paths(pattern: str, state: State) -> list[str]:
    """Return the path names that match a pattern in a state, sorted bytewise.

    The state's shell options apply. Without `dotglob`, a leading `.` of a name must be matched
    literally. `.` and `..` never match under `globskipdots`, which is on by default since Bash 5.2.
    Errors: Abstained for a pattern of too many parts.
    """
    spend(_COMPILED * len(pattern))
    absolute = pattern.startswith("/")
    parts = [part for part in pattern.split("/") if part]
    if len(parts) > _MOST_PARTS:
        raise Abstained("a pattern of path names has too many parts")
    found = list(dict.fromkeys(_walk("/" if absolute else "", parts, state)))
    if pattern.endswith("/"):
        found = [f"{path.rstrip('/')}/" for path in found if path and _is_directory(path, state)]
        found = list(dict.fromkeys(found))
    return sorted(found, key=lambda path: path.encode("utf-8", "surrogateescape"))


def _walk(base: str, parts: list[str], state: State) -> Iterator[str]:
    if not parts:
        yield base
        return
    first, *rest = parts
    options = state.before.document["shell_options"]
    extended, folds = bool(options.get("extglob")), bool(options.get("nocaseglob"))
    if first == "**" and options.get("globstar"):
        if base and not rest:
            yield base
        yield from _walk_below(base, rest, state, hidden=bool(options.get("dotglob")))
        return
    if not is_pattern(first, extended=extended):
        path = base + unescaped(first)
        if not rest:
            if _exists(path, state):
                yield path
        elif _is_directory(path, state):
            yield from _walk(path + "/", rest, state)
        return
    names = _names(base or ".", state)
    if first.startswith(".") and not options.get("globskipdots"):
        names = [".", "..", *names]
    for name in names:
        shows = options.get("dotglob") and name not in (".", "..")
        if name.startswith(".") and not shows and not first.startswith((".", "\\.")):
            continue
        if name in (".", "..") and first not in (".", "..", ".*", ".?", "..?"):
            continue
        if not matches(first, name, extended=extended, folds=folds):
            continue
        path = base + name
        if not rest:
            yield path
        elif _is_directory(path, state):
            yield from _walk(path + "/", rest, state)


def _walk_below(base: str, rest: list[str], state: State, *, hidden: bool) -> Iterator[str]:
    """Yield the matches of `**`: any number of directories, and as the last part any file below."""
    if rest:
        yield from _walk(base, rest, state)
    for name in _names(base or ".", state):
        if name.startswith(".") and not hidden:
            continue
        entry = state.entry(base + name)
        if entry is not None and entry.perms.startswith("d"):
            yield from _walk_below(f"{base}{name}/", rest, state, hidden=hidden)
        if not rest:
            yield base + name


def _names(path: str, state: State) -> list[str]:
    """Return the names in a directory.

    If the state has its own context, the work grows with the number of all its files.
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
def _compiled(pattern: str, folds: bool) -> re.Pattern[str]:
    # a piece between two stars matches at its first occurrence, without backtracking
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
    return re.compile(first + inner + last, re.DOTALL | (re.IGNORECASE if folds else 0))


def bracket(text: str, index: int, *, shell: bool = True) -> tuple[str, int] | None:
    """Translate a bracket expression to a set of Python's `re`; return it with the end offset.

    `index` is the offset after the `[`. None if the expression is not closed. Without `shell`, the
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
    member is the end of a range, which cannot be a class in Bash.
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
            raise ValueError(f"unknown class {name!r}")
        return known.get(name, ""), "", named.end()
    if len(name) > 1:
        raise Abstained(f"the character {name:.40} is unknown")
    return re.escape(name), name if kind == "." else "", named.end()


_MOST_GROUPS = 40
"""Maximum number of groups in a pattern. Too many nested groups would exhaust Python's stack."""

_NESTED = re.compile(r"[*+?}|][^()]*\)[*+{]|\)[*+?}][^()]*\)[*+{]")
"""A repeated group that contains a repetition or a choice."""
_LONGEST = {True: 24, False: 2_000}
"""Maximum length of a text, by whether the expression has such a group."""


_INVALID = re.compile(r"(?:^|(?<!\\)[(|])[*+?]|\{\d+$")
"""Repetitions of nothing, and counts that are not closed; only some C libraries accept them."""


def found_groups(parts: Sequence[tuple[str, bool]], text: str, *, folds: bool) -> list[str] | None:
    """Return the match of an extended expression in a text, and its groups; None without a match.

    `parts` are the pieces of the expression; the flag marks quoted pieces, which match literally.
    Errors: Abstained for invalid and costly expressions.
    """
    source = "".join(
        re.sub(r"[\\^$.\[\]|()+*?{}]", r"\\\g<0>", part) if quoted else part
        for part, quoted in parts
    )
    if len(text) > _LONGEST[_NESTED.search(source) is not None] or len(source) > 1_000:
        raise Abstained("the regular expression may take long to match")
    spend(len(source) * (1 + len(text)))
    if _INVALID.search(source):
        raise Abstained(f"the regular expression {source!r:.40} is invalid")
    try:
        found = re.search(
            translated(source, "extended"), text, re.DOTALL | (re.IGNORECASE if folds else 0)
        )
    except (ValueError, re.error):
        raise Abstained(
            f"the regular expression {source!r:.40} is invalid or not supported"
        ) from None
    return None if found is None else [found[0], *(group or "" for group in found.groups())]


def translated(source: str, syntax: str) -> str:
    """Translate a POSIX regular expression to Python. Errors: ValueError if it is invalid.

    `syntax` is `basic` or `extended`.
    """
    special = frozenset("(){}|+?")
    made: list[str] = []
    if len(re.findall(r"\(", source)) > _MOST_GROUPS:
        raise ValueError("too many groups")
    index = 0
    while index < len(source):
        character = source[index]
        if character == "[":
            found = bracket(source, index + 1, shell=False)
            if found is None:
                raise ValueError("a bracket is not closed")
            made.append(found[0])
            index = found[1]
            continue
        index += 1
        if character == "\\":
            follows = source[index : index + 1]
            if not follows:
                raise ValueError("a backslash at the end")
            index += 1
            if follows in "<>":
                made.append(r"\b")
            elif follows in "wWsSbB" or follows.isdigit():
                made.append(f"\\{follows}")
            elif syntax == "basic" and follows in special:
                made.append(follows)
            else:
                made.append(re.escape(follows))
        elif syntax == "basic" and character in special:
            made.append(re.escape(character))
        elif character == "*" and (not made or made[-1] in ("(", "|", "^")):
            made.append(r"\*")
        elif character == "$":
            made.append(r"\Z")
        elif character == "^" and syntax == "basic" and made and made[-1] not in ("(", "|"):
            made.append(r"\^")
        elif character in special or character in ".*^":
            made.append(character)
        else:
            made.append(re.escape(character))
    return "".join(made)
