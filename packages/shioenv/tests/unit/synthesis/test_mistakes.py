"""Mistakes inserted into inputs: every class, the requested number, and no other change."""

from __future__ import annotations

from collections import Counter
from functools import cache
from random import Random

import pytest

from shioenv.domain.inputs import Argument, Input, Role, Token
from shioenv.errors import UsageError
from shioenv.grammar.bind import stand_in_catalogue
from shioenv.grammar.library import load_grammars
from shioenv.grammar.parse import InputParser
from shioenv.grammar.symbols import Grammar
from shioenv.synthesis.drawing import Drawing
from shioenv.synthesis.mistakes import MISTAKES, mistaken
from shioenv.synthesis.sample import draw_samples
from shioenv.synthesis.traces import Sample
from shioenv.system.store import System

HERE = ("/home/ubuntu",)
CATALOGUE = stand_in_catalogue()


@cache
def known() -> dict[str, Grammar]:
    grammars = load_grammars(["ls", "grep", "cp", "head", "rm", "cat", "sort"])
    return {grammar.name: grammar for grammar in grammars}


def draw(count: int, mistakes: float, **options: object) -> list[Sample]:
    drawing = Drawing(mistakes=mistakes, start_directories=HERE, seed=6, **options)  # type: ignore[arg-type]
    return list(draw_samples(drawing, count=count, catalogue=CATALOGUE))


def made(text: str) -> dict[str, set[str]]:
    shell_input = InputParser(known().values()).parse(text)
    names = {"File": ["a.txt"], "TextFile": ["a.txt"], "Directory": ["docs"]}
    found: dict[str, set[str]] = {}
    for seed in range(400):
        wrong = mistaken(shell_input, known(), names, Random(seed))
        if wrong is not None:
            found.setdefault(wrong[1], set()).add(wrong[0].text)
    return found


def test_every_class_changes_what_it_says() -> None:
    assert "cat docs" in made("cat a.txt")["wrong type of file"]
    assert all(
        text.endswith(" -n") for text in made("head -n 5")["missing value"] if " 5" not in text
    )
    assert made("cp -v a.txt b")["missing operand"] == {"cp -v"}
    assert "ls -- a.txt -l" in made("ls -l a.txt")["option after --"]
    assert "grep '[a-z' a.txt" in made("grep x a.txt")["unclosed class"]
    assert "rm /proc/version" in made("rm a.txt")["refused permission"]
    assert made("sort a.txt")["absent command"] >= {"srot a.txt"}
    misspelt = made("cat a.txt")["misspelt name"]
    assert misspelt
    assert "cat a.txt" not in misspelt
    letters = {f"-{letter}" for spec in known()["ls"].options for letter in spec.shorts}
    for text in made("ls a.txt")["unknown option"]:
        option = text.split()[1]
        assert option not in letters
        assert option.startswith("-")
    assert {kind for text in ("cat a.txt", "head -n 5 a.txt") for kind in made(text)} <= set(
        MISTAKES
    )


def test_one_command_of_several_is_changed_and_operators_stay() -> None:
    for texts in made("cat a.txt | grep x > out").values():
        for text in texts:
            assert " | " in text
            assert text.endswith(" > out")


def test_as_many_inputs_as_asked_for_have_one_and_the_others_are_the_same() -> None:
    without, some = draw(210, 0.0), draw(200, 0.2)
    assert not any(one.mistake for one in without)
    assert 25 < sum(one.mistake is not None for one in some) < 55
    same = [one.input.text for one in some if one.mistake is None]
    texts = [one.input.text for one in without]
    assert same == [text for text in texts if text in set(same)][: len(same)]
    assert len({one.input.text for one in some}) == 200
    assert draw(50, 0.2) == some[:50]


def test_all_classes_are_drawn() -> None:
    counts = Counter(one.mistake for one in draw(900, 1.0))
    assert set(MISTAKES) <= set(counts)


def test_more_than_all_is_no_share() -> None:
    with pytest.raises(UsageError, match="out of range"):
        draw(1, 1.5)


def test_what_no_grammar_knows_stays_as_it_is() -> None:
    assert mistaken(Input.from_marked(["nope", "x"]), known(), {}, Random(1)) is None


def test_an_absent_command_is_absent(system: System) -> None:
    """`nl` for `ln`, `tr` for `tar`: a mistake may result in an existing command."""
    programs = {path.rpartition("/")[2] for path in system.index if "/bin/" in path}
    for grammar in load_grammars():
        (word, *_) = grammar.command_tokens
        command = Input((Token(Argument(word), Role.COMMAND),))
        for seed in range(100):
            wrong = mistaken(command, {word: grammar}, {}, Random(seed))
            if wrong is not None and wrong[1] == "absent command":
                assert wrong[0].text not in programs
