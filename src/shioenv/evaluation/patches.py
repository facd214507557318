"""Patches as sets, which metrics compare: of operations, of changed paths, of files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from shioenv.domain.patch import ContextPatch, Operation
from shioenv.domain.pointer import escape, keys

Operations = frozenset[tuple[str, str, str]]
"""Code, path and value, the value as JSON; a move is a removal and an addition."""

OF_CONTENT = frozenset({"links"})
"""What emulators do not know of a file, and a change of nothing else is no change of that file."""


def operations(patch: ContextPatch, moved: Mapping[str, Any] | None = None) -> Operations:
    """The operations of a patch. `moved` says what lies at the paths that are moved from (in the
    gold patch): a move elsewhere stays one of nobody knows what.
    """
    found = set()
    for operation in patch.operations:
        if operation[0] == "m":
            value = (moved or {}).get(operation[1])
            found.add(("r", operation[1], ""))
            found.add(("a", operation[2], _text(value)))
        else:
            value = operation[2] if len(operation) == 3 else None
            found.add((operation[0], operation[1], "" if len(operation) == 2 else _text(value)))
    return frozenset(found)


def moves(patch: ContextPatch) -> list[Operation]:
    """The operations that move something."""
    return [operation for operation in patch.operations if operation[0] == "m"]


def leaves(changes: Operations) -> Operations:
    """The operations with objects that are added or put in place taken apart into their fields."""
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

    A file whose number of links alone changed has not changed: emulators have no links.
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
    """What two sets share of what either holds, 0 to 1; None where both are empty."""
    union = len(first | second)
    return len(first & second) / union if union else None


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
