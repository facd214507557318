"""Context patches as sets that metrics compare: sets of operations, changed paths and files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from shioenv.domain.behavior import Behavior
from shioenv.domain.patch import ContextPatch, Operation, is_content
from shioenv.domain.pointer import escape, keys, pointer

Operations = frozenset[tuple[str, str, str]]
"""Each operation as code, path and value (as JSON); a move is a removal and an addition."""

Entries = frozenset[tuple[str, str]]
"""Paths of files in `fs`, each with the file's entry (as JSON), "" where the entry is not known."""

OF_CONTENT = frozenset({"links"})
"""Attributes of a file that emulators do not know: changes of these alone do not count."""


def operations(
    patch: ContextPatch, moved: Mapping[str, Any] | None = None, silent: Entries | None = None
) -> Operations:
    """The operations of a patch, without those for a changed content alone.

    `moved` says what lies at the paths that the gold patches move from. A move from any other path
    adds an unknown value, for which that path stands. Operations for a changed content do not
    count: suites recorded before schema version 6 lack them. `silent` names the
    answer's operations that are such (`changed_contents`); None: all that replace a file's entry.
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
    """Files whose content a gold run changed, and no attribute, with their entries.

    Runs that were recorded before schema version 6 have only a digest of such a content.
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
    """Our operations, with what a move of ours adds taken from theirs where it is unknown.

    So a move equals the removal of its source and an addition at its target, whichever of the two a
    patch has. Their removals do not name their additions. So a value is taken only
    where they remove nothing else beside the sources, and add equal values at all targets.
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
    """The operations that move something."""
    return [operation for operation in patch.operations if operation[0] == "m"]


def leaves(changes: Operations) -> Operations:
    """The operations; an object that is added or replaces another is taken apart into fields."""
    found = set()
    for code, path, text in changes:
        value = json.loads(text) if text else None
        if isinstance(value, dict) and value:
            for name, inner in value.items():
                found.add((code, f"{path}/{escape(name)}", _text(inner)))
        else:
            found.add((code, path, text))
    return frozenset(found)


def paths(changes: Operations) -> frozenset[tuple[str, str]]:
    """The operations without their values."""
    return frozenset((code, path) for code, path, _ in changes)


def changed_files(changes: Operations) -> frozenset[tuple[str, str]]:
    """What happened to which file: `added`, `removed` or `changed`, and its name in `fs`.

    A file of which only the number of links changed has not changed: emulators have no links.
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
    """The members of both sets as a share of the members of either, 0 to 1; None: both empty."""
    union = len(first | second)
    return len(first & second) / union if union else None


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
