"""Types of the values in a declaration, and a validation that collects all faults of a file.

Converters turn a value of the TOML file into the stored value. A converter raises ValueError with a
description of the expected value.
"""

from __future__ import annotations

import os
import re
import reprlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from datetime import UTC, date, datetime, time
from ipaddress import ip_address
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple, TypeAlias, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from shioenv.errors import did_you_mean


def like(pattern: str, description: str) -> Meta:
    """Return a constraint: the whole string matches `pattern`. Faults quote the description."""
    return Meta(pattern=rf"\A({pattern})\Z", description=description)


class Keys(NamedTuple):
    """The allowed keys of a table with values of one type. With `required` all are mandatory."""

    names: tuple[str, ...]
    required: bool = False


_KINDS = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}


def checked(annotation: Any, value: Any, place: str, problems: list[str]) -> Any:
    """Validate and convert `value`; on a fault, append it to `problems` and return None."""
    kind: Any
    kind, *notes = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
    origin, inner = get_origin(kind), get_args(kind)
    reader = next((note for note in notes if callable(note)), None)
    if is_dataclass(kind) or origin is Mapping:
        return _table(kind, notes, value, place, problems)
    try:
        if reader is None and origin is tuple and inner[-1] is ...:
            msgspec.convert(value, Annotated[list[Any], *notes] if notes else list[Any])
            return tuple(_items(inner[0], value, place, problems))
        return msgspec.convert(reader(value) if reader else value, annotation)
    except msgspec.ValidationError:
        wrong_kind = kind is str and not isinstance(value, str)
        expected = _KINDS[str] if wrong_kind else _expected(kind, notes)
    except ValueError as error:
        expected = str(error)
    problems.append(f"{place}: expected {expected}, got {shown(value)}")
    return None


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80


def shown(value: Any) -> str:
    """Return a value's text for messages, shortened if it is long or deeply nested."""
    return str(value) if isinstance(value, date | time) else _SHORT.repr(value)


def _expected(kind: Any, notes: Sequence[Any]) -> str:
    """Return a fault's description of the expected value.

    It is the description of the last constraint, else the range of that constraint, else the type.
    """
    for note in reversed(notes):
        if isinstance(note, Meta):
            return note.description or f"{_KINDS[kind]} from {note.ge} to {note.le}"
    return _KINDS.get(kind, "a list")


def _items(annotation: Any, values: Sequence[Any], place: str, problems: list[str]) -> list[Any]:
    """Validate and convert the items of a list. Repeated strings are a fault."""
    texts = [value for value in values if isinstance(value, str)]
    if repeated := sorted({text for text in texts if texts.count(text) > 1}):
        problems.append(f"{place}: {shown(repeated[0])} is listed twice")
    return [
        checked(annotation, value, f"{place}[{index}]", problems)
        for index, value in enumerate(values)
    ]


def _table(kind: Any, notes: Sequence[Any], table: Any, place: str, problems: list[str]) -> Any:
    """Convert a table to a dataclass or a mapping; return None if the table has a fault."""
    if not isinstance(table, dict):
        problems.append(f"{place}: expected a table, got {shown(table)}")
        return None
    before, declared = len(problems), is_dataclass(kind)
    if declared:
        known = get_type_hints(kind, include_extras=True)
        required = [field.name for field in fields(kind) if field.default is MISSING]
        table = getattr(kind, "filled_in", dict)(table)
    else:
        key_annotation, item_annotation = get_args(kind)
        keys = notes[0] if notes else Keys(tuple(table))
        known = dict.fromkeys(keys.names, item_annotation)
        required = list(keys.names) if keys.required else []
        for name in table:
            checked(key_annotation, name, f"{place}.{name}", problems)
    problems += [f"{place}.{name}: is missing" for name in required if name not in table]
    values = {}
    for name, value in table.items():
        if name in known:
            values[name] = checked(known[name], value, f"{place}.{name}", problems)
        else:
            problems.append(f"{place}.{name}: unknown key; {did_you_mean(name, known)}")
    if len(problems) > before:
        return None
    return kind(**values) if declared else MappingProxyType(values)


LIMIT_NAMES = (
    "as", "core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nice", "nofile", "nproc",
    "rss", "rtprio", "sigpending", "stack",
)  # fmt: skip
"""Resource limits by the names of setrlimit(2), lower case and without `RLIMIT_`."""

