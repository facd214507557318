"""The effect of an input after a history: the difference between two runs from the pristine state.

The first run executed the history alone, the second the history and the input.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from shioenv.domain.behavior import Behavior
from shioenv.domain.context import keys, pointer
from shioenv.domain.patch import ContextPatch, Operation, diff_documents, with_contents

_OF_ENTRIES = ("size", "links", "month", "day", "year", "time")
"""Attributes of a directory that its entries change."""


def difference(
    before: Behavior,
    whole: Behavior,
    context: Mapping[str, Any],
    pristine: Callable[[str], str | None],
    *,
    of_moved: bool = False,
) -> tuple[ContextPatch, dict[str, str]]:
    """Return the patch from the end of `before` to the end of `whole`, and digests of new contents.

    `context` is the pristine context. Of its files, only those that the two patches name are
    needed. `pristine` returns the SHA-256 of a pristine file's content by the file's name in `fs`,
    or None if this is not a regular file. A moved file is one operation `m` (D-25), and has a
    digest only with `of_moved`. Errors: PatchError if a patch does not fit the context.
    """
    old, new = _End(before, context, pristine), _End(whole, context, pristine)
    operations = list(diff_documents(old.document, new.document).operations)
    entered = _entered(operations, str(context.get("cwd", "/")))
    stayed = {name for name in entered if _stays_directory(name, old, new)}
    moved = dict(_moved(operations, old, new))
    gone, come = ({pointer("fs", name) for name in names} for names in (moved, moved.values()))
    operations = [
        each
        for each in operations
        if not (each[0] == "r" and each[1] in gone)
        and not (each[0] == "a" and each[1] in come)
        and not _is_of_entries(each, stayed)
    ]
    operations = [_with_true_attributes(each, whole.directories) for each in operations]
    for source, target in moved.items():
        operations.append(("m", pointer("fs", source), pointer("fs", target)))
    digests = {}
    for name in sorted(old.touched | new.touched):
        if name not in new.files or (name in moved.values() and not of_moved):
            continue
        now = new.digest(name)
        if now is not None and now != (old.digest(name) if name in old.files else None):
            digests[name] = now
    patch = with_contents(ContextPatch(tuple(operations)), digests, new.files.get)
    return patch, digests


@dataclass(frozen=True)
class _End:
    """The state of files after a run."""

    run: Behavior
    context: Mapping[str, Any]
    pristine: Callable[[str], str | None]

    @cached_property
    def document(self) -> dict[str, Any]:
        return self.run.patch.apply(self.context)

    @property
    def files(self) -> Mapping[str, Any]:
        """The attributes of each file by its name."""
        files: Mapping[str, Any] = self.document["fs"]
        return files

    @cached_property
    def origins(self) -> Mapping[str, str]:
        """The pristine name of each moved file, by its present name."""
        return {
            keys(each[2])[1]: keys(each[1])[1]
            for each in self.run.patch.operations
            if each[0] == "m"
        }

    @cached_property
    def touched(self) -> Set[str]:
        """The names that the patch or the digests mention."""
        return touched(self.run)

    @cached_property
    def added(self) -> Set[str]:
        """The names that the run added, without those of moved files."""
        return {
            keys(each[1])[1]
            for each in self.run.patch.operations
            if each[0] == "a" and len(keys(each[1])) == 2
        }

    def digest(self, name: str) -> str | None:
        """Return the SHA-256 of a file's content; None if it is not a regular file, or unknown."""
        if name in self.run.content_digests:
            return self.run.content_digests[name]
        if name in self.added or not str(self.files[name].get("perms")).startswith("-"):
            return None
        return self.pristine(self.origins.get(name, name))

    def marks(self, name: str) -> set[tuple[str, object]]:
        """Return marks that identify the file: names with a common mark are the same file."""
        marks: set[tuple[str, object]] = set()
        if name in self.run.inodes:
            marks.add(("inode", self.run.inodes[name]))
        if name in self.origins:
            marks.add(("pristine", self.origins[name]))
        elif name not in self.touched and name not in self.run.inodes:
            marks.add(("pristine", name))
        return marks


def _moved(operations: list[Operation], old: _End, new: _End) -> Iterator[tuple[str, str]]:
    """Yield each removed name with the name that the same file has now."""
    gone = [keys(each[1])[1] for each in operations if each[0] == "r" and _is_file(each)]
    come = [keys(each[1])[1] for each in operations if each[0] == "a" and _is_file(each)]
    if not gone or not come:
        return
    moved = _moved_trees(gone, come, old, new)
    sources: dict[tuple[str, object], list[str]] = {}  # a file may have several names
    for name in gone:
        for mark in old.marks(name):
            sources.setdefault(mark, []).append(name)
    for target in sorted({*come} - {*moved.values()}):
        found = {name for mark in new.marks(target) for name in sources.get(mark, ())}
        source = min(found - moved.keys(), default=None)
        if source is not None and _is_same(old, source, new, target):
            moved[source] = target
    yield from moved.items()


