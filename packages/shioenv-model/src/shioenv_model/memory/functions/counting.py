"""Functions that count texts, and dump them as numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from shioenv_model.memory.functions.space import (
    Flags,
    Given,
    Roles,
    as_lines,
    parse_number,
    remembered,
    split_lines,
)

_FIGURES = ("lines", "words", "characters", "bytes", "longest")

COLUMNS_OF_FIGURES = tuple(
    " and ".join(each)
    for each in sorted(
        (each for size in (3, 2, 4, 5) for each in combinations(_FIGURES, size)),
        key=lambda each: "characters" in each,
    )
)
"""Combinations of counts in `wc`'s order. Combinations with bytes precede those with characters."""


def figures(text: str) -> dict[str, int]:
    """Return all counts of a text."""
    return {
        "lines": text.count("\n"),
        "words": len(text.split()),
        "bytes": len(text.encode("utf-8", "surrogateescape")),
        "characters": len(text),
        "longest": max((len(line.expandtabs(8)) for line in split_lines(text)), default=0),
    }


def counts(given: Given, roles: Roles, flags: Flags) -> str:
    """Format the text's counts, followed by its file name (wc(1)).

    Several counts are padded to the width of the number of bytes. For a pipe, this number is not
    known beforehand, so the width is seven digits.
    """
    kinds = flags["what"].split(" and ")
    found = figures(given.text or "")
    width = 1 if len(kinds) == 1 else 7 if given.piped else len(str(found["bytes"]))
    return row(found, kinds, width, given.operands)


def counts_of_each(given: Given, roles: Roles, flags: Flags) -> str:
    """Format the counts of each text, followed by its name, and the totals (wc(1))."""
    kinds = flags["what"].split(" and ")
    found = [figures(text) for text in given.texts]
    width = len(str(sum(each["bytes"] for each in found)))
    found.append({kind: sum(each[kind] for each in found) for kind in found[0]})
    made = []
    for name, each in zip((*given.operands, "total"), found, strict=True):
        made.append(row(each, kinds, width, (name,)))
    return "".join(made)


def row(found: Mapping[str, int], kinds: Sequence[str], width: int, names: Sequence[str]) -> str:
    """Format counts, each padded to a width, followed by a file name."""
    return " ".join((*(f"{found[kind]:{width}}" for kind in kinds), *names)) + "\n"


_TYPES = {"x1": (1, 2, "x"), "x2": (2, 4, "x"), "o1": (1, 3, "o"), "o2": (2, 6, "o"),
          "u1": (1, 3, "u"), "u2": (2, 5, "u"), "d1": (1, 4, "d"), "d2": (2, 6, "d"),
          "x4": (4, 8, "x"), "x8": (8, 16, "x"), "c": (1, 3, "c"),
          "x": (4, 8, "x")}  # fmt: skip

_DUMPED = {"\0": "\\0", "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r",
           "\t": "\\t", "\v": "\\v"}  # fmt: skip


def dump(given: Given, roles: Roles, flags: Flags) -> str:
    """Dump bytes, or units of a few bytes, as numbers or letters, sixteen bytes a row (od(1))."""
    text = given.text or ""
    start = parse_number(roles["skip"]) if "skip" in roles else 0
    end = start + parse_number(roles["count"]) if "count" in roles else len(text)
    if start < 0 or start > len(text):
        raise ValueError(start)
    address = _ADDRESSES[roles.get("address", "o")]
    data = text[start:end]
    made = [
        "*" if row is None else address.format(start + place) + row
        for place, row in _rows(data, roles.get("type", flags["as"]))
    ]
    if address:
        made.append(address.format(start + len(data)))
    return as_lines(made)


_ADDRESSES = {"o": "{:07o}", "d": "{:07d}", "x": "{:06x}", "n": ""}


@remembered
def _rows(data: str, shown_as: str) -> tuple[tuple[int, str | None], ...]:
    """Return rows of sixteen bytes, each with its offset; None for a repeated row."""
    size, width, kind = _TYPES[shown_as]
    made: list[tuple[int, str | None]] = []
    before = ""
    for place in range(0, len(data), 16):
        row = data[place : place + 16]
        if row == before and len(row) == 16 and place + 16 < len(data):
            if made[-1][1] is not None:
                made.append((place, None))
            continue
        before = row
        units = [row[index : index + size] for index in range(0, len(row), size)]
        shown = "".join(f" {_unit(each, width, kind):>{width}}" for each in units)
        made.append((place, shown))
    return tuple(made)


def _unit(data: str, width: int, kind: str) -> str:
    if kind == "c":
        shown = _DUMPED.get(data, data)
        return shown if " " <= data <= "~" or data in _DUMPED else f"{ord(data):03o}"
    number = int.from_bytes(data.encode("latin-1"), "little", signed=kind == "d")
    return str(number) if kind in "ud" else f"{number:0{width}{kind}}"
