"""Render a machine's files from the templates in the directory `templates`."""

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
    """Name of the list over which the section is repeated, or empty."""
    lines: list[str]


def templates_directory() -> Traversable:
    """Return the directory of the templates. `proc.txt` documents their format."""
    return files("shioenv.system").joinpath("templates")


def texts(template: str, values: Mapping[str, Any]) -> dict[str, str]:
    """Render a template with these values, and return texts by path.

    A section `for NAME` is rendered once for each item of `values[NAME]`, with the item's values
    added. Sections of the same path are concatenated.
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
