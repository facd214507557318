"""What `expr` and `bc` compute, by rule: the arithmetic that people type, nothing else of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import isqrt
from typing import ClassVar, Generic, NoReturn, TypeVar

from shioenv.domain.work import spend
from shioenv.errors import Abstained

T = TypeVar("T")

_INTEGER = re.compile(r"-?\d{1,400}", re.ASCII)
_WORDS = frozenset({"match", "+", ":"})
"""Words by which an argument of `expr` is more than a value or an operator of arithmetic."""
_OF_TEXTS = {"length": 1, "index": 2, "substr": 3}
"""Functions of `expr`, and how many arguments each has."""

_BC_TOKEN = re.compile(
    r"[ \t]*(?:([\dA-F]*\.?[\dA-F]+|[\dA-F]+\.)|([a-z]\w*)"
    r"|(<=|>=|==|!=|--|\+\+|[-+*/%^<>=();\n])|(\Z))",
    re.ASCII,
)
_COMPARING = ("<", "<=", "==", "!=", ">=", ">")
_DEEPEST = 40
"""Parentheses in each other at most (ours)."""
_MOST_DIGITS = 1200
"""Digits of a number at most (ours)."""
_LINE = 68
"""Characters of a number that `bc` prints on one line."""
_DIGITS = "0123456789ABCDEF"

_COMPARED: Mapping[str, Callable[[int], bool]] = {
    "<": lambda order: order < 0, "<=": lambda order: order <= 0, "=": lambda order: order == 0,
    "==": lambda order: order == 0, "!=": lambda order: order != 0,
    ">=": lambda order: order >= 0, ">": lambda order: order > 0,
}  # fmt: skip


class ExprError(Exception):
    """What `expr` says of operands that it does not compute with. Its exit code is 2."""


def expr(words: Sequence[str]) -> str:
    """What `expr` prints for these arguments; its exit code is 1 for an empty text and for zero.

    Errors: ExprError; Abstained for what is neither arithmetic nor a comparison of integers.
    """
    return _Expr(words).whole()


class _Reader(Generic[T]):
    """Operands and operators, read from left to right."""

    levels: ClassVar[Sequence[Sequence[str]]]
    """The operators of two operands, those that bind the least first."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self._left = list(tokens[::-1])
        self._depth = 0

    def _level(self, level: int = 0) -> T:
        """The value of what comes next, down to operators of a level."""
        if level == len(self.levels):
            return self._operand()
        value = self._level(level + 1)
        while self._left and self._left[-1] in self.levels[level]:
            operator = self._left.pop()
            spend(1)
            value = self._of(operator, value, partial(self._level, level + 1))
        return value

    def _operand(self) -> T:
        raise NotImplementedError

    def _of(self, operator: str, value: T, read: Callable[[], T]) -> T:
        """The value of an operator; `read` reads its second operand."""
        raise NotImplementedError

    def _enclosed(self) -> T:
        """The value up to the closing parenthesis, whose opening one was read."""
        self._depth += 1
        if self._depth > _DEEPEST:
            _beyond()
        value = self._level()
        if not self._left or self._left.pop() != ")":
            _beyond()
        self._depth -= 1
        return value


class _Expr(_Reader[str]):
    """The arguments of `expr`."""

    levels = (("|",), ("&",), ("=", *_COMPARING), ("+", "-"), ("*", "/", "%"))

    def __init__(self, words: Sequence[str]) -> None:
        super().__init__(words)
        self._unused = 0
        """How many operators around do without what is read: nothing is wrong with it then."""

    def whole(self) -> str:
        value = self._level()
        if self._left:
            _beyond()
        return value

    def _of(self, operator: str, value: str, read: Callable[[], str]) -> str:
        decided = operator in "&|" and is_null(value) is (operator == "&")
        self._unused += decided
        other = read()
        self._unused -= decided
        return value if self._unused else _expr_of(operator, value, other)

    def _operand(self) -> str:
        if not self._left or self._left[-1] in _WORDS:
            _beyond()
        word = self._left.pop()
        if word in _OF_TEXTS:
            return _of_texts(word, [self._operand() for _ in range(_OF_TEXTS[word])])
        if word == "(":
            return self._enclosed()
        if any(word in level for level in self.levels) or word == ")":
            _beyond()
        return word


