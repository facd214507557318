"""The faults of a grammar as a whole, and the shortest expansions of its nonterminals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush

from shioenv.grammar.faults import Fault, FaultKind
from shioenv.grammar.kinds import KINDS
from shioenv.grammar.load import Loaded
from shioenv.grammar.notation import NO_SPACE
from shioenv.grammar.spelling import plain
from shioenv.grammar.symbols import (
    MAX_ARGUMENT_LENGTH,
    Nonterminal,
    Production,
    Productions,
    Symbol,
    TerminalText,
    closure,
    leading_to,
    reachable,
)
from shioenv.grammar.tokens import FALLBACK, STAND_IN, SYSTEM_TOKENS, VOCABULARY


@dataclass(frozen=True, slots=True, order=True)
class Shortest:
    """The shortest expansion of a nonterminal, in arguments first and characters second.

    `index` is that of the head's production which leads to the shortest expansion.
    """

    arguments: int
    length: int
    index: int


def shortest_expansions(productions: Productions) -> Mapping[Nonterminal, Shortest]:
    """The shortest expansion of each nonterminal that has an expansion; the others never end.

    A system token without productions counts as one argument of one character.
    """
    unbound = reachable(productions, productions).difference(productions)
    shortest = {symbol: Shortest(1, 1, 0) for symbol in unbound if symbol.is_system_token}
    every = [
        (head, index, production)
        for head, bodies in productions.items()
        for index, production in enumerate(bodies)
    ]
    users: dict[Nonterminal, list[int]] = defaultdict(list)
    for number, (_, _, production) in enumerate(every):
        for symbol in production.nonterminals:
            users[symbol].append(number)
    # each round goes through the productions in order of which a symbol has become shorter
    due: Iterable[int] = range(len(every))
    while due:
        queue, later = list(due), set[int]()
        queued = set(queue)
        while queue:
            number = heappop(queue)
            queued.discard(number)
            head, index, production = every[number]
            size = shortest_body(production, shortest)
            known = shortest.get(head)
            if size is None or (known and size >= (known.arguments, known.length)):
                continue
            shortest[head] = Shortest(*size, index)
            for user in users[head]:
                if user <= number:
                    later.add(user)
                elif user not in queued:
                    queued.add(user)
                    heappush(queue, user)
        due = sorted(later)
    return shortest


def shortest_body(
    production: Production, shortest: Mapping[Nonterminal, Shortest]
) -> tuple[int, int] | None:
    """The arguments and characters that a production makes at least.

    None where no shortest expansion of one of its nonterminals is known.
    """
    arguments = length = 0
    for argument in production.body:
        alone = len(argument) == 1
        made = 0
        for symbol in argument:
            if isinstance(symbol, TerminalText):
                made = max(made, 1)
                length += 0 if symbol.text == NO_SPACE else len(symbol.text)
                continue
            least = shortest.get(symbol)
            if least is None:
                return None
            length += least.length
            if alone:
                made = least.arguments
            elif least.length:
                made = max(made, 1) + max(0, least.arguments - 1)
        arguments += made
    return arguments, length


def several_arguments(productions: Productions) -> frozenset[Nonterminal]:
    """The nonterminals that can expand to more than one argument."""
    written = [
        head
        for head, bodies in productions.items()
        if any(len(production.body) > 1 for production in bodies)
    ]
    return leading_to(written, productions, lambda production: production.nonterminals)


def without_endless(productions: Productions) -> Productions:
    """The productions whose expansion can end; heads that are left with none are left out."""
    shortest = shortest_expansions(productions)
    kept = {
        head: tuple(
            production
            for production in bodies
            if all(symbol in shortest for symbol in production.nonterminals)
        )
        for head, bodies in productions.items()
    }
    return {head: bodies for head, bodies in kept.items() if bodies}


def longest_length(productions: Productions, argument: tuple[Symbol, ...]) -> int:
    """Characters of the longest finished argument, repetitions and recursion taken once.

    A system token that is not bound counts as the longest value known beforehand.
    """
    memo: dict[Nonterminal, int] = {}

    def of(symbol: Symbol) -> int:
        if isinstance(symbol, TerminalText):
            return 0 if symbol.text == NO_SPACE else len(symbol.text)
        if symbol not in memo:
            memo[symbol] = 0  # where the symbol leads back to itself, this counts
            if symbol.is_system_token and symbol not in productions:
                memo[symbol] = _TOKEN_LENGTH.get(symbol.token, 0)
            else:
                bodies = productions.get(symbol, ())
                arguments = (argument for production in bodies for argument in production.body)
                memo[symbol] = max((sum(map(of, argument)) for argument in arguments), default=0)
        return memo[symbol]

    return sum(map(of, argument))


_TOKEN_LENGTH = {
    name: max(map(len, values))
    for name in SYSTEM_TOKENS
    if (values := {**STAND_IN, **FALLBACK, **VOCABULARY}.get(name))
}


def check(loaded: Loaded) -> tuple[Fault, ...]:
    """The faults of a grammar as a whole.

    These are unreachable and endless names, unnamed kinds, several arguments inside of one, and
    over-long arguments. Faults that can be seen in one line alone (syntax, undefined names,
    duplicates) are among the faults of `loaded` already. Where names are undefined, no other fault
    is reported.
    """
    if any(fault.kind is FaultKind.UNDEFINED for fault in loaded.faults):
        return ()
    shortest = shortest_expansions(loaded.grammar.productions)
    faults = [*_unreachable(loaded), *_endless(loaded, shortest)]
    faults += [*_left_recursive(loaded, shortest), *_closed_lists(loaded)]
    faults += _doubling(loaded, shortest)
    if not faults:
        several = several_arguments(loaded.grammar.productions)
        faults += [*_several_inside_words(loaded, several), *_too_long(loaded, several)]
    return tuple(faults)


def _closed_lists(loaded: Loaded) -> Iterator[Fault]:
    """Faults of definitions that list some values of a kind and do not name the kind."""
    grammar = loaded.grammar
    for head, bodies in grammar.own.items():
        named = head in loaded.lines and "." not in head.name
        if head in grammar.kinds or not named or head in grammar.option_slots:
            continue
        texts = [
            plain(str(production.body[0][0]))
            for production in bodies
            if len(production.body) == 1
            and len(production.body[0]) == 1
            and isinstance(production.body[0][0], TerminalText)
        ]
        if len(texts) < max(3, len(bodies)) or not any(map(str.isdigit, "".join(texts))):
            continue
        for kind in map(KINDS.__getitem__, _EVIDENT):
            if all(kind.language.fullmatch(text) for text in texts):
                message = (
                    f"{_plain(head)} lists values of the kind {kind.name}; write "
                    f"`{_plain(head)} : {kind.name} =`, or `: closed` where there are no others"
                )
                yield _fault(loaded, head, FaultKind.KIND, message)
                break


_EVIDENT = ("number", "signed", "size", "mode")
"""Kinds that can be told from a list of their values."""


def _fault(
    loaded: Loaded,
    head: Nonterminal,
    kind: FaultKind,
    message: str,
    production: Production | None = None,
) -> Fault:
    place = production and loaded.places.get((head, production.body))
    base = Nonterminal(head.name.rstrip("*+?~"))
    line, column = place or loaded.lines.get(base) or loaded.lines.get(_block_of(base)) or (1, 1)
    return Fault(loaded.grammar.source, line, column, message, kind)


def _block_of(head: Nonterminal) -> Nonterminal:
    return Nonterminal(head.name.rpartition(".")[0])


def _written_together(loaded: Loaded) -> Iterator[tuple[Production, tuple[Symbol, ...]]]:
    """The arguments of the file's own productions that are not just one nonterminal."""
    for bodies in loaded.grammar.own.values():
        for production in bodies:
            for argument in production.body:
                if len(argument) != 1 or isinstance(argument[0], TerminalText):
                    yield production, argument


