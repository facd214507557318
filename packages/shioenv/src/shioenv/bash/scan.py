"""A scanner for the ends of quotations, expansions and words, by the lexical rules of Bash 5.2."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from shioenv.bash.program import Substitution
from shioenv.errors import Abstained

META = frozenset(" \t\n;&|<>()")
"""Metacharacters: they end a word outside quotes."""
NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
"""A variable's name."""

_PLAIN = re.compile(r"[^\s;&|<>()\\'\"`$\[=]+")
"""Characters of a word without special meaning."""
_NAMED = re.compile(r"\$\{(\w+|[@*])\}", re.ASCII)
_ANSI = re.compile(r"'(?:[^'\\]|\\.)*'", re.DOTALL)
_BACKQUOTED = re.compile(r"`(?:[^`\\]|\\.)*`", re.DOTALL)
_DEEPEST = 80
"""Maximum nesting of commands and expansions (our choice: more would overflow Python's stack)."""


class Refused(Abstained):
    """Bash refuses the text, or the text is nested too deeply for this parser.

    `why` is the reason and `place` the offset in characters. A runner that answers inputs without
    Bash abstains from such a text.
    """

    def __init__(self, why: str, text: str, place: int) -> None:
        self.why, self.text, self.place = why, text, place
        around = text[max(0, place - 10) : place + 20]
        super().__init__(
            f"the input cannot be parsed at {around!r}: {why}",
            hint="use a runner that does not parse inputs",
        )
        self.why, self.place = why, place