def _expr_of(operator: str, value: str, other: str) -> str:
    if operator == "|":
        return value if not is_null(value) else other if not is_null(other) else "0"
    if operator == "&":
        return value if not is_null(value) and not is_null(other) else "0"
    numbers = [int(each) for each in (value, other) if _INTEGER.fullmatch(each)]
    if operator in _COMPARED:
        if len(numbers) < 2:
            if operator in ("=", "==", "!="):
                return str(int((value == other) is (operator != "!=")))
            _beyond()  # texts are compared by the locale
        order = (numbers[0] > numbers[1]) - (numbers[0] < numbers[1])
        return str(int(_COMPARED[operator](order)))
    if len(numbers) < 2:
        raise ExprError("non-integer argument")
    left, right = numbers
    if operator in "+-":
        return str(left + right if operator == "+" else left - right)
    if operator == "*":
        return str(left * right)
    if not right:
        raise ExprError("division by zero")
    quotient, rest = _divided(left, right)
    return str(quotient if operator == "/" else rest)


def _of_texts(name: str, values: Sequence[str]) -> str:
    text = values[0]
    if name == "length":
        return str(len(text))
    if name == "index":
        return str(next((at for at, one in enumerate(text, 1) if one in values[1]), 0))
    if not all(_INTEGER.fullmatch(each) for each in values[1:]):
        return ""
    first, count = map(int, values[1:])
    return text[first - 1 : first - 1 + count] if first > 0 and count > 0 else ""


def is_null(value: str) -> bool:
    """Whether `expr` takes a value for false: an empty text, or a zero however long."""
    return not value.removeprefix("-").strip("0") and value != "-"


def _divided(left: int, right: int) -> tuple[int, int]:
    """Quotient and rest, cut towards zero as in C."""
    quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
    return quotient, left - quotient * right


@dataclass(frozen=True, slots=True)
class _Number:
    """A decimal number: `digits` over ten to the power of `scale`."""

    digits: int
    scale: int = 0

    def at(self, scale: int) -> int:
        """The digits at another scale, cut."""
        if scale >= self.scale:
            return self.digits * int(10 ** (scale - self.scale))
        return _divided(self.digits, 10 ** (self.scale - scale))[0]

    def __str__(self) -> str:
        text = str(abs(self.digits)).rjust(self.scale + 1, "0")
        whole, part = text[: len(text) - self.scale], text[len(text) - self.scale :]
        shown = f"{whole.lstrip('0')}.{part}" if self.scale else whole
        return ("-" if self.digits < 0 else "") + shown if self.digits else "0"


class _Digits(str):
    """A number as it is written, in the base that numbers are read in."""

    __slots__ = ()


def bc(text: str, scale: int = 0) -> str:
    """What `bc` prints for these statements. Errors: Abstained for what is not arithmetic."""
    return _Bc(text, scale).whole()


