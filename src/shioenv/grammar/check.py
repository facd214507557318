"""What is wrong with a grammar as a whole, and the shortest expansions of its nonterminals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from shioenv.grammar.faults import Fault, FaultKind
from shioenv.grammar.load import Loaded
from shioenv.grammar.notation import NO_SPACE
from shioenv.grammar.symbols import (
    MAX_ARGUMENT_LENGTH,
    Nonterminal,
    Production,
    Symbol,
    Terminal,
)
from shioenv.grammar.tokens import FALLBACK, STAND_IN, SYSTEM_TOKENS, VOCABULARY

Productions: TypeAlias = Mapping[Nonterminal, tuple[Production, ...]]


@dataclass(frozen=True, slots=True, order=True)
class Shortest:
    """The least that a nonterminal expands to: arguments first, then characters.

    `index` is the production that leads there.
    """

    arguments: int
    length: int
    index: int


def shortest_expansions(productions: Productions) -> Mapping[Nonterminal, Shortest]:
    """The shortest expansion of each nonterminal that has one; the others never end.

    A system token without productions counts as one argument of one character.
    """
    found: dict[Nonterminal, Shortest] = {}
    for bodies in productions.values():
        for production in bodies:
            for symbol in production.nonterminals:
                if symbol.is_system_token and symbol not in productions:
                    found[symbol] = Shortest(1, 1, 0)
    changed = True
    while changed:
        changed = False
        for head, bodies in productions.items():
            for index, production in enumerate(bodies):
                size = shortest_body(production, found)
                if size is None:
                    continue
                candidate = Shortest(*size, index)
                known = found.get(head)
                if known is None or size < (known.arguments, known.length):
                    found[head] = candidate
                    changed = True
    return found


def shortest_body(
    production: Production, found: Mapping[Nonterminal, Shortest]
) -> tuple[int, int] | None:
    """Arguments and characters that a production makes at least; None while that is unknown."""
    arguments = length = 0
    for argument in production.body:
        alone = len(argument) == 1
        made = 0
        for symbol in argument:
            if isinstance(symbol, Terminal):
                made = max(made, 1)
                length += 0 if symbol.text == NO_SPACE else len(symbol.text)
                continue
            least = found.get(symbol)
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
    several: set[Nonterminal] = set()
    changed = True
    while changed:
        changed = False
        for head, bodies in productions.items():
            if head not in several and any(_is_several(body, several) for body in bodies):
                several.add(head)
                changed = True
    return frozenset(several)


def _is_several(production: Production, several: set[Nonterminal]) -> bool:
    if len(production.body) > 1:
        return True
    return any(symbol in several for symbol in production.nonterminals)


def reachable(productions: Productions, starts: Iterable[Nonterminal]) -> frozenset[Nonterminal]:
    """The nonterminals that derivations from `starts` can meet."""
    found: set[Nonterminal] = set()
    pending = list(starts)
    while pending:
        head = pending.pop()
        if head in found:
            continue
        found.add(head)
        for production in productions.get(head, ()):
            pending.extend(production.nonterminals)
    return frozenset(found)


def without_endless(productions: Productions) -> Productions:
    """The productions that can be expanded to the end."""
    shortest = shortest_expansions(productions)
    kept = {
        head: tuple(one for one in bodies if shortest_body(one, shortest) is not None)
        for head, bodies in productions.items()
    }
    return {head: bodies for head, bodies in kept.items() if bodies}


def longest_length(productions: Productions, argument: tuple[Symbol, ...]) -> int:
    """Characters of the longest finished argument, repetitions and recursion taken once.

    A system token that is not bound counts as the longest value known beforehand.
    """
    memo: dict[Nonterminal, int] = {}

    def of(symbol: Symbol) -> int:
        if isinstance(symbol, Terminal):
            return 0 if symbol.text == NO_SPACE else len(symbol.text)
        if symbol not in memo:
            memo[symbol] = 0  # recursion meets this
            if symbol.is_system_token and symbol not in productions:
                memo[symbol] = _TOKEN_LENGTH.get(symbol.token, 0)
            else:
                bodies = productions.get(symbol, ())
                memo[symbol] = max(
                    (sum(map(of, one)) for body in bodies for one in body.body), default=0
                )
        return memo[symbol]

    return sum(map(of, argument))


_TOKEN_LENGTH = {
    name: max(map(len, values))
    for name in SYSTEM_TOKENS
    if (values := {**STAND_IN, **FALLBACK, **VOCABULARY}.get(name))
}


def check(loaded: Loaded) -> tuple[Fault, ...]:
    """The faults of a grammar as a whole: unreachable, endless, over-long, wrong examples.

    What can be seen in one line alone (syntax, undefined names, duplicates) is among the faults of
    `loaded` already; while there are undefined names, only those are worth knowing.
    """
    if any(fault.kind is FaultKind.UNDEFINED for fault in loaded.faults):
        return ()
    faults = [*_unreachable(loaded), *_endless(loaded), *_left_recursive(loaded)]
    if not faults:
        faults += [*_several_inside_words(loaded), *_too_long(loaded)]
    return tuple(faults)


def _fault(
    loaded: Loaded,
    head: Nonterminal,
    kind: FaultKind,
    message: str,
    production: Production | None = None,
) -> Fault:
    place = None
    if production is not None:
        place = loaded.places.get((head, production.body))
    base = Nonterminal(head.name.rstrip("*+?~"))
    line, column = place or loaded.lines.get(base) or loaded.lines.get(_block_of(base)) or (1, 1)
    return Fault(loaded.grammar.source, line, column, message, kind)


def _block_of(head: Nonterminal) -> Nonterminal:
    return Nonterminal(head.name.rpartition(".")[0])


def _own(loaded: Loaded) -> Iterator[tuple[Nonterminal, tuple[Production, ...]]]:
    """The heads that the file itself defines."""
    prefix = loaded.grammar.name
    for head, bodies in loaded.grammar.productions.items():
        if head.name.startswith(f"{prefix}:"):
            yield head, bodies


def _plain(head: Nonterminal) -> str:
    """The name as the file's author writes it."""
    return f"<{head.name.rpartition(':')[2]}>"


