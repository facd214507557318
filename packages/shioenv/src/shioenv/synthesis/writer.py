"""Commands with planned options, generated values and realistic spelling.

Every step is one of the grammar's productions, so options that exclude each other are never
combined. Three things vary:

- the set of options (a `WritingPlan`)
- the values whose kind is declared: the kind generates them, or the numbers in the grammar's own
  values are drawn again
- the spelling of options
"""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from random import Random
from typing import Protocol

from shioenv.errors import TraceError
from shioenv.grammar.kinds import CLOSED, COMMAND, KINDS, TOKEN_KINDS, ValueKind
from shioenv.grammar.parts import Names, draw_number
from shioenv.grammar.spelling import received_form, spelt
from shioenv.grammar.symbols import (
    MAX_ARGUMENT_LENGTH,
    Grammar,
    Nonterminal,
    TerminalText,
)
from shioenv.synthesis.derivation import CompiledChoices, Derivation, Drawn, ProductionTable
from shioenv.synthesis.plans import OptionTable, PlanMaker, PlanRow, WritingPlan
from shioenv.synthesis.policy import PolicySettings
from shioenv.synthesis.usage_tables import ABOUT_ITSELF, CommandUsage
from shioenv.synthesis.wording import OptionSpelling

FIRST_NUMBER = re.compile(r"[0-9]+")

