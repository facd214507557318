"""Functions that return programs' error messages about option values.

`rules.usage_errors` maps programs to these functions. Only values of plain text are rejected.
"""

# ruff: noqa: RUF001  # the quotes are those of the messages

from __future__ import annotations

import re
from collections.abc import Callable

Refuse = Callable[[str], str | None]
"""A function that returns a program's message about a value, without the program's name; None if
the value is valid."""

_PLAIN = re.compile(r"[ -\[\]-~]*")
"""Values that messages show unchanged: ASCII without a backslash."""

SIZE = r"\d{1,18}(?:b|[kKmMGTPE](?:i?B|D)?)?"
_ODD = re.compile(r"[-+]?\d{19,}|[+ ]+\d")
"""Numbers that may be too large, or have an unusual spelling. No rule applies to these."""

_CLAUSE = "[ugoa]*(?:[-+=](?:[rwxXst]*|[ugo]|[0-7]+))+"
_SYMBOLIC = re.compile(f"{_CLAUSE}(?:,{_CLAUSE})*")
_KEY_PART = re.compile(r"(\d+)(?:\.(\d+))?")
_KEY_LETTERS = "bdfghiMnRrV"


def is_judged(value: str, refuse: Refuse) -> bool:
    """Whether the function applies to a value: plain text, and no unusual number."""
    return bool(_PLAIN.fullmatch(value)) and not (_ODD.match(value) and refuse is not delimiter)


def hint(name: str) -> str:
    """Return the message's last line, which points to `--help`, without its newline."""
    return f"Try '{name} --help' for more information."


def unless(pattern: str, said: str) -> Refuse:
    """Reject values that do not match `pattern`. In `said`, `{}` stands for the value."""
    taken = re.compile(pattern)
    return lambda value: None if taken.fullmatch(value) else said.format(value)


def size(of: str, *, signed: bool = False) -> Refuse:
    """Reject values that are not a number with a unit; the message omits a leading minus."""

    def refuse(value: str) -> str | None:
        bare = value.removeprefix("-") if signed else value
        return None if re.fullmatch(SIZE, bare) else f"invalid number of {of}: ‘{bare}’"

    return refuse


def size_of_pieces(of: str) -> Refuse:
    """Reject invalid sizes, and a size of 0."""

    def refuse(value: str) -> str | None:
        if re.fullmatch(r"0+\w*", value) and re.fullmatch(SIZE, value):
            return f"invalid number of {of}: ‘{value}’: Numerical result out of range"
        return size(of)(value)

    return refuse


def positions(of: str, one: str) -> Refuse:
    """Reject invalid lists of numbers and ranges; the first fault is reported, as by cut(1)."""

    def refuse(value: str) -> str | None:
        said = None
        for match in re.finditer(r"([^, \t]*)(?:[, \t]|$)", value):
            part = match[1]
            left, dash, right = part.partition("-")
            wrong = re.search(r"[^\d-]", part)
            if wrong:
                said = f"invalid {one} ‘{value[match.start() + wrong.start() :]}’"
            if "-" in right:
                return None
            zero = left.isdecimal() and not int(left) and (dash or not wrong)
            if zero or not part:
                said = f"{of} are numbered from 1"
            elif not wrong and dash and not left and not right:
                said = "invalid range with no endpoint: -"
            elif not wrong and dash and right and int(right) < int(left or 1):
                said = "invalid decreasing range"
            if said is not None:
                return f"{said}\n{hint('cut')}"
            if match.end() == len(value):
                break
        return None

    return refuse


def delimiter(value: str) -> str | None:
    """Reject a delimiter of several characters (cut(1))."""
    if len(value) < 2:
        return None
    return f"the delimiter must be a single character\n{hint('cut')}"


def tab(value: str) -> str | None:
    """Reject values that are not one character."""
    if not value:
        return "empty tab"
    return f"multi-character tab ‘{value}’" if len(value) > 1 else None


def tab_stops(value: str) -> str | None:
    """Reject a list of tab stops with other characters (expand(1))."""
    wrong = value.lstrip("0123456789, /+")
    return f"tab size contains invalid character(s): ‘{wrong}’" if wrong else None


def sort_key(value: str) -> str | None:
    """Return the message of sort(1) about a key definition."""
    start, comma, end = value.partition(",")
    parts = [(start, "at field start", value), (end, "after ','", end)]
    for text, where, whole in parts[: 2 if comma else 1]:
        match = _KEY_PART.match(text)
        if match is None:
            return f"invalid number {where}: invalid count at start of ‘{whole}’"
        if not int(match[1]):
            return f"field number is zero: invalid field specification ‘{value}’"
        rest = text[match.end() :]
        if rest.startswith("."):
            return (
                f"invalid number after '.': invalid count at start of ‘{whole[match.end() + 1 :]}’"
            )
        if whole is value and match[2] and not int(match[2]):
            return f"character offset is zero: invalid field specification ‘{value}’"
        if rest.strip(_KEY_LETTERS):
            return f"stray character in field spec: invalid field specification ‘{value}’"
    return None


def is_mode(text: str) -> bool:
    """Whether a text is a file mode (the coreutils manual, File permissions)."""
    if re.fullmatch("[-+=]?[0-7]+", text):
        return int(text.lstrip("-+="), 8) <= 0o7777
    return bool(_SYMBOLIC.fullmatch(text))


def stamp_error(value: str) -> str | None:
    """Return the message of touch(1) about `[[CC]YY]MMDDhhmm[.ss]`."""
    match = re.fullmatch(r"(?:\d\d|\d{4})?(\d\d)(\d\d)(\d\d)(\d\d)(?:\.(\d\d))?", value)
    if match:
        month, day, hour, minute, second = (int(each or 0) for each in match.groups())
        if 1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second < 61:
            return None
    return f"invalid date format ‘{value}’"


_WORDS_OF_DATES = re.compile(
    r"(?:jan|feb|mar|apr|may|jun|jul|aug|sept?|oct|nov|dec|january|february|march|april|june|july"
    r"|august|september|october|november|december|sun|mon|tue|tues|wed|wednes|thu|thur|thurs|fri"
    r"|sat|(?:sun|mon|tues|wednes|thurs|fri|satur)day|(?:year|month|fortnight|week|day|hour|minute"
    r"|min|second|sec)s?|yesterday|today|tomorrow|now|last|this|next|first|third|fourth|fifth"
    r"|sixth|seventh|eighth|ninth|tenth|eleventh|twelfth|ago|hence|am|pm|dst|[a-z]|[a-z]{3,4}t"
    r"|utc?|noon|midnight)"
)
"""Words that occur in dates (the coreutils manual, Date input formats), and time zones."""


def date_text(value: str) -> str | None:
    """Reject a text with a word that does not occur in dates."""
    return None if may_be_a_date(value) else f"invalid date format ‘{value}’"


def may_be_a_date(text: str) -> bool:
    """Whether a text may be a date: all its words occur in dates."""
    words = text.lower().split()
    if not words or not all(word.isalpha() and word.isascii() for word in words):
        return True
    return all(_WORDS_OF_DATES.fullmatch(word) for word in words)


def number_of_arguments(option: str) -> Refuse:
    """Reject an invalid number of arguments (xargs(1))."""
    said = f'invalid number "{{}}" for {option} option\n{hint("xargs")}'
    return unless(r"-?\d+", said)
