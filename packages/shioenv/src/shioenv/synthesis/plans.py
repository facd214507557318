"""Plans of the options that a derivation may and must still write.

An `OptionTable` stores, for every production, the options that it writes itself and those that may
follow from it, as bit sets. A `WritingPlan` for one start symbol and one set of options contains
the productions that write no other options. A derivation along a plan writes the options that were
drawn beforehand, or any options, each once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from shioenv.grammar.notation import NO_SPACE
from shioenv.grammar.symbols import (
    Grammar,
    Nonterminal,
    Production,
    Productions,
    Symbol,
    TerminalText,
)
from shioenv.synthesis.derivation import ProductionTable

NUMBER_OPTION = "-NUM"
"""The name of an option that is a number: `-5` of `head`."""

_LONG = re.compile(r"--[A-Za-z0-9][\w-]*")
_MISTAKE = re.compile(r":(?:bad(?:-|$)|wrong|mistake|contradiction|failing|obstacle)")
"""Matches names of definitions that write invalid input on purpose. Plans exclude these
definitions, and productions marked `%wrong`."""

_SHORT = re.compile(r"-[A-Za-z0-9][\w-]*")


KEPT_PLANS = 4096
"""Number of plans cached per drawing, at 2 to 4 KB each; making one takes half a millisecond."""


class PlanRow(NamedTuple):
    """A production in a plan: its weight and its options.

    `own` are the options that the production writes, as bits. `lines` are the grammar's option
    lines that define these (`-a` and `--all` are one line), without lines of repeatable options.
    `can` are the options that its nonterminals may write. `stops`: whether it ends a repetition.
    """

    weight: float
    own: int
    lines: int
    can: int
    stops: bool


@dataclass(frozen=True, slots=True)
class WritingPlan:
    """The productions that write only the wanted options, and no deliberate mistake.

    `rows` holds these productions by nonterminal and index. `wanted` are the bits of the options
    (-1: all), `can` the wanted options that each nonterminal may write. Nonterminals are
    represented by their numbers in the production table. A nonterminal without rows writes no
    option, and may be expanded in any way.
    """

    rows: Mapping[int, Mapping[int, PlanRow]]
    can: Mapping[int, int]
    wanted: int


class OptionTable:
    """The options of one bound grammar, as bits.

    `table` numbers the nonterminals of plans. `weights` override the grammar's weights, by the text
    of a production. `uniform` makes all weights 1. Tables with the same `plans` share its bounded
    cache. `exact`: names with unusual characters (`--tlsv1.1`, `-:`) are read in full. The policy
    `people` does not use `exact`, which would change its stream.
    """

    def __init__(
        self,
        grammar: Grammar,
        table: ProductionTable,
        weights: Mapping[str, float] | None,
        *,
        uniform: bool,
        exact: bool = False,
        plans: PlanMaker | None = None,
    ) -> None:
        self.grammar = grammar
        self._exact = exact
        self._table = table
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
        self._parts: dict[Nonterminal, _Part] = {}
        for spec in grammar.options:
            line = min(self._lines.get(name, self._bit(name)) for name in spec.names)
            for name in spec.names:
                self._lines[name] = line
        self._behind_dash = {
            argument[1]
            for productions in grammar.productions.values()
            for production in productions
            for argument in production.body
            if len(argument) > 1 and argument[0] == TerminalText("-")
        }
        for head, productions in grammar.productions.items():
            if not head.is_system_token:
                for production in productions:
                    self._own[id(production)] = self._masks(head, production)
        self._plans = plans or plans_kept()

    def plan(self, start: Nonterminal, names: frozenset[str] | None) -> WritingPlan | None:
        """Return the plan for a start symbol and a set of options (None: all), if one exists."""
        return self._plans(self, start, names)

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
        if not isinstance(first, TerminalText):
            return
        text = first.text.removesuffix(NO_SPACE)
        behind = head in self._behind_dash and text[:1].isalpha()
        word = re.split("[ =]", text, maxsplit=1)[0]
        if self._exact and word in self._lines:
            yield word
        elif behind or head.name.endswith((".flag", ".valued")):
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
        """Return the bit of an option, the same for all its names: `-a` and `--all` are one."""
        return self._lines.get(name, self.bits[name])

    def lines(self) -> list[str]:
        """Return a name of each option that the grammar defines as one, sorted."""
        return sorted({self.line(name): name for name in self._lines}.values())

    def mask(self, names: Iterable[str]) -> int | None:
        """Return the bits of options; None if the grammar lacks some of them."""
        wanted = 0
        for name in names:
            if name not in self.bits:
                return None
            wanted |= self.bits[name]
        return wanted

    def _part(self, start: Nonterminal) -> _Part:
        """Return the part of the grammar that is reachable from a start symbol."""
        if start not in self._parts:
            self._parts[start] = self._compiled(start)
        return self._parts[start]

    def _compiled(self, start: Nonterminal) -> _Part:
        productions = self.grammar.productions
        heads = _innermost_first(productions, start)
        numbers = {head: number for number, head in enumerate(heads)}
        bodies: dict[int, list[_Body]] = {}
        for head, number in numbers.items():
            if not _MISTAKE.search(head.name):
                bodies[number] = []
                for index, production in enumerate(productions.get(head, ())):
                    if production.wrong:
                        continue
                    every = list(production.nonterminals)
                    met = {numbers[one] for one in every if one in numbers}
                    needs = 0
                    for one in met:
                        needs |= 1 << one
                    own, lines = self._own[id(production)]
                    row = PlanRow(self._weight(production), own, lines, 0, production.stops)
                    bodies[number].append(
                        _Body(index, own, row, met=tuple(met), needs=needs, text=not every)
                    )
        writing = {len(heads) - 1, *_can(bodies)}
        plain = {number: every for number, every in bodies.items() if number not in writing}
        clean = _clean(plain)
        kept = {
            number: [body for body in every if not body.needs & ~clean]
            for number, every in plain.items()
            if clean >> number & 1
        }
        return _Part(
            heads,
            {number: every for number, every in bodies.items() if number in writing},
            clean,
            self._rows(heads, kept, {}),
        )

    def make_plan(self, start: Nonterminal, names: frozenset[str] | None) -> WritingPlan | None:
        """Create the plan that `plan` returns."""
        wanted = -1 if names is None else self.mask(names)
        if wanted is None:
            return None
        part = self._part(start)
        others = ~wanted
        allowed = {
            number: [body for body in bodies if not body.own & others]
            for number, bodies in part.bodies.items()
        }
        number = len(part.heads) - 1  # the start symbol's number; all others are further in
        if whole := [body for body in allowed.get(number, ()) if wanted and body.is_all(wanted)]:
            allowed[number] = whole
        clean = _clean(allowed, part.clean)
        endless = ~clean
        kept = {
            number: [body for body in bodies if not body.needs & endless]
            for number, bodies in allowed.items()
            if clean >> number & 1
        }
        can = _can(kept)
        if number not in kept or (names is not None and wanted & ~can.get(number, 0)):
            return None
        rows = {**part.rows, **self._rows(part.heads, kept, can)}
        number_of = self._table.number
        may = {number_of(part.heads[number]): mask for number, mask in can.items()}
        return WritingPlan(rows, may, wanted)

    def _rows(
        self, heads: Sequence[Nonterminal], kept: _Bodies, can: Mapping[int, int]
    ) -> dict[int, dict[int, PlanRow]]:
        """Return the rows of a plan for heads with these bodies; none if all are allowed.

        `can` are the options that each head may write, without heads that write none.
        """
        rows: dict[int, dict[int, PlanRow]] = {}
        for number, bodies in kept.items():
            head = heads[number]
            if number in can or len(bodies) < len(self.grammar.productions[head]):
                rows[self._table.number(head)] = of_head = {}
                for body in bodies:
                    below = 0
                    for one in body.met:
                        if one in can:
                            below |= can[one]
                    row = body.row
                    of_head[body.index] = (
                        PlanRow(row.weight, row.own, row.lines, below, row.stops) if below else row
                    )
        return rows


PlanMaker: TypeAlias = Callable[
    [OptionTable, Nonterminal, frozenset[str] | None], WritingPlan | None
]
"""Returns a table's plan for a start symbol and a set of options."""


