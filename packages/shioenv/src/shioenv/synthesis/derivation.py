"""Leftmost derivation of inputs: the states of Section 3.2 of the paper, with a fast equivalent.

`PartialInput` is a state. A `Derivation` takes the same steps as `PartialInput.expand`, on a stack:
a `ProductionTable` holds every production as codes, which it pushes and pops. A terminal is a
string, `BREAK` ends an argument, a nonterminal is a number. The last bit of the number is set if
the nonterminal shares an argument with other symbols. Its expansion then creates no separate
argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import TypeAlias

from shioenv.errors import TraceError
from shioenv.grammar.symbols import (
    Nonterminal,
    Production,
    Productions,
    Symbol,
    TerminalText,
    leading_to,
    show_argument,
)
from shioenv.grammar.validation import shortest_body, shortest_expansions
from shioenv.synthesis.policy import Choices

BREAK = -1

FINISHED_SHORTEST = -1
"""Entry of a trace for the shortest completion of a nonterminal, instead of a choice."""

Code: TypeAlias = "int | str"


@dataclass(frozen=True, slots=True)
class PartialInput:
    """A state s = (c, a1, …, an), in which some arguments may contain nonterminals.

    Section 3.2 defines an argument as one nonterminal or one text. Ours is a tuple of symbols,
    since `--block-size=<size>` contains both. The first argument becomes the command.
    """

    arguments: tuple[tuple[Symbol, ...], ...]

    @classmethod
    def initial(cls, start: Nonterminal) -> PartialInput:
        """Create the state that consists of the start symbol."""
        return cls(((start,),))

    @property
    def leftmost(self) -> Nonterminal | None:
        """The leftmost nonterminal, lambda(s); None if the input is complete."""
        place = self._leftmost_place()
        if place is None:
            return None
        symbol = self.arguments[place[0]][place[1]]
        assert isinstance(symbol, Nonterminal)
        return symbol

    @property
    def n_arguments(self) -> int:
        """The number of complete arguments before the leftmost nonterminal, without command."""
        place = self._leftmost_place()
        return max(0, (len(self.arguments) if place is None else place[0]) - 1)

    @property
    def room(self) -> int:
        """Always 0: a state has no maximum number of arguments that could be filled up."""
        return 0

    @property
    def more_repetitions(self) -> bool:
        """Always False: a state does not look ahead."""
        return False

    @property
    def words(self) -> tuple[str, ...]:
        """The complete words, the command first, including no-space marks.

        ValueError if there are nonterminals.
        """
        if self.leftmost is not None:
            raise ValueError(f"{self} still has the nonterminal {self.leftmost}")
        return tuple("".join(map(str, argument)) for argument in self.arguments)

    def expand(self, production: Production) -> PartialInput:
        """Return the state with its leftmost nonterminal replaced by the production's body.

        The head is not compared: an unconstrained sampler applies productions of other
        nonterminals. An argument that becomes empty is dropped. ValueError in a complete state.
        """
        place = self._leftmost_place()
        if place is None:
            raise ValueError(f"{self} has no nonterminal")
        index, offset = place
        argument = self.arguments[index]
        left, right = argument[:offset], argument[offset + 1 :]
        body = production.body
        if not body:
            replaced: tuple[tuple[Symbol, ...], ...] = (left + right,)
        elif len(body) == 1:
            replaced = (left + body[0] + right,)
        else:
            replaced = (left + body[0], *body[1:-1], body[-1] + right)
        kept = tuple(filter(None, replaced))
        return PartialInput((*self.arguments[:index], *kept, *self.arguments[index + 1 :]))

    def _leftmost_place(self) -> tuple[int, int] | None:
        for index, argument in enumerate(self.arguments):
            for offset, symbol in enumerate(argument):
                if not isinstance(symbol, TerminalText):
                    return index, offset
        return None

    def __str__(self) -> str:
        return "(" + ", ".join(show_argument(argument) for argument in self.arguments) + ")"


@dataclass(frozen=True, slots=True)
class Drawn:
    """One drawn command: its words (command first, marks included) and the choices made.

    `trace` has one entry per step: the index of a production among those permitted there, the text
    of a newly drawn value, or `FINISHED_SHORTEST`. If usage spelling was requested, the last entry
    is the seed of the spelling, as text. `volatile`: a production was used that the grammar marks
    `%volatile`.
    """

    words: tuple[str, ...]
    trace: tuple[int | str, ...]
    volatile: bool = False

    @property
    def n_arguments(self) -> int:
        """The number of arguments, without the command."""
        return len(self.words) - 1


class CompiledChoices(Choices):
    """The choices at one nonterminal, compiled for one position (alone, or inside an argument).

    `codes` are the productions' bodies. `least` is each production's minimum number of arguments,
    and `most` the maximum of these. `origin` is the index of each production among all that are
    permitted here. `volatile`: whether any of the productions is marked `%volatile`.
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
        self.codes = codes
        self.least = least
        if self.stop is not None:
            self.adds_arguments = least[1 - self.stop] > least[self.stop]
        self.volatile = any(production.volatile for production in productions)
        self.most = max(least)
        self.origin = origin
        self._within: dict[int, CompiledChoices] = {}

    def within(self, room: int) -> CompiledChoices:
        """Return the productions that fit into `room` arguments, else those with the fewest."""
        if room not in self._within:
            bound = max(room, min(self.least))
            kept = [index for index, least in enumerate(self.least) if least <= bound]
            self._within[room] = CompiledChoices(
                self.nonterminal,
                [self.productions[index] for index in kept],
                [self.codes[index] for index in kept],
                [self.least[index] for index in kept],
                [self.origin[index] for index in kept],
            )
        return self._within[room]


