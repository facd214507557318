"""Instants in what programs print and in times of files, said of a machine that started at another
one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from shioenv.domain.context import MONTHS

_OWN = timedelta(days=31)
"""How far from its start what happens on a machine is: what is further is a date that somebody
chose, or of a file that came with the system (ours)."""

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")

_Parts: TypeAlias = Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Shift:
    """From a machine that was started at one instant to one that was started at another."""

    theirs: datetime
    ours: datetime

    def words(self, text: str) -> Iterator[tuple[str, str]]:
        """The instants in a text as they are written there, each as it is written of our machine:
        as long after its start. Other dates and durations stay what they are.
        """
        if self.theirs == self.ours:
            return
        for pattern, write in _FORMATS:
            for match in pattern.finditer(text):
                parts = match.groupdict()
                at = self._read(parts)
                if at is None:  # nor is the time in it one of its own
                    yield match[0], match[0]
                    continue
                # what is joined to it goes with it: `--2025-10-16 19:43:00--`, `19:43:00.25 +0000`
                begin = len(text[: match.start()].rstrip("-"))
                rest = _JOINED.match(text, match.end())
                before, behind = text[begin : match.start()], rest[0] if rest else ""
                said = write(parts, self._moved(at))
                yield f"{before}{match[0]}{behind}", f"{before}{said}{behind}"

    def dates(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        """The four attributes of a file's time, as they are on our machine."""
        hour, minute = map(int, entry["time"].split(":"))
        month = MONTHS.index(entry["month"]) + 1
        at = datetime(entry["year"], month, entry["day"], hour, minute, tzinfo=UTC)
        now = self._moved(at) if self._is_own(at) else at
        return {
            "month": MONTHS[now.month - 1],
            "day": now.day,
            "year": now.year,
            "time": f"{now:%H:%M}",
        }

    def _is_own(self, at: datetime) -> bool:
        return abs(at - self.theirs) <= _OWN

    def _moved(self, at: datetime) -> datetime:
        return at - self.theirs + self.ours

    def _read(self, parts: _Parts) -> datetime | None:
        """The instant of their machine that was written; None where it is none of its own."""
        try:
            found = list(_days(parts, self.theirs))
        except (ValueError, OverflowError, OSError):
            return None
        for day in found:
            clock = parts.get("clock")
            if clock:
                hour, minute, *second = map(int, clock.split(":"))
                if hour > 23 or minute > 59 or max(second, default=0) > 59:
                    return None
                day = day.replace(hour=hour, minute=minute, second=(second or [0])[0])
            elif "seconds" not in parts:  # of a day alone: when the machine started, or noon
                started = day.date() == self.theirs.date()
                day = self.theirs if started else day.replace(hour=12)
            if self._is_own(day):
                return day
        return None


def _days(parts: _Parts, start: datetime) -> Iterator[datetime]:
    """The days that may be meant. Errors: ValueError for one that there is not."""
    if parts.get("seconds"):
        yield datetime.fromtimestamp(int(parts["seconds"] or 0), UTC)
    elif parts.get("iso"):
        yield datetime.fromisoformat(f"{parts['iso']}T00:00:00+00:00")
    elif parts.get("month"):
        month, day = MONTHS.index(parts["month"] or "") + 1, int(parts["day"] or 0)
        years = [int(parts["year"])] if parts["year"] else range(start.year - 1, start.year + 2)
        yield from (datetime(year, month, day, tzinfo=UTC) for year in years)
    else:
        yield start.replace(hour=0, minute=0, second=0)


def _clock(parts: _Parts, at: datetime) -> str:
    """With seconds where there were some."""
    return f"{at:%H:%M:%S}"[: len(parts["clock"] or "")]


def _iso(parts: _Parts, at: datetime) -> str:
    return f"{at:%Y-%m-%d}{parts['gap'] or ''}{_clock(parts, at)}"


def _month_first(parts: _Parts, at: datetime) -> str:
    gap, year = parts["gap"], parts["year"]
    day = f"{at.day:{len(parts['day'] or '')}}" if gap else f"{at.day:02}"
    clock = f" {_clock(parts, at)}{parts['zone'] or ''}" if parts["clock"] else ""
    of_year = f"{year[:-4]}{at.year}" if year else ""
    return f"{_name(parts, at)}{MONTHS[at.month - 1]}{gap}{day}{clock}{of_year}"


def _day_first(parts: _Parts, at: datetime) -> str:
    clock = f" {_clock(parts, at)}" if parts["clock"] else ""
    return f"{_name(parts, at)}{at.day:02} {MONTHS[at.month - 1]} {at.year}{clock}"


def _name(parts: _Parts, at: datetime) -> str:
    return f"{_DAYS[at.weekday()]}{parts['comma']} " if parts["name"] else ""


def _seconds(parts: _Parts, at: datetime) -> str:
    return str(int(at.timestamp()))


_MONTH, _DAY = f"(?P<month>{'|'.join(MONTHS)})", f"(?:(?P<name>{'|'.join(_DAYS)})(?P<comma>,?) +)?"
_CLOCK = r"(?P<clock>\d\d:\d\d(?::\d\d)?)"
_FORMATS: tuple[tuple[re.Pattern[str], Callable[[_Parts, datetime], str]], ...] = tuple(
    (re.compile(rf"(?<![\w:.]){pattern}(?![\dA-Ya-z_:])"), write)
    for pattern, write in (
        (rf"(?P<iso>\d{{4}}-\d\d-\d\d)(?:(?P<gap>[ T]){_CLOCK})?", _iso),
        (
            rf"{_DAY}{_MONTH}(?P<gap> ?)(?P<day>[ \d]?\d)(?: {_CLOCK}(?P<zone> [A-Z]{{3}})?)?"
            r"(?P<year> {1,2}\d{4})?",
            _month_first,
        ),
        (rf"{_DAY}(?P<day>\d\d) {_MONTH} (?P<year>\d{{4}})(?: {_CLOCK})?", _day_first),
        (r"(?P<seconds>\d{10})", _seconds),
        (rf"(?<!\()(?!00:){_CLOCK}", _clock),
    )
)
"""How programs write an instant, and what writes another one in the same way: `2025-10-16 19:43`;
`Thu Oct 16 19:43:00 UTC 2025`, `Oct 16 19:43`, `Oct15`; `Thu, 16 Oct 2025 19:43:00`; seconds since
1970; `19:43`, which is a duration where it begins with `00:`, or stands in brackets."""

_JOINED = re.compile(r"(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?")
