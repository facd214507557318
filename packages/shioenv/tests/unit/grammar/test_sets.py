"""Names of sets of grammars, and the samplers that draw from them."""

from pathlib import Path

import pytest

from shioenv.errors import UsageError
from shioenv.grammar.bind import stand_in_catalogue
from shioenv.grammar.library import (
    PAPER,
    SETS,
    OwnGrammars,
    choosable,
    chosen_grammars,
    names_of_grammars,
)
from shioenv.synthesis.drawing import Drawing
from shioenv.synthesis.sample import draw_samples

OWN = OwnGrammars(Path("mine"), ("say", "ls"), "")


def test_the_papers_set_is_86_shipped_grammars() -> None:
    assert len(set(PAPER)) == 86
    assert list(PAPER) == sorted(PAPER)
    assert set(PAPER) <= set(names_of_grammars())


def test_a_set_stands_for_its_grammars() -> None:
    assert chosen_grammars() == chosen_grammars(["paper"]) == PAPER
    assert chosen_grammars(["all"]) == names_of_grammars()
    assert chosen_grammars(["wc", "ls", "wc"]) == ("wc", "ls")
    assert chosen_grammars(["wc", "paper"]) == ("wc", *(name for name in PAPER if name != "wc"))
    assert choosable() == (*SETS, *names_of_grammars())


def test_own_grammars_belong_to_each_set() -> None:
    assert chosen_grammars((), OWN) == tuple(sorted({*PAPER, "say"}))
    assert chosen_grammars(["all"], OWN) == tuple(sorted({*names_of_grammars(), "say"}))
    assert chosen_grammars(["ls"], OWN) == ("ls",)


def test_no_own_grammar_has_the_name_of_a_set() -> None:
    with pytest.raises(UsageError, match="the name of a set"):
        chosen_grammars(["ls"], OwnGrammars(Path("mine"), ("all",), ""))


def test_the_default_draws_the_papers_commands_alone() -> None:
    def commands(*chosen: str) -> set[str]:
        drawing = Drawing(
            seed=3, commands=chosen, composite_share=0, start_directories=("/home/ubuntu",)
        )
        drawn = draw_samples(drawing, count=250, catalogue=stand_in_catalogue())
        return {part.grammar for one in drawn for part in one.trace}

    assert commands() == commands("paper") <= set(PAPER)
    others = set(names_of_grammars()).difference(PAPER)
    assert not others.isdisjoint(commands("all"))
