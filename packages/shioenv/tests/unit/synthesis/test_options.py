"""The formal laws of options (Section 3.2) and their agreement with the fast derivation."""

from random import Random

import pytest

from shioenv.grammar.bind import bind, stand_in_catalogue
from shioenv.grammar.library import load_grammars
from shioenv.grammar.load import read_grammar
from shioenv.grammar.symbols import Grammar, Nonterminal, Production, TerminalText
from shioenv.synthesis.derivation import BREAK, Derivation
from shioenv.synthesis.partial_input import Options, PartialInput
from shioenv.synthesis.policy import WeightedPolicy
from shioenv.synthesis.samplers import Sampler, gcs

NO_HORIZON = 10_000


@pytest.fixture(scope="module")
def grammars() -> tuple[Grammar, ...]:
    return tuple(
        bind(grammar, stand_in_catalogue()) for grammar in load_grammars(["ls", "df", "echo"])
    )


@pytest.fixture(scope="module")
def options(grammars: tuple[Grammar, ...]) -> Options:
    return Options(gcs(grammars), WeightedPolicy())


def small(body: str) -> Grammar:
    header = "command x\nmanual x(1), T 1\npackage t\nvolatile no\n"
    return bind(read_grammar(header + body, "x.grammar").grammar, stand_in_catalogue())


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


def test_an_option_starts_only_where_its_nonterminal_is_leftmost(options: Options) -> None:
    option = options[Nonterminal("df:operand")]
    elsewhere = PartialInput.initial(Nonterminal("df:start"))
    assert not option.can_start(elsewhere)
    with pytest.raises(ValueError, match="cannot start"):
        option.step(elsewhere, Random(0))


def test_an_option_picks_only_productions_of_its_nonterminal(
    options: Options, grammars: tuple[Grammar, ...]
) -> None:
    for seed in range(50):
        for step in options.rollout(PartialInput.initial(Nonterminal("ls:start")), Random(seed)):
            assert step.production.head == step.nonterminal


def test_an_option_ends_exactly_when_another_nonterminal_is_leftmost(options: Options) -> None:
    for seed in range(50):
        for step in options.rollout(PartialInput.initial(Nonterminal("df:start")), Random(seed)):
            assert step.terminated == (step.state.leftmost != step.nonterminal)


def test_right_recursion_keeps_the_option_running() -> None:
    grammar = small("start x <a>\n<a> = p<a> %weight 9 | q\n")
    options = Options(gcs([grammar]), WeightedPolicy())
    steps = options.rollout(PartialInput.initial(grammar.start), Random(1))
    of_a = [step.terminated for step in steps if step.nonterminal == Nonterminal("x:a")]
    assert len(of_a) > 2
    assert of_a == [False] * (len(of_a) - 1) + [True]


def test_recursion_behind_another_nonterminal_ends_the_option_and_starts_it_anew() -> None:
    grammar = small("start x <b>*\n<b> = p | q\n")
    options = Options(gcs([grammar]), WeightedPolicy(stop_probability=0.01))
    steps = options.rollout(PartialInput.initial(grammar.start), Random(1), max_steps=9)
    names = [step.nonterminal.name for step in steps[1:]]
    assert names == ["x:b*", "x:b"] * 4
    assert all(step.terminated for step in steps)


def test_the_rollouts_steps_are_the_samplers_choices(
    options: Options, grammars: tuple[Grammar, ...]
) -> None:
    sampler = Sampler("gcs", grammars, horizon=NO_HORIZON)
    for grammar in grammars:
        for seed in range(100):
            steps = options.rollout(PartialInput.initial(grammar.start), Random(seed))
            if max(map(len, steps[-1].state.words)) > 64:
                continue
            drawn = sampler.draw(grammar.start, Random(seed))
            assert steps[-1].state.words == drawn.words
            taken = [
                options[step.nonterminal].choices.productions.index(step.production)
                for step in steps
            ]
            assert taken == list(drawn.trace)


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


def test_a_rollout_can_be_cut_short(options: Options) -> None:
    assert (
        len(options.rollout(PartialInput.initial(Nonterminal("df:start")), Random(0), max_steps=3))
        == 3
    )
