from itertools import combinations

import pytest

from shioenv.domain.inputs import Argument, join, render
from shioenv.errors import InputError

BUNDLE = [Argument.parse(marked) for marked in ("-l<ns>", "<ns>a<ns>", "<ns>T 32")]


@pytest.mark.parametrize(
    ("kept", "line"),
    [
        ((), "ls"),
        ((0,), "ls -l"),
        ((1,), "ls -a"),
        ((2,), "ls -T 32"),
        ((0, 1), "ls -la"),
        ((0, 2), "ls -lT 32"),
        ((1, 2), "ls -aT 32"),
        ((0, 1, 2), "ls -laT 32"),
    ],
)
def test_every_subset_of_a_bundle_is_a_valid_line(kept: tuple[int, ...], line: str) -> None:
    assert render("ls", [BUNDLE[index] for index in kept]) == line


def test_all_eight_subsets_are_covered_and_differ() -> None:
    subsets = [kept for size in range(4) for kept in combinations(BUNDLE, size)]
    assert len({render("ls", kept) for kept in subsets}) == 8


def test_a_long_option_between_two_short_ones_splits_the_bundle() -> None:
    line = [Argument.parse(marked) for marked in ("-l<ns>", "--color", "<ns>a")]
    assert render("ls", line) == "ls -l --color -a"
    assert render("ls", [line[0], line[2]]) == "ls -la"


def test_a_first_argument_that_continues_a_bundle_gets_its_dash() -> None:
    assert render("ls", [Argument.parse("<ns>a<ns>")]) == "ls -a"


def test_a_mark_before_an_operator_joins_nothing() -> None:
    assert join([Argument("ls"), Argument("-l", joins_right=True), Argument("|")]) == "ls -l |"


def test_marks_are_shown_where_they_are() -> None:
    assert Argument("a", joins_left=True, joins_right=True).marked == "<ns>a<ns>"
    assert Argument("T 32", joins_left=True).marked == "<ns>T 32"


@pytest.mark.parametrize("text", ["<ns>", "<ns>a", "a<ns>", r"<\ns>", r"<\\ns>", "x<ns>y", "<n"])
def test_a_literal_mark_is_not_taken_for_one(text: str) -> None:
    for left in (False, True):
        for right in (False, True):
            argument = Argument(text, joins_left=left, joins_right=right)
            assert Argument.parse(argument.marked) == argument


@pytest.mark.parametrize("marked", ["", "<ns>", "<ns><ns>"])
def test_an_argument_without_text_is_refused(marked: str) -> None:
    with pytest.raises(InputError):
        Argument.parse(marked)