LONGEST_PATH, LONGEST_NAME, DEEPEST = 4000, 255, 200
"""Maximum bytes of a path, bytes of a path component, and number of components. File systems
support these lengths, and files with such paths can be removed again."""

GROUPS = frozenset({
    "adm", "audio", "backup", "cdrom", "daemon", "dip", "disk", "games", "mail", "operator",
    "plugdev", "staff", "sudo", "tty", "users", "video", "www-data",
})  # fmt: skip
"""Groups of the distribution that a declared user may belong to."""

UNLIMITED = -1
"""The value of "unlimited" in `SessionDeclaration.limits` (RLIM_INFINITY of `resource`)."""

YEARS = (1980, 2038)
"""The first year that zip archives support, and the first year that login records do not
support."""

CONTROL = r"\x00-\x1f\x7f-\x9f\u2028\u2029"
"""Line terminators of any program and control characters, for use in a bracket expression."""

LINE = rf"[^{CONTROL}]"

WORD = "[A-Za-z0-9_][A-Za-z0-9_.+-]*"

_LOGGED = rf"([0-9]{{1,9}}\.[0-9]{{6}}) ({LINE}{{0,900}})"

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def _size(value: object) -> object:
    """Convert a number, or digits followed by K, M or G (powers of 1024), to bytes."""
    if not isinstance(value, str):
        return value
    if match := re.fullmatch(r"([0-9]{1,16})([KMG]?)", value):
        return int(match[1]) * _UNITS[match[2]]
    raise ValueError('a size such as "216M"')


def mask(value: object) -> int:
    """Convert an octal mask to permission bits. Errors: ValueError."""
    if isinstance(value, str) and re.fullmatch(r"0?[0-7]{3}", value):
        return int(value, 8)
    raise ValueError("an octal mask such as 0022")


def _words(value: object) -> tuple[str, ...]:
    if isinstance(value, str) and re.fullmatch(f"({WORD}( +{WORD})*)?", value):
        return tuple(value.split())
    raise ValueError("words in one string")


def moment(value: object) -> datetime:
    """Convert a date and time to UTC. Errors: ValueError."""
    if not isinstance(value, datetime):
        raise ValueError("a date and time such as 2025-10-16T19:43:00Z")
    if value.tzinfo is None:
        raise ValueError("a time with its zone (Z)")
    with suppress(OverflowError):  # for the first and the last day that datetime supports
        moment = value.astimezone(UTC)
        if YEARS[0] <= moment.year < YEARS[1]:
            return moment
    raise ValueError(f"a time from {YEARS[0]} until {YEARS[1]} (UTC)")


def logged(value: object) -> tuple[float, str]:
    """Parse a line of the kernel's log into (seconds, text). Errors: ValueError."""
    if isinstance(value, str) and (match := re.fullmatch(_LOGGED, value)):
        return float(match[1]), match[2]
    raise ValueError('one line, "SECONDS.MICROSECONDS text"')


def _address(value: object) -> object:
    """Check an IPv4 or IPv6 address. Zones are rejected, because they allow arbitrary text."""
    if isinstance(value, str) and "%" not in value:
        with suppress(ValueError):
            ip_address(value)
            return value
    raise ValueError("an IPv4 or IPv6 address")


def host(value: object) -> object:
    """Check a host name, an address or an empty string. Errors: ValueError."""
    if isinstance(value, str) and re.fullmatch(f"((?=.{{1,255}}\\Z)(?![0-9.]*\\Z){WORD})?", value):
        return value
    with suppress(ValueError):
        return _address(value)
    raise ValueError("a host's name or address")


_SOURCE = 'a source, "deb http://HOST/PATH SUITE COMPONENT"'

_OWN_SOURCE = "add such a source to the host's /etc/apt/sources.list.d"

_NO_SOURCE = (
    (r".*\[[^:\[\]]*=.*", f"without options: `architecture` selects the packages; {_OWN_SOURCE}"),
    (r"deb-src .*", "not deb-src: nothing is compiled"),
    (r"deb +(?!https?://).*", f"only http:// or https://; {_OWN_SOURCE}"),
    (r"deb +https?://[^ /]*@.*", f"without user and password; {_OWN_SOURCE}"),
    (r"deb +https?://\[.*", f"without an IPv6 address: give it a name, or {_OWN_SOURCE}"),
    (r".*#.*", "without a comment"),
)
"""Patterns of sources that apt accepts but a declaration may not contain, each with a hint."""

