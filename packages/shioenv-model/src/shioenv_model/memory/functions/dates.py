"""Parsing of human-readable dates, date formatting, and file times (date(1), touch(1))."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from shioenv.domain.context import MONTHS, OF_DATE, FileEntry, date_of, instant, pointer
from shioenv_model.memory.facts import Tree
from shioenv_model.memory.functions.formats import format_instant
from shioenv_model.memory.functions.language import (
    Language,
    OptionMeaning,
    Plan,
    flag,
    missing_file_error,
    unchanged_plan,
)
from shioenv_model.memory.rewrite import Taken

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<iso>\d{4}-\d\d?-\d\d?)(?:T(?=\d))?
    | (?P<american>\d\d?/\d\d?(?:/\d{4}|/\d\d)?)(?![\d/])
    | (?P<named>\d\d?-[A-Za-z]{3,9}(?:-\d{4})?)(?![\w-])
    | (?P<clock>\d\d?:\d\d(?::\d\d(?:[.,]\d+)?)?)(?:\s*(?P<half>[ap]\.?m\.?)(?![a-z]))?
    | (?P<hour>\d\d?)\s*(?P<half_day>[ap]\.?m\.?)(?![a-z])
    | (?P<zone>\+00:?00|Z(?![a-z])|UTC|GMT)
    | (?P<number>[+-]?\s*\d{1,9})(?![\d:/.])
    | (?P<word>[A-Za-z]+)\.?
    | (?P<mark>,)
    )""",
    re.VERBOSE | re.IGNORECASE,
)

_UNITS = {
    "year": (12, 0.0), "month": (1, 0.0), "fortnight": (0, 14 * 86400.0), "week": (0, 7 * 86400.0),
    "day": (0, 86400.0), "hour": (0, 3600.0), "min": (0, 60.0), "minute": (0, 60.0),
    "sec": (0, 1.0), "second": (0, 1.0),
}  # fmt: skip
"""Units of time, each in months and in seconds."""

_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_SHIFTS = {"now": 0, "today": 0, "yesterday": -1, "tomorrow": 1}
_ORDINALS = {"last": -1, "this": 0, "next": 1, "first": 1, "third": 3, "fourth": 4, "fifth": 5,
             "sixth": 6, "seventh": 7, "eighth": 8, "ninth": 9, "tenth": 10, "eleventh": 11,
             "twelfth": 12}  # fmt: skip


@dataclass
class _Parts:
    """The parsed components of a written date."""

    year: int | None = None
    month: int | None = None
    day: int | None = None
    clock: tuple[int, int, int] | None = None
    weekday: tuple[int, int] | None = None
    """A day of the week, 0 for Monday, and its ordinal."""
    months: int = 0
    seconds: float = 0
    last: tuple[int, float] | None = None
    """The months and seconds that were added last; None if nothing was added."""
    left: list[tuple[str, re.Match[str]]] = field(default_factory=list)

    def add(self, count: int, unit: str) -> None:
        months, seconds = _UNITS[_singular(unit)]
        self.last = count * months, count * seconds
        self.months += count * months
        self.seconds += count * seconds


def _singular(word: str) -> str:
    return word[:-1] if word.endswith("s") and word[:-1] in _UNITS else word


def _month(word: str) -> int | None:
    if len(word) < 3 or not _MONTH.fullmatch(word):
        return None
    return [each.lower() for each in MONTHS].index(word[:3]) + 1


_MONTH = re.compile(
    "jan(uary)?|feb(ruary)?|mar(ch)?|apr(il)?|may|june?|july?|aug(ust)?|sept?(ember)?|oct(ober)?|"
    "nov(ember)?|dec(ember)?"
)


def _weekday(word: str) -> int | None:
    if word in ("tues", "wednes", "thur", "thurs"):
        word = word[:3]
    found = [number for number, day in enumerate(_DAYS) if word in (day, day[:3])]
    return found[0] if found else None


def parse_date(text: str, now: datetime) -> datetime:
    """Parse a date (GNU's syntax, in UTC). Errors: ValueError for other texts."""
    text = text.strip()
    if match := re.fullmatch(r"@(-?\d{1,11})(?:\.\d+)?", text):
        return datetime.fromtimestamp(0, UTC) + timedelta(seconds=int(match[1]))
    if match := re.fullmatch(r"(\d{4})(\d\d)(\d\d)", text):
        return datetime(int(match[1]), int(match[2]), int(match[3]), tzinfo=UTC)
    parts, place = _Parts(), 0
    while place < len(text.rstrip()):
        match = _TOKEN.match(text, place)
        if match is None:
            raise ValueError(text)
        place = match.end()
        parts.left.append((str(match.lastgroup), match))
    parts.left.reverse()
    while parts.left:
        _read(parts)
    return _put_together(parts, now)


