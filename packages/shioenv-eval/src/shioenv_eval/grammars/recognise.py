"""Recognition: whether a grammar derives the words of a command, in any spelling."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, wraps
from typing import Any, Generic, TypeAlias, TypeVar

from shioenv.grammar.kinds import CLOSED, KINDS, TOKEN_KINDS, ValueKind
from shioenv.grammar.notation import NO_SPACE
from shioenv.grammar.spelling import (
    BLANK,
    PROTECTED,
    VARIABLE,
    SpellingReader,
    State,
    received_form,
)
from shioenv.grammar.symbols import Grammar, Nonterminal, Symbol, TerminalText, reachable

Place = TypeVar("Place", bound=Hashable)
_Item: TypeAlias = "str | tuple[Nonterminal, State]"
"""Plain text, or a nonterminal with the quotes and brackets open at its position."""
_Argument: TypeAlias = tuple[_Item, ...]
_Body: TypeAlias = tuple[_Argument, ...]

_CHOICES = "choices"
"""The kind whose language is the list of words in the nonterminal's definition."""

_MOST_FREE = 8
"""Maximum number of options tried in every order; each further option doubles the work."""

_MOST_WORDS = 150
"""Maximum number of words of a command: a list of operands takes one recursive call per word."""

_MOST_DEEP = 200
"""Maximum nesting of nonterminals in recognition (our choice): each takes four recursive calls.

The grammar checker separately limits chains of nonterminals that precede any text.
"""

_SEPARATED = re.compile(rf"[^,{BLANK} +-][^,{BLANK} ]*")
_WRITTEN = re.compile(r"(?:<ns>|-)([A-Za-z0-9])|--([A-Za-z0-9][A-Za-z0-9-]*)")


class _Rules:
    """A grammar's productions as plain text, by nonterminal and the quotes open around it."""

    def __init__(self, grammar: Grammar) -> None:
        self.productions = grammar.productions
        self.kinds = grammar.kinds
        self.bodies = cache(self._bodies)
        """Return the bodies of a nonterminal, given the open quotes."""
        self.kind = cache(self._kind)
        """Return the kind of value of a nonterminal, or None."""
        self.words = cache(self._words)
        """Return the words in the definition of a nonterminal, in lower case."""

    def _bodies(self, symbol: Nonterminal, state: State) -> tuple[_Body, ...]:
        return tuple(
            tuple(self.argument(argument, state) for argument in production.body)
            for production in self.productions.get(symbol, ())
        )

    def argument(self, argument: Sequence[Symbol], state: State = ()) -> _Argument:
        """Return one argument as plain text, given the quotes open before it."""
        return tuple(_plain_symbols(argument, state))

    def _kind(self, symbol: Nonterminal) -> ValueKind | None:
        name = self.kinds.get(symbol) or TOKEN_KINDS.get(symbol.token, CLOSED)
        return None if name == CLOSED else KINDS[name]

    def _words(self, symbol: Nonterminal) -> frozenset[str]:
        texts = (
            str(part)
            for head in reachable(self.productions, [symbol])
            for production in self.productions.get(head, ())
            for argument in production.body
            for part in argument
            if isinstance(part, TerminalText)
        )
        return frozenset(
            word.lower() for text in texts for word in _SEPARATED.findall(received_form(text))
        )

    def ends(self, symbol: Nonterminal, word: str, offset: int) -> Iterable[int]:
        """Return the possible ends of the symbol's value.

        An unbound system token accepts any text.
        """
        kind = self.kind(symbol)
        if self.is_open(symbol):
            return open_ends(word, offset)
        if kind is None:
            return ()
        if kind.name != _CHOICES:
            return kind.ends(word, offset)
        named = _SEPARATED.findall(word[offset:].lower())
        return [len(word)] if named and self.words(symbol).issuperset(named) else ()

    def is_open(self, symbol: Nonterminal) -> bool:
        """Whether the symbol is an unbound system token, which accepts any text."""
        return symbol.is_system_token and symbol not in self.productions


