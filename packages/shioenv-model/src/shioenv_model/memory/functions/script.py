"""Parser of sed(1) scripts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from shioenv_model.memory.functions.substitute import check_choice, pattern_of, replacement_of

_ENDS = "\n;}"
_ALONE = "dDpPnNgGhHxz="
"""Commands without arguments."""
_OTHERS = "eFlrRvwW"
"""Known commands that are not supported here."""


class RefusedScriptError(ValueError):
    """An invalid script. The message is sed's, without the name of the script.

    `code` is sed's exit code.
    """

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Address:
    """An address, which selects lines for a command."""

    kind: str
    """`line`, `last`, `pattern`, `step`, `more` (a number of further lines) or `multiple`."""
    first: int = 0
    step: int = 0
    pattern: re.Pattern[str] | None = None
    """None for the empty pattern, which repeats the last search."""


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
    """Parse a script. `syntax` is that of its patterns, `basic` or `extended`.

    Errors: RefusedScriptError for a script that sed rejects. ValueError for other invalid scripts,
    and for one that uses other files. OverflowError and re.error for its patterns.
    """
    found = _Reader(text, syntax).commands()
    every = list(_every(found))
    labels = {one.label for one in every if one.name == ":"}
    for one in reversed(every):  # the last one is reported
        if one.name in "btT" and one.label and one.label not in labels:
            raise RefusedScriptError(f"can't find label for jump to `{one.label}'", 4)
    return found


def _every(commands: Iterable[EditCommand]) -> Iterator[EditCommand]:
    """Yield the commands, and recursively those inside them."""
    for one in commands:
        yield one
        yield from _every(one.inner)


class _Reader:
    """A recursive-descent parser of scripts."""

    def __init__(self, script: str, syntax: str) -> None:
        self._script, self._syntax, self._at = script, syntax, 0
        self._braces = 0
        """Number of open braces."""

    def commands(self, *, inner: bool = False) -> tuple[EditCommand, ...]:
        """Parse commands up to the end, or up to a closing brace."""
        found: list[EditCommand] = []
        while True:
            self._skip(" \t\n;")
            if self._at >= len(self._script):
                if inner:
                    self._at = 0
                    raise self._refused("unmatched `{'")
                return tuple(found)
            if self._peek() == "}":
                self._at += 1
                if not inner:
                    raise self._refused("unexpected `}'")
                self._end_of_command()
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
                self._at += 1
                raise self._refused("unexpected `,'")
            self._skip(" \t")
        if start == Address("line") and (end is None or end.kind != "pattern"):
            self._at += 1
            raise self._refused("invalid usage of line address 0")
        made = EditCommand("", start, end)
        while self._peek() == "!":
            self._at += 1
            if made.negated:
                raise self._refused("multiple `!'s")
            made.negated = True
            self._skip(" \t")
        made.name = self._take()
        self._check(made)
        self._arguments(made)
        return made

    def _refused(self, message: str) -> RefusedScriptError:
        """Return the error for the character that was read last."""
        place = min(self._at, len(self._script))
        return RefusedScriptError(f"char {place}: {message}")

    def _check(self, made: EditCommand) -> None:
        """Reject an unknown command, or addresses that the command does not accept."""
        if not made.name:
            raise self._refused("missing command")
        if made.name == "}":
            raise self._refused(
                "`}' doesn't want any addresses" if self._braces else "unexpected `}'"
            )
        if made.start is not None and made.name in ":#":
            raise self._refused(
                ": doesn't want any addresses"
                if made.name == ":"
                else "comments don't accept any addresses"
            )
        if made.end is not None and made.name in "qQ":
            raise self._refused("command only uses one address")
        if made.name in "+~":
            raise ValueError("this kind of address cannot be the first one")
        if made.name not in "{}sy#aicbtT:qQ" + _ALONE + _OTHERS:
            raise self._refused(f"unknown command: `{made.name}'")

    def _arguments(self, made: EditCommand) -> None:
        name = made.name
        if name == "{":
            self._braces += 1
            made.inner = self.commands(inner=True)
            self._braces -= 1
            return
        if name == "s":
            self._substitution(made)
        elif name == "y":
            self._exchange(made)
        elif name in "aic":
            made.text = self._text()
            return
        elif name in "btT:":
            self._skip(" \t")
            made.label = self._until(_ENDS + " \t#")
            if name == ":" and not made.label:
                raise self._refused('":" lacks a label')
            return  # a blank after a label ends the command
        elif name in "qQ":
            self._skip(" \t")
            made.number = int(self._digits() or "0")
        elif name not in _ALONE:
            raise ValueError(name)
        self._end_of_command()

    def _end_of_command(self) -> None:
        """Reject extra text after a command."""
        self._skip(" \t")
        if self._peek() not in ("", *_ENDS, "#"):
            self._at += 1
            raise self._refused("extra characters after command")

    def _address(self, *, second: bool = False) -> Address | None:
        character = self._peek()
        if character.isdigit():
            number = int(self._digits())
            if self._peek() == "~":
                self._at += 1
                self._skip(" \t")
                step = int(self._digits() or "0")
                return Address("step", number, step) if step else Address("line", number)
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
            source = self._part(delimiter, "unterminated address regex")
            folds = False
            self._skip(" \t")
            while self._peek() in ("I", "M"):
                if self._take() == "M":
                    raise ValueError("flag M of an address is not supported")
                folds = True
                self._skip(" \t")
            return Address("pattern", pattern=self._pattern(source, folds) if source else None)
        return None

    def _pattern(self, source: str, folds: bool) -> re.Pattern[str]:
        return pattern_of(source, self._syntax, folds)

    def _substitution(self, made: EditCommand) -> None:
        delimiter = self._take()
        if delimiter in ("\n", "\\"):
            raise ValueError("a newline or backslash cannot be a delimiter")
        unended = "unterminated `s' command"
        source = self._part(delimiter, unended)
        by = self._part(delimiter, unended, replaces=True)
        folds = self._flags(made)
        if source:
            check_choice(source)
            made.pattern = self._pattern(source, folds)
        made.replacement = replacement_of(by)
        groups = made.pattern.groups if made.pattern else 9
        missing = [each for each in made.replacement if isinstance(each, int) and each > groups]
        if missing:
            self._at += self._peek() != "}"
            raise self._refused(f"invalid reference \\{max(missing)} on `s' command's RHS")

    def _flags(self, made: EditCommand) -> bool:
        """Parse the flags of a substitution; return whether case is ignored."""
        folds, seen = False, set[str]()
        self._skip(" \t")
        while self._peek() not in ("", *_ENDS, "#"):
            flag = self._take()
            kind = "number" if flag.isdigit() else f"`{flag}'"
            if flag in "mMew":
                raise ValueError("a flag that is not read here")
            if flag not in "gpiI" and not flag.isdigit():
                raise self._refused("unknown option to `s'")
            if kind in seen and flag not in "iI":
                raise self._refused(f"multiple {kind} options to `s' command")
            if flag.isdigit():
                self._at -= 1
                made.nth = int(self._digits())
                if not made.nth:
                    raise self._refused("number option to `s' command may not be zero")
            made.everywhere |= flag == "g"
            made.printed |= flag == "p"
            folds |= flag in "iI"
            seen.add(kind)
            self._skip(" \t")
        return folds

    def _exchange(self, made: EditCommand) -> None:
        delimiter, unended = self._take(), "unterminated `y' command"
        these, by = (_plain(self._part(delimiter, unended, replaces=True)) for _ in range(2))
        if len(these) != len(by):
            raise self._refused("strings for `y' command are different lengths")
        for old, new in zip(these, by, strict=True):
            made.table.setdefault(ord(old), new)

    def _part(self, delimiter: str, unended: str, *, replaces: bool = False) -> str:
        r"""Return the text up to the next delimiter that is not in brackets or escaped by `\`.

        Errors: RefusedScriptError with the message `unended`, if there is none.
        """
        made: list[str] = []
        bracket = False
        while True:
            character = self._take()
            if not character:
                raise self._refused(unended)
            if character == "\n" and not replaces:
                raise ValueError("a part of several lines")
            if character == delimiter and not bracket:
                return "".join(made)
            if character == "\\" and not bracket:
                follows = self._take()
                if not follows:
                    raise self._refused(unended)
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
                    self._at = len(self._script)
                    raise self._refused(unended)
                made.append(f"[{kind}{self._script[self._at : end]}{kind}]")
                self._at = end + 2
                continue
            if character == "]" and bracket:
                bracket = False
            made.append(character)

    def _text(self) -> str:
        r"""Parse the text of `a`, `i` and `c`: up to the end of a line without a trailing `\`."""
        self._skip(" \t")
        if not self._peek():
            raise self._refused("expected \\ after `a', `c' or `i'")
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
