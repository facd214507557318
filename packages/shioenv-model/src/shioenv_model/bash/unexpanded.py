"""A word before its expansion: its alternatives in braces, the variables that it names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product

from shioenv.bash.read import Reader
from shioenv.errors import Abstained
from shioenv_model.bash.work import COPIED, spend

_SEQUENCE = re.compile(
    r"([-+]?\d+)\.\.([-+]?\d+)(?:\.\.(-?\d+))?|(\w)\.\.(\w)(?:\.\.(-?\d+))?", re.ASCII
)
_MOST_FIELDS = 10_000
_DEEPEST = 40
_MOST_DIGITS = 18


def braces(word: str) -> list[str]:
    """Return the words that result from the brace expansion of one word, in order.

    Errors: Abstained for braces nested too deeply, numbers too long, and too many words.
    """
    return _braces(word, 0)


def _braces(word: str, nesting: int) -> list[str]:
    spend(len(word) + 1)
    if nesting > _DEEPEST:
        raise Abstained(f"the braces in {word!r:.40} are nested too deeply")
    if "{" not in word:
        return [word]
    reader = Reader(word)
    made = [""]
    place = begin = 0
    while place < len(word):
        if word[place] == "{":
            expanded = _brace(word, place, reader, nesting)
            if expanded is not None:
                alternatives, end = expanded
                if len(made) * len(alternatives) > _MOST_FIELDS:
                    raise Abstained(f"{word!r:.40} expands to too many words")
                made = _with(made, word[begin:place], alternatives)
                place = begin = end
                continue
        place = reader.unit_end(place)
    return _with(made, word[begin:], [""])


def _with(heads: list[str], middle: str, tails: list[str]) -> list[str]:
    """Combine every head with every tail, with the middle between them."""
    longest = max(map(len, heads), default=0) + len(middle) + max(map(len, tails), default=0)
    spend(len(heads) * len(tails) * (1 + longest // COPIED))
    return [f"{head}{middle}{tail}" for head, tail in product(heads, tails)]


def _brace(word: str, start: int, reader: Reader, depth: int) -> tuple[list[str], int] | None:
    """Expand the braces at `start`; return the words and the end offset.

    None if the `{` is a literal character.
    """
    parts: list[str] = []
    nesting, begin, place = 0, start + 1, start + 1
    while place < len(word):
        spend(1)
        character = word[place]
        if character == "{":
            nesting += 1
        elif character == "}" and nesting:
            nesting -= 1
        elif character == "}":
            parts.append(word[begin:place])
            if len(parts) > 1:
                return [each for part in parts for each in _braces(part, depth + 1)], place + 1
            sequence = _sequence(parts[0])
            return None if sequence is None else (sequence, place + 1)
        elif character == "," and not nesting:
            parts.append(word[begin:place])
            begin = place + 1
        place = reader.unit_end(place)
    return None


def _sequence(text: str) -> list[str] | None:
    match = _SEQUENCE.fullmatch(text)
    if match is None:
        return None
    first, last, step, one, other, letter_step = match.groups()
    if any(len(each or "") > _MOST_DIGITS for each in match.groups()):
        raise Abstained(f"{text!r:.40} expands to numbers that are too long")
    if first is not None:
        # if one end has a leading zero, all numbers are padded to the width of the wider end
        is_padded = any(re.match(r"-?0\d", each) for each in (first, last))
        width = max(len(first), len(last)) if is_padded else 0
        low, high = int(first), int(last)
    else:
        if one.isdigit() or other.isdigit() or "_" in (one, other):
            return None
        low, high, step, width = ord(one), ord(other), letter_step, 0
    by = abs(int(step or 1)) or 1
    if abs(high - low) // by > _MOST_FIELDS:
        raise Abstained(f"{text!r:.40} expands to too many words")
    numbers = range(low, high + 1, by) if low <= high else range(low, high - 1, -by)
    if first is None:
        return [chr(number) for number in numbers]
    return [f"{number:0{width}d}" if width else str(number) for number in numbers]


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
