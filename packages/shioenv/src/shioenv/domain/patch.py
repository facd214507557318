"""A context patch: what an input changed, as compact RFC 6902 operations.

`diff` gives the patch that turns one context into another.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

from shioenv.domain.context import Context
from shioenv.domain.pointer import escape, keys, pointer
from shioenv.errors import PatchError
from shioenv.files.documents import parse_json

Operation: TypeAlias = tuple[Any, ...]
"""`("a", path, value)`, `("=", path, value)`, `("r", path)` or `("m", from, to)`."""

_NAMES = {"a": "add", "=": "replace", "r": "remove", "m": "move"}
_CODES = {name: code for code, name in _NAMES.items()}
_LENGTHS = {"a": 3, "=": 3, "r": 2, "m": 3}


@dataclass(frozen=True, slots=True)
class ContextPatch:
    """Operations in canonical order: sorted by path, then by operation (Figure 4, D-3).

    A move sorts by its old path. A list is one value, and no operation addresses an item of a list:
    otherwise operations on different paths could not be sorted. Where operations depend on each
    other, their order has a meaning and stays as given. Operations depend on each other where the
    path of one is the path of another, or lies inside it. Two patches are equal where their
    operations are equal. A patch is true where it has an operation. Errors: PatchError for an
    operation of another shape and for a path that is no JSON Pointer.
    """

    operations: tuple[Operation, ...] = ()

    def __post_init__(self) -> None:
        if self.operations:
            for operation in self.operations:
                _check(operation)
            object.__setattr__(self, "operations", _canonical(self.operations))

    def __bool__(self) -> bool:
        return bool(self.operations)

    def apply(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """The document after the patch; the given document stays as it is.

        Unchanged parts are shared between the two documents. Errors: PatchError, with the operation
        in its message, where an operation does not fit.
        """
        editor = _Editor(document)
        for operation in self.operations:
            editor.apply(operation)
        root: dict[str, Any] = editor.root
        return root

    def compose(self, later: ContextPatch) -> ContextPatch:
        """The patch that does this patch and then `later`. The patch is not made minimal."""
        return ContextPatch(self.operations + later.operations)

    def to_json(self) -> str:
        """The operations as a minified JSON list, as records hold it; `[]` for no operation."""
        if not self.operations:
            return "[]"
        return json.dumps(self.operations, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, source: str | Sequence[Any]) -> ContextPatch:
        """The patch of a JSON list, or of the text of one. PatchError where it is no patch."""
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
        """The same patch in RFC 6902's own words, for any JSON Patch library."""
        return [_expand(operation) for operation in self.operations]

    @classmethod
    def from_rfc6902(cls, source: Iterable[Mapping[str, Any]]) -> ContextPatch:
        """The patch of RFC 6902 operations. PatchError for `copy`, `test`, malformed operations."""
        return cls(tuple(_compress(item) for item in source))


def is_content(operation: Operation) -> bool:
    """Whether the operation replaces a file's entry as a whole: only the file's content changed."""
    return operation[0] == "=" and len(area := keys(operation[1])) == 2 and area[0] == "fs"


def with_contents(
    patch: ContextPatch,
    names: Collection[str],
    entry: Callable[[str], Mapping[str, Any] | None],
) -> ContextPatch:
    """The patch, with an operation for each file of which only the content changed (D-25).

    `names` are the files whose content is another one, by their names in `fs`. `entry` gives a
    file's attributes after the patch, None for no such file. Such an operation replaces the file's
    entry by an equal one: no attribute of a context shows the new content.
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


def without_contents(patch: ContextPatch) -> ContextPatch:
    """The patch without the operations that `with_contents` adds."""
    return ContextPatch(tuple(each for each in patch.operations if not is_content(each)))


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
                hint="it starts with / or is empty",
            )


def _canonical(operations: tuple[Operation, ...]) -> tuple[Operation, ...]:
    """The operations sorted, or as given where one path is another or lies in another."""
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
        f"not a known operation: {dict(item)!r:.80}", hint=f"known: {', '.join(sorted(_CODES))}"
    )


class _Editor:
    """Applies operations to a document, of which only the changed parts are copied."""

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
        """The object that holds the path's last key, copied so that it may be changed; the key."""
        *outer, last = keys(path)
        self.root = node = self._own(self.root)
        for key in outer:
            inner = _value(operation, node, key)
            if not isinstance(inner, Mapping):
                raise _misfit(operation, f"{key!r} holds no further values")
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
                raise _misfit(operation, "a document is an object")
            self.root = value
            return
        node, last = self._parent(operation, path)
        if not new:
            _value(operation, node, last)
        node[last] = value


def _value(operation: Operation, node: Any, key: str) -> Any:
    if isinstance(node, Mapping) and key in node:
        return node[key]
    raise _misfit(operation, f"nothing is called {key!r}")


def _misfit(operation: Operation, why: str) -> PatchError:
    return PatchError(f"{json.dumps(operation, ensure_ascii=False)[:120]} does not fit: {why}")


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
