"""A serialized machine: its context, and the contents of small files.

A model contains one, so that its use requires no built system.
"""

from __future__ import annotations

import json
import posixpath
import stat
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, Required, TypedDict

import msgspec

from shioenv.domain.context import MONTHS, Context, date_of, keys
from shioenv.domain.names import file_key, name_bytes
from shioenv.domain.patch import ContextPatch
from shioenv.domain.runner import State
from shioenv.files.regular import read_regular
from shioenv_model.memory.members import LARGEST as LARGEST_MEMBER
from shioenv_model.memory.members import parse_member, raise_model_errors, refuse_surrogates

if TYPE_CHECKING:  # models work without built systems, and without this module
    from shioenv.system.store import System

LARGEST = 16 * 1024
"""Maximum size of a stored file's content in bytes (our choice: few files in people's inputs are
larger)."""

ROOTS = ("/etc", "/home", "/root", "/tmp", "/var/log", "/opt", "/srv", "/usr/local")
"""Directories of files that inputs often print."""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    """See `Entry`."""

    perms: Annotated[str, msgspec.Meta(min_length=10)]
    links: int
    owner: str
    group: str
    size: int
    month: Literal[MONTHS]  # type: ignore[valid-type]
    day: int
    year: int
    time: str
    target: str | None = None


_ATTRIBUTES = {field.name: field.type for field in msgspec.structs.fields(_File)}
_Path = Annotated[str, msgspec.Meta(pattern="^/")]
_VALUES: Mapping[str, tuple[int, Any]] = {
    "cwd": (0, _Path),
    "env": (1, str),
    "settings": (1, str | bool),
    "shell_options": (1, bool),
    "functions": (1, str),
}
"""The areas of a context that are checked, except `fs`: the number of keys that lead to a value,
and the value's type."""


class _Document(TypedDict, total=False):
    """The checked part of a `Context`: its required areas and its optional ones."""

    cwd: Required[_Path]
    env: Required[dict[str, str]]
    settings: Required[dict[str, str | bool]]
    shell_options: Required[dict[str, bool]]
    functions: dict[str, str]
    hostname: str
    user: str


class _Written(TypedDict):
    """The document that `World.to_json` writes."""

    context: dict[str, msgspec.Raw]
    contents: dict[_Path, str]
    made: NotRequired[msgspec.Raw]


_FILES = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENTRY = msgspec.json.Decoder(_File)
_TEXTS = ("perms", "owner", "group", "month", "time")


def _parse_files(source: msgspec.Raw) -> dict[str, Any]:
    """Parse the entries of a machine's files. Equal entries, and equal texts in them, are shared.

    Otherwise copies of them would fill most of a model's memory. Errors: ValueError.
    """
    known: dict[bytes, dict[str, Any]] = {}
    files: dict[str, Any] = _FILES.decode(source)
    for name, raw in files.items():
        written = bytes(raw)
        if written not in known:
            _ENTRY.decode(written)  # raises for anything else
            entry = known[written] = msgspec.json.decode(written)
            for each in _TEXTS:
                entry[each] = sys.intern(entry[each])
        files[name] = known[written]
    return files


class _Untouched(State):
    """The state of a serialized machine. Listings are looked up in the world."""

    __slots__ = ()

    def names(self, path: str = ".") -> list[str]:
        """See `State.names`."""
        if self.context is None and isinstance(self.pristine, World):
            return self.pristine.listing(self.resolve(path))
        return super().names(path)


