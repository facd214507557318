"""Operands resolved in a state: their class, their path, and the known facts of the file."""

from __future__ import annotations

import hashlib
import math
import os
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import islice
from typing import Any, TypeAlias

from shioenv.domain.context import MONTHS, FileEntry
from shioenv.domain.names import file_key, name_bytes
from shioenv.domain.readable import mode_of
from shioenv.domain.runner import State
from shioenv.grammar.traits import PATHS
from shioenv_model.bash.work import spend
from shioenv_model.composition.opening import NULL
from shioenv_model.memory.forms import ASSIGNMENT, Form
from shioenv_model.memory.world import World

CLASSES = "NGUHWmMfdlsx"
"""Classes of operands, one letter each.

N is a number, G a pattern, U a URL, H a host address, and W any other word. Of existing files, f is
a regular file, d a directory, l a link, and s a special file. Of missing files, m has an existing
parent directory, and M has none. x is standard input.
"""

_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?[a-zA-Z%]{0,2}")
_PATTERN = re.compile(r"[*?\[]")
_HOST = re.compile(r"localhost\b|\d+\.\d+\.\d+\.\d+")
_NAME = re.compile(r"[\w.~/+@%:,=-]+")
_LONGEST_NAME = 200
MOST_ENTRIES = 20_000
"""Maximum number of files read from one tree."""

LARGE = 700
"""Number of files above which a tree is large: inferring a meaning from it would be slow."""

MOST_NAMES = 200
"""Maximum number of names read from one directory."""

MOST_LISTED = 2_000
"""Maximum number of files listed in one directory."""

_LOOK_UP = 20
"""Steps counted for looking up one file."""

_NOT_IN_A_CONTEXT = ("/proc/", "/dev/fd/")
"""Directories whose files a context does not include: the kernel's, and pipes."""

_MARKS = {"d": "/", "l": "@", "p": "|", "s": "="}


