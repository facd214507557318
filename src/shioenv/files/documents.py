"""JSON and TOML that somebody else may have written: one error for whatever is none."""

from __future__ import annotations

import json
import math
import re
import tomllib
from typing import Any

DEEPEST = 100
"""Levels of lists and objects in each other; what this package writes has fewer than ten."""

_TOO_DEEP = "nested too deeply"
_PART = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')"""
_DEEP_KEY = re.compile(rf"(?<![\w-]){_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{DEEPEST},}}")
"""A dotted key that nests too deeply: to read it takes the square of its length."""


def parse_json(content: bytes | str, *, finite: bool = False) -> Any:
    """The value in a JSON document. ValueError for what is none, or nested too deeply.

    With `finite`, numbers that no JSON has, or no float holds, are refused: NaN, Infinity, 1e999.
    """
    strict: dict[str, Any] = {"parse_constant": _finite, "parse_float": _finite} if finite else {}
    try:
        value = json.loads(content, **strict)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    _refuse_deep(value)
    return value


def parse_toml(content: bytes | str) -> dict[str, Any]:
    """The table of a TOML document. ValueError for what is none, or nested too deeply.

    A mark of the byte order before the document is left out: some editors write one.
    """
    text = content if isinstance(content, str) else content.decode()
    text = text.removeprefix("\ufeff")
    if _DEEP_KEY.search(text):
        raise ValueError(_TOO_DEEP)
    try:
        value = tomllib.loads(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    _refuse_deep(value)
    return value


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no number of JSON")
    return number


def _refuse_deep(value: Any) -> None:
    """ValueError where who walks a value might need more than `DEEPEST` calls in each other."""
    level = [value]
    for _ in range(DEEPEST):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return
    raise ValueError(_TOO_DEEP)


def _inside(value: Any) -> list[Any]:
    """The lists and objects that stand in a value."""
    if isinstance(value, dict):
        return [inner for inner in value.values() if isinstance(inner, dict | list)]
    if isinstance(value, list):
        return [inner for inner in value if isinstance(inner, dict | list)]
    return []
