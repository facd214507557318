"""The builtin `printf`, by the rules of Bash 5.2 and of C's `printf`."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from shioenv.errors import Abstained
from shioenv_model.bash.arrays import quote_value
from shioenv_model.bash.work import spend

_ESCAPE = re.compile(
    r"\\(?:([abeEfnrtv\\'\"?])|([0-7]{1,3})|x([0-9a-fA-F]{1,2})"
    r"|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|(.?))",
    re.DOTALL,
)
_ESCAPES = dict(zip("abeEfnrtv\\'\"?", "\a\b\x1b\x1b\f\n\r\t\v\\'\"?", strict=True))
_DIRECTIVE = re.compile(
    r"%(?P<flags>[-0+ #]*)(?P<width>\d{0,4}|\*)(?:\.(?P<precision>\d{0,4}|\*|-\d{1,4}))?"
    r"[hlLjqzt]*(?P<letter>[a-zA-Z]|\((?P<time>[^)]*)\)T)"
)
_NUMERAL = re.compile(r"[ \t\n]*([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9]\d*)", re.ASCII)
_FRACTION = re.compile(r"[+-]?\d{1,12}(?:\.\d{1,12})?", re.ASCII)
_EXACT_DIGITS = 18
"""Significant decimal digits of Bash's `long double` (`LDBL_DIG` on x86-64)."""
_CLOSEST_DIGITS = 15
"""Number of significant decimal digits up to which a double rounds like a `long double`."""
_PERCENT = re.compile("%%")
_PLAIN = re.compile(r"[^\\%]+")
_META = re.compile(r"[ !\"$&'()*,;<>?\[\\\]^`{|}]|^[#~]|(?<=[:=])~")


@dataclass
class Printing:
    """The output of one `printf`, and its errors."""

    values: Sequence[str]
    taken: int = 0
    parts: list[bytes] = field(default_factory=list)
    written: list[tuple[bool, bytes]] = field(default_factory=list)
    """Pieces of errors (True) and output (False), in order."""
    ended: bool = False
    r"""Whether a `\c` or an invalid directive ended the output."""

    def next(self) -> str | None:
        """Take the next value; None if there are no more."""
        self.taken += 1
        return self.values[self.taken - 1] if self.taken <= len(self.values) else None

    def fail(self, said: str) -> None:
        """End the output at an invalid directive."""
        self.complain(said)
        self.ended = True

    def complain(self, said: str) -> None:
        """Add an error. Bash writes output line by line, and errors at once."""
        data = b"".join(self.parts)
        end = data.rfind(b"\n") + 1
        self.written += [(False, data[:end]), (True, os.fsencode(said))]
        self.parts = [data[end:]]

    def told(self, *, errors: bool) -> list[bytes]:
        """Return all errors, or all output."""
        return [each for is_error, each in self.written if is_error == errors]


def printed(arguments: Sequence[str]) -> Printing:
    """Run `printf FORMAT VALUE…`. Errors: Abstained if the words do not determine the output."""
    shape, *values = arguments
    printing = Printing(values)
    while True:
        before = printing.taken
        _apply(shape, printing)
        if printing.ended or printing.taken >= len(values) or printing.taken == before:
            printing.written.append((False, b"".join(printing.parts)))
            return printing


def _apply(shape: str, printing: Printing) -> None:
    """Apply the format once."""
    place = 0
    while place < len(shape) and not printing.ended:
        if match := _PLAIN.match(shape, place):
            made = os.fsencode(match[0])
        elif shape[place] == "\\":
            match = _ESCAPE.match(shape, place)
            assert match is not None
            made = _escaped(match)
        elif match := _PERCENT.match(shape, place):
            made = b"%"
        else:
            match = _DIRECTIVE.match(shape, place)
            if match is not None and match["letter"] in ("a", "A", "n"):
                raise Abstained(f"printf %{match['letter']}")
            if match is None or match["letter"][-1] not in "bcdeEfFgGiouqQsTxX":
                said = "`%': missing format character"
                if place + 1 < len(shape):
                    bad = re.compile(r"%[-0+ #]*[\d*]*(?:\.[\d*-]*)?[hlLjqzt]*(.?)").match(
                        shape, place
                    )
                    said = f"`{bad[1] if bad else ''}': invalid format character"
                    if bad and not bad[1]:
                        said = f"`{bad[0]}': missing format character"
                printing.fail(said)
                return
            made = _directed(match, printing)
        spend(1 + len(made))
        printing.parts.append(made)
        place = match.end()


def _escaped(match: re.Match[str]) -> bytes:
    """Return the bytes of an escape in a format."""
    letter, octal, digits, short, long, other = match.groups()
    if letter:
        return _ESCAPES[letter].encode()
    if octal or digits:
        return bytes([int(octal, 8) & 255 if octal else int(digits, 16)])
    if short or long:
        return chr(min(int(short or long, 16), 0x10FFFF)).encode("utf-8", "surrogatepass")
    if other and other in "xuU":
        raise Abstained(f"printf of \\{other} without digits")
    return os.fsencode("\\" + other)


def expanded(text: str) -> tuple[bytes, bool]:
    r"""Expand the escapes of `%b`; return the bytes, and whether a `\c` ends the output."""
    parts: list[bytes] = []
    place = 0
    text = re.sub(r"\\0([0-7]{1,3})", r"\\\1", text)
    while match := _ESCAPE.search(text, place):
        parts.append(os.fsencode(text[place : match.start()]))
        if match[6] == "c":
            return b"".join(parts), True
        made = _escaped(match) if match[1] not in ("'", '"', "?") else os.fsencode(match[0])
        parts.append(made)
        place = match.end()
    return b"".join((*parts, os.fsencode(text[place:]))), False