class Tree:
    """The contents of a directory, recursively; equal if the directory and `fs` are the same."""

    def __init__(self, path: str, state: State) -> None:
        self._path, self._state = state.resolve(path), state
        self._files = state.before.document["fs"]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tree):
            return NotImplemented
        return self._path == other._path and self._files is other._files

    def __hash__(self) -> int:
        return hash((self._path, id(self._files)))

    @cached_property
    def entries(self) -> tuple[tuple[str, FileEntry], ...] | None:
        """The paths below the directory, each with the entry of the file.

        They are in the order of a walk: each directory precedes its contents. None for more than
        `MOST_ENTRIES`.
        """
        found = tuple(islice(self._walk(), MOST_ENTRIES + 1))
        return found if len(found) <= MOST_ENTRIES else None

    @cached_property
    def is_large(self) -> bool:
        """Whether the tree has more than `LARGE` files, whose entries are not kept for that."""
        return any(True for _ in islice(self._walk(), LARGE, None))

    @cached_property
    def filled(self) -> frozenset[str]:
        """The non-empty directories, as paths relative to this one."""
        return frozenset(path.rpartition("/")[0] for path, _ in self.entries or ())

    @cached_property
    def users(self) -> dict[str, str]:
        """The UIDs of the machine's users, by name."""
        return _numbers(self._state.read("/etc/passwd"))

    @cached_property
    def groups(self) -> dict[str, str]:
        """The GIDs of the machine's groups, by name."""
        return _numbers(self._state.read("/etc/group"))

    @cached_property
    def listed(self) -> tuple[tuple[str, FileEntry], ...] | None:
        """The files directly in the directory, sorted by name, after `.` and `..`.

        None for more than `MOST_LISTED`, or if an entry is unknown.
        """
        names = [".", "..", *self._state.names(self._path)]
        found = [(name, self._entry(name)) for name in names[: MOST_LISTED + 3]]
        known = tuple((name, entry) for name, entry in found if entry is not None)
        return known if len(known) == len(names) else None

    @cached_property
    def now(self) -> FileEntry | None:
        """The entry of a file created at this instant; None if unknown."""
        pristine = self._state.pristine
        made = pristine.made if isinstance(pristine, World) else None
        return FileEntry(**{**made, "target": None}) if made else None

    def key(self, path: str, *, follow: bool = True) -> str:
        """Return the key in `fs` of the file at a path.

        `follow`: whether a symbolic link at the end of the path is followed.
        """
        place = posixpath.join(self._path, path)
        if not follow:
            above, last = posixpath.split(place.rstrip("/"))
            place = posixpath.join(self._state.resolve(above), last)
        else:
            place = self._state.resolve(place)
        return file_key(os.fsencode(place), os.fsencode(self._state.cwd))

    def place(self, path: str) -> str:
        """Return the absolute form of a path relative to the directory."""
        return posixpath.normpath(posixpath.join(self._path, path))

    def _entry(self, name: str) -> FileEntry | None:
        path = os.fsencode(posixpath.normpath(posixpath.join(self._path, name)))
        return self._state.before.entry(file_key(path, os.fsencode(self._state.cwd)))

    def at(self, path: str) -> Tree:
        """Return the tree of the directory at a path relative to this one."""
        return directory_tree(posixpath.join(self._path, path), self._state)

    def find(self, path: str) -> FileEntry | None:
        """Return the entry of the file at a relative path, following symbolic links."""
        return self._state.entry(posixpath.join(self._path, path))

    def _walk(self) -> Iterator[tuple[str, FileEntry]]:
        """Yield the paths below the directory with their entries; see `entries`."""
        inside = self._inside()
        root = self._path.rstrip("/") + "/"
        left = [("", iter(inside.get(root, ())))]
        while left:
            above, names = left[-1]
            for name, entry in names:
                path = f"{above}{name}"
                yield path, entry
                if entry.perms[0] == "d":
                    left.append((f"{path}/", iter(inside.get(f"{root}{path}/", ()))))
                    break
            else:
                left.pop()

    def _inside(self) -> _Places:
        """Group the files at and below the directory by the path of their parent directory."""
        state = self._state
        if state.context is None and isinstance(state.pristine, World):
            return _pristine_places(state.pristine)
        spend(len(self._files) // 10)
        return _places(self._files, state.cwd, self._path.rstrip("/") + "/")


def _numbers(text: bytes | None) -> dict[str, str]:
    lines = [line.split(":") for line in (text or b"").decode("utf-8", "replace").splitlines()]
    return {fields[0]: fields[2] for fields in lines if len(fields) > 2}


def _untouched(state: State) -> World | None:
    """Return the machine of an unmodified state, else None."""
    if state.context is None and not state.written and isinstance(state.pristine, World):
        return state.pristine
    return None


def directory_tree(path: str, state: State) -> Tree:
    """Return the tree of a directory. Trees of an unmodified machine are cached."""
    world = _untouched(state)
    return Tree(path, state) if world is None else _pristine_tree(path, state.cwd, world)


@lru_cache(maxsize=2_000)
def _pristine_tree(path: str, cwd: str, world: World) -> Tree:
    return Tree(path, world.state(cwd))


_Places: TypeAlias = Mapping[str, Sequence[tuple[str, FileEntry]]]


@lru_cache(maxsize=2)
def _pristine_places(world: World) -> _Places:
    return _places(world.state().before.document["fs"], world.start, "/")


def _places(files: Mapping[str, Any], start: str, root: str) -> _Places:
    """Group the files below `root`, a path with a trailing slash, in the order of a walk.

    The keys are the paths of their parent directories, with a trailing slash. Files that share
    their attributes share their entry.
    """
    within = f"{start.rstrip('/')}/"
    beside = not within.startswith(root) and not root.startswith(within)
    found: dict[str, list[tuple[str, FileEntry]]] = {}
    entries: dict[int, FileEntry] = {}
    for key, attributes in files.items():
        if key[0] == "/":
            path = key
        elif beside:
            continue
        else:
            path = start if key == "." else within + key
        if path.startswith(root) and path != root:
            above, mark, name = path.rpartition("/")
            if id(attributes) not in entries:
                entries[id(attributes)] = FileEntry(**attributes)
            found.setdefault(above + mark, []).append((name, entries[id(attributes)]))
    made: dict[str, Sequence[tuple[str, FileEntry]]] = {}
    for above, named in found.items():
        read = [(name_bytes(name), entry) for name, entry in named]
        read.sort(key=lambda each: _place(each[0]))
        made[os.fsdecode(name_bytes(above))] = [(os.fsdecode(name), entry) for name, entry in read]
    return made


@lru_cache(maxsize=2_000)
def _place(name: bytes) -> int:
    """Return the sort key of a name when a directory of the pristine system is listed.

    The order is our choice. The sandbox creates files in the order of the first 8 bytes of their
    names' SHA-256, little-endian (`native/around/tree.c`). The directories are in a tmpfs, which
    lists the newest file first.
    """
    return -int.from_bytes(hashlib.sha256(name).digest()[:8], "little")


@dataclass(frozen=True)
class Operand:
    """A word and its resolution in a state."""

    word: str
    kind: str
    """One of `CLASSES`."""
    path: str = ""
    """The absolute path; empty if the word names no file."""
    key: str = ""
    """The path as a key of `fs`."""
    entry: FileEntry | None = None
    content: bytes | None = None
    """The content of a regular file or of standard input; None if unknown."""
    names: tuple[str, ...] | None = None
    """The names in a directory; see `listing`."""
    tree: Tree | None = field(default=None, compare=False)
    """The contents of a directory."""

    @property
    def is_system(self) -> bool:
        """Whether the file is outside the start directory."""
        return self.key.startswith("/")

    @cached_property
    def details(self) -> dict[str, str]:
        """Facts about the file, as programs print them, by name."""
        entry = self.entry
        found: dict[str, str] = {}
        if self.content is not None:
            text = self.content
            found["size"] = str(len(text))
            found["lines"] = str(text.count(b"\n"))
            found["words"] = str(len(text.split()))
            found["characters"] = str(len(text.decode("utf-8", "ignore")))
        if entry is None:
            return found
        month = MONTHS.index(entry.month) + 1
        day = f"{entry.year}-{month:02}-{entry.day:02}"
        return found | {
            "mode": entry.perms,
            "rights": entry.perms[1:],
            "octal": f"{mode_of(entry.perms):03o}",
            "owner": entry.owner,
            "group": entry.group,
            "size": str(entry.size),
            "binary": format_bytes(entry.size, 1024),
            "decimal": format_bytes(entry.size, 1000),
            "when": f"{entry.month} {entry.day:2} {entry.time}",
            "year": f"{entry.month} {entry.day:2}  {entry.year}",
            "iso": f"{day} {entry.time}",
            "day": day,
        }


def resolved_operands(form: Form, state: State) -> tuple[Operand, ...]:
    """Resolve the operands of a form in a state.

    For a filter with standard input, `-` denotes that input. If no operand is `-` or a file,
    standard input is appended as the last operand. A pattern or a script is not taken for a file,
    even if a file has its name.
    """
    looked_through = len(state.context.document["fs"]) // 10 if state.context else 0
    spend((_LOOK_UP + looked_through) * len(form.operands))
    given = state.stdin if form.filters else b""
    found = [
        Operand(word, "x", content=given) if word == "-" and given else operand(word, state)
        for word in form.operands
    ]
    if given:
        for place, role in enumerate(form.roles):
            if role not in PATHS and found[place].kind in "fdls":
                one = found[place]
                found[place] = Operand(one.word, "m", one.path, one.key)
    if "-" in form.operands and given:
        return tuple(found)
    if state.stdin and form.filters and not any(each.kind in "fdls" for each in found):
        found.append(Operand("", "x", content=state.stdin))
    return tuple(found)


def valued_options(form: Form, state: State) -> tuple[tuple[str, Operand], ...]:
    """Return the options whose values name existing files, each with its value as an operand."""
    found = []
    for name, value in form.options:
        if value and name != ASSIGNMENT and len(value) < _LONGEST_NAME and "\0" not in value:
            one = operand(value, state)
            if one.kind in "fdl":
                found.append((name, one))
    return tuple(found)


def here(form: Form, state: State) -> tuple[str, ...] | None:
    """Return the names in the working directory for a command without operands; see `listing`."""
    return None if form.operands else listing(".", state)


def listing(path: str, state: State) -> tuple[str, ...] | None:
    """Return the names in a directory, sorted, each with its `ls -F` suffix.

    Return None for more than `MOST_NAMES`.
    """
    if state.context is None and isinstance(state.pristine, World):
        return _pristine_listing(path, state.cwd, state.pristine)
    return _listing(path, state)


@lru_cache(maxsize=2_000)
def _pristine_listing(path: str, cwd: str, world: World) -> tuple[str, ...] | None:
    """List a directory of an unmodified machine, with a cache."""
    return _listing(path, world.state(cwd))


def _listing(path: str, state: State) -> tuple[str, ...] | None:
    names = state.names(path)
    if len(names) > MOST_NAMES:
        return None
    directory, cwd = state.resolve(path), os.fsencode(state.cwd)
    files = state.before.document["fs"]
    marked = []
    for name in names:
        key = file_key(os.fsencode(posixpath.join(directory, name)), cwd)
        perms = files.get(key, {}).get("perms", "-")
        runs = perms.startswith("-") and "x" in perms.replace("s", "x").replace("t", "x")
        marked.append(name + ("*" if runs else _MARKS.get(perms[0], "")))
    return tuple(marked)


def operand(word: str, state: State) -> Operand:
    """Resolve one word in a state."""
    world = _untouched(state)
    return _operand(word, state) if world is None else _pristine(word, state.cwd, world)


@lru_cache(maxsize=3_000)
def _pristine(word: str, cwd: str, world: World) -> Operand:
    """Resolve a word on an unmodified machine; cached, because records use few distinct words."""
    return _operand(word, world.state(cwd))


def _operand(word: str, state: State) -> Operand:
    if _NUMBER.fullmatch(word):
        path = posixpath.normpath(posixpath.join(state.before.document["cwd"], word))
        return Operand(word, "N", key=file_key(os.fsencode(path), os.fsencode(state.cwd)))
    if "://" in word:
        return Operand(word, "U")
    if _HOST.match(word):
        return Operand(word, "H")
    if not word or "\0" in word or len(word) > 4096:
        return Operand(word, "W")
    cwd = state.before.document["cwd"]
    path = posixpath.normpath(posixpath.join(cwd, word)).replace("//", "/")
    key = file_key(os.fsencode(path), os.fsencode(state.cwd))
    entry = state.before.entry(key)
    whole = path
    if entry is None or entry.target is not None or word.endswith("/"):
        whole = state.resolve(word)
        resolved = state.before.entry(file_key(os.fsencode(whole), os.fsencode(state.cwd)))
        entry = entry or resolved
    if entry is not None:
        kind = {"-": "f", "d": "d", "l": "l"}.get(entry.perms[:1], "s")
        content = state.read(word) if kind in "fl" else b"" if path == NULL else None
        names = listing(word, state) if kind == "d" else None
        inside = directory_tree(word, state) if kind == "d" else None
        return Operand(word, kind, path, key, entry, content, names, inside)
    content = state.pristine.read(whole) if state.pristine is not None else None
    content = state.written.get(key, content)
    if content is not None and whole.startswith(_NOT_IN_A_CONTEXT):
        return Operand(word, "f", path, key, None, content)
    if _PATTERN.search(word):
        return Operand(word, "G")
    if not _NAME.fullmatch(word):
        return Operand(word, "W")
    parent = state.entry(posixpath.dirname(word) or ".")
    kind = "m" if parent is not None and parent.perms.startswith("d") else "M"
    return Operand(word, kind, path, key)


def format_bytes(size: int, base: int) -> str:
    """Format a number of bytes for humans, rounded up: `35K`, `1.2M`.

    `base` is 1024 or 1000. For base 1000 the first unit is a lower-case `k`.
    """
    if size < base:
        return str(size)
    value, unit = float(size), 0
    while value >= base and unit < len(_LETTERS) - 1:
        value, unit = value / base, unit + 1
    shown = math.ceil(value * 10) / 10
    letter = "k" if base == 1000 and unit == 1 else _LETTERS[unit]
    return f"{shown:.1f}{letter}" if shown < 10 else f"{math.ceil(value)}{letter}"


_LETTERS = " KMGTPE"
