"""Bash's arithmetic: 64-bit integers, the operators of C and `**`, variables by name."""

from __future__ import annotations

import re
from collections.abc import Callable

from shioenv.domain.work import spend
from shioenv.errors import Abstained

_TOKEN = re.compile(
    r"\s*(?:(\d+#[\w@]+|0[xX][0-9a-fA-F]+|\d+)|([A-Za-z_]\w*)"
    r"|(\*\*|<<=|>>=|<<|>>|<=|>=|==|!=|&&|\|\||\+\+|--|[-+*/%&^|]=|[-+*/%<>!~&^|?:=(),]))",
    re.ASCII,
)
_COUNT = re.compile(r"\d{1,18}", re.ASCII)
_LEVELS = (
    ("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", ">", "<=", ">="), ("<<", ">>"),
    ("+", "-"), ("*", "/", "%"),
)  # fmt: skip
_ASSIGNING = frozenset({"=", "+=", "-=", "*=", "/=", "%=", "<<=", ">>=", "&=", "^=", "|="})
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ@_"
_DEEPEST = 40
"""Nesting at most: of variables whose text is an expression, and of parentheses."""


def evaluate(
    expression: str,
    variable: Callable[[str], str | None],
    assign: Callable[[str, str], None] | None = None,
) -> int:
    """The value of an arithmetic expression, a signed 64-bit integer; 0 for an empty one.

    `variable` gives the text of a variable (None: unset). `assign` sets a variable; without it
    nothing can be assigned. Errors: Abstained for an expression that Bash refuses (Bash's message
    depends on too much), that assigns where it cannot, or that is nested too deeply.
    """
    return _Expression(expression, variable, assign, 0).value()


def count(text: str) -> int | None:
    """The number that a text of 1 to 18 digits says; None for any other text."""
    return int(text) if _COUNT.fullmatch(text) else None


def wrapped(number: int) -> int:
    """The number as a signed 64-bit integer holds it: it wraps around."""
    return (number + 2**63) % 2**64 - 2**63


