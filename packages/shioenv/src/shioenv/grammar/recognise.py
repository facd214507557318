"""Whether a grammar derives finished words, however they are spelt."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, wraps
from typing import Any, Generic, TypeAlias, TypeVar

from shioenv.grammar.kinds import CHOICES, CLOSED, KINDS, TOKEN_KINDS, ValueKind
from shioenv.grammar.notation import NO_SPACE
from shioenv.grammar.spelling import BLANK, PROTECTED, Item, State, plain, plain_symbols
from shioenv.grammar.symbols import Grammar, Nonterminal, Symbol, TerminalText, reachable

Place = TypeVar("Place", bound=Hashable)
_Argument: TypeAlias = tuple[Item, ...]
_Body: TypeAlias = tuple[_Argument, ...]

_MOST_FREE = 8
"""Options at most that are tried in every order; each further option doubles the work."""

_MOST_WORDS = 150
"""Words of a command at most: a list of operands takes a nested call for each word."""

_MOST_DEEP = 200
"""Nonterminals that recognition follows inside one another, at most (ours): each takes four nested
calls. The checker bounds their nesting before any text."""

_SEPARATED = re.compile(rf"[^,{BLANK} +-][^,{BLANK} ]*")
_WRITTEN = re.compile(r"(?:<ns>|-)([A-Za-z0-9])|--([A-Za-z0-9][A-Za-z0-9-]*)")


class _Rules:
    """A grammar's productions as plain text, by nonterminal and the quotes open around it."""

    def __init__(self, grammar: Grammar) -> None:
        self.productions = grammar.productions
        self.kinds = grammar.kinds
        self.bodies = cache(self._bodies)
        """The bodies of a nonterminal where the quotes of a state are open."""
        self.kind = cache(self._kind)
        """The kind of value that a nonterminal has, or None."""
        self.words = cache(self._words)
        """The words that the definition of a nonterminal names, in lower case."""

    def _bodies(self, symbol: Nonterminal, state: State) -> tuple[_Body, ...]:
        return tuple(
            tuple(self.argument(argument, state) for argument in production.body)
            for production in self.productions.get(symbol, ())
        )

    def argument(self, argument: Sequence[Symbol], state: State = ()) -> _Argument:
        """One argument as plain text, where the quotes of `state` are open before it."""
        return tuple(plain_symbols(argument, state))

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
        return frozenset(word.lower() for text in texts for word in _SEPARATED.findall(plain(text)))

    def ends(self, symbol: Nonterminal, word: str, offset: int) -> Iterable[int]:
        """Where a value can end that the symbol's kind has, or that its system token may be."""
        kind = self.kind(symbol)
        if self.is_open(symbol):
            return open_ends(word, offset)
        if kind is None:
            return ()
        if kind.name != CHOICES:
            return kind.ends(word, offset)
        named = _SEPARATED.findall(word[offset:].lower())
        return [len(word)] if named and self.words(symbol).issuperset(named) else ()

    def is_open(self, symbol: Nonterminal) -> bool:
        """Whether the symbol is an unbound system token, which takes any text."""
        return symbol.is_system_token and symbol not in self.productions


class _TooDeepError(Exception):
    """Recognition would follow more than `_MOST_DEEP` nonterminals inside one another."""


def _unless_too_deep(question: Callable[..., bool]) -> Callable[..., bool]:
    """The question, answered by False where recognition would go too deep."""

    @wraps(question)
    def answer(*given: Any) -> bool:
        try:
            return question(*given)
        except _TooDeepError:
            return False

    return answer


