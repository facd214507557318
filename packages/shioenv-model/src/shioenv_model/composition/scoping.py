"""Variables of a running shell: scopes, attributes, references, and special parameters."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from shioenv.bash.words import quoted
from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import State
from shioenv.errors import Abstained
from shioenv_model.bash.arithmetic import Complaint, evaluate
from shioenv_model.bash.arrays import Array, BadSubscript
from shioenv_model.bash.expand import Expander
from shioenv_model.composition.call import Call
from shioenv_model.composition.conditions import is_set
from shioenv_model.composition.frames import Frame, Own, Position, Result, Streams
from shioenv_model.composition.interpreter_state import Asker
from shioenv_model.composition.variables import (
    Value,
    attributes,
    element,
    item_of,
    known_place,
    resolved,
    stored,
)

UNKNOWN = frozenset({"!", "_", "BASHPID", "HISTCMD"})
"""Variables whose values are unknown without the shell."""

LONGEST_VALUE = 131_072
"""Maximum length of a tracked variable (our choice): as long as one argument may be."""

_SPECIAL = frozenset({"RANDOM", "SRANDOM", "SECONDS", "LINENO", "OLDPWD", "PPID", "UID", "EUID"})
REFERENCE = re.compile(r"[A-Za-z_]\w*(?:\[.+\])?", re.ASCII | re.DOTALL)
"""What a reference (`declare -n`) can stand for."""
_SURROGATE = re.compile(r"[\ud800-\udfff]")


_LETTERS = {
    "a": "allexport", "b": "notify", "e": "errexit", "f": "noglob", "h": "hashall", "k": "keyword",
    "m": "monitor", "n": "noexec", "p": "privileged", "t": "onecmd", "u": "nounset", "v": "verbose",
    "x": "xtrace", "B": "braceexpand", "C": "noclobber", "E": "errtrace", "H": "histexpand",
    "P": "physical", "T": "functrace",
}  # fmt: skip
"""The options of `set` by letter, in the order of `$-`."""
_ARRAYS = frozenset({"PIPESTATUS", "BASH_REMATCH", "FUNCNAME", "BASH_LINENO", "BASH_SOURCE"})
"""Arrays that the shell itself sets."""


_FIXED = frozenset({"BASHOPTS", "BASH_VERSINFO", "EUID", "PPID", "SHELLOPTS", "UID"})
"""Variables that are always readonly."""
_CONSTANT = {"BASH": "/usr/bin/bash", "BASH_VERSION": "5.2.15(1)-release", "SECONDS": "0"}
"""Variables of Debian 12's Bash that no context shows. SECONDS is 0, since an input takes less than
a second."""


def is_special(name: str) -> bool:
    """Whether a variable changes by itself, or controls the shell."""
    return name in _SPECIAL | UNKNOWN | _ARRAYS or name.startswith("BASH")


class ShellVariables(ABC):
    """The variables of a shell; the environment of its commands is a subclass."""

    start: State
    input: str
    asking: Asker
    own: Own
    children: dict[str, int]
    place: Position
    result: Result
    streams: Streams
    status: int
    expander: Expander
    tries: bool = False
    """Whether words are expanded only to find out if that is possible."""

    @property
    @abstractmethod
    def arguments(self) -> Sequence[str]:
        """See `Scope.arguments`."""

    @abstractmethod
    def ask(self, call: Call, *, separate: bool = False) -> Behavior:
        """Return a command's behavior; see `Environment.ask`."""

    @abstractmethod
    def advance(self, text: str, behavior: Behavior) -> None:
        """Advance to the state after a command."""

    @abstractmethod
    def report(self, data: bytes) -> None:
        """Write to standard error."""

    @property
    def state(self) -> State:
        """See `Scope.state`."""
        return self.asking.state

    def _is_on(self, option: str) -> bool:
        return bool(self.state.before.document["settings"].get(f"-o {option}"))

    def value_of(self, name: str) -> Value | None:
        """Return the variable of this name, without following a reference; None if missing."""
        is_text = name in self.asking.set_here
        return Value.of(self.state.before.document, name, is_text=is_text)

    def carry(self, **what: Any) -> None:
        """Update fields of `Carried`, the state that the shell carries to the next input."""
        self.own.carried = replace(self.own.carried, **what)

    def variable(self, name: str) -> str | None:
        """See `Scope.variable`."""
        if name == "?":
            return str(self.status)
        if name == "BASH_SUBSHELL":
            return str(self.place.level)
        if name == "LINENO":
            return str(self.place.line)
        if name == "_" and self.own.last is not None:
            return self.own.last
        if name == "OLDPWD":
            left = self.own.carried.left
            return None if left is None else known_place(left)
        if name == "BASH_EXECUTION_STRING" and not self.state.history:
            return self.input
        if name == "0":
            return self.own.name
        if name == "-":
            on = (letter for letter, option in _LETTERS.items() if self._is_on(option))
            if self.place.scripts and self.place.refused != 127:
                raise Abstained("$- of a script")
            return "".join((*on, "c"))
        if name == "!" and not any("&" in text for text in self.state.history):
            return max(self.children, default=None)
        if name == "SHELLOPTS":
            settings = self.state.before.document["settings"].items()
            return ":".join(sorted(key[3:] for key, on in settings if key[:3] == "-o " and on))
        if name in _CONSTANT:
            if any("SECONDS=" in text for text in (self.input, *self.state.history)):
                raise Abstained("SECONDS is set")
            return _CONSTANT[name]
        if name == "BASH_COMMAND" and self.own.command is not None:
            return self.own.command
        asked, name = name, self.resolved(name)
        name = name if name == asked else self.target(name)
        if name.endswith(("[@]", "[*]")):
            array = self.array(name[:-3])
            return None if array is None else " ".join(array.items.values())
        if name in UNKNOWN:
            raise Abstained(f"${name} is not supported")
        name, key = item_of(name)
        if name in _ARRAYS:
            if self.array(name) is None:
                return None
            return element(Value(array=self.array(name)), key, self.variable)
        if not name.isidentifier() or name in _SPECIAL or name.startswith("BASH"):
            return os.fsdecode(self.ask(Call(f'printf %s "${name}"'), separate=True).stdout or b"")
        try:
            value = element(self.value_of(name), key, self.variable)
            return "1" if value is None and name == "OPTIND" else value
        except BadSubscript:
            if self.tries:
                raise Complaint(f"{name}: bad array subscript") from None
            self.complain(f"{name}: bad array subscript")
            return None

    def resolved(self, name: str) -> str:
        """See `Scope.resolved`."""
        return resolved(self.state.before.document, name)

    def target(self, name: str) -> str:
        """Return the name of a variable or element, with its subscript expanded."""
        base, key = item_of(name)
        if key is None or key in ("@", "*") or not re.search(r"[$`'\"\\]", key):
            return name
        array = self.array(base)
        is_text = array is not None and array.associative
        key = self.expander.text(key) if is_text else str(self.expander.number(key))
        return f"{base}[{key}]"

    def attributes(self, name: str) -> str:
        """See `Scope.attributes`."""
        return attributes(self.value_of(self.resolved(name)))

    def array(self, name: str) -> Array | None:
        """See `Scope.array`."""
        if name == "PIPESTATUS":
            return Array({str(n): str(one) for n, one in enumerate(self.result.statuses)})
        if name == "BASH_REMATCH":
            return self.own.matched
        calls = self.place.stack
        if name in ("FUNCNAME", "BASH_LINENO", "BASH_SOURCE"):
            if self.place.scripts:
                raise Abstained(f"{name} inside a script")
            part = {"FUNCNAME": 0, "BASH_LINENO": 1, "BASH_SOURCE": 2}[name]
            items = {str(n): str(call[part]) for n, call in enumerate(reversed(calls))}
            return Array(items) if items else None
        value = self.value_of(self.resolved(name))
        return None if value is None else value.array

    def assign(self, name: str, value: str) -> None:
        """See `Scope.assign`.

        Errors: Abstained for a value longer than `LONGEST_VALUE`, and for special variables.
        Complaint for a variable that cannot be set.
        """
        if len(value) > LONGEST_VALUE:
            raise Abstained(f"the variable {name} is too long")
        if name == "_":
            return  # the next command sets the variable again
        old = self.value_of(name) if name.isidentifier() else None
        if old is not None and "n" in old.flags and not old.text:
            self.refer(name, old, value)
            return
        asked, name = name, self.resolved(name)
        name = name if name == asked else self.target(name)
        if name.endswith(("[@]", "[*]")):
            raise Complaint(f"{name}: bad array subscript")
        if name in _FIXED:
            raise Complaint(f"{name}: readonly variable")
        if name.startswith("BASH") and not self.asking.executes:
            raise Abstained(f"{name} is set")
        if is_special(name):
            self._set_special(name, f"{name}={quoted(value)}")
            if name == "OLDPWD":
                self.carry(left=value)
            return
        name, key = item_of(name)
        old = self.value_of(name) or Value()
        text = self.converted(value, old.flags)
        array = old.array
        if array is None and key is not None:
            array = Array({} if old.text is None else {"0": old.text})
        if array is None:
            self.store(name, replace(old, text=text))
            return
        if key is not None and not array.associative:
            try:
                key = array.subscript(self.number(key))
            except BadSubscript:
                raise Complaint(f"{name}[{key}]: bad array subscript") from None
        array = array.with_item(key or "0", text)
        self.store(name, Value(None, array, old.flags))

    def refer(self, name: str, old: Value, target: str) -> None:
        """Make a reference stand for another variable. Errors: Complaint for an invalid name."""
        if not REFERENCE.fullmatch(target):
            raise Complaint(f"`{target}': not a valid identifier")
        self.store(name, replace(old, text=target))

    def _set_special(self, name: str, text: str) -> None:
        """Run the assignment `text` if only the runner can determine the variable's new value."""
        behavior = self.ask(Call(text))
        self.advance(text, behavior)
        self.report(behavior.output)
        self.result.substituted = behavior.exit_code or self.result.substituted

    def complain(self, said: str) -> None:
        """Write one of Bash's own messages to standard error."""
        self.report(os.fsencode(f"{self.message_prefix()}{said}\n"))

    def usage(self, name: str, word: str, usage: str) -> None:
        """Fail like Bash for an invalid option, which is the first letter of `word`."""
        self.complain(f"{name}: {word[:2]}: invalid option")
        self.report(os.fsencode(f"{name}: usage: {usage}\n"))
        self.status = 2

    def message_prefix(self) -> str:
        """Return the prefix of Bash's messages at this point."""
        # a function without a file: under `bash -c`, messages show `environment`
        where = "environment" if self.place.calls and self.place.file == "bash" else self.place.file
        return f"{where}: {'' if self.place.is_dash else 'line '}{self.place.line}: "

    def hide(self, name: str) -> None:
        """Make a variable local to the innermost function, unset until assigned.

        A variable from an assignment before the function's name keeps its value.
        """
        place = max(n for n, one in enumerate(self.own.frames) if not one.temporary)
        frame = self.own.frames[place].hidden
        above = self.own.frames[place + 1 :]
        if name in frame or any(name in one.hidden for one in above):
            return
        frame[name] = old = self.value_of(name)
        outer = [one for one in self.own.frames[:place] if name in one.hidden]
        if outer and outer[-1].temporary:
            if place and outer[-1] is self.own.frames[place - 1]:
                frame[name] = outer[-1].hidden.pop(name)
            return
        if old is not None:
            self.store(name, None)

    @contextmanager
    def function(self, name: str, arguments: Sequence[str], file: str) -> Iterator[None]:
        """Provide the scope and parameters for a block that runs a function defined in `file`."""
        saved, place = self.own.carried.arguments, self.place
        called = name, place.line, "environment" if file == "bash" else file
        self.place = replace(place, file=file, loops=0, stack=(*place.stack, called))
        self.carry(arguments=tuple(arguments))
        self.place.calls += 1
        try:
            with self.scope(Frame()):
                yield
        finally:
            self.place = place
            self.carry(arguments=saved)

    @contextmanager
    def scope(self, frame: Frame) -> Iterator[None]:
        """Restore the variables that the frame hides, at the end of the block."""
        self.own.frames.append(frame)
        try:
            yield
        finally:
            for name, value in self.own.frames.pop().hidden.items():
                self._put_back(name, value)

    def _put_back(self, name: str, value: Value | None) -> None:
        """Restore a variable, even a readonly one."""
        now = self.value_of(name)
        if now is not None and "r" in now.flags:
            if self.asking.executes:
                raise Abstained("a constant of a function")
            patch = stored(self.state.before.document, name, value)
            self.advance("", Behavior(exit_code=0, output=b"", patch=patch))
            return
        if now != value:
            self.store(name, value)

    def forget(self, name: str) -> None:
        """Unset a variable; if several have this name, the visible one.

        A local variable of the running function remains local, without a value.
        """
        functions = [frame for frame in self.own.frames if not frame.temporary]
        temporary = any(frame.temporary and name in frame.hidden for frame in self.own.frames)
        if temporary and self.place.level:
            raise Abstained("unset, in a subshell, of a variable that precedes a command")
        for frame in reversed(self.own.frames):
            if name in frame.hidden:
                if frame is functions[-1]:
                    self.store(name, Value())
                else:
                    self._put_back(name, frame.hidden.pop(name))
                return
        if self.value_of(name) is not None:
            self.store(name, None)

    def export(self, name: str) -> None:
        """Export a variable."""
        value = self.value_of(name) or Value()
        self.store(name, replace(value, flags=value.flags | {"x"}))

    def is_set(self, name: str) -> bool:
        """Whether a variable, an element or a positional parameter has a value."""
        if name.isdecimal():
            return int(name) <= len(self.arguments)
        name = self.target(name)
        base, key = item_of(name)
        if base in _ARRAYS and key in ("@", "*"):
            array = self.array(base)
            return array is not None and bool(array.items)
        if base in _ARRAYS or base in ("OLDPWD", "SHELLOPTS"):
            return self.variable(name) is not None
        return is_set(self.state, name)

    def remember_match(self, groups: Sequence[str]) -> None:
        """Set `BASH_REMATCH`."""
        self.own.matched = Array({str(n): one for n, one in enumerate(groups)})

    def number(self, expression: str) -> int:
        """Evaluate an arithmetic expression."""
        return evaluate(expression, self.variable, self.assign)

    def converted(self, value: str, flags: frozenset[str]) -> str:
        """Convert a value according to a variable's attributes."""
        if "i" in flags:
            return str(self.number(value))
        if flags & frozenset("lu"):
            return value.lower() if "l" in flags else value.upper()
        return value

    def store(self, name: str, value: Value | None) -> None:
        """Set a variable, or unset it (None).

        Errors: Complaint for a readonly variable; Abstained if setting it has other effects.
        """
        document = self.state.before.document
        old = self.value_of(name)
        if old is not None and "r" in old.flags:
            raise Complaint(f"{name}: readonly variable")
        if is_special(name):
            raise Abstained(f"{name} is more than a variable")
        if value is not None:
            is_locale = re.fullmatch(r"LANG|LC_\w+", name) and value.text in ("C", "POSIX")
            if is_locale and re.search(r"[^\0-\x7f]|\\[uUx]", self.input):
                raise Abstained("another locale, and text that is not ASCII")
            if document["settings"].get("-o allexport"):
                value = replace(value, flags=value.flags | {"x"})
            if value.text is not None and _SURROGATE.search(value.text):
                raise Abstained("a value that is not text")
        text = f"unset -v {name}" if value is None else f"declare -g {value.declaration(name)[8:]}"
        if old is not None and "n" in old.flags:
            text = f"unset -n {name}" if value is None else f"unset -n {name}; {text}"
        if value is not None and not value.flags and value.array is None and value.text is not None:
            text = f"{name}={quoted(value.text)}"
        if name == "OPTIND":  # 1 restarts getopts; another number keeps its offset in the word
            begins = value is not None and value.text == "1"
            self.own.cluster = -1 if self.own.cluster and not begins else 0
        patch = stored(document, name, value)
        self.advance(text, Behavior(exit_code=0, output=b"", patch=patch))
