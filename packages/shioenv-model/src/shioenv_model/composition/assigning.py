"""Assignments, and the builtins that declare variables."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from shioenv.bash.builtins import DECLARING
from shioenv.bash.words import split_words
from shioenv.errors import Abstained
from shioenv_model.bash.arithmetic import Complaint, evaluate
from shioenv_model.bash.arrays import Array
from shioenv_model.composition.environment import Environment
from shioenv_model.composition.variables import Value

_ASSIGNMENT = re.compile(
    r"([A-Za-z_]\w*)(?:\[((?:[^][]|\[[^][]*\])+)\])?(\+?)=(.*)", re.ASCII | re.DOTALL
)
_ELEMENT = re.compile(r"\[((?:[^][]|\[[^][]*\])+)\](\+?)=(.*)", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_OF_OPTIONS = {
    "declare": "aAilrxug", "typeset": "aAilrxug", "local": "aAilrxu", "export": "n",
    "readonly": "aA",
}  # fmt: skip
"""The supported options of each builtin; `-p` is supported by itself."""


def assign_word(here: Environment, word: str) -> None:
    """Perform the assignment in a word. Errors: Abstained; Complaint."""
    match = _ASSIGNMENT.fullmatch(word)
    if match is None:
        raise Abstained(f"{word!r:.40} is beyond it")
    name, subscript, adds, text = match.groups()
    if subscript is None and text.startswith("(") and text.endswith(")"):
        old = Value.of(here.state.before.document, name) or Value()
        array = old.array
        if array is None:
            array = Array({} if old.text is None or not adds else {"0": old.text})
        elif not adds:
            array = Array({}, array.associative)
        here.store(name, Value(None, listed(here, array, text[1:-1]), old.flags))
        return
    value = here.expander.text(text, assigned=True)
    target = name if subscript is None else _target(here, name, subscript)
    if adds:
        value = _added(here, name, here.variable(target) or "", value)
    here.assign(target, value)


def _target(here: Environment, name: str, subscript: str) -> str:
    array = here.array(name)
    if array is not None and array.associative:
        return f"{name}[{here.expander.text(subscript)}]"
    return f"{name}[{here.expander.number(subscript)}]"


def _added(here: Environment, name: str, old: str, value: str) -> str:
    """Return the value after `+=`: a sum for an integer variable, else a concatenation."""
    variable = Value.of(here.state.before.document, name)
    if variable is not None and "i" in variable.flags:
        return str(sum(evaluate(each, here.variable, here.assign) for each in (old, value)))
    return old + value


def listed(here: Environment, array: Array, text: str) -> Array:
    """Return the array extended by a compound assignment's elements. Errors: Abstained."""
    array = Array(dict(array.items), array.associative)
    pending: list[str] = []
    index = array.next_index() if not array.associative else 0
    for word in split_words(text):
        match = _ELEMENT.fullmatch(word)
        if match is not None:
            subscript, adds, value = match.groups()
            if array.associative:
                key = here.expander.text(subscript)
            else:
                key = array.subscript(here.expander.number(subscript))
                index = int(key) + 1
            made = here.expander.text(value, assigned=True)
            array = array.with_item(key, array.items.get(key, "") + made if adds else made)
        elif array.associative:
            pending.append(here.expander.text(word))
        elif word.startswith("#"):
            raise Abstained("a comment in an array")
        else:
            for value in here.expander.fields(word):
                array = array.with_item(str(index), value)
                index += 1
    for place in range(0, len(pending), 2):
        value = pending[place + 1] if place + 1 < len(pending) else ""
        array = array.with_item(pending[place], value)
    return array


