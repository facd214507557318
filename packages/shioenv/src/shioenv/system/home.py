"""Load the home tree as entries with content and attributes, identical on every host.

Text is stored as plain files beneath `systems/<source>/files/`, and attributes in
`systems/<source>/tree.toml`. Binary and long files are generated. Nothing depends on the host, the
clock, or the version of Python or of a compression library. The deflate encoder is part of the
package, because zlib's output varies between versions.

Trees that are not shipped are untrusted. Nothing outside a tree's directory is read, and the size
of the result is limited.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from shioenv.errors import SystemDeclarationError, did_you_mean
from shioenv.files.regular import read_regular
from shioenv.system.declare import (
    FIXTURE_SPAN,
    LARGEST_FILE,
    SystemDeclaration,
    parse_toml,
    reason,
    systems_directory,
)
from shioenv.system.home_files import GENERATORS, HomeEntry, HomeRequest, Kind, words_file
from shioenv.system.values import LONGEST_PATH, AccountName, Moment, checked, like, shown, too_long


class HomeTree:
    """The source files of a home tree: `tree.toml`, and the files beneath `files/`.

    `source` is their directory, in the form of `Home.source`. Errors: SystemDeclarationError if it
    contains no tree.
    """

    def __init__(self, source: str) -> None:
        self._top = systems_directory().joinpath(source)
        self._ships = not source.startswith("/")
        self._place = f"{source}/tree.toml"
        self._known: dict[str, bytes] = {}
        try:
            self.text = self._read("tree.toml").decode()
        except FileNotFoundError:
            raise SystemDeclarationError(self._place, ["there is no such home tree"]) from None
        except (OSError, ValueError) as error:
            raise self.error([f"cannot be read: {reason(error)}"]) from error
        self.entries = self._entries()

    def error(self, problems: Iterable[str]) -> SystemDeclarationError:
        """Return an error with these problems that names the tree's file."""
        return SystemDeclarationError(self._place, problems)

    def read(self, name: str) -> bytes:
        """Read a file beneath `files/`, by its path relative to that directory.

        Errors: OSError if it is not a regular file inside the tree, or has more than `LARGEST_FILE`
        bytes.
        """
        if name not in self._known:
            self._known[name] = self._read(f"files/{name}")
        return self._known[name]

    def used(self) -> Iterator[tuple[str, bytes]]:
        """Yield path and content of each source file of the tree.

        These are `tree.toml`, the generators' word lists, and every file that `tree.toml` names.
        """
        yield "tree.toml", self.text.encode()
        yield "words.toml", words_file().read_bytes()
        entries = self.entries.items()
        origins = [str(value.get("from", path)) for path, value in entries if from_file(value)]
        for origin in dict.fromkeys(origins):
            with suppress(OSError, ValueError):  # `load_home` reports the error
                yield f"files/{origin}", self.read(origin)

    def _read(self, path: str) -> bytes:
        if self._ships:
            return self._top.joinpath(*path.split("/")).read_bytes()
        top = Path(str(self._top))
        place = top / path
        if Path(os.path.realpath(place)) != Path(os.path.realpath(top)) / path:
            raise OSError(
                errno.ELOOP, "the path has a symbolic link, or leaves the tree", str(place)
            )
        return read_regular(place, LARGEST_FILE)

    def _entries(self) -> dict[str, dict[str, Any]]:
        data = parse_toml(self.text, self._place)
        entries = data.pop("entries", None)
        if data:
            raise self.error([f"$.{shown(name)}: unknown key; known: entries" for name in data])
        tables = isinstance(entries, dict) and all(isinstance(v, dict) for v in entries.values())
        if entries is None or not tables:
            raise self.error(["not a tree of entries: expected tables in [entries]"])
        if len(entries) > _MOST_ENTRIES:
            raise self.error([f"expected at most {_MOST_ENTRIES} entries, got {len(entries)}"])
        return dict(entries)


def load_home(declaration: SystemDeclaration) -> tuple[HomeEntry, ...]:
    """Load the entries of the declared home tree, sorted by path, with the top directory first.

    Raises SystemDeclarationError, which lists the faults of `tree.toml`.
    """
    tree = HomeTree(declaration.home.source)
    reader = _Reader(declaration, tree)
    if "." not in tree.entries:
        reader.problems.append('$.entries: "." is not declared, the directory of all others')
    for path in tree.entries:
        reader.check(path)
    order = () if reader.problems else reader.order()
    for path in order:
        reader.make(path)
        if reader.problems:
            break
    if reader.problems:
        raise tree.error(reader.problems)
    return tuple(reader.done[path] for path in sorted(reader.done, key=lambda p: (p != ".", p)))


_OF_ONE = frozenset({"bz2", "gz"})
"""Generators that take exactly one entry."""

_MOST_ENTRIES, _MOST_BYTES = 10_000, 64 << 20
"""Limits of a home tree; the shipped one has 140 entries and 200,000 bytes."""