def _plain(head: Nonterminal) -> str:
    """The name as the file's author writes it."""
    return f"<{head.name.rpartition(':')[2]}>"


def _unreachable(loaded: Loaded) -> Iterator[Fault]:
    grammar = loaded.grammar
    met = reachable(grammar.productions, grammar.starts)
    used = met | {_block_of(head) for head in met}
    for head in loaded.lines:
        if head not in used and head in grammar.productions:
            message = f"{_plain(head)} is never used; no start line leads to it"
            yield _fault(loaded, head, FaultKind.UNREACHABLE, message)


def _endless(loaded: Loaded, shortest: Mapping[Nonterminal, Shortest]) -> Iterator[Fault]:
    for head, bodies in loaded.grammar.own.items():
        if head not in shortest and bodies:
            message = f"{_plain(head)} never ends: each alternative leads to one that never ends"
            yield _fault(loaded, head, FaultKind.ENDLESS, message)


MOST_STEPS = 10_000
"""Productions that the shortest expansion of a nonterminal takes, at most (ours)."""


def _doubling(loaded: Loaded, shortest: Mapping[Nonterminal, Shortest]) -> Iterator[Fault]:
    """Faults of nonterminals whose shortest expansion is too much to be written.

    A chain of definitions with two references each doubles it at every level.
    """
    productions = loaded.grammar.productions
    steps: dict[Nonterminal, int] = {}
    for start in loaded.grammar.own:
        path = [start]
        while path:
            head = path[-1]
            found = shortest.get(head)
            bodies = productions.get(head, ())
            parts = list(bodies[found.index].nonterminals) if found and bodies else []
            missing = [part for part in parts if part not in steps]
            if head in steps or not missing:
                path.pop()
                steps.setdefault(head, 1 + sum(steps[part] for part in parts))
            else:
                path += missing
        if steps[start] > MOST_STEPS:
            message = (
                f"{_plain(start)} takes {steps[start]:,} productions or more to be written; "
                f"at most {MOST_STEPS:,} are"
            )
            yield _fault(loaded, start, FaultKind.ENDLESS, message)
            return