@dataclass(slots=True)
class _Declaring:
    """A `declare`, `local`, `export` or `readonly`: its name and option letters."""

    here: Environment
    name: str
    on: set[str]
    off: set[str]

    def run(self, operands: Sequence[str]) -> int:
        """Process the operands. Return the exit status."""
        status = 0
        for word in operands:
            for name, assignment in self._names(word):
                if not _NAME.fullmatch(name):
                    self.here.complain(f"{self.name}: `{name}': not a valid identifier")
                    status = 1
                    continue
                try:
                    self._declare(name, assignment)
                except Complaint as wrong:
                    if wrong.ends or not wrong.said.endswith("readonly variable"):
                        raise
                    self.here.complain(f"{self.name}: {wrong.said}")
                    status = 1
        return status

    def _names(self, word: str) -> Iterator[tuple[str, str | None]]:
        """Yield the variables that an operand names, each with its unexpanded assignment."""
        match = _ASSIGNMENT.fullmatch(word)
        if match is not None:
            yield match[1], word
            return
        for field in self.here.expander.fields(word):
            name, equals, value = field.partition("=")
            if equals:
                raise Abstained(f"an assignment that an expansion made: {value!r:.20}")
            yield name, None

    def _declare(self, name: str, assignment: str | None) -> None:
        here = self.here
        inside = bool(here.own.frames) and "g" not in self.on
        if self.name in {"declare", "typeset", "local"} and inside:
            here.hide(name)
        old = Value.of(here.state.before.document, name) or Value()
        flags = (old.flags | (self.on & set("ilrxu"))) - self.off
        value = replace(old, flags=flags - {"r"})
        if self.on & {"a", "A"} and old.array is None:
            items = {} if old.text is None else {"0": old.text}
            value = Value(None, Array(items, "A" in self.on, bool(items)), flags - {"r"})
        if "r" in old.flags and (assignment is not None or "r" in self.off):
            raise Complaint(f"{name}: readonly variable")
        document = here.state.before.document
        if (value != old or Value.of(document, name) is None) and "r" not in old.flags:
            here.store(name, value)
        if assignment is not None:
            assign_word(here, assignment)
        if "r" in flags and "r" not in old.flags:
            now = Value.of(here.state.before.document, name) or Value()
            here.store(name, replace(now, flags=now.flags | {"r"}))


def declare(here: Environment, words: Sequence[str]) -> int:
    """Run `declare`, `typeset`, `local`, `export` or `readonly` with unexpanded operands.

    Return the exit status. Errors: Abstained for unsupported options; Complaint.
    """
    name, *rest = words
    assert name in DECLARING
    on: set[str] = set()
    off: set[str] = set()
    while rest and re.fullmatch(r"[-+][A-Za-z-]+", rest[0]):
        word = rest.pop(0)
        if word == "--":
            break
        (on if word[0] == "-" else off).update(word[1:])
    if name == "local" and not here.own.frames:
        here.complain("local: can only be used in a function")
        return 1
    if on == {"f"} and not off and rest:
        return _functions(here, rest)
    if on == {"p"} and not off and rest:
        return _printed(here, name, rest)
    if not rest or (on | off) - set(_OF_OPTIONS[name]):
        raise Abstained(f"{name} with options that are beyond it")
    if name == "export":
        on, off = (set(), {"x"}) if "n" in on else ({"x"}, set())
    if name == "readonly":
        on.add("r")
    return _Declaring(here, name, on, off).run(rest)


def _functions(here: Environment, words: Sequence[str]) -> int:
    """`declare -f NAME…`."""
    known = here.state.before.document["functions"]
    status = 0
    for word in words:
        for name in here.expander.fields(word):
            if name not in known:
                status = 1
                continue
            text = os.fsencode(f"{name} () \n{known[name]}\n")
            here.write(here.streams.fds[1], text)
    return status


def _printed(here: Environment, name: str, words: Sequence[str]) -> int:
    """`declare -p NAME…`."""
    status = 0
    for word in words:
        for field in here.expander.fields(word):
            value = Value.of(here.state.before.document, field)
            if value is None:
                here.variable(field)  # raises Abstained for a variable that is not in the context
                here.complain(f"{name}: {field}: not found")
                status = 1
            else:
                line = os.fsencode(f"{value.declaration(field)}\n")
                here.write(here.streams.fds[1], line)
    return status
