"""The incremental computation of the shortest expansions equals the full fixed point, ties
included.
"""

from hypothesis import given
from hypothesis import strategies as st

from shioenv.grammar.symbols import (
    Nonterminal,
    Production,
    Productions,
    Symbol,
    TerminalText,
    reachable,
)
from shioenv.grammar.validation import Shortest, shortest_body, shortest_expansions, without_endless

HEADS = [Nonterminal(f"x:{name}") for name in "abcdef"]
TERMINALS = [TerminalText(""), TerminalText("-o"), TerminalText("=")]
SYMBOLS: st.SearchStrategy[Symbol] = st.sampled_from([*HEADS, Nonterminal("File"), *TERMINALS])
BODIES = st.lists(st.lists(SYMBOLS, min_size=1, max_size=3).map(tuple), max_size=3).map(tuple)


@st.composite
def productions(draw: st.DrawFn) -> Productions:
    heads = draw(st.permutations(HEADS))
    return {
        head: tuple(Production(head, body) for body in draw(st.lists(BODIES, max_size=4)))
        for head in heads
    }


def by_rounds(productions: Productions) -> dict[Nonterminal, Shortest]:
    unbound = reachable(productions, productions).difference(productions)
    shortest = {symbol: Shortest(1, 1, 0) for symbol in unbound if symbol.is_system_token}
    changed = True
    while changed:
        changed = False
        for head, bodies in productions.items():
            for index, production in enumerate(bodies):
                size = shortest_body(production, shortest)
                known = shortest.get(head)
                if size and (known is None or size < (known.arguments, known.length)):
                    shortest[head] = Shortest(*size, index)
                    changed = True
    return shortest


@given(productions())
def test_they_are_those_of_rounds_over_all_productions(grammar: Productions) -> None:
    assert shortest_expansions(grammar) == by_rounds(grammar)


@given(productions())
def test_what_ends_is_what_has_a_size(grammar: Productions) -> None:
    shortest = by_rounds(grammar)
    assert without_endless(grammar) == {
        head: kept
        for head, bodies in grammar.items()
        if (kept := tuple(one for one in bodies if shortest_body(one, shortest) is not None))
    }