_PART = r"(?!\.\.?(/|\Z))[^/\x00]+"
_PATH = rf"({_PART}/)*{_PART}"
_KEYS: Mapping[str, Any] = {
    "time": Moment,
    "mode": Annotated[str, like("[0-7]{3,4}", 'an octal mode, written as "0644"')],
    "owner": AccountName,
    "group": AccountName,
    "from": Annotated[str, like(_PATH, "a path beneath files/, without '.' and '..'")],
    "encoding": Annotated[str, like("ascii|utf-8|utf-16|latin-1", "utf-8, utf-16 or latin-1")],
    "newline": Annotated[str, like("lf|crlf", "lf or crlf")],
    "text": str,
    "hex": Annotated[str, like("([0-9A-Fa-f]{2}| )*", "two hexadecimal digits a byte")],
    "make": str,
    "lines": Annotated[int, Meta(ge=0, le=100_000)],
    "holds": tuple[str, ...],
    "seed": Annotated[int, Meta(ge=0, le=1 << 31)],
    "link": Annotated[str, like(r"[^\x00]+", "where a link leads")],
    "kind": Annotated[str, like("file|directory|fifo", "directory or fifo")],
}
"""The keys of an entry, with the type of each value."""

_CONTENT = ("kind", "link", "make", "text", "hex", "from")
"""Mutually exclusive keys for an entry's type or the source of its content."""

_BESIDE: Mapping[str, tuple[str, ...]] = {
    "encoding": ("from",), "newline": ("from",),
    "lines": ("make",), "holds": ("make",), "seed": ("make",),
    "mode": ("kind", "make", "text", "hex", "from"),
}  # fmt: skip
"""Keys that are allowed only together with one of other keys; a link, for instance, has no mode."""

_USERS = frozenset({
    "backup", "bin", "daemon", "games", "irc", "list", "lp", "mail", "man", "news", "nobody",
    "proxy", "root", "sync", "sys", "uucp", "www-data",
})  # fmt: skip
_GROUPS = frozenset({
    "adm", "audio", "backup", "bin", "cdrom", "daemon", "dialout", "dip", "disk", "fax", "floppy",
    "games", "irc", "kmem", "list", "lp", "mail", "man", "news", "nogroup", "operator", "plugdev",
    "proxy", "root", "sasl", "shadow", "src", "staff", "sudo", "sys", "tape", "tty", "users",
    "utmp", "uucp", "video", "voice", "www-data",
})  # fmt: skip
"""Accounts that exist on every Debian and Ubuntu system (`base-passwd`); others are declared."""


def _contents(value: Mapping[str, Any]) -> list[str]:
    """Return the keys of `_CONTENT` in an entry, without a redundant `kind = "file"`."""
    is_file = value.get("kind") == "file" and "link" not in value
    return [key for key in _CONTENT if key in value and not (key == "kind" and is_file)]


def from_file(value: Mapping[str, Any]) -> bool:
    """Whether the content of an entry of `tree.toml` is a file beneath `files/`."""
    return _contents(value) in ([], ["from"])


def _contradictions(value: Mapping[str, Any]) -> Iterator[str]:
    """Yield a message for each pair of keys in an entry that exclude each other."""
    kinds = _contents(value)
    if len(kinds) > 1:
        yield f"{' and '.join(kinds)} exclude each other: an entry has one of them"
    for key, others in _BESIDE.items():
        if key in value and not {*kinds, *(() if kinds else ("from",))} & {*others}:
            yield f"{key} needs {' or '.join(others)}, got {' and '.join(kinds) or 'none'}"


