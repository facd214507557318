"""Functions of characters: translate, delete, squeeze, encode and hash texts."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import lru_cache

from shioenv_model.bash.patterns import CLASSES
from shioenv_model.memory.functions.space import (
    ESCAPES,
    Flags,
    Given,
    Result,
    Roles,
    as_bytes,
    bytes_as_text,
    check_length,
    width_of,
)

_FACTOR = 100
"""The cost of a character of a set, relative to a printed character."""

_OCTAL = re.compile(r"\\([0-3]?[0-7]{1,2})")
_BYTES = [chr(number) for number in range(256)]


@lru_cache(maxsize=256)
def set_of(word: str) -> str:
    """Expand a set of tr(1) to its characters, in order.

    Errors: ValueError, KeyError and IndexError for a set that is invalid or too large.
    """
    items: list[str] = []
    index = 0
    while index < len(word):
        check_length(_FACTOR * len(items))
        named = re.compile(r"\[:(\w+):\]").match(word, index)
        if named:
            inside = re.compile(f"[{CLASSES[named[1]]}]")
            items += filter(inside.match, _BYTES)
            index = named.end()
            continue
        one, index = _character(word, index)
        if word[index : index + 1] == "-" and index + 1 < len(word):
            last, index = _character(word, index + 1)
            if last < one:
                raise ValueError(word)
            items += [chr(each) for each in range(ord(one), ord(last) + 1)]
        else:
            items.append(one)
    return "".join(items)


def _character(word: str, index: int) -> tuple[str, int]:
    """Return the character at a position of a set, and the next position.

    Errors: IndexError for a trailing backslash, about which tr warns.
    """
    if octal := _OCTAL.match(word, index):
        return chr(int(octal[1], 8)), octal.end()
    if word[index] == "\\":
        return ESCAPES.get(word[index + 1], word[index + 1]), index + 2
    return word[index], index + 1


def exchange(given: Given, roles: Roles, flags: Flags) -> str | None:
    """Translate characters of a set to another set, delete them, or squeeze them (tr(1))."""
    text = given.text or ""
    first = set_of(roles["these"])
    if flags["others"]:
        first = "".join(each for each in _BYTES if each not in first)
    if not first:
        raise ValueError("an empty set")
    if flags["how"] == "deleted":
        gone = frozenset(first)
        made = "".join(each for each in text if each not in gone)
        return _squeezed(made, set_of(roles["by"])) if "by" in roles else made
    if "by" not in roles:
        return _squeezed(text, first) if flags["how"] == "squeezed" else None
    by = set_of(roles["by"])
    if not by:
        raise ValueError("an empty set")
    if flags["how"] == "cut":
        first = first[: len(by)]
    by = by[: len(first)] + by[-1] * (len(first) - len(by))
    table: dict[int, str] = {}
    for old, new in zip(first, by, strict=True):
        table[ord(old)] = new
    made = text.translate(table)
    return _squeezed(made, by) if flags["how"] == "squeezed" else made


def _squeezed(text: str, characters: str) -> str:
    members = re.escape("".join(dict.fromkeys(characters)))
    return re.sub(rf"([{members}])\1+", r"\1", text) if members else text


_ESCAPED = re.compile(r"\\(?:0([0-7]{0,3})|x([0-9a-fA-F]{1,2})|([abcefnrtv\\]))")


def say(given: Given, roles: Roles, flags: Flags) -> str:
    """Join the operands with blanks (echo(1), printf(1))."""
    words = list(given.operands)
    if flags["each"]:
        return "".join(f"{each}\n" for each in words)
    said = " ".join(words)
    if flags["escapes"]:
        if "\\c" in said.replace("\\\\", ""):
            return _ESCAPED.sub(_unescaped, said[: said.index("\\c")])
        said = bytes_as_text(
            as_bytes(_ESCAPED.sub(_unescaped, said))
        )  # escapes may form a character
    return said + ("\n" if flags["end"] else "")


def _unescaped(match: re.Match[str]) -> str:
    octal, hexadecimal, letter = match.groups()
    if letter is not None:
        return "\x1b" if letter == "e" else ESCAPES[letter]
    code = int(octal or "0", 8) & 0xFF if hexadecimal is None else int(hexadecimal, 16)
    return chr(code) if code < 128 else chr(0xDC00 + code)


DIGESTS = ("md5", "sha1", "sha256", "sha512", "sha224", "sha384", "blake2b")
"""Hash algorithms, as named by `hashlib`."""

_ESCAPED_NAME = re.compile(r"[\\\n\r]")


def format_digests(given: Given, roles: Roles, flags: Flags) -> Result | None:
    """Format the digest of each text with its file name, `-` for standard input (md5sum(1)).

    Return None if a name would be escaped.
    """
    texts, names = given.texts or (given.text or "",), given.operands or ("-",)
    if any(_ESCAPED_NAME.search(name) for name in names):
        return None
    made = (
        f"{hashlib.new(flags['of'], text.encode('latin-1'), usedforsecurity=False).hexdigest()}"
        f"  {name}\n"
        for text, name in zip(texts, names, strict=True)
    )
    return "".join(made), 0


def in_base64(given: Given, roles: Roles, flags: Flags) -> Result | None:
    """Encode the text in base64 with a line width; width 0 means no line breaks (base64(1))."""
    width = width_of(roles.get("width", "76"))
    whole = base64.b64encode((given.text or "").encode("latin-1")).decode()
    check_length(2 * len(whole))
    if not width:
        return whole, 0
    return "".join(f"{whole[at : at + width]}\n" for at in range(0, len(whole), width)), 0