_OPEN_QUOTE = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.|([\"'])")

BEFORE_VALUE = re.compile(r"[ =:,/]\Z|\A(?:<ns>|-)\w\Z")
"""Matches the text before a value if the value is not in the middle of a word."""

OPEN_TOKENS = frozenset({"File", "NewFile", "NewDirectory", "Word", "Pattern", "Glob"})
"""System tokens that other values of their kind may replace. Tokens for files of one type
(`<TarFile>`, `<CsvFile>`) always use existing files."""

EXPANDED = frozenset({"path", "url"})
"""Kinds of values that are not quoted, so that the shell expands them."""

DOUBLE_QUOTES = 0.35
"""Share of quoted values in double quotes (from real usage)."""

RUN = 0.85
"""Share of nested commands that are drawn from their own grammars (our choice)."""

AGAIN = 0.02
"""Factor on the weight of an option that has been written and may be repeated (our choice)."""

_MAX_STEPS = 301
"""Number of steps after which a derivation is aborted."""


class Nested(Protocol):
    """Draws commands that another command runs."""

    def run(self, name: str, part: str, before: Sequence[str], random: Random) -> str | None:
        """Draw a command for `name` to run after the words `before`; None if none fits.

        `part` is the definition that the command replaces.
        """
        ...

    def words(self, text: str) -> Sequence[str]:
        """Return the words of a drawn command: its name, and its arguments with no-space marks."""
        ...

    def operand(self, name: str, random: Random) -> str | None:
        """Draw a substitution as an operand of `name`; usually None: the operand is a path."""
        ...


@dataclass(slots=True)
class _State:
    """The options that a derivation has written and must still write, as bits.

    `wanted` are the options of the plan, and `needed` those not yet written. `later` are the
    options that later nonterminals may write. `used` are the option lines already written.
    `planned`: the plan has a set of options instead of all. `evenly`: weights are ignored, and
    options may be repeated. `stop` is the probability that a repetition ends.
    """

    stop: float
    planned: bool
    wanted: int
    needed: int
    used: int = 0
    later: int = 0
    evenly: bool = False


@dataclass(frozen=True, slots=True)
class _Drawn:
    """The source of values for a nonterminal: a kind, and the grammar's definition `part`.

    For a seeded kind, `seeds` are the grammar's own values, and `cumulative` the running sums of
    their weights.
    """

    kind: ValueKind
    part: str
    seeds: tuple[str, ...] = ()
    cumulative: tuple[float, ...] = ()


class CommandWriter:
    """Writes commands of one bound grammar by a policy's settings."""

    def __init__(
        self,
        grammar: Grammar,
        table: ProductionTable,
        names: Names,
        settings: PolicySettings,
        nested: Nested | None = None,
        plans: PlanMaker | None = None,
    ) -> None:
        self.grammar = grammar
        self.options = OptionTable(
            grammar,
            table,
            settings.weights,
            uniform=settings.uniform,
            exact=settings.groups,
            plans=plans,
        )
        self._settings = settings
        self._chooser = settings.chooser
        self._table = table
        self._names = names
        self._nested = nested
        self._kinds: dict[int, _Drawn | None] = {}
        self.spelling = OptionSpelling(grammar)

    def without_nested(self) -> CommandWriter:
        """Return a writer without nested commands that shares this one's option table."""
        writer = copy(self)
        writer._nested, writer._kinds = None, {}
        return writer

    def write(
        self,
        start: Nonterminal,
        plan: WritingPlan,
        random: Random,
        *,
        horizon: int,
        spelling: CommandUsage | None,
        evenly: bool = False,
        needed: int = 0,
        sparse: bool = False,
    ) -> Drawn | None:
        """Write a command of at most `horizon` arguments along a plan; None if that fails.

        With a plan for a set of options, every option of the set is written at least once. With a
        plan of all options, those whose bits are in `needed` are written at the first place for
        them. An option is then repeated only if its program accepts that. `sparse`: repetitions end
        as soon as possible. `spelling` is the usage that determines the spelling of options (None:
        as in the grammar).

        `evenly` is for retries. It ignores the weights of options, and repeats options if their
        program accepts that.
        """
        table, rows, can = self._table, plan.rows, plan.can
        planned = plan.wanted != -1
        state = _State(
            1.0 if sparse else self._settings.stop,
            planned,
            plan.wanted,
            plan.wanted if planned else needed,
            evenly=evenly,
        )

        def choose(derivation: Derivation, choices: CompiledChoices, random: Random) -> int | None:
            here = rows.get(derivation.leftmost >> 1)
            if here is None:
                return self._chooser.choose(derivation, choices, random)
            if state.needed:
                state.later = 0
                if planned or not can.get(derivation.leftmost >> 1, 0) & state.needed:
                    for code in derivation.pending:
                        state.later |= can.get(code >> 1, 0)
            index = self._choose(choices.origin, here, state, random)
            if index is not None:
                row = here[choices.origin[index]]
                state.used |= row.lines
                state.needed &= ~row.own
            return index

        derivation = Derivation(table, start, horizon + 1)
        drawn = derivation.draw(choose, random, _MAX_STEPS, value=self._draw_value)
        if drawn is None or state.needed:
            return None
        words, trace = drawn.words, drawn.trace
        if plan.wanted == -1 and len(words) > 2 and not ABOUT_ITSELF.isdisjoint(words):
            return None
        if spelling is not None:
            seed = random.getrandbits(32)
            words = self.spelling.respelt(words, seed, spelling)
            trace = (*trace, str(seed))
        if not words or max(map(len, words)) > MAX_ARGUMENT_LENGTH:
            return None
        return Drawn(words, trace, drawn.volatile)

    def replay(
        self, start: Nonterminal, trace: Sequence[int | str], spelling: CommandUsage | None
    ) -> tuple[str, ...]:
        """Return the words of a trace of `write`, with the same `spelling`.

        Errors: TraceError if the trace does not belong to this command.
        """
        derivation = Derivation(self._table, start)
        if spelling is None:
            return derivation.replay(trace, self._put)
        seed = str(trace[-1]) if trace else ""
        if not seed.isdigit():
            raise TraceError("the last choice of the trace must be the seed of a spelling")
        words = derivation.replay(trace[:-1], self._put)
        return self.spelling.respelt(words, int(seed), spelling)

    @staticmethod
    def _choose(
        origin: Sequence[int], rows: Mapping[int, PlanRow], state: _State, random: Random
    ) -> int | None:
        """Choose an index in `origin` of a production that the plan allows; None if none."""
        places: list[int] = []
        sums: list[float] = []
        total = 0.0
        stopping: int | None = None
        needed, planned, used, evenly = state.needed, state.planned, state.used, state.evenly
        unwritten = needed & ~state.later
        allowed = (
            rows.items()
            if type(origin) is range  # all productions, in order
            else [(place, rows[index]) for place, index in enumerate(origin) if index in rows]
        )
        for place, (weight, own, lines, can, stops) in allowed:
            if lines & used:
                continue
            if evenly and (own or can):
                weight = 1.0
            if unwritten & ~(own | can):
                continue
            if planned:
                if own & ~needed:
                    if not evenly or lines or own & ~state.wanted:
                        continue
                    weight *= AGAIN
                if can and not can & needed & ~own:
                    weight *= 1e-6  # all that could follow has been written
            if stops:
                stopping = place
            places.append(place)
            total += weight
            sums.append(total)
        if len(places) < 2:
            return places[0] if places else None
        if stopping is not None and len(places) == 2:
            going = places[0] if places[1] == stopping else places[1]
            can = rows[origin[going]].can
            stop = state.stop
            if planned and can:
                stop = 1.0 if not can & needed else 0.0 if unwritten else 0.5
            elif unwritten:
                stop = 0.0
            return stopping if random.random() < stop else going
        return places[bisect(sums, random.random() * total, 0, len(sums) - 1)]

    # Values ------------------------------------------------------------------------------------

    def _draw_value(self, derivation: Derivation, random: Random) -> str | None:
        """Replace the leftmost nonterminal by a drawn value and return it, or return None."""
        number = derivation.leftmost >> 1
        kind = self._kinds[number] if number in self._kinds else self._kind(number)
        if kind is None or random.random() >= (
            RUN if kind.kind.name == COMMAND else self._settings.values
        ):
            return None
        text = self._value(kind, derivation, random)
        if text is not None:
            self._put(text, derivation)
        return text

    def _put(self, text: str, derivation: Derivation) -> None:
        """Replace the leftmost nonterminal by a drawn value."""
        derivation.write_words(self._words(text, derivation))

    def _words(self, text: str, derivation: Derivation) -> list[str]:
        """Return a value's arguments: several for a nested command that is a whole argument."""
        leftmost = derivation.leftmost
        symbol = self._table.nonterminals[leftmost >> 1]
        alone = not leftmost & 1 and not derivation.current
        nested = alone and self.grammar.kinds.get(symbol) == COMMAND
        return list(self._nested.words(text)) if nested and self._nested else [text]

    def _kind(self, number: int) -> _Drawn | None:
        """Return the source of values for a nonterminal; None if values are not drawn for it."""
        kind = self._kinds[number] = self._drawable(self._table.nonterminals[number])
        return kind

    def _drawable(self, symbol: Nonterminal) -> _Drawn | None:
        name = self.grammar.kinds.get(symbol, CLOSED)
        if symbol.token in TOKEN_KINDS and symbol.token in OPEN_TOKENS:
            name = TOKEN_KINDS[symbol.token]
        if name == COMMAND and self._nested is not None:
            return _Drawn(KINDS[name], symbol.name)
        if name == CLOSED or not KINDS[name].drawn:
            return None
        kind = KINDS[name]
        if not kind.seeded:
            return _Drawn(kind, symbol.name)
        productions = [
            production
            for production in self.grammar.productions.get(symbol, ())
            if not production.wrong
        ]
        seeds = {
            received_form(str(production.body[0][0])): production.weight
            for production in productions
            if len(production.body) == 1
            and len(production.body[0]) == 1
            and isinstance(production.body[0][0], TerminalText)
        }
        fitting = [text for text in seeds if text.isprintable() and kind.language.fullmatch(text)]
        if len(fitting) < max(2, len(productions)):
            return None
        return _Drawn(kind, symbol.name, tuple(fitting), tuple(accumulate(seeds.values())))

    def _value(self, drawn: _Drawn, derivation: Derivation, random: Random) -> str | None:
        """Draw a value and spell it for its context; None if it is not possible there."""
        value_kind = drawn.kind
        before = "".join(derivation.current)
        if value_kind.name == COMMAND:
            assert self._nested is not None
            text = self._nested.run(self.grammar.name, drawn.part, derivation.words, random)
            words = [] if text is None else self._words(text, derivation)
            return None if len(words) - 1 > derivation.room else text
        if drawn.seeds:
            text = _reseeded(drawn, random)
            return text if open_quote(before) else spelt(text)
        whole = not before and derivation.at_end
        if value_kind.name == "path" and whole and self._nested is not None:
            operand = self._nested.operand(self.grammar.name, random)
            if operand is not None:
                return operand
        text = value_kind.part.draw(random, self._names)
        if quote := open_quote(before):
            special = "'" if quote == "'" else '"\\$`'
            return None if any(character in text for character in special) else text
        if not text.isprintable() or (before and not BEFORE_VALUE.search(before)):
            return None
        if value_kind.name == "path" and (before.endswith("/") or not derivation.at_end):
            return None  # a part of a path assembled by the grammar
        own = not (before and self.grammar.name == "find")  # else an option's (`find -newer`)
        if value_kind.name == "path" and own and not self._is_taken(text):
            return None
        one_name = before or not self.grammar.header.traits.takes_several
        if value_kind.name == "path" and one_name and re.search(r"[*?\[]", text):
            return None  # a glob may match several names, but the command takes only one
        if value_kind.name in EXPANDED and not re.search(r"[\s'\"$&|;<>()\\`#]", text):
            return text
        if not before and text.startswith("-"):
            return None
        return spelt(text, '"' if random.random() < DOUBLE_QUOTES and needs_quotes(text) else "")

    def _is_taken(self, text: str) -> bool:
        """Whether the command takes a path of this type (file or directory), judged by the name."""
        role = self._role
        if role == "directory":
            return not self._is_file(text)
        directory = text.endswith(("/", ".")) or text.rstrip("/") in self._directories
        if role in {"file", "output"}:
            return not directory
        return role != "new" or not (directory or text in self._names.get("File", ()))

    @cached_property
    def _role(self) -> str:
        """Return the role of the first operand that is a path; "" if there is none."""
        paths = self.grammar.header.traits.paths
        return paths[0].role if paths else ""

    @cached_property
    def _directories(self) -> frozenset[str]:
        listed = ("Directory", "GlobalDirectory")
        return frozenset({"~", *(path for token in listed for path in self._names.get(token, ()))})

    def _is_file(self, text: str) -> bool:
        """Whether a path names a file, not a directory, judged by its name."""
        return text in self._names.get("File", ()) or re.search(r"\w\.\w+\Z", text) is not None


def needs_quotes(text: str) -> bool:
    """Whether a word must be quoted to be taken literally."""
    return spelt(text) != text


def open_quote(text: str) -> str:
    """Return the quote that is open at the end of a text, or ""."""
    matches = [match[1] for match in _OPEN_QUOTE.finditer(text)]
    return matches[-1] or "" if matches and matches[-1] else ""


def _reseeded(drawn: _Drawn, random: Random) -> str:
    """Draw one of the values with a new first number.

    The number is between the minimum and maximum of the values with the same text around it (unit,
    sign).
    """
    seed = drawn.seeds[bisect(drawn.cumulative, random.random() * drawn.cumulative[-1])]
    match = FIRST_NUMBER.search(seed)
    if match is None:
        return seed
    around = seed[: match.start()], seed[match.end() :]
    numbers = [
        int(other[0])
        for text in drawn.seeds
        if (other := FIRST_NUMBER.search(text))
        and (text[: other.start()], text[other.end() :]) == around
    ]
    number = draw_number(random, min(numbers), max(numbers))
    return f"{around[0]}{number}{around[1]}"