_WORDS_OF_A_SOURCE = (
    "deb",
    r"https?://[A-Za-z0-9]([A-Za-z0-9.:-]*[A-Za-z0-9])?(/[A-Za-z0-9._~+%-]*)*",
    "[a-z0-9][a-z0-9./-]*",
    "[a-z][a-z0-9-]*",
)
"""Patterns of the words of an apt source; the last word may occur several times."""


def _mirror(value: object) -> str:
    """Check a one-line apt source, and normalise the blanks between its words."""
    text = value.replace("\t", " ").strip() if isinstance(value, str) else "\n"
    if not text.isprintable():
        raise ValueError(_SOURCE)
    words = text.split()
    wrong = [
        word
        for index, word in enumerate(words)
        if not re.fullmatch(_WORDS_OF_A_SOURCE[min(index, 3)], word)
    ]
    for pattern, meant in _NO_SOURCE if wrong else ():
        if re.fullmatch(pattern, text):
            raise ValueError(f"{_SOURCE}, {meant}")
    if wrong:
        raise ValueError(f"{_SOURCE}, not with {shown(wrong[0])}")
    if len(words) < len(_WORDS_OF_A_SOURCE):
        raise ValueError(f"{_SOURCE}, with all words")
    return " ".join(words)


_NAMED = "a package's name, optionally with :ARCHITECTURE or =VERSION"

_PACKAGE = r"[a-z0-9][a-z0-9.+-]*[a-z0-9+](:[a-z0-9]+)?(=[A-Za-z0-9][A-Za-z0-9.+~:-]*)?"

_NO_PACKAGE = (
    (r".*\.deb", "files cannot be installed, only packages of the sources"),
    (r"[^/=]+/[^/]*", "=VERSION selects a version, and `pockets` lists further suites"),
    (r".*[\s,].*", "each package must be a separate item"),
    (r"[a-z0-9.+-]+-", "packages cannot be removed; `leave_out` lists files that are not unpacked"),
    (r".*[A-Z].*", "names have lower case letters"),
    (r".*[][*?~!()|<>].*", "patterns and conditions are not supported"),
)
"""Patterns of common mistakes in package names, each with a hint."""


def _package(value: object) -> str:
    """Check a package name, optionally with an architecture and a version."""
    if isinstance(value, str):
        if re.fullmatch(_PACKAGE, value):
            return value
        for pattern, meant in _NO_PACKAGE:
            if re.fullmatch(pattern, value, re.DOTALL):
                raise ValueError(f"{_NAMED} ({meant})")
    raise ValueError(_NAMED)


def _limit(value: object) -> tuple[int, int]:
    """Convert `8388608`, `"unlimited"` or `[1024, 1048576]` to (soft, hard)."""
    both: list[Any] = value if isinstance(value, list) else [value, value]
    meant = [
        limit == "unlimited" or (type(limit) is int and 0 <= limit < 1 << 63) for limit in both
    ]
    if meant != [True, True]:
        raise ValueError('a number, "unlimited", or both limits as [soft, hard]')
    soft, hard = (UNLIMITED if limit == "unlimited" else limit for limit in both)
    if hard != UNLIMITED and (soft == UNLIMITED or soft > hard):
        raise ValueError("[soft, hard] with soft at most hard")
    return soft, hard


def too_long(path: str) -> str:
    """Return why a path is too long for a file of a system, or "" if it is not."""
    parts = path.strip("/").split("/")
    if any(len(os.fsencode(part)) > LONGEST_NAME for part in parts):
        return f"a name in it has more than {LONGEST_NAME} bytes"
    if len(parts) > DEEPEST:
        return f"it has more than {DEEPEST} names"
    return f"it has more than {LONGEST_PATH} bytes" if len(os.fsencode(path)) > LONGEST_PATH else ""


def _path(value: object) -> object:
    if isinstance(value, str) and "\0" not in value and (wrong := too_long(value)):
        raise ValueError(f"a path that a file can have ({wrong})")
    return value


_PART = rf"(?!\.\.?(/|\Z))[^/:{CONTROL}]+"

_PATH = rf"(/{_PART})+"

_A_PATH = "an absolute path without '.', '..', ':' or a last '/'"

