"""Translation of answers between machines: names, addresses and instants.

`theirs` is the machine of the memory, `ours` the queried machine. Names correspond if they are at
the same position of the same file on both machines; there is no table of names. Instants correspond
if they are equally long after the start of their machine.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, TypeAlias

from shioenv.domain.context import MONTHS, OF_DATE, date_of
from shioenv_model.memory.world import World

_OWN = timedelta(days=31)
"""Instants within this distance of a machine's start are its own (our choice).

Any other instant was given explicitly, or belongs to a file of the system image.
"""

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")

_Parts: TypeAlias = Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Shift:
    """A shift of instants from one machine to another, given the start of each."""

    theirs: datetime
    ours: datetime

    def words(self, text: str) -> Iterator[tuple[str, str]]:
        """Yield the instants in a text, each as written and as translated for our machine.

        On our machine an instant is equally long after the start. Other dates and durations are
        unchanged.
        """
        if self.theirs == self.ours:
            return
        for pattern, write in _FORMATS:
            for match in pattern.finditer(text):
                parts = match.groupdict()
                at = self._read(parts)
                if at is None:  # no part of it is replaced, not even its time
                    yield match[0], match[0]
                    continue
                # adjacent text is included: `--2025-10-16 19:43:00--`, `19:43:00.25 +0000`
                begin = len(text[: match.start()].rstrip("-"))
                rest = _JOINED.match(text, match.end())
                before, behind = text[begin : match.start()], rest[0] if rest else ""
                said = write(parts, self._moved(at))
                yield f"{before}{match[0]}{behind}", f"{before}{said}{behind}"

    def dates(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        """Shift a file's time (four attributes) to our machine, unless it was given explicitly."""
        hour, minute = map(int, entry["time"].split(":"))
        month = MONTHS.index(entry["month"]) + 1
        at = datetime(entry["year"], month, entry["day"], hour, minute, tzinfo=UTC)
        return date_of(self._moved(at) if self._is_own(at) else at)

    def _is_own(self, at: datetime) -> bool:
        return abs(at - self.theirs) <= _OWN

    def _moved(self, at: datetime) -> datetime:
        return at - self.theirs + self.ours

    def _read(self, parts: _Parts) -> datetime | None:
        """Parse an instant; None if it is not within `_OWN` of their machine's start."""
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
            elif "seconds" not in parts:  # no time: the start on its day, else noon
                started = day.date() == self.theirs.date()
                day = self.theirs if started else day.replace(hour=12)
            if self._is_own(day):
                return day
        return None


def _days(parts: _Parts, start: datetime) -> Iterator[datetime]:
    """Yield the possible days. Errors: ValueError for a day that does not exist."""
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
    """Format the time of day, with seconds if the original text had them."""
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
"""Formats of instants in output, each with the function that writes an instant in that format.

The formats are `2025-10-16 19:43`; `Thu Oct 16 19:43:00 UTC 2025`, `Oct 16 19:43`, `Oct15`; `Thu,
16 Oct 2025 19:43:00`; seconds since 1970; `19:43`. `19:43` is a duration, not an instant, if it
begins with `00:` or follows a parenthesis.
"""

_JOINED = re.compile(r"(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?")


_COMPARED = ("/etc/", "/proc/")
_BY_NUMBER = ("/etc/passwd", "/etc/group")
"""Files whose lines are identified by a number: passwd(5), group(5)."""

_FIELDS, _WORDS = re.compile(r"[:,]"), re.compile(r"[\s=()]+")
_SHORTEST = 3
"""Minimum length of a name, since shorter words are too ambiguous."""


