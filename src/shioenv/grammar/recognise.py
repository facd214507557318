"""Whether a grammar derives finished words."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Generic, TypeVar

from shioenv.grammar.notation import NO_SPACE
from shioenv.grammar.symbols import Body, Grammar, Nonterminal, Symbol, Terminal

Place = TypeVar("Place", bound=Hashable)

_MOST_FREE = 8
"""Options that are tried in every order; each more makes that twice as long."""


class Recogniser:
    """Answers for one grammar, bound or not; a system token without values takes any word.

    Works top-down on finished words, marks included; grammars have no left recursion (the checker
    refuses it), so it ends.
    """

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self.derives_argument = cache(self._derives_argument)
        """Whether some production has an argument that derives a word."""
        self._bodies = {
            head: tuple(production.body for production in productions)
            for head, productions in grammar.productions.items()
        }
        self._whole = {
            argument
            for head, bodies in self._bodies.items()
            if not head.is_system_token
            for body in bodies
            for argument in body
        }

    def derives(self, words: Sequence[str]) -> bool:
        """Whether some start symbol derives exactly these words, the command first."""
        return any(
            len(words) in _InOrder(self._bodies, words).arguments(start, 0)
            for start in self.grammar.starts
        )

    def derives_in_some_order(self, words: Sequence[str]) -> bool:
        """Whether these words are derived once their options stand in some other order.

        Programs that permute take options anywhere; a grammar with options that exclude each other
        writes one order. Operands, and whatever stands behind `--`, keep their order; clusters stay
        together. With more than 8 options only the order given is tried.
        """
        if self.derives(words):
            return True
        units = _units(words)
        free = sum(unit.free for unit in units)
        if not free or free > _MOST_FREE or not self.grammar.header.permutes:
            return False
        whole = ((1 << len(units)) - 1, -1, 0)
        return any(
            whole in _AnyOrder(self._bodies, words, units).arguments(start, (0, -1, 0))
            for start in self.grammar.starts
        )

    def _derives_argument(self, word: str) -> bool:
        match = _Match(self._bodies, (word,))
        return any(match.is_word(argument, 0) for argument in self._whole)


class _Match:
    """One question's memory: where the text of each symbol can end, from each place in a word."""

    def __init__(self, bodies: dict[Nonterminal, tuple[Body, ...]], words: Sequence[str]) -> None:
        self.bodies = bodies
        self.words = words
        self.text = cache(self._text)
        """Where the text of one nonterminal can end, from a place in the word at an index."""

    def is_open(self, symbol: Nonterminal) -> bool:
        """Whether the symbol is a system token without values, which takes any text."""
        return symbol.is_system_token and symbol not in self.bodies

    @staticmethod
    def open_ends(word: str, offset: int) -> Iterator[int]:
        """Where a value nobody knows can end: not an option, no marks, no bare blank."""
        if word.startswith("-", offset) and not offset:
            return
        quoted = False
        for end in range(offset + 1, len(word) + 1):
            quoted = quoted or word[end - 1] in "'\"\\"
            if word.startswith(NO_SPACE, end - 1) or (word[end - 1] == " " and not quoted):
                return
            yield end

    def is_word(self, argument: tuple[Symbol, ...], index: int) -> bool:
        """Whether the symbols make exactly the word at `index`."""
        if index >= len(self.words):
            return False
        return len(self.words[index]) in self.texts(argument, index, 0)

    def texts(self, symbols: tuple[Symbol, ...], index: int, offset: int) -> set[int]:
        """Where the text of these symbols can end within the word at `index`."""
        word = self.words[index]
        ends = {offset}
        for symbol in symbols:
            if isinstance(symbol, Terminal):
                ends = {e + len(symbol.text) for e in ends if word.startswith(symbol.text, e)}
            else:
                ends = {after for end in ends for after in self.text(symbol, index, end)}
            if not ends:
                break
        return ends

    def _text(self, symbol: Nonterminal, index: int, offset: int) -> frozenset[int]:
        ends: set[int] = set()
        if self.is_open(symbol):
            ends.update(self.open_ends(self.words[index], offset))
        for body in self.bodies.get(symbol, ()):
            if not body:
                ends.add(offset)
            elif len(body) == 1:
                ends |= self.texts(body[0], index, offset)
        return frozenset(ends)


class _Sequences(_Match, Generic[Place]):
    """Where whole arguments can end; a subclass says which words may come next at a place."""

    def __init__(self, bodies: dict[Nonterminal, tuple[Body, ...]], words: Sequence[str]) -> None:
        super().__init__(bodies, words)
        self.arguments = cache(self._arguments)
        """Where whole arguments derived from a nonterminal can end, from a place."""

    def following(self, place: Place) -> Iterator[tuple[int, Place]]:
        """The words that may stand next, each with the place behind it."""
        raise NotImplementedError

    def _arguments(self, symbol: Nonterminal, place: Place) -> frozenset[Place]:
        places: set[Place] = set()
        if self.is_open(symbol):
            for index, after in self.following(place):
                word = self.words[index]
                if len(word) in self.open_ends(word, 0):
                    places.add(after)
        for body in self.bodies.get(symbol, ()):
            ends = {place}
            for argument in body:
                ends = {after for end in ends for after in self.argument(argument, end)}
                if not ends:
                    break
            places |= ends
        return frozenset(places)

    def argument(self, argument: tuple[Symbol, ...], place: Place) -> Iterable[Place]:
        """Where one argument of a body can end."""
        if len(argument) == 1 and isinstance(argument[0], Nonterminal):
            return self.arguments(argument[0], place)
        return [after for index, after in self.following(place) if self.is_word(argument, index)]


class _InOrder(_Sequences[int]):
    """A place is the number of words used."""

    def following(self, place: int) -> Iterator[tuple[int, int]]:
        """The next word, if there is one."""
        if place < len(self.words):
            yield place, place + 1


@dataclass(frozen=True, slots=True)
class _Unit:
    """Words that stay together, and whether they may stand anywhere."""

    first: int
    count: int
    free: bool


def _units(words: Sequence[str]) -> list[_Unit]:
    """The command, options and clusters (free until a `--`), and operands."""
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
    """A place is the set of units used (as bits), the unit begun (-1: none) and its words used."""

    def __init__(
        self,
        bodies: dict[Nonterminal, tuple[Body, ...]],
        words: Sequence[str],
        units: Sequence[_Unit],
    ) -> None:
        super().__init__(bodies, words)
        self.units = units

    def following(self, place: tuple[int, int, int]) -> Iterator[tuple[int, tuple[int, int, int]]]:
        """The rest of a unit begun; else every free unit left, and the first of the others."""
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
