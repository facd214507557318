"""Validation of a whole grammar: faults, shortest expansions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import islice

from shioenv.grammar.kinds import KINDS
from shioenv.grammar.load import Loaded
from shioenv.grammar.notation import NO_SPACE, Fault, FaultKind
from shioenv.grammar.spelling import received_form
from shioenv.grammar.symbols import (
    MAX_ARGUMENT_LENGTH,
    Nonterminal,
    Production,
    Productions,
    Symbol,
    TerminalText,
    leading_to,
    reachable,
)
from shioenv.grammar.system_tokens import FALLBACK, STAND_IN, SYSTEM_TOKENS, VOCABULARY


@dataclass(frozen=True, slots=True, order=True)
class Shortest:
    """The shortest expansion of a nonterminal: first by number of arguments, then by characters.

    `index` is the index of the production with which this expansion begins.
    """

    arguments: int
    length: int
    index: int


def shortest_expansions(productions: Productions) -> Mapping[Nonterminal, Shortest]:
    """Return the shortest expansions of all nonterminals that have a finite one.

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
    # each round visits only productions with a symbol whose expansion became shorter
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
    """Return the minimum numbers of arguments and characters of a production.

    None if the shortest expansion of one of its nonterminals is unknown.
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
    """Return the nonterminals that can expand to more than one argument."""
    written = [
        head
        for head, bodies in productions.items()
        if any(len(production.body) > 1 for production in bodies)
    ]
    return leading_to(written, productions, lambda production: production.nonterminals)


def without_endless(productions: Productions) -> Productions:
    """Return the productions with a finite expansion; heads without one are omitted."""
    needs = {
        head: [tuple(production.nonterminals) for production in bodies]
        for head, bodies in productions.items()
    }
    symbols = {symbol for each in needs.values() for body in each for symbol in body}
    finite = {symbol for symbol in symbols if symbol.is_system_token and symbol not in productions}
    known = -1
    while known != len(finite):
        known = len(finite)
        for head, each in reversed(needs.items()):  # definitions often precede their parts
            if head not in finite and any(map(finite.issuperset, each)):
                finite.add(head)
    kept = {
        head: tuple(
            production
            for production, body in zip(bodies, needs[head], strict=True)
            if finite.issuperset(body)
        )
        for head, bodies in productions.items()
    }
    return {head: bodies for head, bodies in kept.items() if bodies}


def longest_length(
    productions: Productions,
    argument: tuple[Symbol, ...],
    known: dict[Nonterminal, int] | None = None,
) -> int:
    """Return the length of the longest argument, with repetitions and recursion used once.

    For an unbound system token, the longest value known in advance is used. `known` caches the
    lengths of nonterminals between calls.
    """
    known = {} if known is None else known

    def of(symbol: Symbol) -> int:
        if isinstance(symbol, TerminalText):
            return 0 if symbol.text == NO_SPACE else len(symbol.text)
        return known[symbol]

    waiting = [(symbol, False) for symbol in reversed(argument) if isinstance(symbol, Nonterminal)]
    while waiting:
        head, is_ready = waiting.pop()
        bodies = productions.get(head, ())
        if is_ready:
            arguments = (argument for production in bodies for argument in production.body)
            longest = max((sum(map(of, argument)) for argument in arguments), default=0)
            known[head] = min(longest, _ENDLESS_LENGTH)
        elif head.is_system_token and head not in productions:
            known[head] = _TOKEN_LENGTH.get(head.token, 0)
        elif head not in known:
            known[head] = 0  # the length assumed in a recursion
            parts = [part for production in bodies for part in production.nonterminals]
            waiting += [(head, True), *((part, False) for part in reversed(parts))]
    return sum(map(of, argument))


_ENDLESS_LENGTH = 1_000_000
"""The length at which counting stops (our choice)."""

_TOKEN_LENGTH = {
    name: max(map(len, values))
    for name in SYSTEM_TOKENS
    if (values := {**STAND_IN, **FALLBACK, **VOCABULARY}.get(name))
}


def check(loaded: Loaded) -> tuple[Fault, ...]:
    """Return the faults of a grammar as a whole.

    These are names that no start line uses, names that expand endlessly or to too much, and lists
    of values whose kind is not named. Others are overlong arguments, and several arguments inside
    one. Faults that are visible in a single line (syntax, undefined names, duplicates) are already
    among the faults of `loaded`. If names are undefined, no other fault is reported.
    """
    if any(fault.kind is FaultKind.UNDEFINED for fault in loaded.faults):
        return ()
    shortest = shortest_expansions(loaded.grammar.productions)
    faults = [*_unreachable(loaded), *_endless(loaded, shortest)]
    faults += [*_before_text(loaded, shortest), *_closed_lists(loaded)]
    faults += _doubling(loaded, shortest)
    if not faults:
        several = several_arguments(loaded.grammar.productions)
        faults += [*_several_inside_words(loaded, several), *_too_long(loaded, several)]
    return tuple(faults)


def _closed_lists(loaded: Loaded) -> Iterator[Fault]:
    """Yield faults of definitions that list values of a kind, but do not name the kind."""
    grammar = loaded.grammar
    for head, bodies in grammar.own.items():
        named = head in loaded.lines and "." not in head.name
        if head in grammar.kinds or not named or head in grammar.option_slots:
            continue
        texts = [
            received_form(str(production.body[0][0]))
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
                    f"`{_plain(head)} : {kind.name} =`, or `: closed` if no others exist"
                )
                yield _fault(loaded, head, FaultKind.KIND, message)
                break


_EVIDENT = ("number", "signed", "size", "mode")
"""Kinds that can be recognised from a list of their values."""


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
    """Yield the arguments of the file's own productions that are not a single nonterminal."""
    for bodies in loaded.grammar.own.values():
        for production in bodies:
            for argument in production.body:
                if len(argument) != 1 or isinstance(argument[0], TerminalText):
                    yield production, argument