class Translation:
    """Translates text from one machine to another."""

    def __init__(self, theirs: World, ours: World) -> None:
        self._shift = shift(theirs, ours)
        self.names = _names(theirs, ours)
        """Names of users, groups and addresses on their machine, each with the name on ours."""
        hosts = [str(each.state().before.document.get("hostname", "")) for each in (theirs, ours)]
        self._host, self._our_host = hosts
        if hosts[0] != hosts[1] and len(hosts[0]) >= _SHORTEST:
            self.names.setdefault(*hosts)
        self._networks = {
            old.rpartition(".")[0]: new.rpartition(".")[0]
            for old, new in self.names.items()
            if _ADDRESS.fullmatch(old) and _ADDRESS.fullmatch(new)
        }

    def words(self, text: str) -> dict[str, str]:
        """Return the parts of a text that differ on our machine, each with its translation."""
        found = dict(self._shift.words(text)) if self._shift else {}
        if self._host in text and self._host != self._our_host:
            # a hostname may also be a user name; after these texts it is the hostname
            behind = [(f"{old} ", f"{new} ") for old, new in found.items()]
            for old, new in (*behind, ("Linux ",) * 2, ("HOSTNAME=",) * 2):
                found[old + self._host] = new + self._our_host
            if text == f"{self._host}\n":
                found[self._host] = self._our_host
        for match in _TOKEN.finditer(text):
            token, blanks = match.groups()
            said = self.named(token)
            if said != token:
                width = len(token) + len(blanks) - 1  # of the column, without the last blank
                found.setdefault(match[0], f"{said:{width}} " if blanks else said)
        return found

    def back(self, path: str) -> str:
        """Translate a path of our machine back to theirs."""
        return "/".join(self._backwards.get(each, each) for each in path.split("/"))

    @cached_property
    def _backwards(self) -> dict[str, str]:
        return {new: old for old, new in self.names.items()}

    def dates(self, entry: Mapping[str, Any]) -> Mapping[str, Any]:
        """Translate the four time attributes of a file entry on their machine to ours."""
        kept = {name: entry[name] for name in OF_DATE}
        return self._shift.dates(kept) if self._shift else kept

    def named(self, token: str) -> str:
        """Translate a word of their machine to ours; each component of a path separately."""
        if token in self.names:
            return self.names[token]
        if _ADDRESS.fullmatch(token):
            network, _, last = token.rpartition(".")
            return f"{self._networks.get(network, network)}.{last}"
        if "@" in token:
            user, _, host = token.rpartition("@")
            host = self._our_host if host == self._host else self.named(host)
            return f"{self.named(user)}@{host}"
        if "/" in token:
            return "/".join(self.names.get(each, each) for each in token.split("/"))
        return token


_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")
_BOOT = re.compile(rb"(?m)^btime (\d+)$")
_TOKEN = re.compile(r"([\w.\-/~@+]*[\w/~@+])( {2,}|)")


def _names(theirs: World, ours: World) -> dict[str, str]:
    """Map words of their files to the most frequent word at the same position in ours."""
    votes: dict[str, Counter[str]] = {}
    for path, content in theirs.contents.items():
        other = ours.contents.get(path)
        if other is None or not path.startswith(_COMPARED):
            continue
        lines = [each.decode(errors="replace").splitlines() for each in (content, other)]
        for old, new in _aligned(path, *lines):
            for mine, your in _parts(old, new):
                votes.setdefault(mine, Counter())[your] += 1
    votes.setdefault(theirs.start, Counter())[ours.start] += 1
    chosen = {old: max(new, key=lambda each: (new[each], each)) for old, new in votes.items()}
    return {
        old: new
        for old, new in chosen.items()
        if old != new and len(old) >= _SHORTEST and new and not old.isdigit()
    }


def _aligned(path: str, old: list[str], new: list[str]) -> Iterator[tuple[str, str]]:
    """Yield pairs of corresponding lines.

    Lines of users and groups are paired by number. Lines of other files are paired by position, if
    both files have equally many lines.
    """
    if path in _BY_NUMBER:
        numbered = {line.split(":")[2]: line for line in new if line.count(":") > 2}
        for line in old:
            number = line.split(":")[2] if line.count(":") > 2 else ""
            if number in numbered:
                yield line, numbered[number]
    elif len(old) == len(new):
        yield from zip(old, new, strict=True)


def _parts(old: str, new: str) -> Iterator[tuple[str, str]]:
    """Yield pairs of fields, and of words, at the same positions of two lines."""
    fields = _FIELDS.split(old), _FIELDS.split(new)
    if len(fields[0]) != len(fields[1]):
        return
    for mine, your in zip(*fields, strict=True):
        yield mine.strip(), your.strip()
        words = _WORDS.split(mine.strip()), _WORDS.split(your.strip())
        if 1 < len(words[0]) == len(words[1]):
            yield from zip(*words, strict=True)


def shift(theirs: World, ours: World) -> Shift | None:
    """Return the shift from their start to ours; None if a machine's start is unknown."""
    told = (each.read("/proc/stat") or b"" for each in (theirs, ours))
    found = [int(match[1]) for match in map(_BOOT.search, told) if match]
    if len(found) < 2:
        return None
    return Shift(datetime.fromtimestamp(found[0], UTC), datetime.fromtimestamp(found[1], UTC))
