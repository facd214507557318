"""Variables with attributes, and the scope for expanding one command's words."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shioenv.bash.words import unquoted
from shioenv.domain.context import pointer
from shioenv.domain.patch import ContextPatch, Operation
from shioenv.domain.runner import State
from shioenv.errors import Abstained
from shioenv_model.bash.arithmetic import evaluate
from shioenv_model.bash.arrays import Array, quote_value

_DECLARATION = re.compile(r"declare -([-A-Za-z]+) ([A-Za-z_]\w*)(?:=(.*))?", re.ASCII | re.DOTALL)
_ORDER = "aAinrtxclu"
"""The attributes in the order of `declare -p`."""


def known_place(left: str) -> str:
    """Return `left`, the previous working directory. Errors: Abstained if it is unknown."""
    if not left:
        raise Abstained("the previous working directory is unknown")
    return left


@dataclass(frozen=True, slots=True)
class Value:
    """A variable: its text or its elements, and its attributes as letters of `declare`."""

    text: str | None = None
    """None for an unset variable, and for an array."""
    array: Array | None = None
    flags: frozenset[str] = frozenset()

    @classmethod
    def of(cls, document: Mapping[str, Any], name: str, *, is_text: bool = False) -> Value | None:
        """Return the variable of this name in a context; None if there is none.

        `is_text`: the value is known to be text, so a backslash in it does not escape a byte.
        Errors: Abstained if the value may contain escaped bytes.
        """
        if name in document["env"]:
            return cls._read(str(document["env"][name]), frozenset("x"), is_text)
        stored = document["settings"].get(name)
        return None if stored is None else cls._read(str(stored), frozenset(), is_text)

    @classmethod
    def _read(cls, stored: str, flags: frozenset[str], is_text: bool) -> Value:
        match = _DECLARATION.fullmatch(stored)
        if match:
            flags = frozenset(match[1]) & frozenset(_ORDER)
            if match[3] is None:
                array = Array({}, "A" in flags, assigned=False) if flags & frozenset("aA") else None
                return cls(None, array, flags - frozenset("aA"))
            if not match[3].startswith("("):
                return cls(unquoted(match[3]), None, flags)
            stored = match[3]
        array = Array.read(stored) if stored.startswith("(") else None
        if array is not None:
            if "A" in flags and not array.associative:
                array = Array({}, associative=True)
            return cls(None, array, flags - frozenset("aA"))
        if "\\x" in stored and not is_text:
            raise Abstained("a variable that may contain bytes that are not text")
        return cls(stored, None, flags)

    def declaration(self, name: str) -> str:
        """Format the line of `declare -p`. Errors: Abstained."""
        letters = attributes(self)
        value = "" if self.text is None else f"={quote_value(self.text)}"
        if self.array is not None:
            value = f"={self.array.text()}" if self.array.assigned else ""
        return f"declare -{letters or '-'} {name}{value}"

    def stored(self, name: str) -> tuple[str, str]:
        """Return the context area of the variable, and its text there. Errors: Abstained."""
        further = bool(self.flags - frozenset("x"))
        if self.array is not None and self.array.assigned:
            whole = (
                further or "x" in self.flags or (self.array.associative and not self.array.items)
            )
            return "settings", self.declaration(name) if whole else self.array.text()
        if self.text is None:
            return "settings", self.declaration(name)
        area = "env" if "x" in self.flags else "settings"
        return area, self.declaration(name) if further else self.text


def attributes(value: Value | None) -> str:
    """Return a variable's attributes as letters of `declare`, in its order."""
    if value is None:
        return ""
    kind = "" if value.array is None else "A" if value.array.associative else "a"
    return "".join(each for each in _ORDER if each in value.flags | frozenset(kind))


def stored(document: Mapping[str, Any], name: str, value: Value | None) -> ContextPatch:
    """Return the patch that sets a variable, or unsets it (None). Errors: Abstained."""
    area, text = ("", "") if value is None else value.stored(name)
    operations: list[Operation] = [
        ("r", pointer(each, name))
        for each in ("env", "settings")
        if each != area and name in document[each]
    ]
    if area:
        old = document[area].get(name)
        if old != text:
            operations.append(("a" if old is None else "=", pointer(area, name), text))
    return ContextPatch(tuple(operations))


def element(
    value: Value | None, key: str | None, variable: Callable[[str], str | None]
) -> str | None:
    """Return the text of a variable, or of its element `key`; None if it is unset.

    Errors: Abstained; Complaint for an invalid subscript.
    """
    if value is None:
        return None
    if value.array is None:
        return value.text if key is None or not evaluate(key, variable) else None
    if value.array.associative or key is None:
        return value.array.items.get(key or "0")
    return value.array.items.get(value.array.subscript(evaluate(key, variable)))


def resolved(document: Mapping[str, Any], name: str) -> str:
    """Return the variable or element that a name stands for, following references (`declare -n`).

    Errors: Abstained for references that lead nowhere.
    """
    for _ in range(8):
        base, key = item_of(name)
        if not (base.isidentifier() and base.isascii()):
            return name
        if not str(document["settings"].get(base, "")).startswith("declare -"):
            return name
        value = Value.of(document, base)
        if value is None or "n" not in value.flags:
            return name
        if not value.text or value.text == base or (key and "[" in value.text):
            raise Abstained(f"the reference {base} has no target")
        name = value.text if key is None else f"{value.text}[{key}]"
    raise Abstained(f"the reference {name} is circular")


def item_of(name: str) -> tuple[str, str | None]:
    """Split `name[key]` into name and key; the key is None for a plain name."""
    if not name.endswith("]"):
        return name, None
    variable, _, key = name[:-1].partition("[")
    return variable, key


class Variables:
    """A `Scope` that expands one command's words from a state, without running anything."""

    def __init__(self, state: State) -> None:
        self.state = state

    @property
    def arguments(self) -> Sequence[str]:
        """See `Scope.arguments`. Errors: Abstained if they are unknown."""
        if self.state.carried.arguments is None:
            raise Abstained("the positional parameters are unknown")
        return self.state.carried.arguments

    def variable(self, name: str) -> str | None:
        """See `Scope.variable`."""
        document = self.state.before.document
        name, key = item_of(self.resolved(name))
        if not (name.isidentifier() and name.isascii()):
            raise Abstained(f"${name} is unknown")
        value = Value.of(document, name)
        if value is None and name == "OLDPWD":
            left = self.state.carried.left
            return None if left is None else known_place(left)
        return element(value, key, self.variable)

    def array(self, name: str) -> Array | None:
        """See `Scope.array`."""
        value = Value.of(self.state.before.document, self.resolved(name))
        return None if value is None else value.array

    def attributes(self, name: str) -> str:
        """See `Scope.attributes`."""
        return attributes(Value.of(self.state.before.document, self.resolved(name)))

    def resolved(self, name: str) -> str:
        """See `Scope.resolved`."""
        return resolved(self.state.before.document, name)

    def assign(self, name: str, value: str) -> None:
        """See `Scope.assign`; assignments are not supported."""
        raise Abstained(f"{name} would be set to {value!r:.40}")

    def substitute(self, source: str) -> str:
        """See `Scope.substitute`; substitutions are not supported."""
        raise Abstained(f"{source!r:.40} would have to be executed")

    def connect(self, source: str, *, reading: bool) -> str:
        """See `Scope.connect`; substitutions are not supported."""
        raise Abstained(f"{source!r:.40} would have to be executed")