class ProductionTable:
    """Productions compiled for derivations.

    `permitted` maps each nonterminal to the permitted productions (a sampler's action set).
    `productions` are the grammars' own; they provide the shortest completion of an input.
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
        self._by_code: list[CompiledChoices | None] = [None] * (2 * len(self.nonterminals))
        self._same: dict[tuple[int, int], CompiledChoices] = {}
        self.finishing = cache(self._finishing)
        """The production with the shortest completion, by a nonterminal's code."""
        self._compiled: dict[tuple[int, int], tuple[tuple[Code, ...], int]] = {}
        self.grows = self._growing()
        self.least = tuple(
            max(0, self._shortest[symbol].arguments - inside)
            for symbol in self.nonterminals
            for inside in (0, 1)
        )

    def _growing(self) -> frozenset[int]:
        """Codes of nonterminals that are whole arguments and can lead to repeated arguments."""
        repetitions = [
            head
            for head, bodies in self._productions.items()
            if any(production.stops for production in bodies)
            and any(len(production.body) > 1 for production in bodies)
        ]
        grows = leading_to(
            repetitions,
            self._productions,
            lambda production: (argument[0] for argument in production.body if len(argument) == 1),
        )
        return frozenset(map(self.code, grows))

    def number(self, nonterminal: Nonterminal) -> int:
        """Return the index of a nonterminal in `nonterminals`: half of its code, rounded down."""
        return self._number[nonterminal]

    def code(self, nonterminal: Nonterminal) -> int:
        """Return the code of a nonterminal that is not inside an argument."""
        return 2 * self._number[nonterminal]

    def choices(self, code: int) -> CompiledChoices:
        """Return the choices at the nonterminal with this code."""
        choices = self._by_code[code]
        if choices is None:
            symbol = self.nonterminals[code >> 1]
            permitted, inside = self._permitted[symbol], code & 1
            key = (id(permitted), inside)
            if key in self._same:
                # An unconstrained sampler permits the same thousands of productions in many places,
                # so they are compiled once.
                choices = copy(self._same[key])
                choices.nonterminal = symbol
            else:
                compiled = (self._compile(production, inside) for production in permitted)
                codes, least = zip(*compiled, strict=True)
                origin = range(len(permitted))
                choices = self._same[key] = CompiledChoices(symbol, permitted, codes, least, origin)
            self._by_code[code] = choices
        return choices

    def _finishing(self, code: int) -> CompiledChoices:
        symbol = self.nonterminals[code >> 1]
        shortest = self._productions[symbol][self._shortest[symbol].index]
        codes, least = self._compile(shortest, code & 1)
        return CompiledChoices(symbol, [shortest], [codes], [least], [-1])

    def _compile(self, production: Production, inside: int) -> tuple[tuple[Code, ...], int]:
        """Compile a body to codes in reverse order, with its minimum number of arguments."""
        if production.text is not None:
            return (production.text,), 1 - inside
        key = (id(production), inside)
        if key not in self._compiled:
            codes: list[Code] = []
            last = len(production.body) - 1
            for index, argument in enumerate(production.body):
                edge = inside if index in (0, last) else 0
                within = len(argument) > 1 or edge
                codes.extend(self._symbol(symbol, within) for symbol in argument)
                codes.append(BREAK)
            size = shortest_body(production, self._shortest)
            assert size is not None, "bind leaves out what cannot be expanded to the end"
            self._compiled[key] = tuple(reversed(codes[:-1])), max(0, size[0] - inside)
        return self._compiled[key]

    def _symbol(self, symbol: Symbol, inside: bool | int) -> Code:
        if isinstance(symbol, TerminalText):
            return symbol.text
        return 2 * self._number[symbol] + bool(inside)


