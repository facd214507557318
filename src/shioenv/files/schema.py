"""What is said of data that does not fit its declaration."""

from __future__ import annotations


def fault(error: Exception, place: str = "$") -> str:
    """What msgspec says, in the words of this package: `expected int, got str - at $.seed`.

    `place` is where in its document the value stands that was looked at.
    """
    text = str(error).replace("`", "").replace(" | ", " or ")
    said, _, path = text.partition(" - at $")
    if not said.startswith("JSON"):
        said = said[:1].lower() + said[1:]
    return said if place + path == "$" else f"{said} - at {place}{path}"
