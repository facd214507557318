"""Dependencies of a word's expansion: the variables that it names, and its substitutions."""

from __future__ import annotations

import re
from dataclasses import dataclass

from shioenv.bash.read import Reader
from shioenv_model.bash.work import spend

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_NAMING = re.compile(r"([A-Za-z_]\w*|\d+|[?#@*$!-])", re.ASCII)
_SPECIAL = re.compile(r"\$([0-9@*#?!-])")
_REFERRING = re.compile(r"[`$<>]")


@dataclass(frozen=True, slots=True)
class References:
    """The dependencies of a word's expansion."""

    names: frozenset[str]
    """Variables and parameters that the word may use; incomplete if `substitutes`."""
    substitutes: bool
    """Whether the word contains a `$(…)`, a `` `…` ``, a `<(…)` or a `>(…)`."""


def references(word: str) -> References:
    """Return the dependencies of a word's expansion, without expanding it."""
    spend(len(word))
    names: set[str] = set()
    substitutes = _refer(word, names)
    return References(frozenset(names), substitutes)


def _refer(text: str, names: set[str]) -> bool:
    if not _REFERRING.search(text):
        return False
    reader = Reader(text, extended=True)
    substitutes = False
    place = 0
    while place < len(text):
        if text.startswith(("<(", ">("), place):
            return True
        end = reader.unit_end(place) if text[place] != '"' else reader.double_quote_end(place)
        unit = text[place:end]
        if unit.startswith("`") or (unit.startswith("$(") and not unit.startswith("$((")):
            return True
        if unit.startswith('"') or unit.startswith('$"'):
            substitutes = _refer_quoted(unit[unit.index('"') + 1 : -1], names) or substitutes
        elif unit.startswith("$") and not unit.startswith("$'"):
            substitutes = _refer_expansion(unit, names) or substitutes
        place = end
    return substitutes


def _refer_quoted(text: str, names: set[str]) -> bool:
    """Collect names from the inside of double quotes.

    Only `$`, backquotes and backslashes are special there.
    """
    reader = Reader(text, extended=True)
    substitutes = False
    place = 0
    while place < len(text):
        character = text[place]
        end = reader.unit_end(place) if character in "\\`$" else place + 1
        if character == "$" and text.startswith("$'", place):
            end = place + 1
        unit = text[place:end]
        if character == "`" or (unit.startswith("$(") and not unit.startswith("$((")):
            return True
        if character == "$":
            substitutes = _refer_expansion(unit, names) or substitutes
        place = end
    return substitutes


def _refer_expansion(unit: str, names: set[str]) -> bool:
    names.update(_NAME.findall(unit))
    names.update(_SPECIAL.findall(unit))
    if not unit.startswith(("$((", "${")):
        names.add(unit[1:])
        return False
    if unit.startswith("${"):
        match = _NAMING.match(unit.lstrip("${#!"))
        names.add(match[1] if match else unit[2])  # not a name: `${#}` and `${!}` themselves
    return "`" in unit or re.search(r"\$\((?!\()", unit) is not None
