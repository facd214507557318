"""Values of programs of patterns and actions: texts, numbers, and texts that look like numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

from shioenv_model.memory.functions.match import translated
from shioenv_model.memory.functions.substitute import check_choice

_NUMBER = re.compile(r"[ \t\n]*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_DIRECTIVE = re.compile(r"%([-+ 0#]*)(\*|\d*)(?:\.(\*|\d*))?([a-zA-Z%])")


class Field(str):
    """A text that was read: it is a number where it looks like one."""

    __slots__ = ()


Value: TypeAlias = "float | str | None"
"""None is a variable that was never set."""


ORDER: Mapping[str, Callable[[int], bool]] = {
    "<": lambda order: order < 0, "<=": lambda order: order <= 0, "==": lambda order: order == 0,
    "!=": lambda order: order != 0, ">": lambda order: order > 0, ">=": lambda order: order >= 0,
}  # fmt: skip
"""Comparisons, by how the left value stands to the right one: below 0, 0 or above."""


def is_true(value: Value) -> bool:
    """Whether a value counts as true."""
    if isinstance(value, Field):
        number = as_number(value)
        return bool(value) if number is None else number != 0
    return bool(value)


def as_number(value: Value) -> float | None:
    """The number that a value is; None for a text."""
    if value is None:
        return 0.0
    if isinstance(value, Field):
        found = _NUMBER.match(value)
        whole = found is not None and not value[found.end() :].strip(" \t\n")
        return float(value) if whole else None
    return value if isinstance(value, float) else None


def reckoned(sign: str, left: float, right: float) -> float:
    """What two numbers come to. Errors: ArithmeticError, ValueError."""
    if sign == "+":
        return left + right
    if sign == "-":
        return left - right
    if sign == "*":
        return left * right
    if sign == "/":
        return left / right
    if sign == "%":
        return math.fmod(left, right)
    made = left**right
    if isinstance(made, complex):
        raise ValueError("a root of a number below zero")
    return float(made)


@lru_cache(maxsize=256)
def compiled(source: str) -> re.Pattern[str]:
    """An extended regular expression of a program. Errors: ValueError, re.error."""
    return re.compile(translated(re.sub(r'\\(["/])', r"\1", _unescaped(source)), "extended"))


def _unescaped(source: str) -> str:
    escapes = {"n": "\n", "t": "\t", "f": "\f", "r": "\r"}
    return re.sub(r"\\([\\ntfr])", lambda match: escapes.get(match[1], match[0]), source)


def check_pattern(pattern: re.Pattern[str]) -> None:
    """See `check_choice`."""
    check_choice(pattern.pattern.replace(r"\Z", "$"))


def replacement(text: str) -> list[str | None]:
    """The parts of what `sub` puts in; None for the text that matched."""
    made: list[str | None] = []
    for match in re.finditer(r"\\\\&|\\&|&|[^\\&]+|\\", text):
        if match[0] == "&":
            made.append(None)
        elif match[0] == "\\\\&":
            made += ["\\", None]
        else:
            made.append("&" if match[0] == "\\&" else match[0])
    return made


def number_in(value: Value) -> float:
    """The number that a value begins with; 0 for a text that begins with none."""
    if isinstance(value, float):
        return value
    found = _NUMBER.match(value or "")
    return float(found[0]) if found else 0.0


def text_of(value: Value, form: str) -> str:
    """The value as a text. `form` is the format of numbers that are not whole."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if value == math.floor(value) and not math.isinf(value):
        return str(int(value))
    return printed_by(form, [value], form)


def printed_by(form: str, values: Sequence[Value], numbers: str) -> str:
    """Values written by a format (printf(3)). `numbers` is the format of `text_of`.

    Errors: ValueError for a format that is not known, and for too few values.
    """
    left = list(values)

    def one(match: re.Match[str]) -> str:
        flags, width, precision, kind = match.groups()
        if kind == "%":
            return "%"
        if width == "*":
            width = str(int(number_in(left.pop(0))))
        if precision == "*":
            precision = str(int(number_in(left.pop(0))))
        if len(width or "") > 4 or len(precision or "") > 4:
            raise ValueError("too wide")
        if not left:
            raise ValueError("a value is missing")
        value = left.pop(0)
        shape = f"%{flags}{width}" + (f".{precision}" if precision is not None else "")
        if kind in "di":
            return f"{shape}d" % math.trunc(number_in(value))
        if kind in "oxXu":
            number = math.trunc(number_in(value))
            if number < 0:
                raise ValueError("a number below zero")
            return f"{shape}{'d' if kind == 'u' else kind}" % number
        if kind in "eEfFgG":
            return f"{shape}{kind}" % number_in(value)
        if kind == "c":
            letter = chr(int(value)) if isinstance(value, float) else text_of(value, numbers)[:1]
            if letter in ("", "\0"):
                raise ValueError("a NUL")
            return f"{shape}s" % letter
        if kind == "s":
            return f"{shape.replace('0', '', 1) if flags[:1] == '0' else shape}s" % text_of(
                value, numbers
            )
        raise ValueError(kind)

    made: list[str] = []
    at = 0
    for match in _DIRECTIVE.finditer(form):
        made += form[at : match.start()], one(match)
        at = match.end()
    rest = form[at:]
    if "%" in rest or any("%" in each for each in made[::2]):
        raise ValueError("no directive")
    return "".join(made) + rest
