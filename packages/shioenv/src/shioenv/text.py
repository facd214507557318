"""Formatting of numbers, texts and objects for tables, figures, pages and notebooks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, fields
from html import escape
from reprlib import Repr

LONGEST_REPR = 200
"""Maximum characters of the `repr` of a public object."""

_HTML_LINES, _HTML_CHARACTERS = 30, 4_000
_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 70
_SHORT.maxlevel = 2


def fixed(value: float | None, digits: int = 3) -> str:
    """Format a number with `digits` decimal places, as `0.034`; a dash for None and NaN."""
    return "-" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def count(value: int) -> str:
    """Format a count as `12,345`."""
    return f"{value:,}"


def share(part: float, whole: float, digits: int = 1) -> str:
    """Format a share as `12.5%`; `<0.1%` if it rounds to 0 but is not; a dash if `whole` is 0."""
    if not whole:
        return "-"
    percent = 100 * part / whole
    least = 10.0**-digits
    return f"<{least:g}%" if 0 < percent < least / 2 else f"{percent:.{digits}f}%"


def rounded(value: float | None) -> float | None:
    """Round a number to four decimal places, for programs; None stays None."""
    return None if value is None else round(value, 4)


def printable(text: str) -> str:
    r"""Escape unprintable characters (`\x1b`, `\u202e`) except tabs, for terminals and pages."""
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable() or character == "\t"
        else character.encode("unicode_escape", "surrogatepass").decode("ascii")
        for character in text
    )


def visible(text: str) -> str:
    """Escape unprintable characters as `printable` does, except newlines."""
    return "\n".join(map(printable, text.split("\n")))


def short_repr(value: object, facts: Mapping[str, object] | None = None) -> str:
    """Return `Class(name=fact, ...)` on one line of at most `LONGEST_REPR` characters.

    By default, the facts are those fields of a dataclass that differ from their defaults.
    """
    if facts is None:
        shown = (one for one in fields(value) if one.repr)  # type: ignore[arg-type]
        pairs = ((one, getattr(value, one.name)) for one in shown)
        facts = {one.name: fact for one, fact in pairs if not _is_default(one, fact)}
    text = ", ".join(f"{name}={_SHORT.repr(fact)}" for name, fact in facts.items())
    whole = printable(f"{type(value).__name__}({text})")
    return whole if len(whole) <= LONGEST_REPR else f"{whole[: LONGEST_REPR - 2]}…)"


def _is_default(field: Field[object], value: object) -> bool:
    default = field.default
    if field.default_factory is not MISSING:
        default = field.default_factory()
    return default is not MISSING and type(value) is type(default) and value == default


def html_table(facts: Mapping[str, str | Iterable[str]]) -> str:
    """Return HTML for notebooks: a row for each fact, whose value is a text or lines.

    Everything is escaped. Long values are cut; empty ones are left out.
    """
    rows = []
    for name, fact in facts.items():
        text = fact if isinstance(fact, str) else "\n".join(fact)
        if text:
            value = f'<pre style="margin: 0; text-align: left">{escape(_cut(visible(text)))}</pre>'
            rows.append(
                f'<tr><th style="text-align: left">{escape(name)}</th><td>{value}</td></tr>'
            )
    return f"<table>{''.join(rows)}</table>"


def _cut(text: str) -> str:
    lines = text.removesuffix("\n").split("\n")
    kept = "\n".join(lines[:_HTML_LINES])
    if len(kept) > _HTML_CHARACTERS:
        return f"{kept[:_HTML_CHARACTERS]}…"
    more = len(lines) - _HTML_LINES
    return f"{kept}\nand {count(more)} more line{'s' * (more > 1)}" if more > 0 else kept
