"""What is said of data that does not fit its declaration."""

from __future__ import annotations


def fault(error: Exception) -> str:
    """What msgspec says, in the words of this package: `expected int, got str - at $.seed`."""
    text = str(error).replace("`", "").replace(" | ", " or ")
    return text if text.startswith("JSON") else text[:1].lower() + text[1:]
