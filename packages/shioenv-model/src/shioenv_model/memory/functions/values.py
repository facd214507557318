"""Values of AWK programs: strings, numbers, fields and arrays."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

from shioenv_model.bash.patterns import translated
from shioenv_model.memory.functions.match import search_steps
from shioenv_model.memory.functions.substitute import check_choice

_NUMBER = re.compile(r"[ \t\n]*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_DIRECTIVE = re.compile(r"%([-+ 0#]*)(\*|\d*)(?:\.(\*|\d*))?([a-zA-Z%])")


class Field(str):
    """A string from the input. It counts as a number if it looks like one."""

    __slots__ = ()


Value: TypeAlias = "float | str | None"
"""A value; None for an unset variable."""


ORDER: Mapping[str, Callable[[int], bool]] = {
    "<": lambda order: order < 0, "<=": lambda order: order <= 0, "==": lambda order: order == 0,
    "!=": lambda order: order != 0, ">": lambda order: order > 0, ">=": lambda order: order >= 0,
}  # fmt: skip
"""Comparison operators, as predicates of the sign of left minus right."""


def is_true(value: Value) -> bool:
    """Whether a value counts as true."""
    if isinstance(value, Field):
        number = as_number(value)
        return bool(value) if number is None else number != 0
    return bool(value)


def as_number(value: Value) -> float | None:
    """Return a value as a number; None if it is a string."""
    if value is None:
        return 0.0
    if isinstance(value, Field):
        found = _NUMBER.match(value)
        whole = found is not None and not value[found.end() :].strip(" \t\n")
        return float(value) if whole else None
    return value if isinstance(value, float) else None


def reckoned(sign: str, left: float, right: float) -> float:
    """Apply an arithmetic operator. Errors: ArithmeticError, ValueError."""
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
    """Compile an extended regular expression of a program. Errors: ValueError, re.error."""
    return re.compile(translated(re.sub(r'\\(["/])', r"\1", _unescaped(source)), "extended"))


def _unescaped(source: str) -> str:
    escapes = {"n": "\n", "t": "\t", "f": "\f", "r": "\r"}
    return re.sub(r"\\([\\ntfr])", lambda match: escapes.get(match[1], match[0]), source)


def check_pattern(pattern: re.Pattern[str]) -> None:
    """See `check_choice`."""
    check_choice(pattern.pattern.replace(r"\Z", "$"))


def replacement(text: str) -> list[str | None]:
    """Parse the replacement of `sub` into parts; None for the matched text."""
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
    """Return the number at the beginning of a value; 0 if there is none."""
    if isinstance(value, float):
        return value
    found = _NUMBER.match(value or "")
    return float(found[0]) if found else 0.0


def value_string(value: Value, form: str) -> str:
    """Convert a value to a string. `form` is the format of non-integer numbers."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if value == math.floor(value) and not math.isinf(value):
        return str(int(value))
    return printed_by(form, [value], form)


def printed_by(form: str, values: Sequence[Value], numbers: str) -> str:
    """Format values (printf(3)). `numbers` is the format of `value_string`.

    Errors: ValueError for an unsupported format, and for too few values.
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
            letter = (
                chr(int(value)) if isinstance(value, float) else value_string(value, numbers)[:1]
            )
            if letter in ("", "\0"):
                raise ValueError("a NUL")
            return f"{shape}s" % letter
        if kind == "s":
            return f"{shape.replace('0', '', 1) if flags[:1] == '0' else shape}s" % value_string(
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


def split_fields(
    text: str, separator: str, spend: Callable[[int], None], *, lines: bool = False
) -> list[str]:
    """Split a text into fields. `lines`: also at newlines. `spend` counts steps.

    A blank separator matches any number of blanks, an empty one splits into characters. One
    character is literal, longer ones are a pattern. Errors: ValueError.
    """
    spend(1 + len(text) // 8)
    if not text:
        return []
    if separator == " ":
        return [each for each in re.split(r"[ \t\n]+", text) if each]
    if lines:
        apart = re.escape(separator) if len(separator) == 1 else separator
        return re.split(rf"\n|{apart}", text)
    if separator == "":
        return list(text)
    if len(separator) == 1 and separator != "\\":
        return text.split(separator)
    return divided(text, compiled(separator), spend)


def divided(text: str, pattern: re.Pattern[str], spend: Callable[[int], None]) -> list[str]:
    """Split a text at non-empty matches."""
    spend(search_steps(text, pattern.pattern))
    made, at = [], 0
    for match in pattern.finditer(text):
        if match[0]:
            made.append(text[at : match.start()])
            at = match.end()
    return [*made, text[at:]]


_SIZES = (13, 127, 1021, 8191, 16381)
"""Sizes of a hash table of strings, which grows from one to the next (gawk 5.2, `str_array.c`)."""

_CHAIN = 2
"""Average chain length above which a hash table grows."""

_WHOLE = re.compile(r"0|[1-9]\d{0,8}")


class Elements:
    """An array: values by string keys."""

    def __init__(self) -> None:
        self._values: dict[str, float | str | None] = {}
        self._of_texts = False
        """Whether the first key was not an integer, so that integer keys are stored as strings."""

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def read(self, key: str) -> float | str | None:
        """Return the value of an element, which is created if it is missing."""
        if key not in self._values:
            self.write(key, None)
        return self._values[key]

    def write(self, key: str, value: float | str | None) -> None:
        """Set the value of an element."""
        if not self._values:
            self._of_texts = not _WHOLE.fullmatch(key)
        self._values[key] = value

    def pop(self, key: str) -> None:
        """Remove an element, if it exists."""
        self._values.pop(key, None)

    def clear(self) -> None:
        """Remove all elements."""
        self._values.clear()

    def order(self) -> list[str]:
        """Return the keys in iteration order: strings by hash, then numbers in ascending order.

        Errors: ValueError for more keys than the known table sizes.
        """
        numbers = [] if self._of_texts else [key for key in self._values if _WHOLE.fullmatch(key)]
        texts = [key for key in self._values if self._of_texts or not _WHOLE.fullmatch(key)]
        return [*_walked(texts), *sorted(numbers, key=int)]


def _walked(keys: list[str]) -> Iterator[str]:
    sizes = iter(_SIZES)
    lists: list[list[str]] = [[] for _ in range(next(sizes))]
    for count, key in enumerate(keys):
        if count // len(lists) > _CHAIN:
            size = next(sizes, 0)
            if not size:
                raise ValueError("a large array")
            old, lists = lists, [[] for _ in range(size)]
            for each in old:
                for moved in each:
                    lists[_hash(moved) % size].insert(0, moved)
        lists[_hash(key) % len(lists)].insert(0, key)
    for each in lists:
        yield from each


def _hash(key: str) -> int:
    """Return the 32-bit hash of a string (Ozan Yigit's sdbm, as in gawk)."""
    made = 0
    for byte in key.encode("utf-8", "surrogateescape"):
        made = (byte + made * 65599) & 0xFFFFFFFF
    return made
