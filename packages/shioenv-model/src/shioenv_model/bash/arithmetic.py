"""Bash's arithmetic: 64-bit integers, C's operators and `**`, and variables."""

from __future__ import annotations

import re
from collections.abc import Callable

from shioenv.bash.words import unquoted
from shioenv.errors import Abstained
from shioenv_model.bash.work import spend

_TOKEN = re.compile(
    r"\s*(?:(\d[\w#@]*)|([A-Za-z_]\w*(?:\[(?:[^][]|\[[^][]*\])*\])?)"
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
_INVALID = "\0"
"""Marks an invalid token."""
_DEEPEST = 40
"""Maximum nesting of parentheses, and of variables that contain expressions."""


class Complaint(Abstained):
    """Bash rejects an expansion with an error message.

    `said` is the message after its prefix. `ends`: the shell exits. Otherwise Bash skips the
    remaining commands that it has already parsed.
    """

    def __init__(self, said: str, *, ends: bool = False) -> None:
        super().__init__(f"Bash refuses it: {said}")
        self.said, self.ends = said, ends


def evaluate(
    expression: str,
    variable: Callable[[str], str | None],
    assign: Callable[[str, str], None] | None = None,
) -> int:
    """Evaluate an arithmetic expression to a signed 64-bit integer; an empty one is 0.

    `variable` returns the text of a variable (None: unset). `assign` sets a variable; without it
    assignments are not supported. Array elements are passed to both as `name[subscript]`. Errors:
    Complaint for an invalid expression; Abstained for an unsupported assignment or too deep
    nesting.
    """
    return _Expression(expression, variable, assign, 0).value()


def count(text: str) -> int | None:
    """Parse a text of 1 to 18 digits; None for any other text."""
    return int(text) if _COUNT.fullmatch(text) else None


def wrapped(number: int) -> int:
    """Wrap a number to a signed 64-bit integer."""
    return (number + 2**63) % 2**64 - 2**63


def _is_name(token: str) -> bool:
    """Whether a token is a variable or an array element."""
    return token[:1].isalpha() or token[:1] == "_"


def _unquoted_subscript(name: str) -> str:
    """Remove quotes from the subscript of an array element. Abstained if it has a substitution."""
    base, bracket, key = name.partition("[")
    if re.search(r"\$\(|<\(|`", key):
        raise Abstained("a substitution in a subscript that a variable holds")
    return f"{base}[{unquoted(key[:-1])}]" if bracket and "'" in key else name


class _Expression:
    """A recursive-descent evaluator, with one method for each precedence level."""

    def __init__(
        self,
        text: str,
        variable: Callable[[str], str | None],
        assign: Callable[[str, str], None] | None,
        depth: int,
    ) -> None:
        self._text, self._variable, self._assign, self._depth = text, variable, assign, depth
        self._tokens: list[str] = []
        self._starts: list[int] = []
        self._place = 0
        self._skipping = self._nesting = self._end = 0
        spend(len(text) + 1)
        if depth > _DEEPEST:
            raise self._refusal()
        end = len(text.rstrip())
        place = 0
        while place < end:
            match = _TOKEN.match(text, place)
            token = match[0].strip() if match else _INVALID
            place = match.end() if match else end
            before = self._tokens[-1] if self._tokens else ""
            doubled = token in ("++", "--") and not _is_name(before)
            if doubled and not _is_name(text[place:].lstrip()):
                token, place = token[0], place - 1  # a sign, followed by another one
            self._tokens.append(token)
            self._starts.append(
                place - len(token) if match else len(text) - len(text[self._end :].lstrip())
            )
            self._end = place

    def value(self) -> int:
        if not self._tokens:
            return 0
        self._look()
        value = self._comma()
        if self._place < len(self._tokens):
            raise self._complaint("syntax error in expression")
        return value

    def _look(self) -> None:
        """Reject an invalid token when Bash would read it."""
        if self._peek() == _INVALID:
            before = self._tokens[self._place - 1] if self._place else "+"
            operand = before[-1:].isalnum() or before[-1:] in ")]_"
            said = "invalid arithmetic operator" if operand else "operand expected"
            raise self._complaint(f"syntax error: {said}")

    def _complaint(self, said: str, start: int | None = None) -> Complaint:
        """Return Bash's error for the expression; it names the token that was read last.

        `start` is the offset of another token to name instead.
        """
        if start is None:
            start = self._starts[min(self._place, len(self._tokens) - 1)]
        token = self._text[start:]
        return Complaint(f'{self._text.lstrip()}: {said} (error token is "{token}")')

    def _refusal(self) -> Abstained:
        return Abstained(f"the arithmetic expression {self._text!r:.60} cannot be evaluated")

    def _peek(self, ahead: int = 0) -> str:
        place = self._place + ahead
        return self._tokens[place] if place < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self._place += 1
        self._look()
        return token

    def _comma(self) -> int:
        value = self._assignment()
        while self._peek() == ",":
            self._next()
            value = self._assignment()
        return value

    def _deeper(self, read: Callable[[], int]) -> int:
        """Evaluate with `read`, one nesting level deeper. Errors: Abstained past the maximum."""
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
        if _is_name(name) and operator in _ASSIGNING:
            self._next()
            self._next()
            old = 0 if operator == "=" else self._read(name)
            value = self._assignment()
            if operator != "=":
                value = self._apply(operator[:-1], old, value)
            return self._write(name, value)
        value = self._conditional()
        if self._peek() in _ASSIGNING:
            raise self._complaint("attempted assignment to non-variable")
        return value

    def _conditional(self) -> int:
        condition = self._binary(0)
        if self._peek() != "?":
            return condition
        self._next()
        if not self._peek():
            raise self._complaint("expression expected")
        yes = self._skipped(not condition, self._comma)
        if self._peek() != ":":
            raise self._complaint("`:' expected for conditional expression")
        self._next()
        no = self._skipped(bool(condition), lambda: self._deeper(self._conditional))
        return yes if condition else no

    def _skipped(self, skip: bool, read: Callable[[], int]) -> int:
        """Evaluate with `read`. With `skip`, do not assign, and ignore divisions by zero."""
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
            behind = self._behind()
            if operator in ("&&", "||"):
                decided = bool(left) == (operator == "||")
                right = self._skipped(decided, lambda: self._binary(level + 1))
                left = int(bool(left) if decided else bool(right))
            else:
                left = self._apply(operator, left, self._binary(level + 1), behind)
        return left

    def _behind(self) -> int:
        """Return the offset after the newest operator and the blanks that follow it."""
        return self._starts[self._place] if self._place < len(self._starts) else len(self._text)

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
        if token in ("++", "--") and _is_name(self._peek()):
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
            if self._peek() != ")":
                raise self._complaint("missing `)'")
            self._next()
            return value
        if token[:1].isdigit():
            return self._number(token)
        if not _is_name(token):
            self._place -= 1  # the token is no operand, and Bash has not read past it
            raise self._complaint("syntax error: operand expected")
        value = self._read(token)
        if self._peek() in ("++", "--"):
            self._write(token, value + (1 if self._next() == "++" else -1))
        return value

    def _number(self, token: str) -> int:
        base, digits = 10, token
        if "#" in token:
            text, _, digits = token.partition("#")
            if "#" in digits or not digits or not text.isdecimal():
                raise self._refusal()
            base = int(text[:3])  # a base of three digits is always invalid, and rejected below
        elif token[:2] in ("0x", "0X"):
            base, digits = 16, token[2:]
        elif token.startswith("0") and len(token) > 1:
            base, digits = 8, token[1:]
        value = 0
        for digit in digits if base > 36 else digits.lower():
            amount = _DIGITS.index(digit)
            if not 2 <= base <= 64:
                raise self._refusal()
            if amount >= base:
                end = self._starts[self._place - 1] + len(token)
                said = f'value too great for base (error token is "{token}")'
                raise Complaint(f"{self._text[:end].lstrip()}: {said}")
            value = wrapped(value * base + amount)
        return value

    def _read(self, name: str) -> int:
        text = None if self._skipping else self._variable(_unquoted_subscript(name))
        if text is None:
            return 0
        return _Expression(text, self._variable, self._assign, self._depth + 1).value()

    def _write(self, name: str, value: int) -> int:
        value = wrapped(value)
        if not self._skipping:
            if self._assign is None:
                raise self._refusal()
            self._assign(_unquoted_subscript(name), str(value))
        return value

    def _apply(self, operator: str, left: int, right: int, behind: int | None = None) -> int:
        """Apply a binary operator; `behind` is the offset of the right operand's text.

        Errors: Complaint.
        """
        if operator in ("/", "%"):
            if not right:
                if self._skipping:
                    return 0
                raise self._complaint("division by 0", behind)
            quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
            return wrapped(quotient if operator == "/" else left - quotient * right)
        if operator == "**":
            if right < 0:
                raise self._complaint("exponent less than 0")
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
