"""Checks values of a table against annotations: finds every fault of a file, with its place."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from datetime import date, time
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from shioenv.errors import did_you_mean


def like(pattern: str, description: str) -> Meta:
    """A note: all of a text matches the pattern. A fault says the description was expected."""
    return Meta(pattern=rf"\A({pattern})\Z", description=description)


class Keys(NamedTuple):
    """The keys that a table may have (`required`: all of them) whose values are of one kind."""

    names: tuple[str, ...]
    required: bool = False


_KINDS = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}


def checked(annotation: Any, value: Any, place: str, problems: list[str]) -> Any:
    """`value` as its annotation wants it; None where it has a fault, which goes to `problems`."""
    kind: Any
    kind, *notes = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
    origin, inner = get_origin(kind), get_args(kind)
    reader = next((note for note in notes if callable(note)), None)
    if is_dataclass(kind) or origin is Mapping:
        return _table(kind, notes, value, place, problems)
    try:
        if reader is None and origin is tuple and inner[-1] is ...:
            msgspec.convert(value, Annotated[list[Any], *notes] if notes else list[Any])
            return tuple(_items(inner[0], value, place, problems))
        return msgspec.convert(reader(value) if reader else value, annotation)
    except msgspec.ValidationError:
        wrong_kind = kind is str and not isinstance(value, str)
        said = _KINDS[str] if wrong_kind else _expected(kind, notes)
    except ValueError as error:
        said = str(error)
    problems.append(f"{place}: expected {said}, got {shown(value)}")
    return None


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80


def shown(value: Any) -> str:
    """A value as a message shows it: shortened where the value is long or deep."""
    return str(value) if isinstance(value, date | time) else _SHORT.repr(value)


def _expected(kind: Any, notes: Sequence[Any]) -> str:
    """What a fault says was expected: the last note's words, else its range, else the kind."""
    for note in reversed(notes):
        if isinstance(note, Meta):
            return note.description or f"{_KINDS[kind]} from {note.ge} to {note.le}"
    return _KINDS.get(kind, "a list")


def _items(annotation: Any, values: Sequence[Any], place: str, problems: list[str]) -> list[Any]:
    """The items of a list, each as its annotation wants it. A text listed twice is a fault."""
    texts = [value for value in values if isinstance(value, str)]
    if repeated := sorted({text for text in texts if texts.count(text) > 1}):
        problems.append(f"{place}: {shown(repeated[0])} is listed twice")
    return [
        checked(annotation, value, f"{place}[{index}]", problems)
        for index, value in enumerate(values)
    ]


def _table(kind: Any, notes: Sequence[Any], table: Any, place: str, problems: list[str]) -> Any:
    """A table of the file as a declaration or as a mapping; None where the table has a fault."""
    if not isinstance(table, dict):
        problems.append(f"{place}: expected a table, got {shown(table)}")
        return None
    before, declared = len(problems), is_dataclass(kind)
    if declared:
        known = get_type_hints(kind, include_extras=True)
        required = [field.name for field in fields(kind) if field.default is MISSING]
        table = getattr(kind, "filled_in", dict)(table)
    else:
        key_annotation, item_annotation = get_args(kind)
        keys = notes[0] if notes else Keys(tuple(table))
        known = dict.fromkeys(keys.names, item_annotation)
        required = list(keys.names) if keys.required else []
        for name in table:
            checked(key_annotation, name, f"{place}.{name}", problems)
    problems += [f"{place}.{name}: is missing" for name in required if name not in table]
    values = {}
    for name, value in table.items():
        if name in known:
            values[name] = checked(known[name], value, f"{place}.{name}", problems)
        else:
            problems.append(f"{place}.{name}: unknown key; {did_you_mean(name, known)}")
    if len(problems) > before:
        return None
    return kind(**values) if declared else MappingProxyType(values)