def _left_recursive(loaded: Loaded, shortest: Mapping[Nonterminal, Shortest]) -> Iterator[Fault]:
    """Faults of nonterminals that come back to themselves before any text, as no parser can."""
    productions = loaded.grammar.productions
    empty = {head for head, least in shortest.items() if not least.length}
    leads = {
        head: {symbol for production in bodies for symbol in _first(production, empty)}
        for head, bodies in productions.items()
    }
    own, found = loaded.grammar.own, 0
    for head in _on_a_way_back(leads):
        if found == _MOST_LEFT_RECURSIVE:
            return
        if head in own and head in closure(leads[head], lambda symbol: leads.get(symbol, ())):
            found += 1
            message = (
                f"{_plain(head)} comes back to itself before any text; "
                "write the repetition with `*`, or put the text first"
            )
            yield _fault(loaded, head, FaultKind.ENDLESS, message)


_MOST_LEFT_RECURSIVE = 20
"""Left-recursive names of one file that are reported at most (ours): each takes a search."""


def _on_a_way_back(leads: Mapping[Nonterminal, set[Nonterminal]]) -> list[Nonterminal]:
    """The heads from which a cycle can be reached, in order; mostly none."""
    users: dict[Nonterminal, list[Nonterminal]] = defaultdict(list)
    left: dict[Nonterminal, int] = {}
    for head, symbols in leads.items():
        further = [symbol for symbol in symbols if symbol in leads]
        left[head] = len(further)
        for symbol in further:
            users[symbol].append(head)
    done = [head for head, number in left.items() if not number]
    for head in done:  # grows meanwhile
        for user in users[head]:
            left[user] -= 1
            if not left[user]:
                done.append(user)
    return [head for head, number in left.items() if number]


def _first(production: Production, empty: set[Nonterminal]) -> Iterator[Nonterminal]:
    """The nonterminals that a body can begin with."""
    for argument in production.body:
        for symbol in argument:
            if isinstance(symbol, TerminalText):
                if symbol.text != NO_SPACE:
                    return
                continue
            yield symbol
            if symbol not in empty:
                return


def _several_inside_words(loaded: Loaded, several: frozenset[Nonterminal]) -> Iterator[Fault]:
    for production, argument in _written_together(loaded):
        head = production.head
        for symbol in argument:
            if isinstance(symbol, Nonterminal) and symbol in several:
                message = (
                    f"{_plain(symbol)} can be several arguments but stands inside one "
                    f"in {_plain(head)}; put text with blanks into braces: {{wc -l}}"
                )
                yield _fault(loaded, head, FaultKind.SEVERAL_ARGUMENTS, message, production)


def _too_long(loaded: Loaded, several: frozenset[Nonterminal]) -> Iterator[Fault]:
    grammar = loaded.grammar
    for production, argument in _written_together(loaded):
        length = longest_length(grammar.productions, argument)
        if length > MAX_ARGUMENT_LENGTH and several.isdisjoint(argument):
            text, head = "".join(map(str, argument)), production.head
            message = (
                f"{text} in {_plain(head)} can be {length} characters long; "
                f"an argument has at most {MAX_ARGUMENT_LENGTH}"
            )
            yield _fault(loaded, head, FaultKind.TOO_LONG, message, production)
