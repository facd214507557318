"""Two contexts compared: the patch that turns one into the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shioenv.domain.context import Context
from shioenv.domain.patch import ContextPatch, Operation
from shioenv.domain.pointer import escape


def diff(before: Context, after: Context) -> ContextPatch:
    """The patch whose `apply` turns the first context into the second; empty for equal contexts."""
    return diff_documents(before.document, after.document)


def diff_documents(before: Mapping[str, Any], after: Mapping[str, Any]) -> ContextPatch:
    """The smallest patch of adds, replacements and removals that turns one document into another.

    Objects are compared key by key down to the first difference. Lists and other values are
    compared as wholes. JSON's types are kept apart: 1, 1.0 and true are three values.
    """
    operations: list[Operation] = []
    collect(before, after, "", operations)
    return ContextPatch(tuple(operations))


def collect(
    before: Mapping[str, Any], after: Mapping[str, Any], path: str, operations: list[Operation]
) -> None:
    """Appends to `operations` the changes from one object to another that both stand at `path`."""
    for key in before:
        here = f"{path}/{escape(key)}"
        if key not in after:
            operations.append(("r", here))
            continue
        old, new = before[key], after[key]
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            collect(old, new, here, operations)
        elif not _same(old, new):
            operations.append(("=", here, new))
    for key in after:
        if key not in before:
            operations.append(("a", f"{path}/{escape(key)}", after[key]))


def _same(old: Any, new: Any) -> bool:
    if type(old) is not type(new):
        return False
    if isinstance(old, list | tuple):
        return len(old) == len(new) and all(map(_same, old, new))
    if isinstance(old, dict):
        return old.keys() == new.keys() and all(_same(old[key], new[key]) for key in old)
    return bool(old == new)
