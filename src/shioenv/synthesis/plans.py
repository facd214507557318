"""Which options a derivation may and must still write.

For every production, the options that it writes itself and those that may follow from it, as sets
of bits. A `Plan` is for one start symbol and one set of options: it holds the productions that
write none but these, so that a derivation along it can keep to options drawn beforehand, or write
each option once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from shioenv.grammar.notation import NO_SPACE
from shioenv.grammar.symbols import Grammar, Nonterminal, Production, Symbol, Terminal, reachable

NUMBER_OPTION = "-NUM"
"""What an option that is a number is called: `-5` of `head`."""

_LONG = re.compile(r"--[A-Za-z0-9][\w-]*")
_MISTAKE = re.compile(r":(?:bad(?:-|$)|wrong|mistake|contradiction)")
"""Definitions in which grammars keep what a program refuses; no plan writes it, nor what is marked
`%wrong`."""

_SHORT = re.compile(r"-[A-Za-z0-9][\w-]*")


@dataclass(frozen=True, slots=True)
class Row:
    """A production in a plan: its weight and its options.

    `own` are those that it writes, `lines` the option lines these belong to (`-a` and `--all` are
    one), `can` what may follow from its nonterminals.
    """

    weight: float
    own: int
    lines: int
    can: int
    stops: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """The productions that write no option but the wanted ones, and no mistake made on purpose.

    They are there by nonterminal and index.

    `wanted` are the bits of the options (-1: all), `can` what each nonterminal may write of them.
    A nonterminal without rows writes no option, and may be expanded in any way.
    """

    rows: Mapping[Nonterminal, Mapping[int, Row]]
    can: Mapping[Nonterminal, int]
    wanted: int


class OptionTable:
    """The options of one bound grammar, as bits.

    `weights` stand in place of the grammar's, by production; `uniform` makes all of them 1.
    """

    def __init__(
        self, grammar: Grammar, weights: Mapping[str, float] | None, *, uniform: bool
    ) -> None:
        self.grammar = grammar
        self._weights = weights or {}
        self._uniform = uniform
        self.bits: dict[str, int] = {}
        self._words = {word for spec in grammar.options for word in spec.words}
        self._shorts = {letter for spec in grammar.options for letter in spec.shorts}
        self._lines: dict[str, int] = {}
        self._repeats: set[str] = {
            name for spec in grammar.options if spec.repeats for name in spec.names
        }
        self._own: dict[int, tuple[int, int]] = {}
        self._reached: dict[Nonterminal, frozenset[Nonterminal]] = {}
        for spec in grammar.options:
            line = min(self._lines.get(name, self._bit(name)) for name in spec.names)
            for name in spec.names:
                self._lines[name] = line
        self._behind_dash = {
            argument[1]
            for productions in grammar.productions.values()
            for production in productions
            for argument in production.body
            if len(argument) > 1 and argument[0] == Terminal("-")
        }
        for head, productions in grammar.productions.items():
            if not head.is_system_token:
                for production in productions:
                    self._own[id(production)] = self._masks(head, production)
        self.plan = lru_cache(maxsize=4096)(self._plan)
        """The plan for a start symbol and a set of options (None: all); None where none exists."""

    def _bit(self, name: str) -> int:
        return self.bits.setdefault(name, 1 << len(self.bits))

    def _masks(self, head: Nonterminal, production: Production) -> tuple[int, int]:
        own = lines = 0
        for argument in production.body:
            for name in self._names(head, argument):
                own |= self._bit(name)
                if name not in self._repeats:
                    lines |= self._lines.get(name, self._bit(name))
        return own, lines

    def _names(self, head: Nonterminal, argument: Sequence[Symbol]) -> Iterator[str]:
        first = argument[0]
        if not isinstance(first, Terminal):
            return
        text = first.text.removesuffix(NO_SPACE)
        behind = head in self._behind_dash and text[:1].isalpha()
        if behind or head.name.endswith((".flag", ".valued")):
            yield f"-{text[0]}"
        elif text.startswith(NO_SPACE):
            if len(text) > len(NO_SPACE):
                yield f"-{text[len(NO_SPACE)]}"
        elif match := _LONG.match(text):
            yield match[0]
        elif match := _SHORT.match(text):
            word = match[0]
            if word[1].isdigit() and (word[1] not in self._shorts or len(word) > 2):
                yield NUMBER_OPTION
            elif word[1:] in self._words or len(word) == 2 or word[1] not in self._shorts:
                yield word
            else:
                yield word[:2]
        elif text == "-" and len(argument) > 1 and self._is_number(argument[1]):
            yield NUMBER_OPTION

    def _is_number(self, symbol: Symbol) -> bool:
        bodies = self.grammar.productions.get(symbol, ()) if isinstance(symbol, Nonterminal) else ()
        texts = ["".join(map(str, argument)) for one in bodies for argument in one.body]
        return (
            bool(texts)
            and all(text[:1].isdigit() for text in texts)
            and len(texts) > 1
            and not (isinstance(symbol, Nonterminal) and symbol.name.endswith(".flag"))
        )

    def _weight(self, production: Production) -> float:
        if self._uniform:
            return 1.0
        if not self._weights:
            return production.weight
        return max(self._weights.get(str(production), production.weight), 1e-9)

    def line(self, name: str) -> int:
        """The bit of an option, the same for all its names: `-a` and `--all` are one."""
        return self._lines.get(name, self.bits[name])

    def mask(self, names: Iterable[str]) -> int | None:
        """The bits of options, None where the grammar has not all of them."""
        wanted = 0
        for name in names:
            if name not in self.bits:
                return None
            wanted |= self.bits[name]
        return wanted

    def _heads(self, start: Nonterminal) -> frozenset[Nonterminal]:
        if start not in self._reached:
            met = reachable(self.grammar.productions, [start])
            self._reached[start] = frozenset(head for head in met if not head.is_system_token)
        return self._reached[start]

    def _plan(self, start: Nonterminal, names: frozenset[str] | None) -> Plan | None:
        wanted = -1 if names is None else self.mask(names)
        if wanted is None:
            return None
        heads = self._heads(start)
        wrong = {head for head in heads if _MISTAKE.search(head.name)}
        productions = self.grammar.productions
        allowed = {
            head: [
                (index, production)
                for index, production in enumerate(productions.get(head, ()))
                if not production.wrong and self._own[id(production)][0] & ~wanted == 0
            ]
            for head in heads - wrong
        }
        clean = self._clean(allowed, heads)
        kept = {
            head: [
                (index, production)
                for index, production in allowed[head]
                if all(symbol in clean for symbol in production.nonterminals if symbol in heads)
            ]
            for head in clean
        }
        can = self._can(kept)
        if start not in kept or (names is not None and wanted & ~can.get(start, 0)):
            return None
        rows = {
            head: {
                index: Row(
                    self._weight(production),
                    *self._own[id(production)],
                    _union(can.get(symbol, 0) for symbol in production.nonterminals),
                    production.stops,
                )
                for index, production in bodies
            }
            for head, bodies in kept.items()
            if head in can or len(bodies) < len(productions[head])
        }
        return Plan(rows, can, wanted)

    @staticmethod
    def _clean(
        allowed: Mapping[Nonterminal, Sequence[tuple[int, Production]]],
        heads: frozenset[Nonterminal],
    ) -> set[Nonterminal]:
        """The heads that can be expanded to the end by what is allowed."""
        clean: set[Nonterminal] = set()
        changed = True
        while changed:
            changed = False
            for head, bodies in allowed.items():
                if head not in clean and any(
                    all(symbol in clean or symbol not in heads for symbol in one.nonterminals)
                    for _, one in bodies
                ):
                    clean.add(head)
                    changed = True
        return clean

    def _can(
        self, kept: Mapping[Nonterminal, Sequence[tuple[int, Production]]]
    ) -> dict[Nonterminal, int]:
        """What each head may write, heads that write no option left out."""
        can: dict[Nonterminal, int] = {}
        changed = True
        while changed:
            changed = False
            for head, bodies in kept.items():
                mask = can.get(head, 0)
                new = mask
                for _, production in bodies:
                    new |= self._own[id(production)][0]
                    for symbol in production.nonterminals:
                        new |= can.get(symbol, 0)
                if new != mask:
                    can[head] = new
                    changed = True
        return can


def _union(masks: Iterable[int]) -> int:
    union = 0
    for mask in masks:
        union |= mask
    return union