_NOT_OWN = "(usr/)?(bin|boot|dev|etc|lib|lib32|lib64|libx32|proc|run|sbin|sys)|var/(lock|run)"

_OWN = rf"(?!/({_NOT_OWN})(/|\Z))"

_OCTET = "(25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])"

IPV4 = rf"({_OCTET}\.){{3}}{_OCTET}"

LABEL = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"

Line: TypeAlias = Annotated[str, like(f"{LINE}{{0,4096}}", "one line of text")]

Words: TypeAlias = Annotated[tuple[str, ...], _words]

Directory: TypeAlias = Annotated[str, _path, like(f"/|{_PATH}", _A_PATH)]

OwnDirectory: TypeAlias = Annotated[
    str,
    _path,
    like(_OWN + _PATH, f"{_A_PATH}, in no directory that the distribution or kernel fills"),
]

DirectoryOrNone: TypeAlias = Annotated[str, _path, like(f"(/|{_PATH})?", _A_PATH)]
"""A `Directory`, or empty."""

MountPointOrNone: TypeAlias = Annotated[
    str, _path, like(f"(?!.* )(/|{_PATH})?", "an absolute path without blanks, '.' and '..'")
]

HomeSource: TypeAlias = Annotated[
    str,
    _path,
    like(f"[a-z0-9][a-z0-9_-]*|{_PATH}", "the name of a shipped tree, or an absolute path"),
]

AccountName: TypeAlias = Annotated[str, like("[a-z_][a-z0-9_-]{0,31}", "a user's or group's name")]

AccountNumber: TypeAlias = Annotated[int, Meta(ge=1, le=65533)]

Address: TypeAlias = Annotated[str, like(IPV4, "an IPv4 address")]

AnyAddress: TypeAlias = Annotated[str, _address]

Size: TypeAlias = Annotated[int, _size, Meta(ge=0, le=1 << 50, description='a size such as "216M"')]

LargeSize: TypeAlias = Annotated[
    int, _size, Meta(ge=1 << 20, le=1 << 50, description='a size such as "216M", at least "1M"')
]

Variable: TypeAlias = Annotated[str, like("[A-Za-z_][A-Za-z0-9_]*", "a shell variable's name")]

Limit: TypeAlias = Annotated[tuple[int, int], _limit]

Byte: TypeAlias = Annotated[int, Meta(ge=0, le=255)]

Load: TypeAlias = Annotated[float, Meta(ge=0, le=10000)]

Frequency: TypeAlias = Annotated[float, Meta(ge=0, le=1000000)]

Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=1 << 31)]

Moment: TypeAlias = Annotated[datetime, moment]

Suite: TypeAlias = Annotated[str, like("[a-z0-9][a-z0-9.-]{0,63}", "a code name such as bookworm")]

Component: TypeAlias = Annotated[
    str, like("[a-z][a-z0-9-]{0,63}", "a component of an archive, such as main")
]

SystemName: TypeAlias = Annotated[
    str,
    like(r"(?!.*\.toml\Z)[a-z0-9][a-z0-9.-]{0,99}", "lower case letters, digits, '-' and '.'"),
]

Mirror: TypeAlias = Annotated[str, _mirror]

Keyring: TypeAlias = Annotated[
    str,
    like(
        r"(/usr/share/keyrings/(debian|ubuntu)-archive-keyring\.gpg)?",
        "the archive's own keyring, /usr/share/keyrings/debian-archive-keyring.gpg or "
        "ubuntu-archive-keyring.gpg (for other keys: /etc/apt/trusted.gpg.d of the host)",
    ),
]

Package: TypeAlias = Annotated[str, _package]

PathPattern: TypeAlias = Annotated[
    str, like(r"(/[A-Za-z0-9._+@~,*?!^\[\]-]*)+", "an absolute path, optionally with * and ?")
]

Module: TypeAlias = Annotated[
    str,
    like(
        r"[A-Za-z0-9_]{1,56} [0-9]{1,12} [0-9]{1,6} (-|([A-Za-z0-9_]{1,56},)+)"
        r" (Live|Loading|Unloading) 0x[0-9a-f]{1,16}( \([A-Z]{1,8}\))?",
        'a line of /proc/modules, "NAME SIZE COUNT USERS Live 0x0000000000000000"',
    ),
]
