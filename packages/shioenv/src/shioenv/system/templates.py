"""Texts of a machine's files, written as templates in the directory `templates`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, NamedTuple

_BEGIN = "=== "


class _Section(NamedTuple):
    path: str
    each: str
    """What the section is repeated for; empty where it is there once."""
    lines: list[str]


def templates_directory() -> Traversable:
    """The directory of the templates. `proc.txt` explains their form."""
    return files("shioenv.system").joinpath("templates")


def texts(template: str, values: Mapping[str, Any]) -> dict[str, str]:
    """The texts of a template, by path, with these values.

    A section for each NAME takes the values of NAME, a list with more values for each repetition.
    Sections of one path are joined.
    """
    found: dict[str, str] = {}
    for section in _sections(template):
        for more in values[section.each] if section.each else ({},):
            known = {**values, **more}
            path = section.path.format_map(known)
            lines = [f"{line}\n".format_map(known) for line in section.lines]
            if path.endswith("/"):
                for line in lines:
                    name, _, text = line.rstrip("\n").partition(" ")
                    found[path + name] = f"{text}\n"
            else:
                found[path] = found.get(path, "") + "".join(lines)
    return found


@cache
def _sections(template: str) -> tuple[_Section, ...]:
    return tuple(_read(templates_directory().joinpath(f"{template}.txt").read_text("utf-8")))


def _read(text: str) -> Iterator[_Section]:
    _, *sections = f"\n{text}".removesuffix("\n").split(f"\n{_BEGIN}")
    for section in sections:
        first, *lines = section.split("\n")
        path, _, each = first.partition(" for ")
        yield _Section(path, each, lines)
