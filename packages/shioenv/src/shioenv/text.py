"""Numbers and texts as people read them, in tables, pictures and on pages."""

from __future__ import annotations

import math


def fixed(value: float | None, digits: int = 3) -> str:
    """A number with so many digits behind the point, as `0.034`; a dash for None and NaN."""
    return "-" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def count(value: int) -> str:
    """A count as `12,345`."""
    return f"{value:,}"


def share(part: float, whole: float, digits: int = 1) -> str:
    """A share as `12.5%`; `<0.1%` where it is not 0 but rounds to 0; a dash where `whole` is 0."""
    if not whole:
        return "-"
    percent = 100 * part / whole
    least = 10.0**-digits
    return f"<{least:g}%" if 0 < percent < least / 2 else f"{percent:.{digits}f}%"


def rounded(value: float | None) -> float | None:
    """A number rounded to four digits behind the point, for programs; None stays None."""
    return None if value is None else round(value, 4)


def visible(text: str) -> str:
    r"""The text with invisible characters escaped (`\x1b`, `\u202e`); newlines and tabs stay."""
    lines = text.split("\n")
    return "\n".join(line if line.isprintable() else _escaped(line) for line in lines)


def _escaped(line: str) -> str:
    return "".join(
        character
        if character.isprintable() or character == "\t"
        else character.encode("unicode_escape", "surrogatepass").decode("ascii")
        for character in line
    )
