"""Functions that sort lines, and collapse repeated lines."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby

from shioenv_model.memory.functions.space import (
    Flags,
    Given,
    Roles,
    as_lines,
    parse_number,
    remembered,
    split_lines,
    width_of,
)

_MONTHS = {
    name: number
    for number, name in enumerate(
        ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"), 1
    )
}


def _upper(text: str) -> str:
    return text.translate(_TO_UPPER)


_TO_UPPER = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}


def _value(text: str, by: str) -> tuple[object, ...]:
    if by == "number":
        match = re.match(r"[ \t]*(-?\d*(?:\.\d*)?)", text)
        digits = match[1] if match else ""
        return (float(digits) if re.search(r"\d", digits) else 0.0,)
    if by == "size":
        match = re.match(r"[ \t]*(-?)(\d*(?:\.\d*)?)([KMGTPEZY]?)", text.replace("k", "K"))
        if match is None or not re.search(r"\d", match[2]):
            return (0, 0.0)
        rank = " KMGTPEZY".index(match[3] or " ")
        number = float(match[2])
        if not number:
            return (0, 0.0)
        return (-1 - rank, -number) if match[1] else (1 + rank, number)
    if by == "any number":
        if match := re.match(r"[ \t]*([-+]?0[xX][0-9a-fA-F]+)", text):
            return 1, float(int(match[1], 16))
        match = re.match(r"[ \t]*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)", text)
        return (1, float(match[1])) if match else (0, 0.0)
    if by == "month":
        return (_MONTHS.get(text.strip()[:3].upper(), 0),)
    if by == "folded":
        return (_upper(text),)
    if by == "letters":
        return (re.sub(r"[^A-Za-z0-9 \t]", "", text),)
    return (text,)


_BY = {"n": "number", "h": "size", "g": "any number", "M": "month", "f": "folded", "d": "letters"}


def _key(line: str, spec: str, separator: str | None, by: str) -> tuple[str, str]:
    """Return the part of a line that a sort(1) key selects, and how it is compared."""
    match = re.fullmatch(
        r"(\d+)(?:\.(\d+))?([bdfghiMnRrV]*)(?:,(\d+)(?:\.(\d+))?([bdfghiMnRrV]*))?", spec
    )
    if match is None:
        raise ValueError(spec)
    options = match[3] + (match[6] or "")
    start = _end_of(line, width_of(match[1]) - 1, separator, joint=True)
    if match[5]:
        raise ValueError(spec)
    stop = _end_of(line, width_of(match[4]), separator, joint=False) if match[4] else len(line)
    text = line[start:stop] if stop > start else ""
    if match[2] and int(match[2]) > 1:
        text = text[int(match[2]) - 1 :]
    if "b" in options:
        text = text.lstrip(" \t")
    for letter, meant in _BY.items():
        if letter in options:
            by = meant
    return text, by


def _end_of(line: str, fields: int, separator: str | None, *, joint: bool) -> int:
    """Return the offset where the first `fields` fields end; `joint`: after their separator."""
    if separator is None:  # leading blanks belong to the field
        found = re.match(rf"(?:[ \t]*[^ \t]*){{0,{fields}}}", line)
        return found.end() if found else 0
    pieces = line.split(separator)
    if fields > len(pieces) or (joint and fields == len(pieces)):
        return len(line)
    return len(separator.join(pieces[:fields])) + (len(separator) if joint and fields else 0)


def ordering_of(line: str, spec: str, separator: str | None) -> tuple[object, ...]:
    """Return the value by which a sort(1) key orders a line. Errors: ValueError."""
    return _value(*_key(line, spec, separator, ""))


def order_lines(given: Given, roles: Roles, flags: Flags) -> str:
    """Sort the lines (sort(1))."""
    lines: Sequence[str] = split_lines(given.text or "")
    spec, separator = roles.get("key"), roles.get("separator")
    backwards = bool(flags["backwards"])
    own = spec is not None and bool(re.search(r"[bdfghiMnRrV]", spec))
    turned = (own and "r" in (spec or "")) if own else backwards
    values = _values(given.text or "", spec, separator, "" if own else flags["by"])
    if flags["once"]:
        seen: dict[tuple[object, ...], str] = {}
        for line in lines:
            seen.setdefault(values[line], line)
        return as_lines(sorted(seen.values(), key=values.__getitem__, reverse=turned))
    # the sort is stable, also in reverse: lines with equal keys stay sorted by the whole line
    lines = sorted(lines, reverse=backwards)
    return as_lines(sorted(lines, key=values.__getitem__, reverse=turned))


@remembered
def _values(
    text: str, spec: str | None, separator: str | None, by: str
) -> Mapping[str, tuple[object, ...]]:
    """Return the sort value of each line of a text."""
    if spec is None:
        return {line: _value(line, by) for line in split_lines(text)}
    return {line: _value(*_key(line, spec, separator, by)) for line in split_lines(text)}


def runs_of_lines(given: Given, roles: Roles, flags: Flags) -> str:
    """Collapse adjacent equal lines into one (uniq(1))."""
    cast = tuple(map(roles.get, ("fields", "characters", "width")))
    made: list[str] = []
    for same in _same_lines(given.text or "", cast, bool(flags["case"])):
        if flags["which"] == "repeated" and len(same) == 1:
            continue
        if flags["which"] == "single" and len(same) > 1:
            continue
        shown = same if flags["which"] == "every repeated" and len(same) > 1 else same[:1]
        if flags["which"] == "every repeated" and len(same) == 1:
            continue
        made += [f"{len(same):7} {line}" if flags["counted"] else line for line in shown]
    return as_lines(made)


@remembered
def _same_lines(
    text: str, cast: tuple[str | None, ...], folds: bool
) -> tuple[tuple[str, ...], ...]:
    """Group the lines of a text into runs that are equal in the compared part."""
    fields, characters, width = cast

    def value(line: str) -> str:
        if fields is not None:
            line = re.sub(rf"^(?:[ \t]*[^ \t]*){{0,{width_of(fields)}}}", "", line)
        if characters is not None:
            line = line[parse_number(characters) :]
        if width is not None:
            line = line[: parse_number(width)]
        return _upper(line) if folds else line

    return tuple(tuple(run) for _, run in groupby(split_lines(text), value))