class _Expression:
    """Evaluates while reading: recursive descent, one method for each kind of operator."""

    def __init__(
        self,
        text: str,
        variable: Callable[[str], str | None],
        assign: Callable[[str, str], None] | None,
        depth: int,
    ) -> None:
        self._text, self._variable, self._assign, self._depth = text, variable, assign, depth
        self._tokens: list[str] = []
        self._place = 0
        self._skipping = self._nesting = 0
        text = text.strip()
        spend(len(text) + 1)
        place = 0
        while place < len(text):
            match = _TOKEN.match(text, place)
            if match is None or depth > _DEEPEST:
                raise self._refusal()
            self._tokens.append(match[0].strip())
            place = match.end()

    def value(self) -> int:
        if not self._tokens:
            return 0
        value = self._comma()
        if self._place < len(self._tokens):
            raise self._refusal()
        return value

    def _refusal(self) -> Abstained:
        return Abstained(f"the arithmetic expression {self._text!r:.60} cannot be evaluated")

    def _peek(self, ahead: int = 0) -> str:
        place = self._place + ahead
        return self._tokens[place] if place < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self._place += 1
        return token

    def _comma(self) -> int:
        value = self._assignment()
        while self._peek() == ",":
            self._next()
            value = self._assignment()
        return value

    def _deeper(self, read: Callable[[], int]) -> int:
        """The value that `read` gives. Errors: Abstained where too many expressions are around."""
        self._nesting += 1
        if self._nesting > 3 * _DEEPEST:  # a pair of parentheses counts three times
            raise self._refusal()
        value = read()
        self._nesting -= 1
        return value

    def _assignment(self) -> int:
        return self._deeper(self._assigned)

    def _assigned(self) -> int:
        name, operator = self._peek(), self._peek(1)
        if name.isidentifier() and operator in _ASSIGNING:
            self._place += 2
            value = self._assignment()
            if operator != "=":
                value = self._apply(operator[:-1], self._read(name), value)
            return self._write(name, value)
        return self._conditional()

    def _conditional(self) -> int:
        condition = self._binary(0)
        if self._peek() != "?":
            return condition
        self._next()
        yes = self._skipped(not condition, self._assignment)
        if self._next() != ":":
            raise self._refusal()
        no = self._skipped(bool(condition), self._assignment)
        return yes if condition else no

    def _skipped(self, skip: bool, read: Callable[[], int]) -> int:
        """The value that `read` gives; where `skip`, nothing is assigned, and `/ 0` is no error."""
        self._skipping += skip
        value = read()
        self._skipping -= skip
        return value

    def _binary(self, level: int) -> int:
        if level == len(_LEVELS):
            return self._power()
        left = self._binary(level + 1)
        while (operator := self._peek()) in _LEVELS[level]:
            self._next()
            if operator in ("&&", "||"):
                decided = bool(left) == (operator == "||")
                right = self._skipped(decided, lambda: self._binary(level + 1))
                left = int(bool(left) if decided else bool(right))
            else:
                left = self._apply(operator, left, self._binary(level + 1))
        return left

    def _power(self) -> int:
        return self._deeper(self._raised)

    def _raised(self) -> int:
        base = self._unary()
        if self._peek() != "**":
            return base
        self._next()
        return self._apply("**", base, self._power())

    def _unary(self) -> int:
        return self._deeper(self._signed)

    def _signed(self) -> int:
        token = self._next()
        if token in ("++", "--") and self._peek().isidentifier():
            name = self._next()
            return self._write(name, self._read(name) + (1 if token == "++" else -1))
        if token in ("++", "--", "+", "-"):
            value = self._unary()
            return wrapped(-value) if token == "-" else value
        if token == "!":
            return int(not self._unary())
        if token == "~":
            return wrapped(~self._unary())
        if token == "(":
            value = self._comma()
            if self._next() != ")":
                raise self._refusal()
            return value
        if token[:1].isdigit():
            return self._number(token)
        if not token.isidentifier():
            raise self._refusal()
        value = self._read(token)
        if self._peek() in ("++", "--"):
            self._write(token, value + (1 if self._next() == "++" else -1))
        return value

    def _number(self, token: str) -> int:
        base, digits = 10, token
        if "#" in token:
            text, digits = token.split("#")
            base = int(text[:3])  # no base has three digits; one that has is refused below
        elif token[:2] in ("0x", "0X"):
            base, digits = 16, token[2:]
        elif token.startswith("0") and len(token) > 1:
            base, digits = 8, token[1:]
        value = 0
        for digit in digits if base > 36 else digits.lower():
            amount = _DIGITS.index(digit)
            if not 2 <= base <= 64 or amount >= base:
                raise self._refusal()
            value = wrapped(value * base + amount)
        return value

    def _read(self, name: str) -> int:
        text = self._variable(name)
        if text is None or self._skipping:
            return 0
        return _Expression(text, self._variable, None, self._depth + 1).value()

    def _write(self, name: str, value: int) -> int:
        value = wrapped(value)
        if not self._skipping:
            if self._assign is None:
                raise self._refusal()
            self._assign(name, str(value))
        return value

    def _apply(self, operator: str, left: int, right: int) -> int:
        if operator in ("/", "%"):
            if not right:
                if self._skipping:
                    return 0
                raise self._refusal()
            quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
            return wrapped(quotient if operator == "/" else left - quotient * right)
        if operator == "**":
            if right < 0:
                raise self._refusal()
            return wrapped(pow(left, right, 2**64))
        if operator == "<<":
            return wrapped(left << (right & 63))
        if operator == ">>":
            return left >> (right & 63)
        return wrapped(
            {
                "+": left + right, "-": left - right, "*": left * right, "&": left & right,
                "|": left | right, "^": left ^ right, "<": int(left < right),
                ">": int(left > right), "<=": int(left <= right), ">=": int(left >= right),
                "==": int(left == right), "!=": int(left != right),
            }[operator]
        )  # fmt: skip
