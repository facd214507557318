"""The filesystem changes of one command, collected while a rule runs."""

from __future__ import annotations

import hashlib
import os
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shioenv.domain.behavior import Behavior
from shioenv.domain.context import OF_DATE, pointer
from shioenv.domain.names import file_key, name_bytes
from shioenv.domain.patch import ContextPatch, Operation
from shioenv.domain.readable import format_mode, mode_of
from shioenv.domain.runner import State
from shioenv.errors import Abstained
from shioenv_model.bash.work import spend
from shioenv_model.composition.opening import umask_of

MOST_FILES = 2_000
"""Maximum number of files that one command may change (our choice)."""

_SPECIAL = ("/proc", "/sys", "/dev")


@dataclass(slots=True)
class Effects:
    """The collected changes of one command."""

    state: State
    fresh: Mapping[str, Any]
    """The entry of an empty file created now."""
    files: dict[str, Mapping[str, Any] | None] = field(default_factory=dict)
    """The changed files by their names in `fs`, with None for removed ones."""
    moved: dict[str, str] = field(default_factory=dict)
    contents: dict[str, bytes] = field(default_factory=dict)
    """The written contents, by name."""
    errors: bytes = b""
    """The command's standard error."""
    exit_code: int = 0
    volatile: bool = False
    """Whether the command's output varies from run to run."""

    def place(self, path: str) -> str:
        """Return the absolute path, with all links but a final one resolved. Errors: Abstained."""
        stripped = path.rstrip("/")
        last = posixpath.basename(stripped)
        if not stripped or last in {".", ".."} or "\0" in path:
            raise Abstained(f"{path!r:.40} is not a name in a directory")
        above = self.state.resolve(posixpath.dirname(stripped) or ".")
        whole = posixpath.join(above, last)
        if whole.startswith(_SPECIAL):
            raise Abstained("a file that no context lists")
        parent = self.entry(above)
        if parent is None or not parent["perms"].startswith("d"):
            raise Abstained(f"{above!r:.40} is not a directory")
        entry = self.entry(whole)
        if path != stripped and (entry is None or not entry["perms"].startswith("d")):
            raise Abstained(f"{path!r:.40} is not a directory")
        return whole

    def key(self, whole: str) -> str:
        """Return the name in `fs` of an absolute path."""
        return file_key(os.fsencode(whole), os.fsencode(self.state.cwd))

    def entry(self, whole: str) -> Mapping[str, Any] | None:
        """Return the current entry at an absolute path."""
        name = self.key(whole)
        if name in self.files:
            return self.files[name]
        found: Mapping[str, Any] | None = self.state.before.document["fs"].get(name)
        return found

    def followed(self, whole: str) -> str:
        """Resolve a path, including a final link. Errors: Abstained for a dangling link."""
        entry = self.entry(whole)
        if entry is None or entry.get("target") is None:
            return whole
        whole = self.state.resolve(whole)
        if self.entry(whole) is None:
            raise Abstained("a dangling link")
        return whole

    def inside(self, whole: str) -> list[str]:
        """Return the absolute paths of everything below a directory, unordered.

        Errors: Abstained.
        """
        cwd = self.state.cwd
        if (cwd + "/").startswith(whole.rstrip("/") + "/") or whole == "/":
            raise Abstained("a directory around the start directory")
        above = self.key(whole) + "/"
        names = [name for name in self.state.before.document["fs"] if name.startswith(above)]
        names += [name for name in self.files if name.startswith(above) and name not in names]
        spend(len(self.state.before.document["fs"]) // 10)
        if len(names) > MOST_FILES:
            raise Abstained("too many files")
        start = os.fsencode(cwd)
        paths = (os.fsdecode(posixpath.join(start, name_bytes(name))) for name in names)
        return [path for path in paths if self.entry(path) is not None]

    def put(self, whole: str, entry: Mapping[str, Any] | None) -> None:
        """Set the entry at a path, or remove it (None); also update the directory's link count."""
        spend(20)
        old = self.entry(whole)
        was, is_now = (each is not None and each["perms"].startswith("d") for each in (old, entry))
        self.files[self.key(whole)] = entry
        if was != is_now:
            above = posixpath.dirname(whole)
            parent = self.entry(above)
            if parent is not None:
                links = parent["links"] + (1 if is_now else -1)
                self.files[self.key(above)] = {**parent, "links": links}

    def write(self, path: str, content: bytes) -> None:
        """Create or overwrite a file. Errors: Abstained unless it is a regular file."""
        whole = self.followed(self.place(path))
        old = self.entry(whole)
        if old is not None and old["perms"][0] != "-":
            raise Abstained("a file that is not regular")
        new = self.made("-", 0o666 & ~umask_of(self.state))
        entry = new if old is None else written_entry(old)
        self.put(whole, {**entry, **new_file_attributes(self, owner=False), "size": len(content)})
        self.contents[self.key(whole)] = content

    def remove_tree(self, whole: str) -> None:
        """Remove a directory and everything below it. Errors: Abstained."""
        for path in sorted(self.inside(whole), reverse=True):
            self.put(path, None)
        self.put(whole, None)

    def made(self, kind: str, mode: int, **what: Any) -> dict[str, Any]:
        """Return the entry of a file created now."""
        entry = {**self.fresh, "perms": format_mode(kind, mode), **what}
        return {**entry, "links": 2, "size": 4096} if kind == "d" else entry

    def behavior(self, stdout: bytes = b"") -> Behavior:
        """Return the command's behavior with this output and the collected changes."""
        first = self.state.before.document["fs"]
        operations: list[Operation] = []
        for source, target in self.moved.items():
            operations.append(("m", pointer("fs", source), pointer("fs", target)))
        targets = set(self.moved.values())
        for name, entry in self.files.items():
            if name in self.moved or name in targets:
                continue
            old = first.get(name)
            if entry is None:
                operations += [("r", pointer("fs", name))] if old is not None else []
            elif old is None:
                operations.append(("a", pointer("fs", name), dict(entry)))
            else:
                operations += [
                    ("=", pointer("fs", name, each), value)
                    for each, value in entry.items()
                    if old.get(each) != value
                ]
                operations += [("r", pointer("fs", name, each)) for each in old.keys() - entry]
        digests = {
            name: hashlib.sha256(content).hexdigest()
            for name, content in self.contents.items()
            if self.files.get(name) is not None
        }
        patch = ContextPatch(tuple(operations))
        return Behavior(
            self.exit_code, stdout + self.errors, patch, content_digests=digests, stdout=stdout,
            stderr=self.errors, volatile=self.volatile,
        )  # fmt: skip


def written_entry(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry after a write or a change of owner: the kernel clears the set-ID bits."""
    mode = mode_of(entry["perms"])
    mode &= ~0o6000 if mode & 0o010 else ~0o4000
    return {**entry, "perms": format_mode(entry["perms"][0], mode)}


def new_file_attributes(made: Effects, *, owner: bool = True) -> dict[str, Any]:
    """Return the attributes of a file created now that depend on the time and the creator."""
    names = (*OF_DATE, *(("owner", "group") if owner else ()))
    return {each: made.fresh[each] for each in names}