def _moved_trees(gone: list[str], come: list[str], old: _End, new: _End) -> dict[str, str]:
    """Map old names to new ones in directories that `mv` copied because renaming them fails."""
    tops = [top for top in gone if top not in old.added and _is_directory(old, top)]
    if not tops:
        return {}
    before, after = _Trees(old, gone), _Trees(new, come)
    targets: dict[str, deque[str]] = {}
    for name in come:
        if _is_directory(new, name):
            targets.setdefault(after.identity(name), deque()).append(name)
    moved: dict[str, str] = {}
    taken: set[str] = set()
    for top in tops:
        if top in moved:
            continue
        waiting = targets.get(before.identity(top), deque())
        while waiting and waiting[0] in taken:
            waiting.popleft()
        if waiting:
            pairs = {name: waiting[0] + name[len(top) :] for name in before.tree(top)}
            moved |= pairs
            taken.update(pairs.values())
    return moved


class _Trees:
    """The directory trees among the removed names, or among the added ones.

    Equal identities mean equal trees: the same names in them, with the attributes and contents that
    `mv` copies. Times and sizes of directories are left out, because a copy has new ones.
    """

    def __init__(self, end: _End, names: list[str]) -> None:
        self._end = end
        self._inside: dict[str, list[str]] = {name: [] for name in names}
        for name in names:
            above = name.rpartition("/")[0]
            if above in self._inside:
                self._inside[above].append(name)
        self._identities: dict[str, str] = {}
        for name in sorted(names, key=lambda name: -name.count("/")):
            self._identities[name] = self._identified(name)

    def identity(self, top: str) -> str:
        """Return the identity of the tree below a name."""
        return self._identities[top]

    def tree(self, top: str) -> Iterator[str]:
        """Yield the names of a tree."""
        waiting = [top]
        while waiting:
            yield (name := waiting.pop())
            waiting.extend(self._inside[name])

    def _identified(self, name: str) -> str:
        directory = _is_directory(self._end, name)
        free = _OF_ENTRIES if directory else ()
        own = {key: value for key, value in self._end.files[name].items() if key not in free}
        inside = [(each.rpartition("/")[2], self._identities[each]) for each in self._inside[name]]
        digest = None if directory else self._end.digest(name)
        told = json.dumps([own, digest, sorted(inside)], sort_keys=True)
        return hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()


def _is_file(operation: Operation) -> bool:
    area, *names = keys(operation[1])
    return area == "fs" and len(names) == 1


def _with_true_attributes(
    operation: Operation, directories: Mapping[str, Mapping[str, Any]]
) -> Operation:
    """Return the operation. If it adds a directory again, use the new directory's attributes."""
    kind, path, *values = operation
    if kind != "a" or not directories or not _is_file(operation):
        return operation
    attributes = directories.get(keys(path)[1])
    return operation if attributes is None else (kind, path, {**values[0], **attributes})


def _entered(operations: list[Operation], start: str) -> Iterator[str]:
    """Yield the names of directories in which an entry was added or removed.

    `start` is the path of the start directory, which is named `.`.
    """
    for each in operations:
        if each[0] in "ar" and _is_file(each):
            name = keys(each[1])[1]
            yield posixpath.dirname(start if name == "." else name) or "."


def _stays_directory(name: str, old: _End, new: _End) -> bool:
    return all(name in end.files and _is_directory(end, name) for end in (old, new))


def _is_of_entries(operation: Operation, directories: Set[str]) -> bool:
    """Whether an operation changes an attribute in `_OF_ENTRIES` of one of these directories."""
    area, *names = keys(operation[1])
    return area == "fs" and len(names) == 2 and names[0] in directories and names[1] in _OF_ENTRIES


def _is_directory(end: _End, name: str) -> bool:
    return str(end.files[name].get("perms")).startswith("d")


def _is_same(old: _End, source: str, new: _End, target: str) -> bool:
    """Whether a file is unchanged apart from its name."""
    return bool(old.files[source] == new.files[target]) and _has_content_of(
        old, source, new, target
    )


def _has_content_of(old: _End, source: str, new: _End, target: str) -> bool:
    return _is_directory(new, target) or old.digest(source) == new.digest(target)


def channels_since(before: Behavior, whole: Behavior) -> tuple[dict[str, Any], bool]:
    """Return the output of `whole` after that of `before`, by channel.

    The second result is whether the output of `whole` begins with that of `before`.
    """
    channels: dict[str, Any] = {}
    steady = True
    split = None not in (before.stdout, whole.stdout)
    for name in ("stdout", "stderr") if split else ("output",):
        old, new = getattr(before, name), getattr(whole, name)
        if new.startswith(old):
            channels[name] = new[len(old) :]
        else:
            steady = False
            channels[name] = new.split(b"\n", old.count(b"\n"))[-1]
    if split:  # the two channels are joined, so the history's errors are in the middle
        channels["output"] = channels["stdout"] + channels["stderr"]
    return channels, steady


def touched(*behaviors: Behavior) -> set[str]:
    """Return the names of the files of a context that behaviors name."""
    names = {
        name
        for behavior in behaviors
        for _, *parts in behavior.patch.operations
        for path in parts
        if isinstance(path, str) and path.startswith("/fs/")
        for name in keys(path)[1:2]
    }
    return names.union(*(behavior.content_digests for behavior in behaviors))
