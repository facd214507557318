"""A context patch: the changes made by an input, as compact RFC 6902 operations.

`diff` returns the patch that converts one context into another.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

from shioenv.domain.context import Context, escape, keys, pointer
from shioenv.errors import PatchError
from shioenv.files.documents import parse_json
from shioenv.text import html_table

Operation: TypeAlias = tuple[Any, ...]
"""`("a", path, value)`, `("=", path, value)`, `("r", path)` or `("m", from, to)`."""

_NAMES = {"a": "add", "=": "replace", "r": "remove", "m": "move"}
_CODES = {name: code for code, name in _NAMES.items()}
_LENGTHS = {"a": 3, "=": 3, "r": 2, "m": 3}


@dataclass(frozen=True, slots=True)
class ContextPatch:
    """Operations in canonical order: sorted by path, then by operation (Figure 5, D-3).

    A move sorts by its old path. A list is one value, and no operation addresses an item of a list:
    otherwise operations on different paths could not be sorted. Operations depend on each other if
    a path of one equals, or lies inside, a path of the other. If any do, the order is kept and not
    sorted. Two patches are equal if their operations are equal. A patch is true if it has an
    operation. Errors: PatchError for a malformed operation and for a path that is no JSON Pointer.
    """

    operations: tuple[Operation, ...] = ()

    def __post_init__(self) -> None:
        if self.operations:
            for operation in self.operations:
                _check(operation)
            object.__setattr__(self, "operations", _canonical(self.operations))

    def __repr__(self) -> str:
        from shioenv.domain.readable import changes

        listed = changes(self.operations[:3])
        more = len(self.operations) - 3
        told = "; ".join(" ".join(f"{one.verb} {one.name}".split()) for one in listed)
        told = told if len(told) <= 140 else f"{told[:139]}…"
        return f"<ContextPatch: {told or 'nothing'}{f'; {more} more' if more > 0 else ''}>"

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        from shioenv.domain.readable import changes

        listed = map(str, changes(self.operations))
        return html_table({"changes": listed if self.operations else "nothing"})

    def __bool__(self) -> bool:
        return bool(self.operations)

    def apply(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return the document after the patch; the given document is not changed.

        The two documents share unchanged parts. Errors: PatchError if an operation cannot be
        applied; the message contains the operation.
        """
        editor = _Editor(document)
        for operation in self.operations:
            editor.apply(operation)
        root: dict[str, Any] = editor.root
        return root

    def compose(self, later: ContextPatch) -> ContextPatch:
        """Return a patch equivalent to this patch followed by `later`. It is not minimized."""
        return ContextPatch(self.operations + later.operations)

    def to_json(self) -> str:
        """Return the operations as a minified JSON list, as in records; `[]` if there are none."""
        if not self.operations:
            return "[]"
        return json.dumps(self.operations, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, source: str | Sequence[Any]) -> ContextPatch:
        """Parse a JSON list, or the text of one. PatchError if it is no patch."""
        if isinstance(source, str):
            try:
                source = parse_json(source)
            except ValueError as error:
                raise PatchError(f"not a context patch: {error}") from None
        if not isinstance(source, list | tuple):
            raise PatchError(f"not a context patch: expected a list, got {source!r:.60}")
        for number, item in enumerate(source):
            if not isinstance(item, list | tuple):
                raise PatchError(f"operation {number} is not a list: {item!r:.60}")
        return cls(tuple(tuple(item) for item in source))

    def to_rfc6902(self) -> list[dict[str, Any]]:
        """Convert the patch to standard RFC 6902, for any JSON Patch library."""
        return [_expand(operation) for operation in self.operations]

    @classmethod
    def from_rfc6902(cls, source: Iterable[Mapping[str, Any]]) -> ContextPatch:
        """Convert from RFC 6902. PatchError for `copy`, `test` and malformed operations."""
        return cls(tuple(_compress(item) for item in source))


def is_content(operation: Operation) -> bool:
    """Whether the operation replaces a file's entry: then only the file's content changed."""
    return operation[0] == "=" and len(area := keys(operation[1])) == 2 and area[0] == "fs"


def with_contents(
    patch: ContextPatch,
    names: Collection[str],
    entry: Callable[[str], Mapping[str, Any] | None],
) -> ContextPatch:
    """Add an operation for each file that changed only in content (D-25).

    `names` are the files with changed content, by their names in `fs`. `entry` returns a file's
    attributes after the patch, or None if it does not exist. Such an operation replaces the file's
    entry by an equal one, because no attribute of a context shows the new content.
    """
    if not names:
        return patch
    told = {
        keys(path)[1]
        for operation in patch.operations
        for path in (operation[1:] if operation[0] == "m" else operation[1:2])
        if path.startswith("/fs/")
    }
    entries = {name: entry(name) for name in names if name not in told}
    silent = [("=", pointer("fs", name), dict(found)) for name, found in entries.items() if found]
    return ContextPatch((*patch.operations, *silent)) if silent else patch