class _Bc(_Reader[_Number]):
    """Statements of `bc`."""

    levels = (_COMPARING, ("+", "-"), ("*", "/", "%"))

    def __init__(self, text: str, scale: int) -> None:
        super().__init__(_bc_tokens(text))
        self._names: dict[str, _Number] = {}
        self._scale, self._read_in, self._shown_in = scale, 10, 10

    def whole(self) -> str:
        lines: list[str] = []
        while self._left:
            token = self._left[-1]
            if token in (";", "\n"):
                self._left.pop()
            elif token == "quit":
                break
            elif token[0].islower() and self._left[-2:-1] == ["="]:
                self._assign(token)
                self._ended()
            else:
                shown = self._shown(self._level())
                cut = (shown[at : at + _LINE] for at in range(0, len(shown), _LINE))
                lines.append("\\\n".join(cut) + "\n")
                self._ended()
        return "".join(lines)

    def _shown(self, value: _Number) -> str:
        if self._shown_in == 10:
            return str(value)
        if value.scale or value.digits < 0:
            _beyond()
        left, digits = value.digits, ""
        while left:
            left, digit = divmod(left, self._shown_in)
            digits = _DIGITS[digit] + digits
        return digits or "0"

    def _ended(self) -> None:
        if self._left and self._left[-1] not in (";", "\n"):
            _beyond()

    def _assign(self, name: str) -> None:
        del self._left[-2:]
        value = self._level()
        if name == "scale":
            self._scale = value.at(0)
            if not 0 <= self._scale <= _LINE:
                _beyond()
        elif name in ("ibase", "obase"):
            base = value.at(0)
            if value.scale or not 2 <= base <= len(_DIGITS):
                _beyond()
            if name == "ibase":
                self._read_in = base
            else:
                self._shown_in = base
        elif len(name) == 1:
            self._names[name] = value
        else:
            _beyond()

    def _of(self, operator: str, value: _Number, read: Callable[[], _Number]) -> _Number:
        other = read()
        scale = max(value.scale, other.scale)
        left, right = value.at(scale), other.at(scale)
        if operator in _COMPARED:
            return _Number(int(_COMPARED[operator]((left > right) - (left < right))))
        if operator in "+-":
            return _checked(_Number(left + right if operator == "+" else left - right, scale))
        if operator == "*":
            exact = _Number(value.digits * other.digits, value.scale + other.scale)
            kept = min(exact.scale, max(self._scale, scale))
            return _checked(_Number(exact.at(kept), kept))
        if not other.digits:
            _beyond()
        quotient = self._quotient(value, other)
        if operator == "/":
            return quotient
        kept = max(self._scale + other.scale, value.scale)
        product = _Number(quotient.digits * other.digits, quotient.scale + other.scale)
        return _checked(_Number(value.at(kept) - product.at(kept), kept))

    def _quotient(self, value: _Number, other: _Number) -> _Number:
        raised = value.digits * 10 ** (self._scale + other.scale)
        digits, _ = _divided(raised, other.digits * 10**value.scale)
        return _checked(_Number(digits, self._scale))

    def _operand(self) -> _Number:
        base = self._value()
        if not self._left or self._left[-1] != "^":
            return base
        self._left.pop()
        power = self._operand()
        exponent = power.at(0)
        if power.scale or not 0 <= exponent <= _MOST_DIGITS:
            _beyond()
        _checked(_Number(base.digits, base.scale), exponent)
        exact = _Number(base.digits**exponent, base.scale * exponent)
        kept = min(exact.scale, max(self._scale, base.scale))
        return _checked(_Number(exact.at(kept), kept))

    def _value(self) -> _Number:
        token = self._left.pop() if self._left else _beyond()
        if isinstance(token, _Digits):
            return self._number(token)
        if token in ("sqrt", "length") and self._left[-1:] == ["("]:
            return self._called(token, self._value())
        if token == "-":
            inner = self._value()
            return _Number(-inner.digits, inner.scale)
        if token == "(":
            return self._enclosed()
        if token == "scale":
            return _Number(self._scale)
        if len(token) == 1 and token.isalpha() and (not self._left or self._left[-1] != "("):
            return self._names.get(token, _Number(0))
        return _beyond()

    def _number(self, written: str) -> _Number:
        whole, _, part = written.partition(".")
        digits = [_DIGITS.index(each) for each in whole + part]
        if self._read_in == 10 and max(digits) < 10:
            return _Number(int(f"0{whole}{part}"), len(part))
        if part or (len(digits) > 1 and max(digits) >= self._read_in):
            _beyond()
        value = 0
        for digit in digits:
            value = value * self._read_in + digit
        return _Number(value)

    def _called(self, name: str, value: _Number) -> _Number:
        if name == "length":
            return _Number(max(len(str(abs(value.digits))), value.scale))
        if value.digits < 0:
            _beyond()
        if value.at(0) in (0, 1) and value.at(0) * 10**value.scale == value.digits:
            return _Number(value.at(0))  # of these two `bc` forgets the scale
        scale = max(self._scale, value.scale)
        return _checked(_Number(isqrt(value.digits * 10 ** (2 * scale - value.scale)), scale))


def _bc_tokens(text: str) -> list[str]:
    tokens: list[str] = []
    place = 0
    while place < len(text):
        spend(1)
        match = _BC_TOKEN.match(text, place)
        if match is None:
            _beyond()
        number, name, sign, _ = match.groups()
        place = match.end()
        if number:
            if len(number) > _LINE:
                _beyond()
            tokens.append(_Digits(number))
        elif name or sign:
            tokens.append(name or sign)
    return tokens


def _checked(number: _Number, times: int = 1) -> _Number:
    if number.digits.bit_length() * times > 3 * _MOST_DIGITS or number.scale * times > _MOST_DIGITS:
        _beyond()
    return number


def _beyond() -> NoReturn:
    raise Abstained("more than arithmetic")