def _directed(match: re.Match[str], printing: Printing) -> bytes:
    """Return the output of a directive."""
    flags, letter = match["flags"], match["letter"]
    width, precision = match["width"], match["precision"]
    if width == "*":
        number = _whole(printing.next(), printing)
        flags, width = ("-" + flags if number < 0 else flags), str(abs(number))
    if precision is not None:
        given = _whole(printing.next(), printing) if precision == "*" else int(precision or 0)
        size = None if given < 0 else given
    else:
        size = None
    value = printing.next()
    if letter[-1] == "T":
        return _padded(_timed(match["time"], value, printing)[:size], flags, width)
    if letter in "scbqQ":
        return _padded(_text(letter, value, size, printing), flags, width)
    if letter in "diouxX":
        amount = _whole(value, printing)
        if letter in "ouxX":
            flags, amount = re.sub("[+ ]", "", flags), amount % 2**64
        return _integer(flags, width, size, "d" if letter in "iu" else letter, amount).encode()
    return _fraction(letter, flags, width, size, value).encode()


def _padded(text: bytes, flags: str, width: str) -> bytes:
    number = int(width or 0)
    return text.ljust(number) if "-" in flags else text.rjust(number)


def _text(letter: str, value: str | None, size: int | None, printing: Printing) -> bytes:
    text = value or ""
    if letter == "c":
        return os.fsencode(text)[:1] if text else b"\0"
    if letter == "b":
        data, printing.ended = expanded(text)
    elif letter == "s":
        data = os.fsencode(text)
    else:
        cut = text[:size] if letter == "Q" and size is not None else text
        data = os.fsencode(quoted_backslashes(cut))
        size = None if letter == "Q" else size
    return data if size is None else data[:size]


def quoted_backslashes(text: str) -> str:
    """Quote a text as `printf %q` does."""
    if not text:
        return "''"
    if not text.isprintable():
        return quote_value(text)
    return _META.sub(r"\\\g<0>", text)


def _timed(shape: str, value: str | None, printing: Printing) -> bytes:
    """Return the output of `%(…)T` for a given time. Errors: Abstained for other times."""
    if value in (None, "-1", "-2", ""):
        raise Abstained("printf of the current time")
    seconds = _whole(value, printing)
    if not 0 <= seconds < 2**40:
        raise Abstained("printf of a distant time")
    return time.strftime(shape or "%X", time.gmtime(seconds)).encode()


def _integer(flags: str, width: str, size: int | None, letter: str, amount: int) -> str:
    """Format an integer as C does."""
    digits = f"%{letter}" % abs(amount)
    if size is not None:
        digits = "" if size == 0 and not amount else digits.zfill(size)
        flags = flags.replace("0", "")
    if "#" in flags and amount:
        digits = {"x": "0x", "X": "0X"}.get(letter, "") + digits
        if letter == "o" and not digits.startswith("0"):
            digits = "0" + digits
    sign = "-" if amount < 0 else "+" if "+" in flags else " " if " " in flags else ""
    number = int(width or 0)
    if "-" in flags:
        return (sign + digits).ljust(number)
    if "0" in flags:
        prefix = digits[:2] if digits[:2] in ("0x", "0X") else ""
        return sign + prefix + digits[len(prefix) :].zfill(number - len(sign) - len(prefix))
    return (sign + digits).rjust(number)


def _whole(value: str | None, printing: Printing) -> int:
    """Parse an integer as `strtoimax` does: if a text is invalid, its beginning is used."""
    if not value or value in ("'", '"'):
        return 0
    if value[:1] in ("'", '"') and len(value) > 1:
        return ord(value[1])
    match = _NUMERAL.match(value)
    if match is None or match.end() < len(value):
        printing.complain(f"{value}: invalid number")
    if match is None:
        return 0
    digits = match[2]
    if len(digits) > 64:
        raise Abstained("printf of a number that is too large")
    octal = digits.startswith("0") and digits[1:2] not in {"x", "X"}
    amount = int(digits, 8 if octal else 0) * (-1 if match[1] == "-" else 1)
    if not -(2**63) <= amount < 2**63:
        raise Abstained("printf of a number that is too large")
    return amount


def _fraction(letter: str, flags: str, width: str, size: int | None, value: str | None) -> str:
    """Format a fraction. Errors: Abstained if a `long double` may round in another way."""
    text, places = "0" if value is None else value, 6 if size is None else size
    if not _FRACTION.fullmatch(text) or "#" in flags:
        raise Abstained(f"printf %{letter} of {text:.20}")
    exact = Decimal(text)
    if letter in "fF":
        if max(len(exact.as_tuple().digits), exact.adjusted() + 1 + places) > _EXACT_DIGITS:
            raise Abstained("more digits than Bash keeps")
        if exact.scaleb(places) % 1 in {Decimal("0.5"), Decimal("-0.5")}:
            raise Abstained("a fraction halfway between two")
        rounded = f"{abs(exact):.{places}f}"
    else:
        if max(len(exact.as_tuple().digits), places + 1) > _CLOSEST_DIGITS:
            raise Abstained("more digits than a double keeps")
        rounded = f"%.{places}{letter}" % abs(float(text))
    sign = "-" if text.startswith("-") else "+" if "+" in flags else " " if " " in flags else ""
    number = int(width or 0)
    if "-" in flags:
        return (sign + rounded).ljust(number)
    if "0" in flags:
        return sign + rounded.zfill(number - len(sign))
    return (sign + rounded).rjust(number)