class World:
    """A serialized pristine machine: a `Pristine` that does not read files of a real machine."""

    def __init__(
        self,
        context: Context,
        contents: Mapping[str, bytes],
        made: Mapping[str, Any] | None = None,
    ) -> None:
        self.made = made
        """The attributes of each new, empty file, with the declared time, as an entry of `fs`;
        None if unknown."""
        self.start: str = context.document["cwd"]
        """The start directory of the context: files in it are named relative to it."""
        self.contents = contents
        """Contents of files, by absolute path."""
        self._document = context
        self.context = lru_cache(maxsize=8)(self._context)

    @classmethod
    def of(
        cls,
        context: Context,
        read: Callable[[str], bytes | None],
        shown: Mapping[str, bytes] = MappingProxyType({}),
        made: Mapping[str, Any] | None = None,
    ) -> World:
        """Build the world of a machine from this context.

        `read` returns the content of a regular file, or None if that fails. `shown` has the
        contents of the machine's files in /proc, by absolute path. Contents of at most `LARGEST`
        bytes are stored: those of `shown`, and those of regular files in `ROOTS`. `made` is the
        world's attribute.
        """
        start = context.document["cwd"]
        contents = {path: text for path, text in shown.items() if len(text) <= LARGEST}
        for key, entry in context.document["fs"].items():
            path = posixpath.normpath(posixpath.join(start, _text(key)))
            if entry["perms"][:1] != "-" or entry["size"] > LARGEST or not path.startswith(ROOTS):
                continue
            content = read(path)
            if content is not None and len(content) <= LARGEST:
                contents[path] = content
        return cls(context, contents, made)

    def read(self, path: str) -> bytes | None:
        """See `Pristine.read`; also returns None for a content that was not stored."""
        return self.contents.get(path)

    def state(self, cwd: str | None = None) -> State:
        """Return the pristine state in a start directory."""
        return _Untouched(cwd=cwd or self.start, pristine=self)

    def placed(self, state: State | None) -> State:
        """Return the state, with this world as its machine if it has none; pristine if None."""
        if state is None:
            return self.state()
        if state.pristine is not None:
            return state
        return replace(
            self.state(state.cwd),
            history=state.history,
            context=state.context,
            stdin=state.stdin,
            fed=state.fed,
            written=state.written,
            status=state.status,
            carried=state.carried,
        )

    def listing(self, directory: str) -> list[str]:
        """Return the names in a directory, an absolute path, in the form of `State.names`."""
        return self._listings.get(directory.rstrip("/"), [])

    @cached_property
    def _listings(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for key in self._document.document["fs"]:
            whole = posixpath.normpath(posixpath.join(self.start, _text(key)))
            above, _, name = whole.rpartition("/")
            if name:
                found.setdefault(above, []).append(name)
        return {above: sorted(names) for above, names in found.items()}

    def has_directory(self, path: str) -> bool:
        """Whether `path` is a directory, in which inputs can start."""
        entry = self.state().entry(path)
        return entry is not None and entry.perms.startswith("d")

    def to_json(self) -> bytes:
        """Serialize the world; `from_json` reads it."""
        contents = {path: text.decode("latin-1") for path, text in sorted(self.contents.items())}
        document = {"context": json.loads(self._document.to_json()), "contents": contents}
        if self.made is not None:
            document["made"] = dict(self.made)
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, source: bytes) -> World:
        """Load the world that `to_json` wrote. Errors: ValueError, ContextError for other bytes."""
        refuse_surrogates(source)
        whole = msgspec.json.decode(source, type=_Written)
        contents = {path: text.encode("latin-1") for path, text in whole["contents"].items()}
        made = parse_member(whole["made"], _File) if "made" in whole else None
        document = whole["context"]
        files = _parse_files(document.pop("fs"))
        parsed = parse_member(msgspec.json.encode(document), _Document)
        return cls(Context({**parsed, "fs": files}), contents, made)

    def _context(self, cwd: str | None = None) -> Context:
        """See `Pristine.context`: file names are relative to `cwd`."""
        if cwd is None or cwd == self.start:
            return self._document
        document = dict(self._document.document)
        keys = document["fs"]
        document["fs"] = dict(self._renamed(keys.items(), cwd))
        document["cwd"] = cwd
        document["env"] = {**document["env"], "PWD": cwd}
        return Context(document)

    def _renamed(
        self, entries: Iterable[tuple[str, object]], cwd: str
    ) -> Iterable[tuple[str, object]]:
        start = self.start.encode()
        for key, entry in entries:
            path = posixpath.normpath(posixpath.join(start, name_bytes(key)))
            yield file_key(path, cwd.encode("utf-8", "surrogateescape")), entry


def world_of(system: System, context: Context) -> World:
    """Serialize a built system, in the start directory of this context."""
    return World.of(context, system.content, system.shown_in_proc(), _made(system))


def _made(system: System) -> dict[str, Any]:
    """Return the entry of an empty file that the session's user creates at the instant."""
    declaration = system.declaration
    user = declaration.user(declaration.session.user)
    mode = stat.S_IFREG | 0o666 & ~declaration.session.umask
    return {
        "perms": stat.filemode(mode), "links": 1, "owner": declaration.session.user,
        "group": user.group if user else "root", "size": 0,
        **date_of(declaration.instant),
    }  # fmt: skip


def read_world(directory: Path) -> World:
    """Load the world in a model's directory. Errors: ModelError."""
    file = directory / "world.json"
    with raise_model_errors(file):
        return World.from_json(read_regular(file, LARGEST_MEMBER))


@lru_cache(maxsize=512)
def check_patch(source: str) -> None:
    """Check that a patch (JSON) sets only files, attributes and other values of contexts.

    Errors: PatchError, ValueError.
    """
    for code, path, *rest in ContextPatch.from_json(source).operations:
        area, *names = keys(path) or [""]
        if code == "m" and (area != "fs" or len(names) != 1 or len(keys(rest[0])) != 2):
            raise ValueError(f"{path!r:.60} is moved, but is not a file")
        if code in "rm":
            continue
        if area in _VALUES:
            depth, value = _VALUES[area]
            if len(names) != depth:
                raise ValueError(f"{path!r:.60} is not a part of contexts")
            msgspec.convert(rest[0], value)
        elif area != "fs":
            continue
        elif len(names) == 1:
            msgspec.convert(rest[0], _File)
        elif len(names) != 2 or names[1] not in _ATTRIBUTES:
            raise ValueError(f"{path!r:.60} is not an attribute of files")
        else:
            msgspec.convert(rest[0], _ATTRIBUTES[names[1]])


def _text(key: str) -> str:
    return name_bytes(key).decode("utf-8", "surrogateescape")


def world_called(name: str, start: str | None = None) -> World:
    """Build the world of a built system, with file names relative to a start directory.

    A sandbox of the system is opened for that. Errors: those of `open_sandbox`.
    """
    from shioenv.behavior.observe import open_sandbox
    from shioenv.system.store import find_system

    with open_sandbox(name) as sandbox:
        return world_of(find_system(name), sandbox.context(start))


def world_of_system(card: Mapping[str, Any], system: str, start: str) -> World | None:
    """Return the world of the requested system; None if it is the model's own system.

    If the model's card names no system, it fits every system. Errors: those of `world_called`.
    """
    return None if card.get("system", system) == system else world_called(system, start)