def _unreachable(loaded: Loaded) -> Iterator[Fault]:
    grammar = loaded.grammar
    found = reachable(grammar.productions, grammar.starts)
    parts = {_block_of(head) for head in found}
    for head in loaded.lines:
        if head not in found and head not in parts and head in grammar.productions:
            message = f"{_plain(head)} is never used; no start line leads to it"
            yield _fault(loaded, head, FaultKind.UNREACHABLE, message)


def _endless(loaded: Loaded) -> Iterator[Fault]:
    shortest = shortest_expansions(loaded.grammar.productions)
    for head, bodies in _own(loaded):
        if head not in shortest and bodies:
            message = f"{_plain(head)} never ends: each alternative leads to one that never ends"
            yield _fault(loaded, head, FaultKind.ENDLESS, message)


def _left_recursive(loaded: Loaded) -> Iterator[Fault]:
    """Nonterminals that come back to themselves before any text: a parser cannot follow them."""
    productions = loaded.grammar.productions
    empty = {head for head, least in shortest_expansions(productions).items() if not least.length}
    leads: dict[Nonterminal, set[Nonterminal]] = {}
    for head, bodies in productions.items():
        leads[head] = {first for body in bodies for first in _first(body, empty)}
    for head, _ in _own(loaded):
        seen: set[Nonterminal] = set()
        pending = list(leads[head])
        while pending:
            symbol = pending.pop()
            if symbol not in seen:
                seen.add(symbol)
                pending.extend(leads.get(symbol, ()))
        if head in seen:
            message = (
                f"{_plain(head)} comes back to itself before any text; "
                "write the repetition with `*`, or put the text first"
            )
            yield _fault(loaded, head, FaultKind.ENDLESS, message)


def _first(production: Production, empty: set[Nonterminal]) -> Iterator[Nonterminal]:
    """The nonterminals that a body can begin with."""
    for argument in production.body:
        for symbol in argument:
            if isinstance(symbol, Terminal):
                if symbol.text != NO_SPACE:
                    return
                continue
            yield symbol
            if symbol not in empty:
                return


def _several_inside_words(loaded: Loaded) -> Iterator[Fault]:
    several = several_arguments(loaded.grammar.productions)
    for head, bodies in _own(loaded):
        for production in bodies:
            for argument in production.body:
                if len(argument) == 1:
                    continue
                for symbol in argument:
                    if isinstance(symbol, Nonterminal) and symbol in several:
                        message = (
                            f"{_plain(symbol)} can be several arguments but stands inside one "
                            f"in {_plain(head)}; put text with blanks into braces: {{wc -l}}"
                        )
                        kind = FaultKind.SEVERAL_ARGUMENTS
                        yield _fault(loaded, head, kind, message, production)


def _too_long(loaded: Loaded) -> Iterator[Fault]:
    grammar = loaded.grammar
    several = several_arguments(grammar.productions)
    for head, bodies in _own(loaded):
        for production in bodies:
            for argument in production.body:
                alone = len(argument) == 1 and isinstance(argument[0], Nonterminal)
                if alone or any(symbol in several for symbol in argument):
                    continue
                length = longest_length(grammar.productions, argument)
                if length > MAX_ARGUMENT_LENGTH:
                    text = "".join(str(symbol) for symbol in argument)
                    message = (
                        f"{text} in {_plain(head)} can be {length} characters long; "
                        f"an argument has at most {MAX_ARGUMENT_LENGTH}"
                    )
                    yield _fault(loaded, head, FaultKind.TOO_LONG, message, production)
