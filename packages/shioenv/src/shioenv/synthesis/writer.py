"""Commands written freely: along a plan of options, with other values, spelt as people do.

Every step is one of the grammar's productions, so that conflicts stay impossible. Three things are
free:

- which options there are (a `WritingPlan`)
- the values of a kind: the kind's generator writes them, or the numbers in the grammar's own values
  are drawn anew
- how an option is spelt
"""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from random import Random
from typing import Protocol

from shioenv.errors import TraceError
from shioenv.grammar.kinds import CLOSED, COMMAND, KINDS, TOKEN_KINDS, ValueKind
from shioenv.grammar.notation import NO_SPACE
from shioenv.grammar.parts import Names, draw_number
from shioenv.grammar.spelling import plain, spelt
from shioenv.grammar.symbols import (
    MAX_ARGUMENT_LENGTH,
    Grammar,
    Nonterminal,
    OptionSpec,
    TerminalText,
)
from shioenv.synthesis.derivation import BREAK, Derivation, ProductionTable
from shioenv.synthesis.plans import OptionTable, PlanMaker, PlanRow, WritingPlan
from shioenv.synthesis.policy import PolicySettings
from shioenv.synthesis.usage import ABOUT_ITSELF, CommandUsage
from shioenv.synthesis.wording import (
    BEFORE_VALUE,
    EXPANDED,
    FIRST_NUMBER,
    OPEN_TOKENS,
    depth_later,
    needs_quotes,
    open_quote,
    stays,
)

DOUBLE_QUOTES = 0.35
"""Of values that need quotes, the share in double quotes (counted in what people write)."""

RUN = 0.85
"""Of commands that another one runs, the share drawn by their own grammars (ours)."""

EQUALS_SIGN = 0.9
"""Share of long options' values that stand behind `=`, where a table says nothing."""

JOINED = 0.25
"""Share of short options' values that are joined, where a table says nothing."""

AGAIN = 0.02
"""Factor on the weight of an option that is written already and may come again (ours)."""

TRAILING = 0.05
"""Share of commands whose options stand behind their operands, where they may. Of what people
write, 4% is so, and 2% is as `ONE_BEHIND` says."""

DEPTH_LATER = 0.14
"""Share of commands of `find` whose limit of depth stands behind a test (counted in what people
write). `find` warns about that."""

ONE_BEHIND = 0.04
"""Share of commands whose last option stands behind an operand, where it may."""

_MAX_STEPS = 300
"""Steps after which a derivation is given up."""


class Nested(Protocol):
    """Draws commands that another one runs."""

    def run(self, name: str, part: str, before: Sequence[str], random: Random) -> str | None:
        """A command for `name` to run, behind the words `before`; None where none that fits came.

        `part` is the definition in whose place the command stands.
        """
        ...

    def words(self, text: str) -> Sequence[str]:
        """The arguments of such a command, its own name first, no-space marks included."""
        ...

    def operand(self, name: str, random: Random) -> str | None:
        """A substitution that is an operand of `name`; None, mostly, where it shall be a path."""
        ...


@dataclass(frozen=True, slots=True)
class Written:
    """A command as written, and the choices that led to it.

    `trace` has for each step the index of a production, or the text of a value that was drawn anew.
    Where people's spelling was asked for, its last entry is the seed of the spelling, as text.
    """

    words: tuple[str, ...]
    trace: tuple[int | str, ...]
    volatile: bool


