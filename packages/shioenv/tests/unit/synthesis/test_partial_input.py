"""Partial inputs (Section 3.2), and their agreement with the fast derivation."""

from __future__ import annotations

from random import Random

import pytest

from shioenv.grammar.bind import bind, stand_in_catalogue
from shioenv.grammar.library import load_grammars
from shioenv.grammar.symbols import Grammar, Nonterminal, Production, TerminalText
from shioenv.synthesis.derivation import BREAK, Derivation, PartialInput
from shioenv.synthesis.samplers import Sampler


@pytest.fixture(scope="module")
def grammars() -> tuple[Grammar, ...]:
    return tuple(
        bind(grammar, stand_in_catalogue()) for grammar in load_grammars(["ls", "df", "echo"])
    )


def test_leftmost_is_the_first_nonterminal_and_none_in_a_finished_input() -> None:
    a, b = Nonterminal("a"), Nonterminal("b")
    state = PartialInput(((TerminalText("ls"),), (TerminalText("-"), a), (b,)))
    assert state.leftmost == a
    state = state.expand(Production(a, ((TerminalText("l"),),)))
    assert state.leftmost == b
    state = state.expand(Production(b, ()))
    assert state.leftmost is None
    assert state.words == ("ls", "-l")


def test_a_body_of_several_arguments_joins_its_neighbours_at_its_ends() -> None:
    a = Nonterminal("a")
    state = PartialInput(((TerminalText("p"), a, TerminalText("q")),))
    body = ((TerminalText("1"),), (TerminalText("2"),), (TerminalText("3"),))
    assert state.expand(Production(a, body)).words == ("p1", "2", "3q")


def test_the_fast_derivation_passes_through_the_same_states(
    grammars: tuple[Grammar, ...],
) -> None:
    sampler = Sampler("gcs", grammars)
    for grammar in grammars:
        for seed in range(40):
            state = PartialInput.initial(grammar.start)
            derivation = Derivation(sampler.table, grammar.start)
            for choice in sampler.draw(grammar.start, Random(seed)).trace:
                assert isinstance(choice, int)
                choices = sampler.table.choices(derivation.leftmost)
                assert state.n_arguments == derivation.n_arguments
                state = state.expand(choices.productions[choice])
                derivation.expand(choices, choice)
                assert str(state) == str(derivation.state)
                assert state.leftmost == derivation.state.leftmost
            assert derivation.leftmost == BREAK
