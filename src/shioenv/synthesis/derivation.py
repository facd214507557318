"""Leftmost derivation at speed: the same steps as `State.expand`, on a stack.

A `Table` holds every production as codes; a `Derivation` pushes and pops them. Terminals are
strings, `BREAK` ends an argument, and a nonterminal is a number whose last bit says whether it
stands inside an argument with other symbols: there, expanding it makes no argument of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import TypeAlias

from shioenv.grammar.check import Productions, shortest_body, shortest_expansions
from shioenv.grammar.symbols import Nonterminal, Production, Symbol, Terminal
from shioenv.synthesis.policy import Choices
from shioenv.synthesis.state import State

BREAK = -1
Code: TypeAlias = "int | str"


class Entry(Choices):
    """The choices at one nonterminal, compiled for one place (alone or inside an argument).

    `least` is the number of arguments that each production makes at least, `origin` the index of
    each among all the productions that are permitted here.
    """

    __slots__ = ("_within", "codes", "least", "most", "origin", "volatile")

    def __init__(
        self,
        nonterminal: Nonterminal,
        productions: Sequence[Production],
        codes: Sequence[tuple[Code, ...]],
        least: Sequence[int],
        origin: Sequence[int],
    ) -> None:
        super().__init__(nonterminal, productions)
        if self.stop is not None:
            self.adds_arguments = least[1 - self.stop] > least[self.stop]
        self.volatile = any(production.volatile for production in productions)
        self.codes = codes
        self.least = least
        self.most = max(least)
        self.origin = origin
        self._within: dict[int, Entry] = {}

    def within(self, room: int) -> Entry:
        """Only the productions that make at most `room` arguments, else those that make fewest."""
        found = self._within.get(room)
        if found is None:
            bound = max(room, min(self.least))
            kept = [index for index, least in enumerate(self.least) if least <= bound]
            found = self._within[room] = Entry(
                self.nonterminal,
                [self.productions[index] for index in kept],
                [self.codes[index] for index in kept],
                [self.least[index] for index in kept],
                [self.origin[index] for index in kept],
            )
        return found


class Table:
    """Productions compiled for derivations.

    `permitted` says which productions may be taken at each nonterminal (a sampler's action set);
    `productions` are the grammars' own, by which an input is finished in the shortest way.
    """

    def __init__(
        self,
        productions: Productions,
        permitted: Mapping[Nonterminal, Sequence[Production]],
    ) -> None:
        self.nonterminals = tuple(productions)
        self._number = {symbol: index for index, symbol in enumerate(self.nonterminals)}
        self._productions = productions
        self._permitted = permitted
        self._shortest = shortest_expansions(productions)
        self._entries: list[Entry | None] = [None] * (2 * len(self.nonterminals))
        self._same: dict[tuple[int, int], Entry] = {}
        self._finishing: list[Entry | None] = [None] * (2 * len(self.nonterminals))
        self._compiled: dict[tuple[int, int], tuple[tuple[Code, ...], int]] = {}
        self.grows = self._growing()
        self.least = tuple(
            max(0, self._shortest[symbol].arguments - inside)
            for symbol in self.nonterminals
            for inside in (0, 1)
        )

    def _growing(self) -> frozenset[int]:
        """The codes of nonterminals, standing alone, that a repetition of arguments can follow."""
        grows = {
            head
            for head, bodies in self._productions.items()
            if any(one.stops for one in bodies) and any(len(one.body) > 1 for one in bodies)
        }
        changed = True
        while changed:
            changed = False
            for head, bodies in self._productions.items():
                if head not in grows and any(
                    argument[0] in grows
                    for production in bodies
                    for argument in production.body
                    if len(argument) == 1
                ):
                    grows.add(head)
                    changed = True
        return frozenset(self.code(head) for head in grows)

    def code(self, nonterminal: Nonterminal) -> int:
        """The code of a nonterminal that stands alone."""
        return 2 * self._number[nonterminal]

    def entry(self, code: int) -> Entry:
        """What may be chosen at a nonterminal in its place."""
        found = self._entries[code]
        if found is None:
            symbol = self.nonterminals[code >> 1]
            permitted, inside = self._permitted[symbol], code & 1
            key = (id(permitted), inside)
            if key not in self._same:
                self._same[key] = self._entry(symbol, permitted, inside)
            # An unconstrained sampler permits the same thousands of productions at many places.
            found = self._entries[code] = copy(self._same[key])
            found.nonterminal = symbol
        return found

    def finishing(self, code: int) -> Entry:
        """The one production by which a nonterminal ends soonest."""
        found = self._finishing[code]
        if found is None:
            symbol = self.nonterminals[code >> 1]
            shortest = self._productions[symbol][self._shortest[symbol].index]
            found = self._finishing[code] = self._entry(symbol, [shortest], code & 1)
            found.origin = [-1]
        return found

    def _entry(self, symbol: Nonterminal, productions: Sequence[Production], inside: int) -> Entry:
        compiled = [self._compile(production, inside) for production in productions]
        codes = [one[0] for one in compiled]
        least = [one[1] for one in compiled]
        return Entry(symbol, productions, codes, least, range(len(productions)))

    def _compile(self, production: Production, inside: int) -> tuple[tuple[Code, ...], int]:
        """A body as codes in the order they are popped from the end, and its least arguments."""
        key = (id(production), inside)
        found = self._compiled.get(key)
        if found is None:
            codes: list[Code] = []
            last = len(production.body) - 1
            for index, argument in enumerate(production.body):
                edge = inside if index in (0, last) else 0
                codes.extend(self._symbol(one, len(argument) > 1 or edge) for one in argument)
                codes.append(BREAK)
            size = shortest_body(production, self._shortest)
            assert size is not None, "bind leaves out what cannot be expanded to the end"
            found = tuple(reversed(codes[:-1])), max(0, size[0] - inside)
            self._compiled[key] = found
        return found

    def _symbol(self, symbol: Symbol, inside: bool | int) -> Code:
        if isinstance(symbol, Terminal):
            return symbol.text
        return 2 * self._number[symbol] + bool(inside)


class Derivation:
    """An input being written: finished words, the current one, and what is still to come.

    `leftmost` is the code of the leftmost nonterminal, `BREAK` once nothing is left to expand.
    `least` counts the words that the input will have at least, the command included.
    """

    __slots__ = ("_current", "_limit", "_stack", "_table", "least", "leftmost", "words")

    def __init__(self, table: Table, start: Nonterminal, limit: int = 0) -> None:
        self._limit = limit
        self._table = table
        self._stack: list[Code] = []
        self._current: list[str] = []
        self.words: list[str] = []
        self.leftmost = table.code(start)
        self.least = table.least[self.leftmost]

    @property
    def n_arguments(self) -> int:
        """Arguments finished so far, the command not counted."""
        return max(0, len(self.words) - 1)

    @property
    def room(self) -> int:
        """Arguments that the input may still have beyond those it will have at least."""
        return self._limit - self.least

    @property
    def more_repetitions(self) -> bool:
        """Whether a repetition of arguments may follow, behind the leftmost nonterminal."""
        return not self._table.grows.isdisjoint(self._stack)

    def expand(self, entry: Entry, index: int) -> None:
        """Take one production at the leftmost nonterminal."""
        self.least += entry.least[index] - self._table.least[self.leftmost]
        stack = self._stack
        stack.extend(entry.codes[index])
        current = self._current
        while stack:
            code = stack.pop()
            if type(code) is str:
                current.append(code)
            elif code == BREAK:
                if current:
                    self.words.append("".join(current))
                    current.clear()
            else:
                assert type(code) is int
                self.leftmost = code
                return
        if current:
            self.words.append("".join(current))
            current.clear()
        self.leftmost = BREAK

    @property
    def state(self) -> State:
        """The same as a `State`, slow: for tests and for showing."""
        table = self._table
        arguments: list[list[Symbol]] = [[Terminal(word)] for word in self.words]
        arguments.append([Terminal(text) for text in self._current])
        pending: Iterable[Code] = reversed(self._stack)
        for code in (self.leftmost, *pending) if self.leftmost != BREAK else ():
            if code == BREAK:
                arguments.append([])
            elif isinstance(code, str):
                arguments[-1].append(Terminal(code))
            else:
                arguments[-1].append(table.nonterminals[code >> 1])
        return State(tuple(tuple(argument) for argument in arguments if argument))