class _Reader:
    """Checks the entries of a tree and makes them, archives after their members."""

    def __init__(self, declaration: SystemDeclaration, tree: HomeTree) -> None:
        self.declaration = declaration
        self.tree = tree
        self.raw = tree.entries
        self.problems: list[str] = []
        self.done: dict[str, HomeEntry] = {}
        self.bytes = 0
        self.users = _USERS | {user.name for user in declaration.users}
        self.groups = _GROUPS | {group.name for group in declaration.groups}

    def check(self, path: str) -> None:
        """Append the faults of the entry at `path` to `problems`."""
        value = self.raw[path]
        place = f"$.entries.{shown(path)}"

        def problem(text: str) -> None:
            self.problems.append(f"{place}: {text}")

        before = len(self.problems)
        for key in value:
            if key in _KEYS:
                checked(_KEYS[key], value[key], f"{place}.{key}", self.problems)
            else:
                problem(f"unknown key {key}; {did_you_mean(key, _KEYS)}")
        if path != "." and not re.fullmatch(_PATH, path):
            problem("expected a path relative to the home, without '.' and '..'")
        elif wrong := too_long(f"{self.declaration.home.target}/{path}"):
            problem(f"no file can have this path: {wrong}")
        parent = path.rpartition("/")[0] or "."
        if path == "." and value.get("kind") != "directory":
            problem('expected kind = "directory", since this is the top of the tree')
        elif parent not in self.raw and parent != ".":
            problem(f"its directory {shown(parent)} is not declared")
        elif self.raw.get(parent, {}).get("kind", "") != "directory" and parent in self.raw:
            problem(f"its directory {shown(parent)} is declared as something else")
        for text in _contradictions(value):
            problem(text)
        if "time" not in value:
            problem("expected a time with its zone (Z), got None")
        if len(self.problems) > before:
            return
        instant, time = self.declaration.instant, value["time"]
        if not instant - FIXTURE_SPAN <= time <= instant:
            problem(f"the time {time:%Y-%m-%d} is not within the six months before {instant}")
        for key, known in (("owner", self.users), ("group", self.groups)):
            if key in value and value[key] not in known:
                problem(f"no {key} {value[key]!r} is declared; {did_you_mean(value[key], known)}")
        if len(os.fsencode(value.get("link", ""))) > LONGEST_PATH:
            problem(f"the target of link has more than {LONGEST_PATH} bytes")
        make, holds = value.get("make"), value.get("holds", ())
        if make is not None and make not in GENERATORS:
            problem(f"no generator {make!r}; {did_you_mean(make, GENERATORS)}")
        for held in holds:
            if held not in self.raw:
                problem(f"holds {shown(held)}, which is not declared")
            elif {"link", "kind"} & set(_contents(self.raw[held])):
                problem(f"holds {shown(held)}, which is no file")
        if make in _OF_ONE and len(holds) != 1:
            problem(f"{make} holds one file, got {len(holds)}")
        if from_file(value):
            origin = value.get("from", path)
            try:
                self.tree.read(origin)
            except FileNotFoundError:
                problem(f"there is no files/{origin}")
            except (OSError, ValueError) as error:
                problem(f"files/{origin} cannot be read: {reason(error)}")

    def order(self) -> Sequence[str]:
        """Return all paths, archives after their members; none if archives contain each other."""
        held = {path: value.get("holds", ()) for path, value in self.raw.items()}
        try:
            return tuple(TopologicalSorter(held).static_order())
        except CycleError as error:
            self.problems.append(f"$.entries.{shown(error.args[1][0])}: it holds itself")
            return ()

    def make(self, path: str) -> None:
        """Make the entry at `path` and add it to `done`, or append its fault to `problems`."""
        value = self.raw[path]
        held = sum(len(self.done[name].data) for name in value.get("holds", ()))
        place = f"$.entries.{shown(path)}"
        if self.bytes + held > _MOST_BYTES:
            self.problems.append(
                f"{place}: the tree and what its archives hold would have more than "
                f"{_MOST_BYTES} bytes"
            )
            return
        try:
            entry = self._entry(path)
        except (OSError, ValueError) as error:
            self.problems.append(f"{place}: cannot be made: {reason(error)}")
            return
        self.done[path] = entry
        self.bytes += len(entry.data) + held  # members cost generators time, so they count too

    def _entry(self, path: str) -> HomeEntry:
        value = self.raw[path]
        kind: Kind = "symlink" if "link" in value else value.get("kind", "file")
        mode = {"symlink": 0o777, "directory": 0o755}.get(kind, 0o644)
        return HomeEntry(
            path,
            kind,
            int(value["mode"], 8) if "mode" in value else mode,
            value.get("owner", self.declaration.home.owner),
            value.get("group", self.declaration.home.group),
            int(value["time"].timestamp()),
            self._data(path, value) if kind == "file" else b"",
            value.get("link", ""),
            value.get("make") == "sparse",
        )

    def _data(self, path: str, value: Mapping[str, Any]) -> bytes:
        if "make" in value:
            held = [self.done[name] for name in value.get("holds", ())]
            request = HomeRequest(
                value.get("lines", 0), held, value.get("seed", 1), int(value["time"].timestamp())
            )
            return GENERATORS[value["make"]](request)
        if "hex" in value:
            return bytes.fromhex(value["hex"])
        if "text" in value:
            return str(value["text"]).encode()
        origin = value.get("from", path)
        try:
            text = self.tree.read(origin).decode("utf-8")
        except UnicodeDecodeError:
            raise ValueError(f"files/{origin} is not UTF-8 text; `hex` takes any bytes") from None
        if value.get("newline") == "crlf":
            text = text.replace("\n", "\r\n")
        encoding = value.get("encoding", "utf-8")
        if encoding == "utf-16":  # Python's codec uses the byte order of the host
            return b"\xff\xfe" + text.encode("utf-16-le")
        try:
            return text.encode(encoding)
        except UnicodeEncodeError as error:
            sign = text[error.start]
            raise ValueError(
                f"files/{origin} has the character {sign!r}, which {encoding} lacks"
            ) from None
