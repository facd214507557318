"""Bash's arrays as values, and their notation in `declare -p`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from shioenv.bash.words import unquoted
from shioenv.errors import Abstained

_ITEM = re.compile(
    r"\[((?:\"(?:[^\"\\]|\\.)*\"|\$'(?:[^'\\]|\\.)*'|[^]\"])*)\]="
    r"(\"(?:[^\"\\]|\\.)*\"|\$'(?:[^'\\]|\\.)*') ?",
    re.DOTALL,
)
_META = re.compile(r"[ \t\n'\"\\|&;()<>!{}*\[\]?^$`]|^[~#]|[=:]~|^[@*]$")
_BUCKETS = 1024
_LARGEST = 1 << 20
"""The largest supported index (our choice)."""


class BadSubscript(Abstained):
    """An index before the first element, or a very large one."""


@dataclass(frozen=True, slots=True)
class Array:
    """The elements of an array by subscript, in Bash's order."""

    items: Mapping[str, str] = field(default_factory=dict)
    associative: bool = False
    assigned: bool = True
    """Whether the array was ever assigned, even an empty list."""

    @classmethod
    def read(cls, text: str) -> Array | None:
        """Parse an array in Bash's notation `([0]="a" [1]="b")`; None for any other text.

        An array with a blank after its last element is associative.
        """
        if not (text.startswith("(") and text.endswith(")")):
            return None
        items: dict[str, str] = {}
        place = 1
        while place < len(text) - 1:
            match = _ITEM.match(text, place)
            if match is None:
                return None
            items[unquoted(match[1])] = unquoted(match[2])
            place = match.end()
        return cls(items, associative=text.endswith(" )"))

    def text(self) -> str:
        """Format the array in Bash's notation. Errors: Abstained."""
        if self.associative:
            items = (f"[{_key(key)}]={quote_value(value)} " for key, value in self.items.items())
            return f"({''.join(items)})"
        return f"({' '.join(f'[{key}]={quote_value(value)}' for key, value in self.items.items())})"

    def subscript(self, key: str | int) -> str:
        """Return the key of an element; negative indices count from the end. Errors: Abstained."""
        if self.associative or isinstance(key, str):
            return str(key)
        index = key if key >= 0 else self.next_index() + key
        if index >= _LARGEST:
            raise Abstained("an array larger than is followed")
        if index < 0:
            raise BadSubscript("a bad array subscript")
        return str(index)

    def next_index(self) -> int:
        """Return one more than the largest index."""
        return 1 + max(map(int, self.items), default=-1)

    def with_item(self, key: str, value: str) -> Array:
        """Return the array with one element set."""
        if not self.associative:
            items = {**self.items, key: value}
            ordered = sorted(items.items(), key=lambda item: int(item[0]))
        else:  # a bucket lists its newest key first
            new = {} if key in self.items else {key: value}
            items = {**new, **self.items, key: value}
            ordered = sorted(items.items(), key=lambda item: _bucket(item[0]))
        return Array(dict(ordered), self.associative)

    def without(self, key: str) -> Array:
        """Return the array without one element."""
        left = {each: value for each, value in self.items.items() if each != key}
        return Array(left, self.associative)


def _bucket(key: str) -> int:
    """Return the bucket of a key in Bash's hash table (`hash_string` of hashlib.c, FNV-1)."""
    value = 2166136261
    for byte in key.encode("utf-8", "surrogateescape"):
        signed = byte - 256 if byte > 127 else byte
        value = (value * 16777619 & 0xFFFFFFFF) ^ (signed & 0xFFFFFFFF)
    return value % _BUCKETS


def _key(key: str) -> str:
    return quote_value(key) if _META.search(key) or not key.isprintable() else key


_ANSI = {"\a": "a", "\b": "b", "\x1b": "E", "\f": "f", "\n": "n", "\r": "r", "\t": "t", "\v": "v"}


def quote_value(value: str) -> str:
    """Quote a value as in `declare -p`. Errors: Abstained for unprintable non-ASCII characters."""
    if value.isprintable():
        return '"' + re.sub(r'([\\$`"])', r"\\\1", value) + '"'
    parts = []
    for character in value:
        if character in "\\'":
            parts.append("\\" + character)
        elif character in _ANSI:
            parts.append("\\" + _ANSI[character])
        elif not character.isprintable():
            if not character.isascii():
                raise Abstained("a value that is not plain text")
            parts.append(f"\\{ord(character):03o}")
        else:
            parts.append(character)
    return f"$'{''.join(parts)}'"
