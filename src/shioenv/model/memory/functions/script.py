"""Scripts of addresses and commands, read (sed(1))."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from shioenv.model.memory.functions.substitute import check_choice, pattern_of, replacement_of

_ENDS = "\n;}"
_ALONE = "dDpPnNgGhHxz="
"""Commands that stand alone."""


@dataclass(frozen=True)
class Address:
    """Which lines a command is for."""

    kind: str
    """`line`, `last`, `pattern`, `step`, `more` (so many lines more) or `multiple`."""
    first: int = 0
    step: int = 0
    pattern: re.Pattern[str] | None = None
    """None for the empty pattern: the one that was searched for last."""


@dataclass
class EditCommand:
    """One command of a script."""

    name: str
    start: Address | None = None
    end: Address | None = None
    negated: bool = False
    pattern: re.Pattern[str] | None = None
    replacement: tuple[str | int, ...] = ()
    nth: int = 1
    everywhere: bool = False
    printed: bool = False
    table: dict[int, str] = field(default_factory=dict)
    text: str = ""
    number: int = 0
    label: str = ""
    inner: tuple[EditCommand, ...] = ()


def read_script(text: str, syntax: str) -> tuple[EditCommand, ...]:
    """The commands of a script. `syntax` is that of its patterns, `basic` or `extended`.

    Errors: ValueError for a broken script, and for one that uses other files.
    """
    return _Reader(text, syntax).commands()


class _Reader:
    """Reads a script."""

    def __init__(self, script: str, syntax: str) -> None:
        self._script, self._syntax, self._at = script, syntax, 0

    def commands(self, *, inner: bool = False) -> tuple[EditCommand, ...]:
        """The commands up to the end, or up to a closing brace."""
        found: list[EditCommand] = []
        while True:
            self._skip(" \t\n;")
            if self._at >= len(self._script):
                if inner:
                    raise ValueError("a brace is not closed")
                return tuple(found)
            if self._peek() == "}":
                if not inner:
                    raise ValueError("a brace is not opened")
                self._at += 1
                self._skip(" \t")
                return tuple(found)
            if self._peek() == "#":
                self._line()
                continue
            found.append(self._command())

    def _command(self) -> EditCommand:
        start, end = self._address(), None
        self._skip(" \t")
        if start is not None and self._peek() == ",":
            self._at += 1
            self._skip(" \t")
            end = self._address(second=True)
            if end is None:
                raise ValueError("an address is missing behind the comma")
            self._skip(" \t")
        made = EditCommand("", start, end)
        while self._peek() == "!":
            made.negated = True
            self._at += 1
            self._skip(" \t")
        made.name = self._take()
        self._arguments(made)
        return made

    def _arguments(self, made: EditCommand) -> None:
        name = made.name
        if name == "{":
            made.inner = self.commands(inner=True)
            return
        if name == "s":
            self._substitution(made)
        elif name == "y":
            self._exchange(made)
        elif name in "aic" and name:
            made.text = self._text()
            return
        elif name in "btT:" and name:
            self._skip(" \t")
            made.label = self._until(_ENDS if name != ":" else "\n;")
        elif name in "qQ" and name:
            self._skip(" \t")
            digits = self._until(_ENDS + " ")
            made.number = int(digits or "0")
        elif not name or name not in _ALONE:
            raise ValueError(name)
        self._skip(" \t")
        if self._peek() not in ("", *_ENDS, "#"):
            raise ValueError("there is something behind the command")

    def _address(self, *, second: bool = False) -> Address | None:
        character = self._peek()
        if character.isdigit():
            number = int(self._digits())
            if self._peek() == "~":
                self._at += 1
                return Address("step", number, int(self._digits() or "0"))
            return Address("line", number)
        if character == "$":
            self._at += 1
            return Address("last")
        if second and character in ("+", "~"):
            self._at += 1
            return Address("more" if character == "+" else "multiple", int(self._digits()))
        if character in ("/", "\\"):
            self._at += 1
            delimiter = "/" if character == "/" else self._take()
            source = self._part(delimiter)
            folds = False
            while self._peek() in ("I", "M") and self._peek():
                if self._take() == "M":
                    raise ValueError("several lines in one")
                folds = True
            return Address("pattern", pattern=self._pattern(source, folds) if source else None)
        return None

    def _pattern(self, source: str, folds: bool) -> re.Pattern[str]:
        return pattern_of(source, self._syntax, folds)

    def _substitution(self, made: EditCommand) -> None:
        delimiter = self._take()
        if delimiter in ("", "\n", "\\"):
            raise ValueError("a delimiter is missing")
        source, by = self._part(delimiter), self._part(delimiter, replaces=True)
        folds = False
        digits = ""
        while self._peek() and self._peek() in "gpiI0123456789":
            flag = self._take()
            made.everywhere |= flag == "g"
            made.printed |= flag == "p"
            folds |= flag in "iI"
            digits += flag if flag.isdigit() else ""
        made.nth = int(digits or "1")
        if made.nth == 0:
            raise ValueError("the zeroth occurrence")
        if source:
            check_choice(source)
            made.pattern = self._pattern(source, folds)
        made.replacement = replacement_of(by)
        groups = made.pattern.groups if made.pattern else 9
        if any(isinstance(each, int) and each > groups for each in made.replacement):
            raise ValueError("a group is missing")

    def _exchange(self, made: EditCommand) -> None:
        delimiter = self._take()
        these, by = (_plain(self._part(delimiter, replaces=True)) for _ in range(2))
        if len(these) != len(by):
            raise ValueError("the strings differ in length")
        for old, new in zip(these, by, strict=True):
            made.table.setdefault(ord(old), new)

    def _part(self, delimiter: str, *, replaces: bool = False) -> str:
        r"""What stands before the next delimiter, which may stand in brackets or behind `\`."""
        made: list[str] = []
        bracket = False
        while True:
            character = self._take()
            if not character or (character == "\n" and not replaces):
                raise ValueError("a part is not closed")
            if character == delimiter and not bracket:
                return "".join(made)
            if character == "\\" and not bracket:
                follows = self._take()
                if not follows:
                    raise ValueError("a part is not closed")
                made.append(
                    follows if follows == delimiter and delimiter not in "&|.*" else f"\\{follows}"
                )
                continue
            if character == "[" and not bracket and not replaces:
                bracket = True
                made.append(character)
                for first in "^]":
                    if self._peek() == first:
                        made.append(self._take())
                continue
            if character == "[" and bracket and self._peek() in (":", ".", "="):
                kind = self._take()
                end = self._script.find(f"{kind}]", self._at)
                if end < 0:
                    raise ValueError("a class is not closed")
                made.append(f"[{kind}{self._script[self._at : end]}{kind}]")
                self._at = end + 2
                continue
            if character == "]" and bracket:
                bracket = False
            made.append(character)

    def _text(self) -> str:
        r"""The text of `a`, `i` and `c`: up to the end of a line that does not end in `\`."""
        self._skip(" \t")
        if self._peek() == "\\":
            self._at += 1
            behind = self._at
            self._skip(" \t")
            self._at = self._at + 1 if self._peek() == "\n" else behind
        if self._at >= len(self._script):
            raise ValueError("a text is missing")
        made = ""
        while True:
            character = self._take()
            if character == "\\":
                follows = self._take()
                made += {"t": "\t"}.get(follows, follows)
            elif character in ("", "\n"):
                return f"{made}\n"
            else:
                made += character

    def _line(self) -> str:
        return self._until("\n")

    def _until(self, ends: str) -> str:
        start = self._at
        while self._peek() and self._peek() not in ends:
            self._at += 1
        return self._script[start : self._at].rstrip(" \t")

    def _digits(self) -> str:
        start = self._at
        while self._peek().isdigit():
            self._at += 1
        return self._script[start : self._at]

    def _skip(self, characters: str) -> None:
        while self._peek() and self._peek() in characters:
            self._at += 1

    def _peek(self) -> str:
        return self._script[self._at : self._at + 1]

    def _take(self) -> str:
        character = self._peek()
        self._at += 1
        return character


def _plain(text: str) -> str:
    return "".join(
        each if isinstance(each, str) else "&" if not each else str(each)
        for each in replacement_of(text)
    )