def _plain_symbols(symbols: Iterable[Symbol], state: State) -> list[_Item]:
    """Return an argument's symbols outside substitutions; literal texts become plain words.

    `state` has the quotes and brackets that are open before the first symbol. The name in
    `$<EnvVar>` is omitted.
    """
    reader = SpellingReader(state)
    items: list[_Item] = []
    named = False  # whether the next nonterminal is the name of a variable: `$<EnvVar>`
    for symbol in symbols:
        if isinstance(symbol, TerminalText):
            text = reader.read(symbol.text)
            named = symbol.text.endswith("$") and text.endswith("$") and "'" not in reader.state
            items.append(text.removesuffix("$") + VARIABLE if named else text)
        elif not named and not any(mark in "({" for mark in reader.state):
            items.append((symbol, reader.state))
    return [item for item in items if item]


class _TooDeepError(Exception):
    """Recognition would follow more than `_MOST_DEEP` nested nonterminals."""


def _unless_too_deep(question: Callable[..., bool]) -> Callable[..., bool]:
    """Decorate a predicate to return False if recognition would go too deep."""

    @wraps(question)
    def answer(*given: Any) -> bool:
        try:
            return question(*given)
        except _TooDeepError:
            return False

    return answer


class Recogniser:
    """Decides whether one grammar, bound or not, derives words.

    Words are compared as the program receives them, so quotes do not matter. A nonterminal with a
    kind accepts any value of that kind. A system token without values accepts any word.

    Recognition works top-down on complete words, with their no-space marks (`<ns>`). It terminates
    because grammars have no left recursion, which the checker refuses. Words that need more than
    200 nested nonterminals are not derived.
    """

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self.derives_argument = cache(self._derives_argument)
        """Whether an argument of some production derives a marked word.

        This includes other spellings of the grammar's options."""
        self._rules = _Rules(grammar)
        self._whole = {
            self._rules.argument(argument)
            for head, productions in grammar.productions.items()
            if not head.is_system_token
            for production in productions
            for argument in production.body
        }
        self._values = self._option_values()
        self._separate = {
            f"--{name}" for spec in grammar.options if spec.separate for name in spec.longs
        }

    def _option_values(self) -> Mapping[str, set[_Argument | None]]:
        """The values of each option, with None if the option may have no value."""
        values: dict[str, set[_Argument | None]] = defaultdict(set)
        for name, symbols in self.grammar.option_values:
            values[name].add(None if symbols is None else self._rules.argument(symbols))
        for argument in self._written():
            text = str(argument[0])
            match = _WRITTEN.match(text)
            if match is None:
                continue
            name = f"-{match[1]}" if match[1] else f"--{match[2]}"
            rest = text[match.end() :].removeprefix("=" if match[2] else "")
            value = (TerminalText(rest.strip()), *argument[1:]) if rest.strip() else argument[1:]
            if not rest or rest[0] in " <" or len(argument) > 1:
                shown = "".join(map(str, value)).replace(NO_SPACE, "")
                values[name].add(self._rules.argument(value) if shown else None)
        return values

    def _written(self) -> Iterator[tuple[Symbol, ...]]:
        for head, productions in self.grammar.productions.items():
            if head.is_system_token or head.name.endswith((".valued", ".flag")):
                continue
            for production in productions:
                for argument in production.body:
                    if argument and isinstance(argument[0], TerminalText):
                        yield argument

    @_unless_too_deep
    def derives(self, words: Sequence[str]) -> bool:
        """Whether some start symbol derives exactly these marked words, the command first.

        More than 150 words are never derived.
        """
        if len(words) > _MOST_WORDS:
            return False
        shown = tuple(map(received_form, words))
        return any(
            len(words) in _InOrder(self._rules, shown).arguments((start, ()), 0)
            for start in self.grammar.starts
        )

    @_unless_too_deep
    def derives_in_some_order(self, words: Sequence[str]) -> bool:
        """Whether these words are derived with their options in some order.

        Programs that permute their arguments accept options anywhere, but a grammar whose options
        exclude each other derives them in one order only. Operands keep their order, and so does
        every word after `--`. Clusters stay together. With more than 8 options, and for programs
        that do not permute, only the given order is tried. More than 150 words are never derived.
        """
        if self.derives(words):
            return True
        if len(words) > _MOST_WORDS:
            return False
        units = _units(words)
        free = sum(unit.free for unit in units)
        if not free or free > _MOST_FREE or not self.grammar.header.permutes:
            return False
        whole = ((1 << len(units)) - 1, -1, 0)
        shown = tuple(map(received_form, words))
        return any(
            whole in _AnyOrder(self._rules, shown, units).arguments((start, ()), (0, -1, 0))
            for start in self.grammar.starts
        )

    @_unless_too_deep
    def _derives_argument(self, word: str) -> bool:
        match = _Match(self._rules, (received_form(word),))
        return any(match.is_word(argument, 0) for argument in self._whole) or self._spells(word)

    def kind_of_value(self, option: str, value: str) -> str | None:
        """Return the name of the kind of an option's value, or None.

        If there are several kinds, return the first one in `KINDS`.
        """
        word = f"={received_form(value)}"
        found = set()
        for items in self._values.get(self._name(option) or "", ()):
            if items is not None and len(items) == 1 and not isinstance(items[0], str):
                for symbol in reachable(self.grammar.productions, [items[0][0]]):
                    kind = self._rules.kind(symbol)
                    if kind is not None and len(word) in self._rules.ends(symbol, word, 1):
                        found.add(kind.name)
        return min(found, key=list(KINDS).index, default=None)

    def cause(self, option: str | None, value: str | None) -> str:
        """Return the reason why an argument is not derived; see `DescribedArgument.cause`."""
        if option is None:
            return "operand"
        name = self._name(option)
        if name is None:
            return "unknown option"
        if value is None:
            return "missing value"
        return "value" if self._values[name] != {None} else "unexpected value"

    def _name(self, option: str) -> str | None:
        """Return the option's name in the grammar, or None if it is unknown."""
        if option.startswith("--"):
            return self._long(option[2:])
        return option if option in self._values else None

    def _spells(self, word: str) -> bool:
        """Whether a word is an option of the grammar in a spelling that no production has."""
        text = received_form(word.replace(NO_SPACE, ""))
        if text.startswith("--"):
            name, sign, value = text[2:].partition("=")
            if not sign:
                name, sign, value = text[2:].partition(" ")
            known = self._long(name)
            if sign == "=" and known in self._separate:
                return False
            return known is not None and self._takes(known, value if sign else None)
        if word.startswith(NO_SPACE):
            text = f"-{text}"
        if len(text) < 2 or text[0] != "-" or text[:2] not in self._values:
            return False
        value = text[2:].removeprefix(" ")
        return self._takes(text[:2], value if len(text) > 2 else None)

    def _long(self, name: str) -> str | None:
        """Return the long option of this name or unambiguous abbreviation, or None."""
        if f"--{name}" in self._values:
            return f"--{name}"
        known = [long for long in self._values if long.startswith(f"--{name}")]
        return known[0] if len(known) == 1 and name else None

    def _takes(self, option: str, value: str | None) -> bool:
        if value is None:
            return None in self._values[option]
        match = _Match(self._rules, (f"={value}",))
        return any(
            len(value) + 1 in match.texts(symbols, 0, 1)
            for symbols in self._values[option]
            if symbols is not None
        )


