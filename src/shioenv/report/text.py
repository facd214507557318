"""Numbers and texts as people read them, in tables, pictures and on pages."""

from __future__ import annotations

import math


def fixed(value: float | None, digits: int = 3) -> str:
    """`0.034`, or a dash for nothing and for what is no number."""
    return "-" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def count(value: int) -> str:
    """`12,345`."""
    return f"{value:,}"


def share(part: float, whole: float, digits: int = 1) -> str:
    """`12.5%`; `<0.1%` where there is something that rounds to nothing, a dash of nothing."""
    if not whole:
        return "-"
    percent = 100 * part / whole
    least = 10.0**-digits
    return f"<{least:g}%" if 0 < percent < least / 2 else f"{percent:.{digits}f}%"


def rounded(value: float | None) -> float | None:
    """Four digits, for programs that show it."""
    return None if value is None else round(value, 4)


def visible(text: str) -> str:
    r"""The text with what cannot be seen escaped (`\x1b`, `\u202e`); newlines and tabs stay."""
    lines = text.split("\n")
    return "\n".join(line if line.isprintable() else _escaped(line) for line in lines)


def _escaped(line: str) -> str:
    return "".join(
        character
        if character.isprintable() or character == "\t"
        else character.encode("unicode_escape", "surrogatepass").decode("ascii")
        for character in line
    )