def _check(operation: Operation) -> None:
    code = operation[0] if operation else None
    length = _LENGTHS.get(code) if isinstance(code, str) else None
    if length is None or len(operation) != length:
        raise PatchError(
            f"not an operation: {operation!r:.80}",
            hint='["a",path,value], ["=",path,value], ["r",path] or ["m",from,to]',
        )
    for path in operation[1:] if code == "m" else operation[1:2]:
        if not isinstance(path, str) or (path and not path.startswith("/")):
            raise PatchError(
                f"not a JSON Pointer in {operation!r:.80}: {path!r:.60}",
                hint="a pointer starts with / or is empty",
            )


def _canonical(operations: tuple[Operation, ...]) -> tuple[Operation, ...]:
    """Sort the operations, unless a path of one equals a path of another or lies inside it."""
    if len(operations) == 1:
        return operations
    touched = sorted(
        path.split("/")
        for operation in operations
        for path in (operation[1:] if operation[0] == "m" else operation[1:2])
    )
    for outer, inner in pairwise(touched):
        if inner[: len(outer)] == outer:
            return operations
    return tuple(sorted(operations, key=lambda operation: (operation[1].split("/"), operation[0])))


def _expand(operation: Operation) -> dict[str, Any]:
    name = _NAMES[operation[0]]
    if name == "move":
        return {"op": name, "from": operation[1], "path": operation[2]}
    if name == "remove":
        return {"op": name, "path": operation[1]}
    return {"op": name, "path": operation[1], "value": operation[2]}


def _compress(item: Mapping[str, Any]) -> Operation:
    code = _CODES.get(item.get("op", ""))
    try:
        if code == "m":
            return ("m", item["from"], item["path"])
        if code == "r":
            return ("r", item["path"])
        if code is not None:
            return (code, item["path"], item["value"])
    except KeyError as error:
        raise PatchError(f"an operation lacks {error}: {dict(item)!r:.80}") from None
    raise PatchError(
        f"unknown operation: {dict(item)!r:.80}", hint=f"known: {', '.join(sorted(_CODES))}"
    )


class _Editor:
    """Applies operations to a document and copies only the changed parts."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.root: Any = document
        self._owned: dict[int, dict[str, Any]] = {}

    def apply(self, operation: Operation) -> None:
        code, path = operation[0], operation[1]
        if code == "m":
            target = operation[2]
            if target == path:
                self._find(operation, path)
                return
            if target.startswith(f"{path}/"):
                raise _misfit(operation, "cannot move a value into itself")
            value = self._remove(operation, path)
            self._set(operation, target, value, new=True)
        elif code == "r":
            self._remove(operation, path)
        else:
            self._set(operation, path, operation[2], new=code == "a")

    def _own(self, node: Any) -> dict[str, Any]:
        if id(node) in self._owned:
            return self._owned[id(node)]
        copy = dict(node)
        self._owned[id(copy)] = copy
        return copy

    def _parent(self, operation: Operation, path: str) -> tuple[dict[str, Any], str]:
        """Return a modifiable copy of the object that holds the path's last key, and the key."""
        *outer, last = keys(path)
        self.root = node = self._own(self.root)
        for key in outer:
            inner = _value(operation, node, key)
            if not isinstance(inner, Mapping):
                raise _misfit(operation, f"{key!r} is not an object")
            node[key] = inner = self._own(inner)
            node = inner
        return node, last

    def _find(self, operation: Operation, path: str) -> None:
        node = self.root
        for key in keys(path):
            node = _value(operation, node, key)

    def _remove(self, operation: Operation, path: str) -> Any:
        if not path:
            raise _misfit(operation, "the whole document cannot be removed")
        node, last = self._parent(operation, path)
        _value(operation, node, last)
        return node.pop(last)

    def _set(self, operation: Operation, path: str, value: Any, *, new: bool) -> None:
        if not path:
            if not isinstance(value, Mapping):
                raise _misfit(operation, "the document must be an object")
            self.root = value
            return
        node, last = self._parent(operation, path)
        if not new:
            _value(operation, node, last)
        node[last] = value


def _value(operation: Operation, node: Any, key: str) -> Any:
    if isinstance(node, Mapping) and key in node:
        return node[key]
    raise _misfit(operation, f"there is no key {key!r}")


def _misfit(operation: Operation, why: str) -> PatchError:
    return PatchError(f"{json.dumps(operation, ensure_ascii=False)[:120]} does not apply: {why}")


def diff(before: Context, after: Context) -> ContextPatch:
    """Return the patch that converts the first context into the second; empty if they are equal."""
    return diff_documents(before.document, after.document)


def diff_documents(before: Mapping[str, Any], after: Mapping[str, Any]) -> ContextPatch:
    """Return the smallest patch of adds, replacements and removals between two documents.

    Objects are compared key by key down to the first difference. Lists and other values are
    compared as a whole. JSON types are distinct: 1, 1.0 and true are three values.
    """
    operations: list[Operation] = []
    append_changes(before, after, "", operations)
    return ContextPatch(tuple(operations))


def append_changes(
    before: Mapping[str, Any], after: Mapping[str, Any], path: str, operations: list[Operation]
) -> None:
    """Append to `operations` the changes from one object to another, both at `path`."""
    for key in before:
        here = f"{path}/{escape(key)}"
        if key not in after:
            operations.append(("r", here))
            continue
        old, new = before[key], after[key]
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            append_changes(old, new, here, operations)
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
