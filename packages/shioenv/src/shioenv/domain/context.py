"""The observable state of a system as one JSON document (Appendix B's names and types).

| key | value |
|---|---|
| `arch kernel disk cpus mem hostname os_family user` | what the machine profile declares, strings |
| `groups` | names of the shell's groups |
| `cwd` | the shell's working directory |
| `env` | exported variables by name |
| `fs` | one `FileEntry` per file. The key is the path, relative for files in the start directory
  (`.` for itself) and absolute for others |
| `shell_options` | `shopt`, by name, true or false |
| `settings` | unexported variables, `-o NAME` of `set -o` (true or false), `trap SIGNAL`, by name |
| `functions aliases` | definitions by name |
| `umask` | four octal digits |
| `limits` | values of `ulimit`, by bash's descriptions of them |
| `firewall` | the rules, one line each |
| `network` | `links` and `addresses` by the link's name, `routes` and `rules` as lines |
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from shioenv.errors import ContextError, PatchError
from shioenv.files.documents import parse_json
from shioenv.text import short_repr

FIELDS = (
    "arch", "kernel", "disk", "cpus", "mem", "hostname", "os_family", "user", "groups", "cwd",
    "env", "fs", "shell_options", "settings", "functions", "aliases", "umask", "limits",
    "firewall", "network",
)  # fmt: skip
"""The document's keys in the order in which they are written."""


MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
"""The values of `FileEntry.month`. They are listed here because strftime depends on the locale."""

OF_DATE = ("month", "day", "year", "time")
"""The attributes of a file that give its modification time."""


def date_of(moment: datetime) -> dict[str, Any]:
    """Return the values of `OF_DATE` for a modification time."""
    month, clock = MONTHS[moment.month - 1], f"{moment:%H:%M}"
    return {"month": month, "day": moment.day, "year": moment.year, "time": clock}


KEPT = ("perms", "owner", "group", "size", *OF_DATE)
"""The attributes that a file keeps when it replaces another file."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file as `ls -l` describes it: the attributes of Appendix B, and a symbolic link's target.

    `perms` is ten characters (`drwxrwxr-x`), `size` bytes, `month` `Jan` to `Dec`, `time` `HH:MM`
    (UTC). A device's size is 0.
    """

    perms: str
    links: int
    owner: str
    group: str
    size: int
    month: str
    day: int
    year: int
    time: str
    target: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the entry as in `fs`; only symbolic links have `target`."""
        values = ((name, getattr(self, name)) for name in self.__slots__)
        return {name: value for name, value in values if value is not None}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> FileEntry:
        """Parse an entry written by `to_json`. ContextError for missing or unknown attributes."""
        try:
            return cls(**document)
        except TypeError as error:
            raise ContextError(f"not a file entry: {error}") from None


def instant(entry: FileEntry) -> datetime:
    """Return a file's modification time, to the minute, in UTC."""
    hour, minute = map(int, entry.time.split(":"))
    month = MONTHS.index(entry.month) + 1
    return datetime(entry.year, month, entry.day, hour, minute, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Context:
    """An immutable context document. Contexts with equal documents are equal.

    Errors: ContextError for a field that is not in `FIELDS`.
    """

    document: Mapping[str, Any]

    def __post_init__(self) -> None:
        unknown = sorted(set(self.document) - set(FIELDS))
        if unknown:
            raise ContextError(
                f"unknown fields of a context: {', '.join(unknown)}",
                hint=f"known: {', '.join(FIELDS)}",
            )

    def __repr__(self) -> str:
        cwd, files = self.document.get("cwd"), self.document.get("fs", {})
        return short_repr(self, {"cwd": cwd, "files": len(files)})

    def entry(self, name: str) -> FileEntry | None:
        """Return the file listed as `name` in `fs`, or None."""
        attributes = self.document.get("fs", {}).get(name)
        return None if attributes is None else FileEntry.from_json(attributes)

    def to_json(self) -> str:
        """Return the document as minified JSON: fields in their fixed order, inner keys sorted."""
        ordered = {
            key: _ordered(self.document[key], keep_attributes=key == "fs")
            for key in FIELDS
            if key in self.document
        }
        return json.dumps(ordered, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Context:
        """Parse a context written by `to_json`. Errors: ContextError if the text is no context."""
        try:
            document = parse_json(text)
        except ValueError as error:
            raise ContextError(f"not a context: {error}") from None
        if not isinstance(document, dict):
            raise ContextError(f"not a context: expected an object, got {text[:40]!r}")
        return cls(document)


def _ordered(value: Any, *, keep_attributes: bool) -> Any:
    if not isinstance(value, dict):
        return value
    if keep_attributes:
        return {key: value[key] for key in sorted(value)}
    return {key: _ordered(value[key], keep_attributes=False) for key in sorted(value)}


# JSON Pointers (RFC 6901), which address a value in a context


def escape(key: str) -> str:
    """Escape a key for use in a pointer: `~` becomes `~0`, `/` becomes `~1`."""
    return key.replace("~", "~0").replace("/", "~1")


def unescape(token: str) -> str:
    """Return the key that a pointer's token stands for."""
    return token.replace("~1", "/").replace("~0", "~")


def pointer(*keys: str) -> str:
    """Build the pointer to the value at these keys; without keys "", the whole document."""
    return "".join(f"/{escape(key)}" for key in keys)


def keys(path: str) -> list[str]:
    """Split a pointer into its keys. PatchError if it is not a pointer."""
    if not path:
        return []
    if not path.startswith("/"):
        raise PatchError(
            f"not a JSON Pointer: {path!r}", hint="a pointer starts with / or is empty"
        )
    return [unescape(token) for token in path[1:].split("/")]