def plans_kept() -> PlanMaker:
    """Return a plan maker with a cache of the `KEPT_PLANS` most recently used plans."""
    return lru_cache(maxsize=KEPT_PLANS)(OptionTable.make_plan)


@dataclass(frozen=True, slots=True)
class _Body:
    """A production that writes no mistake, with the data that its rows have in every plan."""

    index: int
    """The production's index among those of its head."""
    own: int
    row: PlanRow
    """The production's row in plans in which its nonterminals may write no option."""
    met: tuple[int, ...]
    """The numbers of the heads in its body."""
    needs: int
    """The numbers in `met` as bits."""
    text: bool
    """Whether its body consists only of text."""

    def is_all(self, wanted: int) -> bool:
        """Whether the production writes all wanted options and nothing variable: `chmod --help`."""
        return self.text and self.own == wanted


@dataclass(frozen=True, slots=True)
class _Part:
    """The part of a grammar that is reachable from one start symbol."""

    heads: Sequence[Nonterminal]
    """The heads by number, ending with the start symbol."""
    bodies: _Bodies
    """The productions of heads that may write options, and of the start symbol."""
    clean: int
    """The other heads that can be expanded to the end, as bits. They are the same in every plan."""
    rows: Mapping[int, Mapping[int, PlanRow]]
    """The rows of these other heads in every plan."""


_Bodies: TypeAlias = Mapping[int, Sequence[_Body]]
"""Productions without mistakes, by the number of their head."""


def _innermost_first(productions: Productions, start: Nonterminal) -> list[Nonterminal]:
    """Return the reachable heads; most heads come after those in their productions.

    In this order, one pass usually suffices for a bottom-up computation.
    """
    order: list[Nonterminal] = []
    met = {start}
    path = [(start, _heads_of(productions, start))]
    while path:
        head, left = path[-1]
        for one in left:
            if one not in met:
                met.add(one)
                path.append((one, _heads_of(productions, one)))
                break
        else:
            path.pop()
            order.append(head)
    return order


def _heads_of(productions: Productions, head: Nonterminal) -> Iterator[Nonterminal]:
    for production in productions.get(head, ()):
        for one in production.nonterminals:
            if not one.is_system_token:
                yield one


def _clean(allowed: _Bodies, clean: int = 0) -> int:
    """Return `clean` and all heads that `allowed` can expand to the end, as bits."""
    before = -1
    while clean != before:
        before = clean
        endless = ~clean
        for number, bodies in allowed.items():
            if endless >> number & 1:
                for body in bodies:
                    if not body.needs & endless:
                        clean |= 1 << number
                        endless = ~clean
                        break
    return clean


def _can(kept: _Bodies) -> dict[int, int]:
    """Return the options that each head may write, as bits, without heads that write none."""
    can: dict[int, int] = {}
    changed = True
    while changed:
        changed = False
        for number, bodies in kept.items():
            before = mask = can.get(number, 0)
            for body in bodies:
                mask |= body.own
                for one in body.met:
                    mask |= can.get(one, 0)
            if mask != before:
                can[number] = mask
                changed = True
    return can
