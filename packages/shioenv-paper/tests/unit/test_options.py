"""The formal laws of options (Section 3.2), and their agreement with the samplers."""

from random import Random

import pytest

from shioenv.grammar.bind import bind, stand_in_catalogue
from shioenv.grammar.library import load_grammars
from shioenv.grammar.load import read_grammar
from shioenv.grammar.symbols import Grammar, Nonterminal
from shioenv.synthesis.derivation import PartialInput
from shioenv.synthesis.policy import WeightedPolicy
from shioenv.synthesis.samplers import Sampler, united
from shioenv_paper.explanatory_figures import Options

NO_HORIZON = 10_000


@pytest.fixture(scope="module")
def grammars() -> tuple[Grammar, ...]:
    return tuple(
        bind(grammar, stand_in_catalogue()) for grammar in load_grammars(["ls", "df", "echo"])
    )


@pytest.fixture(scope="module")
def options(grammars: tuple[Grammar, ...]) -> Options:
    return Options(united(grammars), WeightedPolicy())


def small(body: str) -> Grammar:
    header = "command x\nmanual x(1), T 1\npackage t\nvolatile no\n"
    return bind(read_grammar(header + body, "x.grammar").grammar, stand_in_catalogue())


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
    options = Options(united([grammar]), WeightedPolicy())
    steps = options.rollout(PartialInput.initial(grammar.start), Random(1))
    of_a = [step.terminated for step in steps if step.nonterminal == Nonterminal("x:a")]
    assert len(of_a) > 2
    assert of_a == [False] * (len(of_a) - 1) + [True]


def test_recursion_behind_another_nonterminal_ends_the_option_and_starts_it_anew() -> None:
    grammar = small("start x <b>*\n<b> = p | q\n")
    options = Options(united([grammar]), WeightedPolicy(stop_probability=0.01))
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


def test_a_rollout_can_be_cut_short(options: Options) -> None:
    assert (
        len(options.rollout(PartialInput.initial(Nonterminal("df:start")), Random(0), max_steps=3))
        == 3
    )
