"""Parsing of untrusted JSON and TOML. Every invalid document raises ValueError."""

from __future__ import annotations

import json
import math
import re
import tomllib
from typing import Any

DEEPEST = 100
"""The deepest accepted nesting of lists and objects; this package writes fewer than ten levels."""

_TOO_DEEP = "nested too deeply"
_PART = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')"""
_NESTING = (dict, list)
_DEEP_KEY = re.compile(rf"(?<![\w-]){_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{DEEPEST},}}")
"""Matches a dotted key that nests too deeply. Parsing such a key takes quadratic time."""


def parse_json(content: bytes | str, *, finite: bool = False) -> Any:
    """Parse a JSON document. ValueError for an invalid or too deeply nested document.

    With `finite`, NaN, Infinity and numbers beyond the range of a float (1e999) are refused too.
    Integers of any size are accepted.
    """
    strict: dict[str, Any] = {"parse_constant": _finite, "parse_float": _finite} if finite else {}
    try:
        value = json.loads(content, **strict)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    refuse_deep(value)
    return value


def parse_toml(content: bytes | str) -> dict[str, Any]:
    """Parse a TOML document. ValueError for an invalid or too deeply nested document.

    A byte order mark before the document is ignored, because some editors write one.
    """
    text = content if isinstance(content, str) else content.decode()
    text = text.removeprefix("\ufeff")
    if _DEEP_KEY.search(text):
        raise ValueError(_TOO_DEEP)
    try:
        value = tomllib.loads(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    refuse_deep(value)
    return value


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a JSON number")
    return number


def refuse_deep(value: Any) -> None:
    """Raise ValueError if lists and objects are nested more than `DEEPEST` levels deep.

    So a recursive walk through an accepted value needs at most `DEEPEST` nested calls.
    """
    level = [value] if isinstance(value, _NESTING) else []
    for _ in range(DEEPEST):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, _NESTING)
        ]
        if not level:
            return
    raise ValueError(_TOO_DEEP)


def fault(error: Exception, place: str = "$") -> str:
    """Format an msgspec error in this package's style: `expected int, got str - at $.seed`.

    `place` is the path of the checked value in its document.
    """
    text = str(error).replace("`", "").replace(" | ", " or ")
    said, _, path = text.partition(" - at $")
    if not said.startswith("JSON"):
        said = said[:1].lower() + said[1:]
    return said if place + path == "$" else f"{said} - at {place}{path}"