class Scanner(ABC):
    """Finds the end of a word, quotation or expansion from its start.

    A scanner inside another one (`around`) shares the text and the results of the outer one.
    """

    def __init__(
        self,
        text: str,
        place: int = 0,
        around: Scanner | None = None,
        *,
        extended: bool = False,
    ) -> None:
        self.text, self.place = text, place
        self._first: Scanner = around._first if around else self
        """The outermost scanner."""
        self._depth: int = around._depth + 1 if around else 0
        self._ends: dict[tuple[str, int], int] = around._ends if around else {}
        """The ends of expansions, quotations and brackets, by kind and start.

        This is a cache for inner constructs, which are scanned many times."""
        self.extended = extended
        """Whether words may contain extended patterns, as under `shopt -s extglob`.

        Only used in the outermost scanner."""
        self.substitutions: dict[int, Substitution] = around.substitutions if around else {}
        self.expansions: dict[int, str] = around.expansions if around else {}
        self.shortened: tuple[int, str] | None = None
        """Start of the complete commands of the innermost open list, and a text to replace them.

        With it, `bash.complete` avoids parsing these commands again for each further line. Only set
        in the outermost scanner, if an unfinished text ends directly after these commands."""
        if self._depth > _DEEPEST:
            raise self.refusal("it is nested too deeply")

    @abstractmethod
    def _read_inner(self, place: int, *, kept: bool) -> int:
        """Parse the program in the `$(`, `<(` or `>(` at `place`; return the end of the `)`.

        For a text that Bash refuses, return 0 if `kept`, and raise Refused otherwise.
        """

    @abstractmethod
    def _read_backquoted(self, place: int, end: int) -> None:
        """Parse the program in backquotes from `place` to `end`; an invalid one counts as empty."""

    @cached_property
    def _newlines_at(self) -> list[int]:
        return [match.start() for match in re.finditer("\n", self.text)]

    # ---- ends of constructs, by their start ----

    def refusal(self, why: str) -> Refused:
        """Return the exception for a text that Bash refuses at the scanner's position."""
        return Refused(why, self.text, self.place)

    def line(self, place: int) -> int:
        """Return the number of the line that contains `place`, from 1."""
        return bisect_right(self._first._newlines_at, place - 1) + 1

    def word_end(self, place: int, *, subscript: bool = False) -> int:
        """Return the end of the word at `place`: the first metacharacter outside quotes.

        With `subscript`, the brackets of `name[…]` are part of the word, including blanks in them.
        """
        text, start = self.text, place
        while place < len(text):
            plain = _PLAIN.match(text, place)
            if plain:
                place = plain.end()
                is_group = text.startswith("(", place) and text[place - 1] in "?*+@!"
                if is_group and self._first.extended:
                    place = self._pattern_group_end(place + 1)
                continue
            character = text[place]
            if character in "<>" and text.startswith("(", place + 1):
                place = self.unit_end(place)
            elif character in META:
                break
            elif character == "[" and subscript and NAME.fullmatch(text, start, place):
                place = self._subscript_end(place + 1)
            else:
                place = self.unit_end(place)
        return place

    def unit_end(self, place: int) -> int:
        """Return the end of the character, quotation or expansion at `place`."""
        text = self.text
        character = text[place]
        if character == "\\":
            return min(place + 2, len(text))
        if character == "'":
            return self._find("'", place + 1)
        if character == '"':
            return self.double_quote_end(place)
        if character == "`":
            return self._backquote_end(place)
        if character == "$":
            if text.startswith("$'", place):
                return self._matched(_ANSI, place + 1)
            if text.startswith('$"', place):
                return self.double_quote_end(place + 1)
            return self.expansion_end(place)
        if character in "<>" and text.startswith("(", place + 1):
            return self._substitution_end(place)
        return place + 1

    def double_quote_end(self, place: int) -> int:
        """Return the end of the `"…"` at `place`."""
        if ('"', place) in self._ends:
            return self._ends['"', place]
        start, text = place, self.text
        place += 1
        while place < len(text):
            character = text[place]
            if character == '"':
                self._ends['"', start] = place + 1
                return place + 1
            if character == "\\":
                place += 2
            elif character == "`":
                place = self._backquote_end(place)
            elif character == "$":
                place = self.expansion_end(place)
            else:
                place += 1
        raise self.refusal('a " is never closed')

    def expansion_end(self, place: int) -> int:
        """Return the end of the expansion at the `$` at `place`; a lone `$` is one character."""
        if ("$", place) not in self._ends:
            self._ends["$", place] = self._expansion_end(place)
        return self._ends["$", place]

    def arithmetic_end(self, place: int) -> int:
        """Return the end, after the `))`, of arithmetic whose `((` ends at `place`; 0 for none."""
        try:
            end = self._closed(place, "(", ")")
        except Refused:
            return 0
        return end + 1 if self.text.startswith(")", end) else 0

    # ---- expansions ----

    def _expansion_end(self, place: int) -> int:
        text = self.text
        behind = text[place + 1 : place + 2]
        if behind == "(":
            return self._substitution_end(place)
        if behind == "{":
            return self._brace_end(place)
        if behind == "[":
            return self._closed(place + 2, "[", "]")
        name = NAME.match(text, place + 1)
        end = name.end() if name else place + 2
        if name or (behind and behind in "123456789@*"):
            self.expansions[place] = text[place + 1 : end]
            return end
        if behind and behind in "0?#$!-":
            return end
        return place + 1

    def _brace_end(self, place: int) -> int:
        """Return the end of the `${` at `place`: after a `}` outside quotes and expansions."""
        text, start = self.text, place
        if name := _NAMED.match(text, place):
            self.expansions[place] = name[1]
            return name.end()
        place += 2
        with self._deeper():
            while place < len(text):
                if text[place] == "}":
                    return place + 1
                place = self.unit_end(place)
        self.place = start
        raise self.refusal("a ${ is never closed")

    def _substitution_end(self, place: int) -> int:
        """Return the end of the `$(`, `<(` or `>(` at `place`, after its `)`."""
        if ("(", place) in self._ends:
            return self._ends["(", place]
        text = self.text
        end = 0
        if text.startswith("((", place + 1):  # Bash skips this like arithmetic, even `<((`
            end = self._closed(place + 2, "(", ")")
            is_arithmetic = text[place] == "$" and self.arithmetic_end(place + 3) == end
            if not is_arithmetic and self._read_inner(place, kept=True) != end:
                self.substitutions.pop(place, None)
        else:
            end = self._read_inner(place, kept=False)
        self._ends["(", place] = end
        return end

    def _backquote_end(self, place: int) -> int:
        if ("`", place) not in self._ends:
            end = self._ends["`", place] = self._matched(_BACKQUOTED, place)
            self._read_backquoted(place, end)
        return self._ends["`", place]

    def _closed(self, place: int, opening: str, closing: str) -> int:
        """Return the end of the bracket opened before `place`, past inner brackets and quotes.

        As in Bash, only `$(…)` is parsed within arithmetic. Everything else there is parsed when it
        is expanded.
        """
        return self._bracket_end(place, opening, closing, self._arithmetic_unit_end)

    def _subscript_end(self, place: int) -> int:
        return self._bracket_end(place, "[", "]", self.unit_end)

    def _pattern_group_end(self, place: int) -> int:
        return self._bracket_end(place, "(", ")", self._pattern_unit_end)

    def _bracket_end(
        self, place: int, opening: str, closing: str, unit_end: Callable[[int], int]
    ) -> int:
        kind = f"{unit_end.__name__} {opening}"
        if (kind, place) in self._ends:
            return self._ends[kind, place]
        text, nesting, start = self.text, 0, place
        with self._deeper():
            while place < len(text):
                character = text[place]
                if character == opening:
                    nesting += 1
                elif character == closing:
                    if not nesting:
                        self._ends[kind, start] = place + 1
                        return place + 1
                    nesting -= 1
                elif character in "'\"\\`$<>":
                    place = unit_end(place)
                    continue
                place += 1
        self.place = start
        raise self.refusal(f"a {opening} is never closed")

    def _arithmetic_unit_end(self, place: int) -> int:
        text = self.text
        if text[place] in "<>":
            return place + 1
        if text.startswith(("${", "$["), place):
            if name := _NAMED.match(text, place):
                self.expansions[place] = name[1]
            return place + 1
        return self.unit_end(place)

    def _pattern_unit_end(self, place: int) -> int:
        if self.text.startswith("$(", place):
            with suppress(Refused):
                self._substitution_end(place)
            self._first.shortened = None
            return place + 1
        return self._arithmetic_unit_end(place)

    def _deeper(self) -> _Deeper:
        return _Deeper(self)

    def _find(self, mark: str, place: int) -> int:
        end = self.text.find(mark, place)
        if end < 0:
            raise self.refusal(f"a {mark} is never closed")
        return end + 1

    def _matched(self, pattern: re.Pattern[str], place: int) -> int:
        match = pattern.match(self.text, place)
        if not match:
            raise self.refusal(f"a {self.text[place]} is never closed")
        return match.end()


@dataclass(slots=True)
class _Deeper:
    """A context manager that counts a scanner's nesting. Errors: Refused beyond `_DEEPEST`."""

    reader: Scanner

    def __enter__(self) -> None:
        self.reader._depth += 1
        if self.reader._depth > _DEEPEST:
            raise self.reader.refusal("it is nested too deeply")

    def __exit__(self, *error: object) -> None:
        self.reader._depth -= 1