def _read(parts: _Parts) -> None:
    """Parse the next part of a date. Errors: ValueError, LookupError for an invalid part."""
    kind, match = parts.left.pop()
    if kind == "iso":
        parts.year, parts.month, parts.day = map(int, match["iso"].split("-"))
    elif kind == "american":
        month, day, *year = map(int, match["american"].split("/"))
        parts.month, parts.day = month, day
        parts.year = _full_year(year[0]) if year else parts.year
    elif kind == "named":
        day_text, word, *rest = match["named"].lower().split("-")
        parts.day, parts.month = int(day_text), _known(_month(word))
        parts.year = int(rest[0]) if rest else parts.year
    elif kind in ("clock", "half", "hour", "half_day"):
        _read_clock(parts, match)
    elif kind == "number":
        _read_number(parts, match["number"].replace(" ", ""))
    elif kind == "word":
        _read_word(parts, match["word"].lower())


def _read_clock(parts: _Parts, match: re.Match[str]) -> None:
    if parts.clock is not None:
        raise ValueError(match[0])
    hour, minute, second = [*map(int, re.split("[:.,]", match["clock"] or match["hour"])), 0, 0][:3]
    half = (match["half"] or match["half_day"] or "").lower()[:1]
    if half:
        if not 1 <= hour <= 12:
            raise ValueError(match[0])
        hour = hour % 12 + 12 * (half == "p")
    parts.clock = hour, minute, second
    if parts.left and str(parts.left[-1][1]["number"])[0] in "+-":
        raise ValueError(match[0])  # a time zone


def _read_number(parts: _Parts, number: str) -> None:
    word = parts.left[-1][1]["word"] if parts.left and parts.left[-1][0] == "word" else None
    following = word.lower() if word else ""
    if _singular(following) in _UNITS:
        parts.left.pop()
        parts.add(int(number), following)
    elif number[0] in "+-":
        raise ValueError(number)
    elif _month(following) is not None and parts.day is None:
        parts.left.pop()
        parts.day, parts.month = int(number), _month(following)
        if parts.left and re.fullmatch(r"\d{4}", str(parts.left[-1][1]["number"])):
            parts.year = int(parts.left.pop()[1]["number"])
    elif (weekday := _weekday(following)) is not None:
        parts.left.pop()
        parts.weekday = weekday, int(number)
    elif len(number) == 4 and parts.day is not None and parts.year is None:
        parts.year = int(number)
    elif len(number) == 8 and parts.day is None:
        parts.year, parts.month = int(number[:4]), int(number[4:6])
        parts.day = int(number[6:])
    elif len(number) in (1, 2, 4) and parts.clock is None:
        hour, minute = (number, "0") if len(number) < 3 else (number[:2], number[2:])
        parts.clock = int(hour), int(minute), 0
    else:
        raise ValueError(number)


def _read_word(parts: _Parts, word: str) -> None:
    if word in _SHIFTS:
        parts.add(_SHIFTS[word], "day")
    elif word == "ago":
        if parts.last is None:
            raise ValueError(word)
        parts.months -= 2 * parts.last[0]
        parts.seconds -= 2 * parts.last[1]
    elif word in _ORDINALS and parts.left:
        following = (parts.left.pop()[1]["word"] or "").lower()
        if _singular(following) in _UNITS:
            parts.add(_ORDINALS[word], following)
        else:
            parts.weekday = _known(_weekday(following)), _ORDINALS[word]
    elif _singular(word) in _UNITS:
        parts.add(1, word)
    elif (weekday := _weekday(word)) is not None:
        parts.weekday = weekday, 0
    elif (month := _month(word)) is not None and parts.left and parts.left[-1][0] == "number":
        parts.month, parts.day = month, int(parts.left.pop()[1]["number"])
        if parts.left and parts.left[-1][0] == "mark":
            parts.left.pop()
    else:
        raise ValueError(word)


def _known(number: int | None) -> int:
    if number is None:
        raise ValueError(number)
    return number


def _full_year(year: int) -> int:
    return year if year > 99 else year + (2000 if year < 69 else 1900)