class Derivation:
    """An unfinished command: complete words, the current word, and the stack of pending codes.

    `leftmost` is the code of the leftmost nonterminal, `BREAK` if nothing is left to expand.
    `least` is the number of words that the command will have at least, including its name. `limit`
    is the maximum number of words, from which `room` is computed.
    """

    __slots__ = ("_current", "_limit", "_stack", "_table", "least", "leftmost", "words")

    def __init__(self, table: ProductionTable, start: Nonterminal, limit: int = 0) -> None:
        self._limit = limit
        self._table = table
        self._stack: list[Code] = []
        self._current: list[str] = []
        self.words: list[str] = []
        self.leftmost = table.code(start)
        self.least = table.least[self.leftmost]

    @property
    def n_arguments(self) -> int:
        """The number of complete arguments, without the command."""
        return max(0, len(self.words) - 1)

    @property
    def room(self) -> int:
        """The number of arguments that can be added to `least`."""
        return self._limit - self.least

    @property
    def current(self) -> Sequence[str]:
        """The texts of the current argument."""
        return self._current

    @property
    def at_end(self) -> bool:
        """Whether the current argument ends with the leftmost nonterminal."""
        return not self._stack or self._stack[-1] == BREAK

    @property
    def pending(self) -> Iterator[int]:
        """Yield the codes of the nonterminals after the leftmost one."""
        return (code for code in self._stack if type(code) is int and code != BREAK)

    @property
    def more_repetitions(self) -> bool:
        """Whether a repetition of arguments may follow the leftmost nonterminal."""
        return not self._table.grows.isdisjoint(self._stack)

    def expand(self, choices: CompiledChoices, index: int) -> None:
        """Apply a production to the leftmost nonterminal."""
        self.least += choices.least[index] - self._table.least[self.leftmost]
        self._stack.extend(choices.codes[index])
        self._go_on()

    def write(self, text: str) -> None:
        """Replace the leftmost nonterminal by text."""
        self._current.append(text)
        self._go_on()

    def write_words(self, words: Sequence[str]) -> None:
        """Replace the leftmost nonterminal by words; it must be a whole argument."""
        self.words += words[:-1]
        self.least += len(words) - 1
        self.write(words[-1])

    def _go_on(self) -> None:
        """Move text from the stack to the words, up to the next nonterminal."""
        stack = self._stack
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
    def state(self) -> PartialInput:
        """Return the derivation as a `PartialInput`; slow, for tests and display."""
        table = self._table
        arguments: list[list[Symbol]] = [[TerminalText(word)] for word in self.words]
        arguments.append([TerminalText(text) for text in self._current])
        pending: Iterable[Code] = reversed(self._stack)
        for code in (self.leftmost, *pending) if self.leftmost != BREAK else ():
            if code == BREAK:
                arguments.append([])
            elif isinstance(code, str):
                arguments[-1].append(TerminalText(code))
            else:
                arguments[-1].append(table.nonterminals[code >> 1])
        return PartialInput(tuple(tuple(argument) for argument in arguments if argument))

    def draw(
        self,
        choose: Callable[[Derivation, CompiledChoices, Random], int | None],
        random: Random,
        most: int,
        *,
        value: Callable[[Derivation, Random], str | None] | None = None,
        finishes: bool = False,
    ) -> Drawn | None:
        """Continue to the end with `choose`, which returns a production's index, or None to abort.

        `value` is called first: it may replace the leftmost nonterminal by a value and return that
        value, else it returns None. After `most` steps the derivation is aborted. With `finishes`,
        it is instead completed with the shortest productions.
        """
        table, limit = self._table, self._limit
        choices_at, least = table.choices, table.least
        volatile = False
        trace: list[int | str] = []
        while (leftmost := self.leftmost) != BREAK:
            if len(trace) >= most:
                if not finishes:
                    return None
                choices = table.finishing(leftmost)
                index: int | None = 0
            else:
                if value is not None and (text := value(self, random)) is not None:
                    trace.append(text)
                    continue
                choices = choices_at(leftmost)
                room = limit - self.least + least[leftmost]
                if choices.most > room:
                    choices = choices.within(room)
                index = choose(self, choices, random)
            if index is None:
                return None
            if choices.volatile:
                volatile = volatile or choices.productions[index].volatile
            trace.append(choices.origin[index])
            self.expand(choices, index)
        return Drawn(tuple(self.words), tuple(trace), volatile)

    def replay(
        self,
        trace: Iterable[int | str],
        put: Callable[[str, Derivation], None] | None = None,
    ) -> tuple[str, ...]:
        """Replay a trace and return the words; `put` writes the trace's values.

        Errors: TraceError if the trace is too short, too long, or refers to no production.
        """
        place = -1
        for place, choice in enumerate(trace):
            if self.leftmost == BREAK:
                raise TraceError(
                    f"the trace continues after the end of the input, at choice {place}"
                )
            if isinstance(choice, str):
                if put is None:
                    raise TraceError(
                        f"choice {place} of the trace, {choice!r}, is not a production"
                    )
                put(choice, self)
            elif choice == FINISHED_SHORTEST:
                self.expand(self._table.finishing(self.leftmost), 0)
            else:
                choices = self._table.choices(self.leftmost)
                if not 0 <= choice < len(choices.productions):
                    raise TraceError(
                        f"choice {place} of the trace, {choice}, is not permitted there"
                    )
                self.expand(choices, choice)
        if self.leftmost != BREAK:
            raise TraceError(
                f"the trace ends after {place + 1} choices, before the input is complete"
            )
        return tuple(self.words)
