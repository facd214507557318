"""A parser for items, the text to the right of `=` and `start` in grammar files.

A blank separates arguments, and `{…}` with a blank in it is one argument. `<name>` is a
nonterminal, `( | )` a group, `%word` an attribute. `* + ?` directly after a nonterminal or a group
is repetition. Shell quoting has its usual meaning. The result is a syntax tree.
docs/reference/grammar-format.md describes the notation for authors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby
from typing import TypeAlias

from shioenv.bash.words import CLOSING, OPENINGS, quotation_end
from shioenv.errors import GrammarError, nearest


class FaultKind(StrEnum):
    """The kinds of fault, each with its stable code (documented in docs/errors.md)."""

    SYNTAX = "SHIO-G10"
    HEADER = "SHIO-G11"
    UNDEFINED = "SHIO-G12"
    UNREACHABLE = "SHIO-G13"
    ENDLESS = "SHIO-G14"
    DUPLICATE = "SHIO-G15"
    TOO_LONG = "SHIO-G16"
    SEVERAL_ARGUMENTS = "SHIO-G17"
    EXAMPLE = "SHIO-G18"
    KIND = "SHIO-G19"


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One fault in a file. Lines and columns count from 1."""

    path: str
    line: int
    column: int
    message: str
    kind: FaultKind = field(compare=False)

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}: {self.message} ({self.kind.value})"