def _plain(head: Nonterminal) -> str:
    """Return the name as in the grammar file."""
    return f"<{head.name.rpartition(':')[2]}>"


def _unreachable(loaded: Loaded) -> Iterator[Fault]:
    grammar = loaded.grammar
    met = reachable(grammar.productions, grammar.starts)
    used = met | {_block_of(head) for head in met}
    for head in loaded.lines:
        if head not in used and head in grammar.productions:
            message = f"{_plain(head)} is not used by any start line"
            yield _fault(loaded, head, FaultKind.UNREACHABLE, message)


def _endless(loaded: Loaded, shortest: Mapping[Nonterminal, Shortest]) -> Iterator[Fault]:
    for head, bodies in loaded.grammar.own.items():
        if head not in shortest and bodies:
            message = f"{_plain(head)} never ends: every alternative is endless"
            yield _fault(loaded, head, FaultKind.ENDLESS, message)


MOST_STEPS = 10_000
"""Limit on the number of productions in the shortest expansion of a nonterminal (our choice)."""


def _doubling(loaded: Loaded, shortest: Mapping[Nonterminal, Shortest]) -> Iterator[Fault]:
    """Yield a fault if a nonterminal's shortest expansion is too large.

    In a chain of definitions with two references each, the expansion doubles at every level.
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
                steps[head] = min(1 + sum(steps[part] for part in parts), MOST_STEPS + 1)
            else:
                path += missing
        if steps[start] > MOST_STEPS:
            message = (
                f"{_plain(start)} needs more than {MOST_STEPS:,} productions for its shortest text"
            )
            yield _fault(loaded, start, FaultKind.ENDLESS, message)
            return


MOST_BEFORE_TEXT = 40
"""Maximum chain of definitions before any text (our choice); shipped grammars have 6."""


def _before_text(loaded: Loaded, shortest: Mapping[Nonterminal, Shortest]) -> Iterator[Fault]:
    """Yield faults of definitions that make a parser recurse too deeply before any text.

    The definitions must not be left-recursive or form chains longer than `MOST_BEFORE_TEXT`.
    """
    productions = loaded.grammar.productions
    empty = {head for head, least in shortest.items() if not least.length}
    leads = {
        head: {symbol for production in bodies for symbol in _first(production, empty)}
        for head, bodies in productions.items()
    }
    own = loaded.grammar.own
    recursive: set[Nonterminal] = set()
    depth: dict[Nonterminal, int] = {}
    for component in _components(leads):
        parts = {part for head in component for part in leads[head]}
        if not parts.isdisjoint(component):
            recursive.update(component)
        below = max((depth.get(part, 0) for part in parts), default=0)
        depth |= dict.fromkeys(component, 1 + below)
    for head in leads:
        if head in own and head in recursive:
            message = (
                f"{_plain(head)} is left-recursive; "
                "write the repetition with `*`, or put the text first"
            )
            yield _fault(loaded, head, FaultKind.ENDLESS, message)
    deep = (head for head in loaded.lines if depth.get(head, 0) > MOST_BEFORE_TEXT)
    for head in islice(deep, 1):
        message = (
            f"{_plain(head)} expands through more than {MOST_BEFORE_TEXT} definitions "
            "before any text"
        )
        yield _fault(loaded, head, FaultKind.ENDLESS, message)


def _components(
    leads: Mapping[Nonterminal, set[Nonterminal]],
) -> Iterator[list[Nonterminal]]:
    """Yield the strongly connected components, dependencies first (Tarjan's algorithm)."""
    order: dict[Nonterminal, int] = {}
    lowest: dict[Nonterminal, int] = {}
    entered: dict[Nonterminal, None] = {}
    for start in leads:
        path = [(start, iter(leads[start]))] if start not in order else []
        while path:
            head, parts = path[-1]
            if head not in order:
                order[head] = lowest[head] = len(order)
                entered[head] = None
            part = next(parts, None)
            if part is None:
                path.pop()
                if path:
                    above = path[-1][0]
                    lowest[above] = min(lowest[above], lowest[head])
                if lowest[head] == order[head]:
                    component = [entered.popitem()[0]]
                    while component[-1] != head:
                        component.append(entered.popitem()[0])
                    yield component
            elif part in entered:
                lowest[head] = min(lowest[head], order[part])
            elif part in leads and part not in order:
                path.append((part, iter(leads[part])))


def _first(production: Production, empty: set[Nonterminal]) -> Iterator[Nonterminal]:
    """Yield the nonterminals with which a body can begin."""
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
                    f"{_plain(symbol)} can be several arguments, but is part of one "
                    f"in {_plain(head)}; put text with blanks into braces: {{wc -l}}"
                )
                yield _fault(loaded, head, FaultKind.SEVERAL_ARGUMENTS, message, production)


def _too_long(loaded: Loaded, several: frozenset[Nonterminal]) -> Iterator[Fault]:
    grammar = loaded.grammar
    known: dict[Nonterminal, int] = {}
    for production, argument in _written_together(loaded):
        length = longest_length(grammar.productions, argument, known)
        if length > MAX_ARGUMENT_LENGTH and several.isdisjoint(argument):
            text, head = "".join(map(str, argument)), production.head
            message = (
                f"{text} in {_plain(head)} can have {length} characters; "
                f"the maximum of an argument is {MAX_ARGUMENT_LENGTH}"
            )
            yield _fault(loaded, head, FaultKind.TOO_LONG, message, production)