class Recogniser:
    """Says whether one grammar, bound or not, derives words.

    Words are compared as their program gets them, so quotes do not matter. Where a nonterminal has
    a kind, any value of the kind will do. A system token without values takes any word.

    Recognition works top-down on finished words, marks included. It ends because grammars have no
    left recursion, which the checker refuses. What takes more than 200 nonterminals inside one
    another is not derived.
    """

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self.derives_argument = cache(self._derives_argument)
        """Whether an argument of some production derives a marked word.

        True also where the word is another spelling of an option that the grammar has."""
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
        """The values that each option takes, with None where the option may stand alone."""
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
        shown = tuple(map(plain, words))
        return any(
            len(words) in _InOrder(self._rules, shown).arguments((start, ()), 0)
            for start in self.grammar.starts
        )

    @_unless_too_deep
    def derives_in_some_order(self, words: Sequence[str]) -> bool:
        """Whether these words are derived with their options in some order.

        Programs that permute take options anywhere, but a grammar with options that exclude each
        other writes one order. Operands keep their order, and so does every word behind `--`.
        Clusters stay together. With more than 8 options, and for programs that do not permute, only
        the order given is tried. More than 150 words are never derived.
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
        shown = tuple(map(plain, words))
        return any(
            whole in _AnyOrder(self._rules, shown, units).arguments((start, ()), (0, -1, 0))
            for start in self.grammar.starts
        )

    @_unless_too_deep
    def _derives_argument(self, word: str) -> bool:
        match = _Match(self._rules, (plain(word),))
        return any(match.is_word(argument, 0) for argument in self._whole) or self._spells(word)

    def kind_of_value(self, option: str, value: str) -> str | None:
        """The name of the kind that a value of an option is, None where the value is of no kind.

        Of several kinds the one that comes first in `KINDS` is named.
        """
        word = f"={plain(value)}"
        found = set()
        for items in self._values.get(self._name(option) or "", ()):
            if items is not None and len(items) == 1 and not isinstance(items[0], str):
                for symbol in reachable(self.grammar.productions, [items[0][0]]):
                    kind = self._rules.kind(symbol)
                    if kind is not None and len(word) in self._rules.ends(symbol, word, 1):
                        found.add(kind.name)
        return min(found, key=list(KINDS).index, default=None)

    def cause(self, option: str | None, value: str | None) -> str:
        """The reason why an argument is not derived; see `DescribedArgument.cause`."""
        if option is None:
            return "operand"
        name = self._name(option)
        if name is None:
            return "unknown option"
        if value is None:
            return "missing value"
        return "value" if self._values[name] != {None} else "unexpected value"

    def _name(self, option: str) -> str | None:
        """The option as the grammar calls it, None where the grammar has no such option."""
        if option.startswith("--"):
            return self._long(option[2:])
        return option if option in self._values else None

    def _spells(self, word: str) -> bool:
        """Whether a word is an option of the grammar, in a spelling that no production writes."""
        text = plain(word.replace(NO_SPACE, ""))
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
        """The long option of this name, or the only long option whose name begins so; or None."""
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
    """Where the text of each symbol can end in given words, remembered for one question."""

    def __init__(self, rules: _Rules, words: Sequence[str]) -> None:
        self.rules = rules
        self.words = words
        self.depth = 0
        """Nonterminals that are being followed."""
        self.text = cache(self._text)
        """Where the text of a nonterminal can end in the word at an index, from an offset on."""

    def enter(self) -> None:
        """Count a nonterminal that is followed. Errors: _TooDeepError, which ends the question."""
        self.depth += 1
        if self.depth > _MOST_DEEP:
            raise _TooDeepError

    def is_word(self, argument: _Argument, index: int) -> bool:
        """Whether the items of an argument make exactly the word at `index`."""
        if index >= len(self.words):
            return False
        return len(self.words[index]) in self.texts(argument, index, 0)

    def texts(self, items: _Argument, index: int, offset: int) -> set[int]:
        """The offsets where the items' text, which begins at `offset`, can end in the word."""
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
    """Where a value of unknown language can end: it is no option and has no mark or bare blank."""
    if word.startswith("-", offset) and not offset:
        return
    for end in range(offset + 1, len(word) + 1):
        if word.startswith(NO_SPACE, end - 1) or word[end - 1] == " ":
            return
        yield end


def _starts(word: str, text: str, offset: int) -> bool:
    """Whether `text` stands at an offset; its blanks may be protected blanks of the word."""
    return word.startswith(text, offset) or (
        " " in text and word.startswith(text.translate(PROTECTED), offset)
    )


class _Sequences(_Match, Generic[Place]):
    """Where sequences of arguments can end; a subclass says which words may come next."""

    def __init__(self, rules: _Rules, words: Sequence[str]) -> None:
        super().__init__(rules, words)
        self.arguments = cache(self._arguments)
        """Where the arguments that a nonterminal derives can end, from a place on."""

    def following(self, place: Place) -> Iterator[tuple[int, Place]]:
        """The indices of the words that may come next, each with the place behind that word."""
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
        """Where one argument of a body, which begins at `place`, can end."""
        if len(argument) == 1 and not isinstance(argument[0], str):
            return self.arguments(argument[0], place)
        return [after for index, after in self.following(place) if self.is_word(argument, index)]


class _InOrder(_Sequences[int]):
    """Words in the order given; a place is the number of words used."""

    def following(self, place: int) -> Iterator[tuple[int, int]]:
        """The next word, if a word is left."""
        if place < len(self.words):
            yield place, place + 1


@dataclass(frozen=True, slots=True)
class _Unit:
    """Words that stay together; `free` says that the unit may stand anywhere."""

    first: int
    count: int
    free: bool


def _units(words: Sequence[str]) -> list[_Unit]:
    """The units of words: the command, options and clusters (free up to a `--`), and operands."""
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

    A place is the set of units used (as bits), the unit begun (-1: none) and its words used.
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
        """The next word of the unit begun; else the first word of each unit that may come next.

        Every free unit that is left may come next, and of the others the first one left.
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
