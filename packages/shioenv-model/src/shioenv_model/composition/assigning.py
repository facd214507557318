"""Assignments, and the builtins that declare variables."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from shioenv.bash.builtins import DECLARING
from shioenv.bash.words import split_words
from shioenv.errors import Abstained
from shioenv_model.bash.arithmetic import Complaint
from shioenv_model.bash.arrays import Array, quote_value
from shioenv_model.bash.unexpanded import braces
from shioenv_model.composition.environment import Environment
from shioenv_model.composition.scoping import REFERENCE
from shioenv_model.composition.variables import Value, item_of

_ASSIGNMENT = re.compile(
    r"([A-Za-z_]\w*)(?:\[((?:[^][]|\[[^][]*\])+)\])?(\+?)=(.*)", re.ASCII | re.DOTALL
)
_OPERAND = re.compile(r"([A-Za-z_]\w*)\[([^]]+)\]", re.ASCII)
_REFUSED = (
    "readonly variable", "indexed to associative array", "associative to indexed array",
    "reference variable cannot be an array", "invalid variable name for name reference",
    "not a valid identifier", "self references not allowed",
)  # fmt: skip
"""Endings of error messages; after such an error, a declaration continues with the next operand."""
_ELEMENT = re.compile(r"\[((?:[^][]|\[[^][]*\])+)\](\+?)=(.*)", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_OF_OPTIONS = {
    "declare": "aAilrxugn", "typeset": "aAilrxugn", "local": "aAilrxun", "export": "n",
    "readonly": "aA",
}  # fmt: skip
"""The supported options of each builtin; `-p` is supported only alone."""
_EXPORTING = ("export", "readonly")
_LETTERS = {
    **dict.fromkeys(("declare", "typeset", "local"), "aAfFgiIlnrtuxp"),
    "export": "fnp",
    "readonly": "aAfp",
}
"""All option letters of each builtin."""
_OF_DECLARE = "[-aAfFgiIlnrtux] [name[=value] ...]"
_USAGES = {
    "declare": f"{_OF_DECLARE} or declare -p [-aAfFilnrtux] [name ...]",
    "typeset": f"{_OF_DECLARE} or typeset -p [-aAfFilnrtux] [name ...]",
    "local": "[option] name[=value] ...",
    "export": "[-fn] [name[=value] ...] or export -p",
    "readonly": "[-aAf] [name[=value] ...] or readonly -p",
}


def assign_word(here: Environment, word: str) -> None:
    """Perform the assignment in a word. Errors: Abstained; Complaint."""
    match = _ASSIGNMENT.fullmatch(word)
    if match is None:
        raise Abstained(f"the assignment {word!r:.40} is not supported")
    name, subscript, adds, text = match.groups()
    if not text.startswith("(") or not text.endswith(")"):
        _assign(here, name, subscript, adds, here.expander.text(text, assigned=True))
        return
    if subscript is not None:
        raise Complaint(f"{name}[{subscript}]: cannot assign list to array member")
    name = here.resolved(name)
    if name.endswith("]"):
        raise Abstained("a list for a reference to an element")
    old = here.value_of(name) or Value()
    array = old.array
    if array is None:
        array = Array({} if old.text is None or not adds else {"0": old.text})
    elif not adds:
        array = Array({}, array.associative)
    here.store(name, Value(None, _listed(here, array, text[1:-1], old.flags), old.flags))


def _assign(here: Environment, name: str, subscript: str | None, adds: str, value: str) -> None:
    target = name if subscript is None else _target(here, name, subscript)
    if adds:
        value = _added(here, here.resolved(name), here.variable(target) or "", value)
    here.assign(target, value)


def _target(here: Environment, name: str, subscript: str) -> str:
    array = here.array(name)
    if array is not None and array.associative:
        return f"{name}[{here.expander.text(subscript)}]"
    return f"{name}[{here.expander.number(subscript)}]"


def _added(here: Environment, name: str, old: str, value: str) -> str:
    """Return the value after `+=`: a sum for an integer variable, else a concatenation."""
    variable = here.value_of(item_of(name)[0])
    if variable is not None and "i" in variable.flags:
        return str(here.number(old) + here.number(value))
    return old + value


def _listed(here: Environment, array: Array, text: str, flags: frozenset[str]) -> Array:
    """Return the array extended by a compound assignment's elements.

    `flags` are the variable's attributes. Errors: Abstained.
    """
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
            if len(braces(word)) > 1 and not array.associative:
                raise Abstained("braces in an element with a subscript")
            tilde = "''" if array.associative else ""  # an associative array expands no tilde
            made = here.expander.text(tilde + value, assigned=not array.associative)
            made = array.items.get(key, "") + made if adds else made
            array = array.with_item(key, here.converted(made, flags))
        elif array.associative:
            pending.append(here.expander.text(word))
        elif word.startswith("#"):
            raise Abstained("a comment in an array")
        else:
            for value in here.expander.fields(word):
                array = array.with_item(str(index), here.converted(value, flags))
                index += 1
    for place in range(0, len(pending), 2):
        value = pending[place + 1] if place + 1 < len(pending) else ""
        array = array.with_item(pending[place], here.converted(value, flags))
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
        for name, subscript, adds, value in [
            each for word in operands for each in self._read(word)
        ]:
            if not _NAME.fullmatch(name):
                self.here.complain(f"{self.name}: `{name}': not a valid identifier")
                status = 1
                continue
            try:
                self._declare(name, subscript, adds, value)
            except Complaint as wrong:
                if wrong.ends or not wrong.said.endswith(_REFUSED):
                    raise
                # these two assign before they run
                early = self.name in _EXPORTING and wrong.said.endswith("readonly variable")
                self.here.complain(wrong.said if early else f"{self.name}: {wrong.said}")
                status = 1
        return status

    def _read(self, word: str) -> Iterator[tuple[str, str | None, str, str | None]]:
        """Yield the variables of an operand: name, subscript, `+`, and expanded value.

        The value of an array `(…)` is not expanded: it is yielded with its parentheses, after a NUL
        character.
        """
        match = _ASSIGNMENT.fullmatch(word)
        if match is not None:
            name, subscript, adds, text = match.groups()
            if text.startswith("(") and text.endswith(")"):
                yield name, subscript, adds, f"\0{text}"
            else:
                yield name, subscript, adds, self.here.expander.text(text, assigned=True)
            return
        for field in self.here.expander.fields(word):
            if field == "-" and self.name == "local":
                raise Abstained("local -")
            match = _ASSIGNMENT.fullmatch(field)
            if match is None:
                bare = _OPERAND.fullmatch(field)
                name, subscript = bare.groups() if bare else (field, None)
                yield name, subscript, "", None
                continue
            name, subscript, adds, value = match.groups()
            if value.startswith("("):
                raise Abstained(f"the list that an expansion made: {value!r:.20}")
            yield name, subscript, adds, value

    def _declare(self, name: str, subscript: str | None, adds: str, value: str | None) -> None:
        here, inside = (
            self.here,
            "g" not in self.on and any(not frame.temporary for frame in self.here.own.frames),
        )
        if self.name in {"declare", "typeset", "local"} and inside:
            here.hide(name)
        elif "n" not in self.on | self.off:
            name = here.resolved(name)
            if name.endswith("]"):
                raise Abstained("a declaration through a reference to an element")
        if "n" in self.on:
            self._refer(name, value)
            return
        if name == "OLDPWD" and self.name == "export" and value is not None:
            if here.asking.executes:
                raise Abstained("export of OLDPWD")
            here.carry(left=value)
            return
        lowest = next((each for each in here.own.frames if name in each.hidden), None)
        if "g" in self.on and lowest is not None:
            if value is None or subscript or adds or value.startswith("\0") or self.on != {"g"}:
                raise Abstained("declare -g of a variable that a local one hides")
            lowest.hidden[name] = Value(value)
            return
        old = here.value_of(name) or Value()
        flags = (old.flags | (self.on & set("ilrxu"))) - self.off
        flags -= {"l"} if "u" in self.on else {"u"} if "l" in self.on else set()
        declared = replace(old, flags=flags - {"r"})
        keeps = self.name == "readonly" and value is None
        if (self.on & {"a", "A"} or subscript is not None) and old.array is None and not keeps:
            items = {} if old.text is None else {"0": old.text}
            declared = Value(None, Array(items, "A" in self.on, bool(items)), flags - {"r"})
        elif old.array is not None and "A" in self.on and not old.array.associative:
            raise Complaint(f"{name}: cannot convert indexed to associative array")
        elif old.array is not None and "a" in self.on and old.array.associative:
            raise Complaint(f"{name}: cannot convert associative to indexed array")
        if "r" in old.flags and (value is not None or "r" in self.off):
            raise Complaint(f"{name}: readonly variable")
        if (declared != old or here.value_of(name) is None) and "r" not in old.flags:
            here.store(name, declared)
        if value is not None and value.startswith("\0"):
            assign_word(
                here, f"{name}{'' if subscript is None else f'[{subscript}]'}{adds}={value[1:]}"
            )
        elif value is not None:
            _assign(here, name, subscript, adds, value)
        if "r" in flags and "r" not in old.flags:
            now = here.value_of(name) or Value()
            here.store(name, replace(now, flags=now.flags | {"r"}))

    def _refer(self, name: str, target: str | None) -> None:
        """Make a variable a reference to another one. Errors: Complaint."""
        here = self.here
        if self.on - set("nrg"):
            raise Abstained("a reference with other attributes")
        old = here.value_of(name) or Value()
        text = old.text if target is None else target
        if target == "":
            raise Complaint("`': not a valid identifier")
        if old.array is not None:
            raise Complaint(f"{name}: reference variable cannot be an array")
        if text is not None and not REFERENCE.fullmatch(text):
            raise Complaint(f"`{text}': invalid variable name for name reference")
        if text == name:
            if not here.own.frames and target is not None:
                raise Complaint(f"{name}: nameref variable self references not allowed")
            raise Abstained(f"the reference {name} refers to itself")
        here.store(name, Value(text, None, old.flags | {"n"} | (self.on & {"r", "x"})))


def declare(here: Environment, words: Sequence[str]) -> int:
    """Run `declare`, `typeset`, `local`, `export` or `readonly` with unexpanded operands.

    Return the exit status. Errors: Abstained for unsupported options; Complaint.
    """
    name, *rest = words
    assert name in DECLARING
    on: set[str] = set()
    off: set[str] = set()
    while rest and re.match(r"[-+][A-Za-z-]", rest[0]) and not re.search(r"[$`'\"\\]", rest[0]):
        word = rest.pop(0)
        if word == "--":
            break
        if word == "--help":
            raise Abstained(f"{name} --help")
        wrong = re.search(f"[^{_LETTERS[name]}]", word[1:])
        if wrong:
            here.usage(name, f"{word[0]}{wrong[0]}", f"{name} {_USAGES[name]}")
            return here.status
        (on if word[0] == "-" else off).update(word[1:])
    if name == "local" and all(frame.temporary for frame in here.own.frames):
        here.complain("local: can only be used in a function")
        return 1
    if on in ({"f"}, {"F"}) and not off and name in ("declare", "typeset"):
        return _functions(here, rest, names_only=on == {"F"})
    if name in _EXPORTING and rest:
        on.discard("p")  # with names, they print nothing
    elif on == {"p"} and not off and rest:
        return _printed(here, name, rest)
    if not rest or (on | off) - set(_OF_OPTIONS[name]):
        raise Abstained(f"{name} with options that are not supported")
    if name == "export":
        on, off = (set(), {"x"}) if "n" in on else ({"x"}, set())
    if name == "readonly":
        on.add("r")
    return _Declaring(here, name, on, off).run(rest)


def _functions(here: Environment, words: Sequence[str], *, names_only: bool) -> int:
    """`declare -f NAME…` and `declare -F NAME…`; without names, all functions."""
    known = here.state.before.document["functions"]
    status = 0
    names = [name for word in words for name in here.expander.fields(word)]
    for name in names or sorted(known):
        if name not in known:
            status = 1
            continue
        text = f"{name} () \n{known[name]}\n"
        if names_only:
            text = f"{name}\n" if names else f"declare -f {name}\n"
        here.write(here.streams.fds[1], os.fsencode(text))
    return status


def _printed(here: Environment, name: str, words: Sequence[str]) -> int:
    """`declare -p NAME…`."""
    status = 0
    for word in words:
        for field in here.expander.fields(word):
            value = here.value_of(field)
            if field == "OLDPWD":
                place = here.variable(field)
                text = "declare -x OLDPWD" + ("" if place is None else f"={quote_value(place)}")
                here.write(here.streams.fds[1], os.fsencode(f"{text}\n"))
            elif value is None:
                here.variable(field)  # raises Abstained if the context does not have the variable
                here.complain(f"{name}: {field}: not found")
                status = 1
            else:
                line = os.fsencode(f"{value.declaration(field)}\n")
                here.write(here.streams.fds[1], line)
    return status
