"""Shell words: splitting of a line, quoting, and removal of quotes."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from itertools import takewhile

from shioenv.bash.builtins import KEYWORDS

CLOSING = {"(": ")", "{": "}"}
OPENINGS = ("$(", "${", "<(", ">(")
"""Openings of substitutions."""

_DEEPEST = 50
"""Maximum nesting of quotes and substitutions. One that is deeper extends to the end of the
text."""

_HOLDING = re.compile(r"[\\'\"`$<>]")
"""Characters that may begin a quotation or a substitution."""
_PLAIN = re.compile(r"[^ \t\n\\'\"`$<>]+")
_PIECE = re.compile(r"[^ \t\n]+")
_QUOTATION = re.compile(r"\\.?|'[^']*'?|`[^`]*`?|\$'(?:\\.|[^'\\])*\\?'?", re.DOTALL)


BARE = re.compile(r"[\w@%+=:,./-]+", re.ASCII)
"""A word that needs no quotes."""
_COMMAND = re.compile(r"[\w./+-]+", re.ASCII)
"""A word that needs no quotes as a command's name. `=` (assignment) and `%` (job) are excluded."""

_REMOVED = re.compile(
    r"""\\(\n|.?)|'([^']*)'?|\$'((?:[^'\\]++|\\.?)*)'?|\$?"((?:[^"\\]++|\\.?)*)"?""", re.DOTALL
)
r"""Quoted parts: `\x`, `'…'`, `$'…'`, `"…"` and `$"…"`."""
_IN_DOUBLE_QUOTES = re.compile(r'\\(?:([$`"\\])|\n)')
_ANSI = re.compile(
    r"\\(?:([0-7]{1,3})|x\{([0-9A-Fa-f]*)\}?|x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})"
    r"|U([0-9A-Fa-f]{1,8})|c(\\\\|.)|(.))",
    re.DOTALL,
)
_ANSI_LETTERS = {
    "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t",
    "v": "\v", "\\": "\\", "'": "'", '"': '"', "?": "?",
}  # fmt: skip


def quoted(text: str, *, command: bool = False, always: bool = False) -> str:
    """Return the text as a literal shell word, quoted if necessary or if `always`.

    With `command`, the word is the first of a command. There, keywords and further characters need
    quotes.
    """
    bare = _COMMAND if command else BARE
    if not always and bare.fullmatch(text) and not (command and text in KEYWORDS):
        return text
    return "'" + text.replace("'", "'\"'\"'") + "'"


def unquoted(word: str) -> str:
    """Return a word without its quotes, as Bash removes them. Only `$'…'` in it is expanded.

    Never fails: an unclosed quotation extends to the end. Bytes that are not UTF-8 become
    surrogates, by `surrogateescape`.
    """
    if not ("'" in word or '"' in word or "\\" in word):
        return word
    return _REMOVED.sub(_removed, word)


def plain_words(text: str) -> list[str]:
    """Return the words of a line without their quotes."""
    return [unquoted(word) for word in split_words(text)]


def _removed(match: re.Match[str]) -> str:
    escaped, single, decoded, double = match.groups()
    if escaped is not None:
        return "" if escaped == "\n" else escaped or "\\"
    if single is not None:
        return single
    return ansi(decoded) if double is None else _IN_DOUBLE_QUOTES.sub(r"\1", double)


def ansi(text: str) -> str:
    """Expand the text between the quotes of a `$'…'`. A NUL ends it, as in Bash.

    Bytes that are not UTF-8 become surrogates, by `surrogateescape`.
    """
    decoded = _ANSI.sub(_decoded, text).partition("\0")[0]
    if decoded.isascii():
        return decoded
    return decoded.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")


def _decoded(match: re.Match[str]) -> str:
    octal, braced, two, four, eight, control, other = match.groups()
    if four or eight:
        point = int(four or eight, 16)
        is_text = point <= sys.maxunicode and not 0xD800 <= point < 0xE000
        return chr(point) if is_text else _byte(0xFF)
    if control:
        return "\x7f" if control == "?" else _byte(ord(control[0].upper()) & 0x1F)
    if other is not None:
        return _ANSI_LETTERS.get(other, f"\\{other}")
    return _byte(int(octal, 8) if octal else int(braced or two or "0", 16))


def _byte(number: int) -> str:
    """Return a byte as text; `ansi` later joins bytes from 0x80 on into characters."""
    number &= 0xFF
    return chr(number) if number < 0x80 else chr(0xDC00 + number)


def split_words(text: str) -> list[str]:
    r"""Split a line into words at unquoted blanks and newlines; the words keep their quotes.

    Quotes, backslashes, `$(…)`, `${…}`, `` `…` ``, `<(…)` and `>(…)` hold a word together. Never
    fails: an unclosed bracket or quote extends to the end. Operators are not separated from words.
    """
    if not _HOLDING.search(text):
        return _PIECE.findall(text)
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
        plain = _PLAIN.match(text, index)
        index = plain.end() if plain else _unit_end(text, index)
    if start is not None:
        words.append(text[start:])
    return words


def substitutions(text: str) -> list[str]:
    """Return the commands in the outermost `$(…)`, `<(…)`, `>(…)` and `` `…` `` of a text.

    Text in single quotes, escaped text and arithmetic are no substitutions. Never fails: an
    unclosed substitution extends to the end.
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
    """Return the end of the character, quotation or substitution that starts at `index`."""
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
    r"""Return the end of the `\x`, `'…'`, `` `…` `` or `$'…'` at `index`; `index` if none."""
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
    """Return the end of the bracket at `index`, past quotes and inner brackets."""
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
    """Count the leading assignments of a command. The last word is never counted."""
    return len(list(takewhile(is_assignment, words[:-1])))


def without_assignments(command: str) -> str:
    """Remove the assignments before a command: `TZ=UTC date` becomes `date`."""
    words = split_words(command)
    place = 0
    for word in words[: n_assignments(words)]:
        place = command.index(word, place) + len(word)
    return command[place:].lstrip() if place else command
