"""Formatting of numbers and texts for tables, figures and pages."""

from __future__ import annotations

import math


def fixed(value: float | None, digits: int = 3) -> str:
    """Format a number with so many decimal places, as `0.034`; a dash for None and NaN."""
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