class _Match:
    """The possible ends of each symbol's text in given words, cached for one query."""

    def __init__(self, rules: _Rules, words: Sequence[str]) -> None:
        self.rules = rules
        self.words = words
        self.depth = 0
        """Current nesting of nonterminals."""
        self.text = cache(self._text)
        """Return the possible ends of a nonterminal's text in a word, from an offset."""

    def enter(self) -> None:
        """Enter a nonterminal. Errors: _TooDeepError, which aborts the query."""
        self.depth += 1
        if self.depth > _MOST_DEEP:
            raise _TooDeepError

    def is_word(self, argument: _Argument, index: int) -> bool:
        """Whether the items of an argument match exactly the word at `index`."""
        if index >= len(self.words):
            return False
        return len(self.words[index]) in self.texts(argument, index, 0)

    def texts(self, items: _Argument, index: int, offset: int) -> set[int]:
        """Return the offsets in a word where the items' text can end if it begins at `offset`."""
        word = self.words[index]
        ends = {offset}
        for item in items:
            if isinstance(item, str):
                ends = {end + len(item) for end in ends if _starts(word, item, end)}
            else:
                ends = {after for end in ends for after in self.text(item, index, end)}
            if not ends:
                break
        return ends

    def _text(self, item: tuple[Nonterminal, State], index: int, offset: int) -> frozenset[int]:
        symbol, state = item
        self.enter()
        ends = set(self.rules.ends(symbol, self.words[index], offset))
        for body in self.rules.bodies(symbol, state):
            if not body:
                ends.add(offset)
            elif len(body) == 1:
                ends |= self.texts(body[0], index, offset)
        self.depth -= 1
        return frozenset(ends)