def _put_together(parts: _Parts, now: datetime) -> datetime:
    dated = parts.day is not None
    year, month = parts.year or now.year, parts.month or now.month
    day = parts.day if parts.day is not None else now.day
    if parts.clock is not None:
        clock = parts.clock
    elif parts.last is not None and not dated and parts.weekday is None:
        clock = now.hour, now.minute, now.second
    else:
        clock = 0, 0, 0
    datetime(year, month, day, *clock)  # the date must be valid before anything is added
    whole = year * 12 + month - 1 + parts.months
    made = datetime(whole // 12, whole % 12 + 1, 1, *clock, tzinfo=UTC)
    made += timedelta(days=day - 1)
    if parts.weekday is not None and not dated:
        weekday, which = parts.weekday
        is_other = which > 0 and made.weekday() != weekday
        made += timedelta(days=(weekday - made.weekday()) % 7 + 7 * (which - is_other))
    return made + timedelta(seconds=parts.seconds)


_STAMP = re.compile(r"(\d\d)?(\d\d)?(\d\d)(\d\d)(\d\d)(\d\d)(?:\.(\d\d))?")


def _of_stamp(text: str, now: datetime) -> datetime:
    """Parse `[[CC]YY]MMDDhhmm[.ss]` (touch(1)). Errors: ValueError."""
    match = _STAMP.fullmatch(text)
    if match is None:
        raise ValueError(text)
    century, years, *rest = match.groups()
    if century and years:
        year = int(century + years)
    else:
        year = _full_year(int(century)) if century else now.year
    month, day, hour, minute, second = (int(each or 0) for each in rest)
    return datetime(year, month, day, hour, minute, second, tzinfo=UTC)


Told = Callable[[str, datetime, Tree], datetime]


def _when(read: Told) -> Callable[[Plan, str], None]:
    """Return a change that sets a plan's instant to the option's value, parsed by `read`."""

    def change(plan: Plan, word: str) -> None:
        plan["when"] = lambda now, tree: read(word, now, tree)

    return change


def _of_file(word: str, now: datetime, tree: Tree) -> datetime:
    entry = tree.find(word)
    if entry is None:
        raise ValueError(word)
    return instant(entry)


def _style(style: str) -> Callable[[Plan, str], None]:
    def change(plan: Plan, word: str) -> None:
        plan["style"] = style

    return change


_ISO = {
    "date": "%Y-%m-%d", "hours": "%Y-%m-%dT%H+00:00", "minutes": "%Y-%m-%dT%H:%M+00:00",
    "seconds": "%Y-%m-%dT%H:%M:%S+00:00",
}  # fmt: skip
_RFC = {
    "date": "%Y-%m-%d", "seconds": "%Y-%m-%d %H:%M:%S+00:00",
    "ns": "%Y-%m-%d %H:%M:%S.%N+00:00",
}  # fmt: skip


def _styled(styles: Mapping[str, str]) -> Callable[[Plan, str], None]:
    def change(plan: Plan, word: str) -> None:
        plan["style"] = styles[word]

    return change


def _write(taken: Taken, plan: Plan) -> Sequence[str] | None:
    """Format an instant by a style, or by the format in the operand."""
    if taken.tree is None or taken.tree.now is None or len(plan["operands"]) > 1:
        return None
    now = instant(taken.tree.now)
    when = plan["when"](now, taken.tree) if "when" in plan else now
    style = plan.get("style", "%a %b %e %H:%M:%S UTC %Y")
    for operand in plan["operands"]:
        if "style" in plan or not operand.word.startswith("+"):
            return None
        style = operand.word[1:]
    return [format_instant(when, style) + "\n"]


_AT = (
    OptionMeaning("when", _when(lambda word, now, tree: parse_date(word, now)), valued=True),
    OptionMeaning("by its stamp", _when(lambda word, now, tree: _of_stamp(word, now)), valued=True),
    OptionMeaning("of this file", _when(_of_file), valued=True),
)

DATES = Language("dates", (
    OptionMeaning("nothing", unchanged_plan),
    OptionMeaning("as mails have it", _style("%a, %d %b %Y %H:%M:%S +0000")),
    OptionMeaning("the day", _style("%Y-%m-%d")),
    *_AT,
    OptionMeaning("in this detail", _styled(_ISO), valued=True),
    OptionMeaning("in this detail, with a blank", _styled(_RFC), valued=True),
), _write)  # fmt: skip


def _set(taken: Taken, plan: Plan) -> Sequence[str] | None:
    """Set the time of files, and create the missing ones."""
    tree = taken.tree
    if tree is None or tree.now is None or not plan["operands"]:
        return None
    now = instant(tree.now)
    when = plan["when"](now, tree) if "when" in plan else now
    said: list[str] = []
    for operand in plan["operands"]:
        entry = tree.find(operand.word)
        key = tree.key(operand.word, follow=not plan.get("itself"))
        if plan.get("itself"):
            entry = operand.entry
        if entry is not None:
            if not plan.get("read alone"):
                plan["operations"] += _dated(key, entry, when)
        elif operand.kind == "M":
            said += [] if plan.get("no new") else [missing_file_error(operand, plan)]
        elif operand.kind not in "mN":
            return None
        elif not plan.get("no new"):
            made = tree.now.to_json() | (date_of(when) if not plan.get("read alone") else {})
            plan["operations"].append(("a", pointer("fs", key), made))
    return said


def _dated(key: str, entry: FileEntry, when: datetime) -> list[tuple[object, ...]]:
    """Return the operations that set a file's time to an instant."""
    found = date_of(when)
    return [
        ("=", pointer("fs", key, name), found[name])
        for name in OF_DATE
        if getattr(entry, name) != found[name]
    ]


def _of_what(plan: Plan, word: str) -> None:
    if word in ("access", "atime", "use"):
        plan["read alone"] = True
    elif word not in ("modify", "mtime"):
        raise ValueError(word)


TIMES = Language("times", (
    OptionMeaning("nothing", unchanged_plan),
    OptionMeaning("nothing new", flag("no new")),
    OptionMeaning("when it was read", flag("read alone")),
    OptionMeaning("links themselves", flag("itself")),
    *_AT,
    OptionMeaning("of what", _of_what, valued=True),
), _set)  # fmt: skip
