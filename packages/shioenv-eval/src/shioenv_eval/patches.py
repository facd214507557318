"""Context patches as sets for metrics: sets of operations, changed paths and files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from shioenv.domain.behavior import Behavior
from shioenv.domain.context import escape, keys, pointer
from shioenv.domain.patch import ContextPatch, Operation, is_content

Operations = frozenset[tuple[str, str, str]]
"""Each operation as code, path and value (as JSON); a move is a removal and an addition."""

Entries = frozenset[tuple[str, str]]
"""Paths of files in `fs`, each with the file's entry (as JSON), or "" if the entry is unknown."""

OF_CONTENT = frozenset({"links"})
"""Attributes of a file that emulators do not model: a change of only these does not count."""


def operations(
    patch: ContextPatch, moved: Mapping[str, Any] | None = None, silent: Entries | None = None
) -> Operations:
    """Return a patch's operations, without those for files that changed only their content.

    `moved` maps each source path of a move in the gold (recorded) patches to the value that was
    there. A move from any other path adds an unknown value, represented by that path. Suites
    recorded before schema version 6 lack operations on files that changed only their content.
    `silent` holds the files whose content-only operations are left out (`changed_contents` of gold
    runs). None leaves out all content-only operations.
    """
    found = set()
    for operation in patch.operations:
        if is_content(operation) and (
            silent is None
            or not silent.isdisjoint({(operation[1], _text(operation[2])), (operation[1], "")})
        ):
            continue
        if operation[0] == "m":
            value = (moved or {}).get(operation[1], operation[1])
            found.add(("r", operation[1], ""))
            found.add(("a", operation[2], _text(value)))
        else:
            value = operation[2] if len(operation) == 3 else None
            found.add((operation[0], operation[1], "" if len(operation) == 2 else _text(value)))
    return frozenset(found)


def changed_contents(runs: Iterable[Behavior]) -> Entries:
    """Return the files in which a gold run changed only the content, with their entries.

    Runs recorded before schema version 6 have only a digest of the new content.
    """
    found = set()
    for run in runs:
        told = set()
        for operation in run.patch.operations:
            for path in operation[1:] if operation[0] == "m" else operation[1:2]:
                told.add(pointer(*keys(path)[:2]))
            if is_content(operation):
                found.add((operation[1], _text(operation[2])))
        paths = (pointer("fs", name) for name in run.content_digests)
        found.update((path, "") for path in paths if path not in told)
    return frozenset(found)


def reconciled(ours: Operations, theirs: Operations) -> Operations:
    """Return `ours`. If a move in it adds an unknown value, take the value from `theirs`.

    A move then equals a removal of its source and an addition at its target, regardless of the form
    that each patch uses. Removals in `theirs` are not linked to its additions. So values are filled
    in only if `theirs` adds the same value at all targets. It must also remove nothing else from
    the directories of the moved sources.
    """
    removed = {_text(path): path.rpartition("/")[0] for code, path, _ in theirs if code == "r"}
    added = {path: text for code, path, text in theirs if code == "a"}
    moved = {path: text for code, path, text in ours if code == "a" and text in removed}
    sources = frozenset(moved.values())
    places = {removed[source] for source in sources}
    candidates = {source for source, place in removed.items() if place in places}
    if candidates != sources or len({added.get(path) for path in moved}) != 1:
        return ours
    return frozenset(
        (code, path, added.get(path, text) if path in moved and code == "a" else text)
        for code, path, text in ours
    )


def moves(patch: ContextPatch) -> list[Operation]:
    """Return the move operations of a patch."""
    return [operation for operation in patch.operations if operation[0] == "m"]


def leaves(changes: Operations) -> Operations:
    """Return the operations with each added or replacing object split into its fields."""
    found = set()
    for code, path, text in changes:
        value = json.loads(text) if text else None
        if isinstance(value, dict) and value:
            for name, inner in value.items():
                found.add((code, f"{path}/{escape(name)}", _text(inner)))
        else:
            found.add((code, path, text))
    return frozenset(found)


def operation_paths(changes: Operations) -> frozenset[tuple[str, str]]:
    """Return the operations without their values."""
    return frozenset((code, path) for code, path, _ in changes)


def changed_files(changes: Operations) -> frozenset[tuple[str, str]]:
    """Return the change of each file: `added`, `removed` or `changed`, and its name in `fs`.

    Files that only changed their number of links are left out, since emulators do not model links.
    """
    found = set()
    for code, path, _ in changes:
        area, *names = keys(path) or [""]
        if area != "fs" or not names:
            continue
        if len(names) == 1:
            found.add(({"a": "added", "r": "removed"}.get(code, "changed"), names[0]))
        elif names[1] not in OF_CONTENT:
            found.add(("changed", names[0]))
    return frozenset(found)


def jaccard(first: frozenset[Any], second: frozenset[Any]) -> float | None:
    """Return the Jaccard similarity of two sets, 0 to 1; None if both are empty."""
    union = len(first | second)
    return len(first & second) / union if union else None


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