def open_ends(word: str, offset: int) -> Iterator[int]:
    """Yield the possible ends of an arbitrary value.

    A value is not an option, and contains no mark and no unprotected blank.
    """
    if word.startswith("-", offset) and not offset:
        return
    for end in range(offset + 1, len(word) + 1):
        if word.startswith(NO_SPACE, end - 1) or word[end - 1] == " ":
            return
        yield end


def _starts(word: str, text: str, offset: int) -> bool:
    """Whether a word has `text` at an offset; blanks of `text` also match protected blanks."""
    return word.startswith(text, offset) or (
        " " in text and word.startswith(text.translate(PROTECTED), offset)
    )


class _Sequences(_Match, Generic[Place]):
    """The possible ends of sequences of arguments; a subclass defines the next words."""

    def __init__(self, rules: _Rules, words: Sequence[str]) -> None:
        super().__init__(rules, words)
        self.arguments = cache(self._arguments)
        """Return the possible ends of a nonterminal's arguments, from a place."""

    def following(self, place: Place) -> Iterator[tuple[int, Place]]:
        """Yield the indices of possible next words, each with the place after the word."""
        raise NotImplementedError

    def _arguments(self, item: tuple[Nonterminal, State], place: Place) -> frozenset[Place]:
        symbol, state = item
        self.enter()
        places: set[Place] = set()
        if self.rules.is_open(symbol) or self.rules.kind(symbol):
            for index, after in self.following(place):
                word = self.words[index]
                if len(word) in self.rules.ends(symbol, word, 0):
                    places.add(after)
        for body in self.rules.bodies(symbol, state):
            ends = {place}
            for argument in body:
                ends = {after for end in ends for after in self.argument(argument, end)}
                if not ends:
                    break
            places |= ends
        self.depth -= 1
        return frozenset(places)

    def argument(self, argument: _Argument, place: Place) -> Iterable[Place]:
        """Return the possible ends of one argument of a body that begins at `place`."""
        if len(argument) == 1 and not isinstance(argument[0], str):
            return self.arguments(argument[0], place)
        return [after for index, after in self.following(place) if self.is_word(argument, index)]


class _InOrder(_Sequences[int]):
    """Words in the given order; a place is the number of words used."""

    def following(self, place: int) -> Iterator[tuple[int, int]]:
        """Yield the next word, if there is one."""
        if place < len(self.words):
            yield place, place + 1


@dataclass(frozen=True, slots=True)
class _Unit:
    """Words that stay together; a `free` unit may be in any position."""

    first: int
    count: int
    free: bool


def _units(words: Sequence[str]) -> list[_Unit]:
    """Group words into units: command, options and clusters (free up to a `--`), and operands."""
    units = [_Unit(0, 1, False)]
    index, ended = 1, False
    while index < len(words):
        count = 1
        while words[index + count - 1].endswith(NO_SPACE) and index + count < len(words):
            count += 1
        ended = ended or words[index] == "--"
        free = not ended and words[index].startswith("-") and words[index] != "-"
        units.append(_Unit(index, count, free))
        index += count
    return units


class _AnyOrder(_Sequences[tuple[int, int, int]]):
    """Words with the free units in any order.

    A place is the set of used units (as bits), the current unit (-1: none) and the number of its
    used words.
    """

    def __init__(
        self,
        rules: _Rules,
        words: Sequence[str],
        units: Sequence[_Unit],
    ) -> None:
        super().__init__(rules, words)
        self.units = units

    def following(self, place: tuple[int, int, int]) -> Iterator[tuple[int, tuple[int, int, int]]]:
        """Yield the next word of the current unit, or the first words of the possible next units.

        These are all remaining free units, and the first of the other remaining ones.
        """
        used, begun, count = place
        candidates = [begun]
        if begun < 0:
            left = [index for index in range(len(self.units)) if not used >> index & 1]
            candidates = [index for index in left if self.units[index].free]
            candidates += [index for index in left if not self.units[index].free][:1]
        for index in candidates:
            unit = self.units[index]
            word = unit.first + count
            if count + 1 == unit.count:
                yield word, (used | 1 << index, -1, 0)
            else:
                yield word, (used, index, count + 1)