@dataclass(slots=True)
class _State:
    """What a derivation has written and must still write, as bits of options.

    `wanted` are the options of the plan, `needed` those of them that are not written yet. `later`
    are the options that nonterminals behind the leftmost one may write. `used` are the option lines
    that are written. `planned` says that the plan names options, `evenly` that weights do not count
    and options may come again. `stop` is the probability that a repetition ends.
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
    """What values are drawn from: a kind, and the definition `part` in whose place they stand.

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
            grammar, table, settings.weights, uniform=settings.uniform, plans=plans
        )
        self._settings = settings
        self._chooser = settings.chooser
        self._table = table
        self._names = names
        self._nested = nested
        self._kinds: dict[int, _Drawn | None] = {}

    def without_nested(self) -> CommandWriter:
        """A writer of the same command, which then runs no other; both share the option table."""
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
    ) -> Written | None:
        """One command of at most `horizon` arguments along a plan; None where it led nowhere.

        Every wanted option is written at least once. With a plan of all options, no option is
        written twice, unless its program takes it several times. `spelling` is how this command's
        options are spelt (None: as the grammar writes them).

        `evenly` is for where usual ways led nowhere. Options that the plan allows are then taken
        whatever they weigh, and an option may come again where its program takes it several times.
        """
        derived = self._derive(start, plan, random, horizon + 1, evenly=evenly)
        if derived is None:
            return None
        words, trace, volatile = derived
        if plan.wanted == -1 and len(words) > 2 and not ABOUT_ITSELF.isdisjoint(words):
            return None
        if spelling is not None:
            seed = random.getrandbits(32)
            words = self.respelt(words, seed, spelling)
            trace = (*trace, str(seed))
        if not words or max(map(len, words)) > MAX_ARGUMENT_LENGTH:
            return None
        return Written(words, trace, volatile)

    def replay(
        self, start: Nonterminal, trace: Sequence[int | str], spelling: CommandUsage | None
    ) -> tuple[str, ...]:
        """The words that a trace of `write` stands for, with the same `spelling`.

        Errors: TraceError where the trace does not belong to this command.
        """
        derivation = Derivation(self._table, start)
        for place, choice in enumerate(trace):
            if derivation.leftmost == BREAK:
                words = tuple(derivation.words)
                last = spelling is not None and place == len(trace) - 1
                if not last or not str(choice).isdigit():
                    raise TraceError(f"the trace goes on after the input has ended, at {place}")
                assert spelling is not None
                return self.respelt(words, int(choice), spelling)
            if isinstance(choice, str):
                self._put(choice, derivation)
                continue
            choices = self._table.choices(derivation.leftmost)
            if not 0 <= choice < len(choices.productions):
                raise TraceError(f"choice {place} of the trace, {choice}, is not permitted there")
            derivation.expand(choices, choice)
        if derivation.leftmost != BREAK:
            raise TraceError(f"the trace ends after {len(trace)} choices, before the input does")
        return tuple(derivation.words)

    def _derive(
        self,
        start: Nonterminal,
        plan: WritingPlan,
        random: Random,
        limit: int,
        *,
        evenly: bool,
    ) -> tuple[tuple[str, ...], tuple[int | str, ...], bool] | None:
        table, values = self._table, self._settings.values
        choices_at, least, kinds = table.choices, table.least, self._kinds
        derivation = Derivation(table, start, limit)
        rows, can = plan.rows, plan.can
        planned = plan.wanted != -1
        state = _State(
            self._settings.stop, planned, plan.wanted, plan.wanted if planned else 0, evenly=evenly
        )
        volatile = False
        trace: list[int | str] = []
        while (leftmost := derivation.leftmost) != BREAK:
            if len(trace) > _MAX_STEPS:
                return None
            number = leftmost >> 1
            kind = kinds[number] if number in kinds else self._kind(number)
            if kind is not None and random.random() < (
                RUN if kind.kind.name == COMMAND else values
            ):
                text = self._value(kind, derivation, random)
                if text is not None:
                    self._put(text, derivation)
                    trace.append(text)
                    continue
            choices = choices_at(leftmost)
            room = limit - derivation.least + least[leftmost]
            if choices.most > room:
                choices = choices.within(room)
            here = rows.get(number)
            if here is None:
                index = self._chooser.choose(derivation, choices, random)
            else:
                if state.needed:
                    state.later = 0
                    for code in derivation.pending:
                        state.later |= can.get(code >> 1, 0)
                chosen = self._choose(choices.origin, here, state, random)
                if chosen is None:
                    return None
                index = chosen
                row = here[choices.origin[index]]
                state.used |= row.lines
                state.needed &= ~row.own
            if choices.volatile:
                volatile = volatile or choices.productions[index].volatile
            trace.append(choices.origin[index])
            derivation.expand(choices, index)
        if state.needed:
            return None
        return tuple(derivation.words), tuple(trace), volatile

    @staticmethod
    def _choose(
        origin: Sequence[int], rows: Mapping[int, PlanRow], state: _State, random: Random
    ) -> int | None:
        """The place in `origin` of a production that the plan allows; None where it allows none."""
        places: list[int] = []
        sums: list[float] = []
        total = 0.0
        stopping: int | None = None
        needed, planned, used, evenly = state.needed, state.planned, state.used, state.evenly
        unwritten = needed & ~state.later
        allowed = (
            rows.items()
            if type(origin) is range  # all productions, each in its own place
            else [(place, rows[index]) for place, index in enumerate(origin) if index in rows]
        )
        for place, (weight, own, lines, can, stops) in allowed:
            if lines & used:
                continue
            if evenly and (own or can):
                weight = 1.0
            if planned:
                if unwritten & ~(own | can):
                    continue
                if own & ~needed:
                    if not evenly or lines or own & ~state.wanted:
                        continue
                    weight *= AGAIN
                if can and not can & needed & ~own:
                    weight *= 1e-6  # all that could follow is written already
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
            return stopping if random.random() < stop else going
        return places[bisect(sums, random.random() * total, 0, len(sums) - 1)]

    # Values ------------------------------------------------------------------------------------

    def _put(self, text: str, derivation: Derivation) -> None:
        """Writes a drawn value in the place of the leftmost nonterminal."""
        derivation.write_words(self._words(text, derivation))

    def _words(self, text: str, derivation: Derivation) -> list[str]:
        """The arguments that a value makes: several where it is a command that stands alone."""
        leftmost = derivation.leftmost
        symbol = self._table.nonterminals[leftmost >> 1]
        alone = not leftmost & 1 and not derivation.current
        nested = alone and self.grammar.kinds.get(symbol) == COMMAND
        return list(self._nested.words(text)) if nested and self._nested else [text]

    def _kind(self, number: int) -> _Drawn | None:
        """What values of a nonterminal may be drawn from; None where none may be drawn."""
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
            plain(str(production.body[0][0])): production.weight
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
        """A drawn value, spelt for its place; None where the value cannot stand there."""
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
            return None  # a part of a path, which the grammar puts together
        own = not (before and self.grammar.name == "find")  # for `find`: where a search begins
        if value_kind.name == "path" and own and not self._is_taken(text):
            return None
        one_name = before or not self.grammar.header.traits.takes_several
        if value_kind.name == "path" and one_name and re.search(r"[*?\[]", text):
            return None  # a glob may be several names, where one is taken
        if value_kind.name in EXPANDED and not re.search(r"[\s'\"$&|;<>()\\`#]", text):
            return text
        if not before and text.startswith("-"):
            return None
        return spelt(text, '"' if random.random() < DOUBLE_QUOTES and needs_quotes(text) else "")

    def _is_taken(self, text: str) -> bool:
        """Whether a path is of the sort that the command takes, as far as its name tells."""
        role = self._role
        if role == "directory":
            return not self._is_file(text)
        directory = text.endswith(("/", ".")) or text.rstrip("/") in self._directories
        if role in {"file", "output"}:
            return not directory
        return role != "new" or not (directory or text in self._names.get("File", ()))

    @cached_property
    def _role(self) -> str:
        """The role of the first operand that is a path; "" where no operand is a path."""
        paths = self.grammar.header.traits.paths
        return paths[0].role if paths else ""

    @cached_property
    def _directories(self) -> frozenset[str]:
        listed = ("Directory", "GlobalDirectory")
        return frozenset({"~", *(path for token in listed for path in self._names.get(token, ()))})

    def _is_file(self, text: str) -> bool:
        """Whether a path is that of a file, as far as its name tells."""
        return text in self._names.get("File", ()) or re.search(r"\w\.\w+\Z", text) is not None

    # Spelling ----------------------------------------------------------------------------------

    def respelt(self, words: Sequence[str], seed: int, usage: CommandUsage) -> tuple[str, ...]:
        """The words with options joined, with `=` or in clusters, as often as `usage` says.

        `seed` decides everything that is drawn. Some options are put behind operands as well.
        """
        random = Random(seed)
        own = self._own_options(words)
        shown = [*self._apart(words[:own])]
        shown = [self._value_respelt(word, random, usage) for word in shown]
        shown = [*self._merged(shown, random, usage), *words[own:]]
        chance = random.random()
        if self.permutes and chance < TRAILING + ONE_BEHIND and not any(map(stays, shown)):
            options = [word for word in shown[1:] if word.startswith(("-", NO_SPACE))]
            rest = [word for word in shown[1:] if not word.startswith(("-", NO_SPACE))]
            if chance < TRAILING:
                shown = [shown[0], *rest, *options]
            elif rest and len(options) > 1 and options[-1].startswith("-"):
                behind = 1 + int(random.random() * len(rest))
                rest.insert(behind, options.pop())
                shown = [shown[0], *options, *rest]
        if self.grammar.name == "find" and chance < DEPTH_LATER:
            shown = depth_later(shown)
        return tuple(shown)

    def _apart(self, words: Sequence[str]) -> Iterator[str]:
        """The words with each cluster taken apart, where all its members can be single options."""
        cluster: list[str] = []
        for word in words:
            if not cluster and not word.endswith(NO_SPACE):
                yield word
                continue
            cluster.append(word)
            if word.endswith(NO_SPACE):
                continue
            members = [f"-{one.replace(NO_SPACE, '').lstrip('-')}" for one in cluster]
            yield from members if all(map(self._member, members)) else cluster
            cluster = []
        yield from cluster

    def _own_options(self, words: Sequence[str]) -> int:
        """The place of the first word that may belong to a command that this one runs.

        Options before it are the command's own. Where options may stand behind operands, all are.
        """
        if self.grammar.header.permutes:
            return len(words)
        operands = (
            place
            for place, word in enumerate(words)
            if place and not word.startswith(("-", NO_SPACE))
        )
        return next(operands, len(words))

    @cached_property
    def permutes(self) -> bool:
        """Whether options may stand behind operands: not where the order means something."""
        header = self.grammar.header
        return header.permutes and not header.traits.ordered

    def _merged(self, shown: list[str], random: Random, usage: CommandUsage) -> list[str]:
        """The words with adjoining short options made one cluster, as often as people do that."""
        if not self.clusters:
            return shown
        spellings = usage.spellings
        clustered = spellings.get("cluster", 0.0)
        share = (clustered + 1.0) / (clustered + 0.3 * spellings.get("short", 0.0) + 2.0)
        result: list[str] = []
        run: list[str] = []
        for word in (*shown, ""):
            if run and len(run[-1]) == 2 and self._member(word):
                run.append(word)
                continue
            if len(run) > 1 and random.random() < share:
                last = len(run) - 1
                for place, member in enumerate(run):
                    left = NO_SPACE if place else ""
                    right = NO_SPACE if place < last else ""
                    result.append(f"{left}{member[1:] if place else member}{right}")
            else:
                result += run
            run = []
            if word and self._member(word) and len(word) == 2:
                run = [word]
            elif word:
                result.append(word)
        return result

    @cached_property
    def clusters(self) -> Mapping[str, OptionSpec]:
        """The options that clusters may hold, by letter."""
        return {
            letter: spec
            for spec in reversed(self.grammar.options)
            if spec.clusters
            for letter in spec.shorts
        }

    def _member(self, word: str) -> bool:
        """Whether a word can stand in a cluster: a flag, or at its end an option with a value."""
        if len(word) < 2 or word[0] != "-" or NO_SPACE in word or word[1] not in self.clusters:
            return False
        flag = self.clusters[word[1]].value == "none"
        return len(word) == 2 if flag else word[2:3] == " "

    def _value_respelt(self, word: str, random: Random, usage: CommandUsage) -> str:
        """The word; where it is an option with a value, joined to it or not as people write."""
        mark = NO_SPACE if word.startswith(NO_SPACE) else ""
        text = word.removeprefix(NO_SPACE)
        if text.startswith("--"):
            name, blank, value = text.partition(" ")
            if not blank or name not in self._longs:
                return word
            styles = usage.styles.get(name, {})
            share = styles.get("=", 0.0) / sum(styles.values()) if styles else EQUALS_SIGN
            return f"{name}={value}" if random.random() < share else word
        letter = text[:1] if mark else text[1:2]
        rest = text[1:] if mark else text[2:]
        spec = self._valued.get(letter)
        if spec is None or not rest or (not mark and text[:1] != "-") or text.endswith(NO_SPACE):
            return word
        styles = usage.styles.get(f"-{letter}", {})
        joined = styles.get("joined", 0.0)
        share = joined / (joined + styles.get("separate", 0.0) or 1.0) if styles else JOINED
        value = rest.removeprefix(" ")
        if not value or (value[0] == "-" and rest[0] != " "):
            return word
        return f"{mark}{'' if mark else '-'}{letter}{'' if random.random() < share else ' '}{value}"

    @cached_property
    def _longs(self) -> frozenset[str]:
        return frozenset(
            f"--{name}"
            for spec in self.grammar.options
            if spec.value == "required" and not spec.separate
            for name in spec.longs
        )

    @cached_property
    def _valued(self) -> Mapping[str, OptionSpec]:
        """By letter, the options whose value may be joined or a word of its own."""
        return {
            letter: spec
            for spec in self.grammar.options
            if spec.value == "required" and not spec.joined and not spec.separate
            for letter in spec.shorts
        }


def _reseeded(drawn: _Drawn, random: Random) -> str:
    """One of the values with its first number drawn anew.

    The number lies between the least and the largest of the values with the same text around it
    (unit, sign).
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
