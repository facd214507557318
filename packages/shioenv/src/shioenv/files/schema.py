"""The message for data that does not fit its declaration."""

from __future__ import annotations


def fault(error: Exception, place: str = "$") -> str:
    """The message of an msgspec error in this package's words: `expected int, got str - at $.seed`.

    `place` is where the value that msgspec checked stands in its document.
    """
    text = str(error).replace("`", "").replace(" | ", " or ")
    said, _, path = text.partition(" - at $")
    if not said.startswith("JSON"):
        said = said[:1].lower() + said[1:]
    return said if place + path == "$" else f"{said} - at {place}{path}"
