"""Left sides of `||` and `&&`: a drawn command is changed so that it fails."""

from __future__ import annotations

from random import Random

import pytest

from shioenv.domain.inputs import Argument
from shioenv.grammar.library import load_grammar
from shioenv.synthesis.compose import Composites, compose_input
from shioenv.synthesis.mistakes import failing

NAMES = {
    "File": ("notes.txt", "data/ids.txt", "a b.txt"),
    "TextFile": ("notes.txt",),
    "Directory": ("data", "logs/archive"),
}


def failed(*words: str, seed: int = 1) -> tuple[str, ...] | None:
    made = failing(words, load_grammar(words[0]), NAMES, Random(seed))
    return None if made is None else tuple(made)


@pytest.mark.parametrize(
    "words",
    [
        ("cat", "-n", "notes.txt"),
        ("cd", "logs/archive"),
        ("cp", "data/ids.txt", "copy"),
        ("grep", "-c", "x", "data/ids.txt"),
        ("rm", "notes.txt"),
        ("test", "-f", "notes.txt"),
    ],
)
@pytest.mark.parametrize("seed", range(5))
def test_one_operand_names_nothing_afterwards(words: tuple[str, ...], seed: int) -> None:
    made = failed(*words, seed=seed)
    assert made is not None
    (changed,) = [(old, new) for old, new in zip(words, made, strict=True) if old != new]
    assert changed[0] in NAMES["File"] + NAMES["Directory"]
    assert changed[1] not in NAMES["File"] + NAMES["Directory"]
    assert changed[1].rpartition("/")[0] == changed[0].rpartition("/")[0]


def test_what_a_command_makes_is_there_already() -> None:
    assert failed("mkdir", "new") in {("mkdir", "data"), ("mkdir", "logs/archive")}


def test_a_server_is_asked_by_another_name() -> None:
    made = failed("wget", "-q", "http://localhost/index.html")
    assert made is not None
    assert made[2].startswith("http://")
    assert made[2].endswith("/index.html")
    assert made[2] != "http://localhost/index.html"


@pytest.mark.parametrize(
    "words",
    [
        ("true",),
        ("echo", "hi"),
        ("touch", "notes.txt"),
        ("pwd", "-P"),
        ("cat", "notes.txt", ">", "x"),
    ],
)
def test_a_command_that_cannot_be_made_to_fail_stays(words: tuple[str, ...]) -> None:
    assert failed(*words) is None


def composed(operator: str, first: tuple[str, ...], fails: tuple[str, ...] | None) -> str:
    settings = Composites(share=0, operators={operator: 1.0})
    made = compose_input(
        Random(1), settings, first, lambda piped: ("pwd",), (), pipes=True, fail=lambda words: fails
    )
    return made.text


def test_the_left_side_of_or_is_the_command_that_fails() -> None:
    assert composed("||", ("cat", "a"), ("cat", "b")) == "cat b || pwd"
    assert composed("&&", ("cat", "a"), ("cat", "b")) == "cat a && pwd"
    assert composed("||", ("pwd",), None) == "pwd && pwd"


def test_what_fails_comes_before_or_and_operators_suit_a_command() -> None:
    def made(operator: str, *first: str, in_groups: bool = True) -> str:
        settings = Composites(share=0, operators={operator: 1.0})
        return compose_input(
            Random(1),
            settings,
            first,
            lambda piped: ("wc",),
            (),
            pipes=True,
            suited=(lambda words, one: "&&" if words[0] == "cd" else one) if in_groups else None,
        ).text

    assert made("|", "cd", "data") == "cd data && wc"
    assert made("|", "cd", "data", in_groups=False) == "cd data | wc"
    assert made("|", "ls") == "ls | wc"
    assert made("&&", "false") == made("|", "false") == made("||", "false") == "false || wc"
    assert made("&&", "false", in_groups=False) == "false && wc"


def test_an_argument_keeps_its_marks() -> None:
    words = ("head", "-n<ns>", "<ns>5", "notes.txt")
    made = failing(words, load_grammar("head"), NAMES, Random(2))
    assert made is not None
    assert made[:3] == words[:3]
    assert Argument.parse(made[3]).text != "notes.txt"