class FaultyGrammarError(GrammarError):
    """All faults found in one or more grammar files, in the order of the files."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults: Sequence[Fault] = sorted(set(faults))
        count = len(self.faults)
        heading = f"{count} fault{'s' * (count != 1)} in the grammar"
        super().__init__("\n".join([heading, *map(str, self.faults)]))


def suggestion(word: str, known: Iterable[str], show: str = "{}") -> str:
    """Return `; did you mean X?` if a known word resembles `word`, else ""."""
    match = nearest(word, known)
    return f"; did you mean {show.format(match)}?" if match else ""


NO_SPACE = "<ns>"
_REFERENCE = re.compile(r"<([A-Za-z][A-Za-z0-9.-]*)>")
_ATTRIBUTE = re.compile(r"%([a-z][a-z-]+)(?=\s|$)")
_BRACE_EXPANSION = re.compile(r",|\.\.")
_BLANKS = re.compile(r"[ \t]*")
_PLAIN = re.compile(r"[A-Za-z0-9_.,:/=@-]+")
_DOUBLE_QUOTED = re.compile(r'"(?:\\.|[^"\\])*\\?"?')
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?(?=\s|$)")
ATTRIBUTES = (
    "weight", "alone", "separate", "joined", "no-clusters", "repeats", "volatile", "clock",
    "wrong",
)  # fmt: skip

MOST_NESTED = 30
"""Maximum nesting of groups (our choice)."""

ReportFault: TypeAlias = Callable[[FaultKind, str, int], None]
"""Records a fault: its kind, its message, and its column (from 1)."""


@dataclass(slots=True)
class LiteralText:
    """Literal text of an argument."""

    text: str


@dataclass(slots=True)
class Reference:
    """`<name>`, with the repetition sign after it ("" if none); `quoted` inside quotes."""

    name: str
    column: int
    quoted: bool = False
    repeat: str = ""


@dataclass(slots=True)
class ChoiceGroup:
    """`( … | … )`, with the repetition sign after it ("" if none)."""

    alternatives: list[Alternative]
    column: int
    repeat: str = ""


Piece: TypeAlias = LiteralText | Reference | ChoiceGroup


@dataclass(slots=True)
class NotationWord:
    """One argument: pieces without a blank between them, or a brace group."""

    pieces: list[Piece]
    column: int


@dataclass(slots=True)
class Attributes:
    """The `%` words at the end of an alternative or option line."""

    weight: float = 1.0
    flags: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Alternative:
    """One right-hand side: words separated by blanks."""

    words: list[NotationWord]
    attributes: Attributes
    column: int


class NotationReader:
    """Reads items from one line of text, from `position` to the end."""

    def __init__(self, text: str, position: int, report: ReportFault) -> None:
        self.text = text
        self.position = position
        self.report = report
        self._braces: dict[int, tuple[int | None, bool]] = {}
        """For the index of each opening brace: the index of its closing brace, or None, and whether
        there is a blank between them."""

    # Characters ----------------------------------------------------------------------------

    @property
    def rest(self) -> str:
        """The unread text."""
        return self.text[self.position :]

    @property
    def column(self) -> int:
        """The current column, from 1."""
        return self.position + 1

    def peek(self, offset: int = 0) -> str:
        """Return the character at `offset` from the position, "" past the end."""
        index = self.position + offset
        return self.text[index] if index < len(self.text) else ""

    def skip_blanks(self) -> None:
        """Advance to the next non-blank character, or to the end if a comment begins."""
        blanks = _BLANKS.match(self.text, self.position)
        self.position = blanks.end() if blanks else self.position
        if self.peek() == "#" and self.text[self.position - 1 : self.position] in ("", " ", "\t"):
            self.position = len(self.text)

    # Structure -----------------------------------------------------------------------------

    def alternatives(self, depth: int = 0) -> list[Alternative]:
        """Parse alternatives separated by bars, up to the end of the line or of the group."""
        alternatives: list[Alternative] = []
        while True:
            self.skip_blanks()
            start = self.column
            words, attributes = self.sequence(depth)
            edge = not alternatives or not self.peek()
            if words or depth:
                alternatives.append(Alternative(words, attributes, start))
            elif not edge:
                self.report(
                    FaultKind.SYNTAX, "empty alternative; write () for the empty text", start
                )
            if self.peek() != "|":
                return alternatives
            self.position += 1

    def sequence(self, depth: int = 0) -> tuple[list[NotationWord], Attributes]:
        """Parse words and their attributes, up to a bar, a closing parenthesis or the end."""
        words: list[NotationWord] = []
        attributes = Attributes()
        while True:
            self.skip_blanks()
            character = self.peek()
            if not character or character == "|" or (character == ")" and depth):
                return words, attributes
            if character == ")":
                self.report(FaultKind.SYNTAX, "unmatched `)`", self.column)
                self.position += 1
            elif character == "%" and _ATTRIBUTE.match(self.text, self.position):
                self.attribute(attributes)
            else:
                words.append(self.word(depth))

    def attribute(self, attributes: Attributes) -> None:
        """Parse one `%word` with its value into `attributes`."""
        match = _ATTRIBUTE.match(self.text, self.position)
        assert match is not None
        column, name = self.column, match[1]
        self.position = match.end()
        self.skip_blanks()
        if name == "weight":
            number = _NUMBER.match(self.text, self.position)
            if number and float(number[0]) > 0:
                attributes.weight = float(number[0])
                self.position = number.end()
            else:
                message = "%weight needs a positive number: %weight 0.5"
                self.report(FaultKind.SYNTAX, message, column)
        elif name in ATTRIBUTES:
            attributes.flags.add(name)
        else:
            hint = suggestion(name, ATTRIBUTES, "%{}")
            message = f"unknown attribute %{name}{hint}; quote it if it is text"
            self.report(FaultKind.SYNTAX, message, column)

    def word(self, depth: int = 0, stop: str = "") -> NotationWord:
        """Parse one argument; a character in `stop` ends it, as a blank does."""
        column = self.column
        end = self.brace_group_end() if not stop else None
        if end is None:
            return NotationWord(self.pieces(depth, len(self.text), stop=stop, braces=False), column)
        self.position += 1
        pieces = self.pieces(depth, end, stop="", braces=True)
        self.position = end + 1
        if self.peek() in {"*", "+", "?"}:
            message = f"`{self.peek()}` cannot repeat braces; use parentheses"
            self.report(FaultKind.SYNTAX, message, self.column)
            self.position += 1
        return NotationWord(pieces, column)

    def brace_group_end(self) -> int | None:
        """Return the end of the brace group at the position; None if no such group begins there.

        Braces without a blank in them may be literal shell text, like `{}` and `{a,b}`.
        """
        if self.peek() != "{":
            return None
        if self.position not in self._braces:
            self._match_braces()
        index, has_blank = self._braces[self.position]
        if index is None:
            return None
        first, after = self.position + 1, self.text[index + 1 : index + 2]
        ends = after == "" or after in " \t|)*+?"
        groups = has_blank or (
            index > first and not _BRACE_EXPANSION.search(self.text, first, index)
        )
        return index if groups and ends else None

    def _match_braces(self) -> None:
        """Find the closing brace of each opening one from the position on, in one pass."""
        opened: list[tuple[int, int]] = []
        blanks = 0
        for index, character in self.unquoted():
            if character == "{":
                opened.append((index, blanks))
            elif character == "}" and opened:
                first, before = opened.pop()
                self._braces[first] = index, blanks > before
            elif character in " \t":
                blanks += 1
        self._braces |= {first: (None, False) for first, _ in opened}

    def unquoted(self) -> Iterator[tuple[int, str]]:
        """Yield each unquoted character from the position on, with its index."""
        index = self.position
        while index < len(self.text):
            end = self.quoted_end(index)
            if end == index:
                yield index, self.text[index]
                index += 1
            else:
                index = end

    def quoted_end(self, index: int) -> int:
        """Return the end of the quoted text that starts at `index`; `index` if none starts."""
        text = self.text
        if double := _DOUBLE_QUOTED.match(text, index):
            return double.end()
        if not text.startswith(OPENINGS, index):
            return quotation_end(text, index)
        opening, nesting = text[index + 1], 0
        for end in range(index + 1, len(text)):
            nesting += (text[end] == opening) - (text[end] == CLOSING[opening])
            if not nesting:
                return end + 1
        return len(text)

    def pieces(self, depth: int, limit: int, *, stop: str, braces: bool) -> list[Piece]:
        """Parse the pieces of one argument, up to a blank (in braces: up to `limit`)."""
        pieces: list[Piece] = []
        while self.position < limit:
            if plain := _PLAIN.match(self.text, self.position):  # the most common case
                pieces.append(LiteralText(plain[0]))
                self.position = plain.end()
                continue
            character = self.peek()
            if not braces and (character in " \t|" or (character == ")" and depth)):
                break
            if character in stop:
                break
            if character == "(":
                pieces.append(self.group(depth))
            elif character in "|)":
                self.report(FaultKind.SYNTAX, f"`{character}` inside braces", self.column)
                self.position += 1
            elif match := _REFERENCE.match(self.text, self.position):
                pieces.append(self.reference(match))
            else:
                pieces.extend(self.literal())
        return _merged(pieces)

    def reference(self, match: re.Match[str]) -> Piece:
        """Parse a nonterminal with its repetition sign, or the no-space mark."""
        column = self.column
        self.position = match.end()
        if match[0] == NO_SPACE:
            return LiteralText(NO_SPACE)
        return Reference(match[1], column, repeat=self.repetition())

    def repetition(self) -> str:
        """Parse the repetition sign at the position, "" if there is none."""
        sign = self.peek()
        if sign and sign in "*+?" and not (sign == "+" and self.peek(1) == "="):
            self.position += 1
            return sign
        return ""

    def group(self, depth: int) -> ChoiceGroup:
        """Parse a parenthesised choice with its repetition sign."""
        column = self.column
        self.position += 1
        if depth == MOST_NESTED:
            message = f"groups are nested at most {MOST_NESTED} levels deep"
            self.report(FaultKind.SYNTAX, message, column)
            self.report = lambda kind, message, column: None  # one fault per line is enough
            self.position = len(self.text)
            return ChoiceGroup([], column)
        alternatives = self.alternatives(depth + 1)
        if self.peek() == ")":
            self.position += 1
        else:
            self.report(FaultKind.SYNTAX, "`(` is not closed", column)
        return ChoiceGroup(alternatives, column, repeat=self.repetition())

    def literal(self) -> list[Piece]:
        """Parse one literal character, or a quoted text with the nonterminals inside it."""
        start = self.position
        end = self.quoted_end(start)
        if end == start:
            self.position += 1
            return [LiteralText(self.text[start])]
        quoted = self.text[start:end]
        closing = {"'": "'", '"': '"', "`": "`", "$": ")}'", "<": ")", ">": ")"}.get(quoted[0])
        if closing and (len(quoted) < 2 or quoted[-1] not in closing):
            self.report(FaultKind.SYNTAX, f"`{quoted[0]}` is not closed", self.column)
        self.position = end
        if quoted[0] == "\\":
            return [LiteralText(quoted)]
        pieces: list[Piece] = []
        index = 0
        for match in _REFERENCE.finditer(quoted):
            if match[0] == NO_SPACE:
                continue
            pieces.append(LiteralText(quoted[index : match.start()]))
            pieces.append(Reference(match[1], start + match.start() + 1, quoted=True))
            index = match.end()
        pieces.append(LiteralText(quoted[index:]))
        return pieces


def _merged(pieces: list[Piece]) -> list[Piece]:
    """Return the pieces with adjacent texts merged."""
    merged: list[Piece] = []
    for is_text, same in groupby(pieces, lambda piece: isinstance(piece, LiteralText)):
        if not is_text:
            merged += same
        elif text := "".join(piece.text for piece in same if isinstance(piece, LiteralText)):
            merged.append(LiteralText(text))
    return merged
