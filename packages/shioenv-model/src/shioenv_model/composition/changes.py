"""Composition of context patches that keeps track of moved files.

Each file is tracked by its origin. A file that disappears at one path and appears unchanged at
another was moved there, possibly in several steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shioenv.domain.context import escape, keys
from shioenv.domain.names import name_bytes
from shioenv.domain.patch import ContextPatch, Operation, append_changes

_OF_CONTENT = frozenset({"size", "links", "month", "day", "year", "time"})


@dataclass(frozen=True, slots=True)
class _File:
    entry: Mapping[str, Any]
    origin: str | None
    """The file's name before the patches; None for a new file."""
    in_tree: bool = False
    """Whether the file was moved with its directory, or is itself a moved directory."""


class Changes:
    """A context document after a sequence of patches."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._first = document
        self._other: Mapping[str, Any] = {
            key: value for key, value in document.items() if key != "fs"
        }
        self._files: dict[str, _File | None] = {}

    def add(self, patch: ContextPatch) -> Changes:
        """Apply one more patch; return self. Errors: PatchError if the patch does not apply."""
        other: list[Operation] = []
        trees = self._moved_directories(patch)
        for operation in patch.operations:
            area, *names = keys(operation[1]) or [""]
            if area != "fs" or not names:
                other.append(operation)
            else:
                self._change(operation, names, trees)
        if other:
            self._other = ContextPatch(tuple(other)).apply(self._other)
        return self

    def since(self, before: Changes) -> ContextPatch:
        """Return the patch from `before` to this state. Both must start from the same document."""
        operations: list[Operation] = []
        gone: dict[str, tuple[str, _File]] = {}
        names = sorted({*before._files, *self._files})
        for name in names:
            old, new = before.file(name), self.file(name)
            if old is not None and new is None and old.origin is not None:
                gone[old.origin] = name, old
        for name in names:
            old, new = before.file(name), self.file(name)
            if new is None:
                continue
            if old is not None:
                append_changes(old.entry, new.entry, f"/fs/{escape(name)}", operations)
                continue
            source = gone.get(new.origin) if new.origin is not None else None
            if source is not None and source[1].entry == new.entry:
                del gone[str(new.origin)]
                operations.append(("m", f"/fs/{escape(source[0])}", f"/fs/{escape(name)}"))
            else:
                operations.append(("a", f"/fs/{escape(name)}", dict(new.entry)))
        moved = {operation[1] for operation in operations if operation[0] == "m"}
        for name in names:
            here = f"/fs/{escape(name)}"
            if before.file(name) is not None and self.file(name) is None and here not in moved:
                operations.append(("r", here))
        append_changes(before._other, self._other, "", operations)
        return ContextPatch(tuple(operations))

    def whole(self, start: str) -> ContextPatch:
        """Return the patch from the first document to this state, as a recorder would write it.

        Size, links and time of a directory are omitted if entries were added to it or removed from
        it. A directory that was moved and changed inside counts as removed and added; its files
        count as moved. Names in `fs` are relative to `start`.
        """
        patch = self.since(Changes(self._first))
        patch = self._without_broken_trees(patch)
        parents: set[bytes] = set()
        for operation in patch.operations:
            touched = operation[1:] if operation[0] == "m" else operation[1:2]
            for path in touched if operation[0] in "arm" else ():
                area, *names = keys(path)
                if area == "fs" and len(names) == 1:
                    parents.add(_absolute(names[0], start).rpartition(b"/")[0] or b"/")
        return ContextPatch(
            tuple(
                operation
                for operation in patch.operations
                if not self._told_by_entries(operation, parents, start)
            )
        )

    def _without_broken_trees(self, patch: ContextPatch) -> ContextPatch:
        moves = {
            keys(operation[1])[1]: keys(operation[2])[1]
            for operation in patch.operations
            if operation[0] == "m"
        }
        broken: set[str] = set()
        whole: dict[str, bool] = {}
        for name, target in moves.items():
            file = self.file(target)
            if file is None or not file.in_tree or file.entry.get("perms", "")[:1] != "d":
                continue  # files count as moved even if their directory does not
            top = self._gone_above(name)
            if top not in whole:
                whole[top] = self._is_whole(top, moves)
            if not whole[top]:
                broken.add(name)
        if not broken:
            return patch
        operations: list[Operation] = []
        for operation in patch.operations:
            name = keys(operation[1])[1] if operation[0] == "m" else ""
            if name in broken:
                file = self.file(moves[name])
                operations.append(("r", operation[1]))
                operations.append(("a", operation[2], dict(file.entry) if file else {}))
            else:
                operations.append(operation)
        return ContextPatch(tuple(operations))

    def _gone_above(self, name: str) -> str:
        """Return the topmost removed ancestor directory of a removed file; else the file itself."""
        while (above := name.rpartition("/")[0]) in self._first["fs"] and self.file(above) is None:
            name = above
        return name

    def _is_whole(self, top: str, moves: Mapping[str, str]) -> bool:
        """Whether a directory was moved with all its entries, and nothing was added to it."""
        target = moves.get(top)
        if target is None:
            return False
        inside = [each for each in self._first["fs"] if each.startswith(f"{top}/")]
        there = [
            each
            for each in self._files
            if each.startswith(f"{target}/") and self.file(each) is not None
        ]
        return len(there) == len(inside) and all(
            moves.get(each) == target + each[len(top) :] for each in inside
        )

    def file(self, name: str) -> _File | None:
        """Return the file that has this name now; None if there is none."""
        if name in self._files:
            return self._files[name]
        entry = self._first["fs"].get(name)
        return None if entry is None else _File(entry, name)

    def _told_by_entries(self, operation: Operation, parents: set[bytes], start: str) -> bool:
        area, *names = keys(operation[1])
        if operation[0] != "=" or area != "fs" or len(names) != 2 or names[1] not in _OF_CONTENT:
            return False
        return _absolute(names[0], start) in parents

    def _moved_directories(self, patch: ContextPatch) -> frozenset[str]:
        found = set()
        for operation in patch.operations:
            area, *names = keys(operation[1]) if operation[0] == "m" else [""]
            file = self.file(names[0]) if area == "fs" else None
            if file is not None and str(file.entry.get("perms", "")).startswith("d"):
                found.add(names[0])
        return frozenset(found)

    def _change(self, operation: Operation, names: list[str], trees: frozenset[str]) -> None:
        name, *attributes = names
        if operation[0] == "m":
            file = self.file(name)
            if file is not None and (name in trees or name.rpartition("/")[0] in trees):
                file = replace(file, in_tree=True)
            self._files[keys(operation[2])[1]] = file
            self._files[name] = None
        elif attributes:
            file = self.file(name)
            entry = dict(file.entry) if file else {}
            if operation[0] == "r":
                entry.pop(attributes[0], None)
            else:
                entry[attributes[0]] = operation[2]
            origin = file.origin if file else None
            self._files[name] = _File(entry, origin, file.in_tree if file else False)
        elif operation[0] == "r":
            self._files[name] = None
        else:  # a replaced entry belongs to the same file, an added one to another
            file = self.file(name) if operation[0] == "=" else None
            self._files[name] = replace(file or _File({}, None), entry=operation[2])


def composed(
    document: Mapping[str, Any], patches: Iterable[ContextPatch], start: str
) -> ContextPatch:
    """Combine successive patches into one; see `Changes.whole`."""
    changes = Changes(document)
    for patch in patches:
        changes.add(patch)
    return changes.whole(start)


def _absolute(name: str, start: str) -> bytes:
    if name.startswith("/"):
        return name_bytes(name)
    inside = start.rstrip("/").encode("utf-8", "surrogateescape")
    return inside if name == "." else inside + b"/" + name_bytes(name)


def attributes(operations: Iterable[Sequence[Any]]) -> dict[str, dict[str, Any]]:
    """Return the attributes that operations set on existing files, by the file's name in `fs`."""
    told: dict[str, dict[str, Any]] = {}
    for code, path, *rest in operations:
        area, *names = keys(path) or [""]
        if code == "=" and area == "fs" and len(names) == 2:
            told.setdefault(names[0], {})[names[1]] = rest[0]
    return told
