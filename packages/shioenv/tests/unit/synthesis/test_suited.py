"""Commands that would read nothing, or search for what is not there, are recognised."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest

from shioenv.grammar.library import load_grammars
from shioenv.grammar.parse import InputParser
from shioenv.synthesis.drawing import Drawing
from shioenv.synthesis.policy import settings_named
from shioenv.synthesis.sample import draw_samples, prepare_drawing
from shioenv.synthesis.samplers import Sampler
from shioenv.synthesis.traces import DrawingPlace

NAMES = {
    "File": ("notes.txt", "data/ids.csv", "data/old/a.log"),
    "TextFile": ("notes.txt",),
    "CsvFile": ("data/ids.csv",),
    "LogFile": ("data/old/a.log",),
    "Directory": (".", "data", "data/old", "empty"),
    "Symlink": ("data/current",),
    "MissingFile": ("none.txt",),
}
TEXTS = {
    "data/old/a.log": "",
    "notes.txt": "An apple\na pear\n",
    "data/ids.csv": "id,name\n7,Eve\n",
}


@pytest.fixture(scope="module")
def place() -> DrawingPlace:
    grammars = load_grammars(("find", "grep", "echo", "sort", "cat", "comm", "uniq"))
    settings = settings_named("mixed")
    sampler = partial(Sampler, "gcs", policy=settings.chooser, horizon=12)
    parser = InputParser(grammars)
    return prepare_drawing(sampler, grammars, parser, settings, NAMES, text=TEXTS.get)


@pytest.mark.parametrize(
    ("words", "nothing"),
    [
        (("find", ".", "-name '*.csv'"), False),
        (("find", "-name '*.py'"), True),
        (("find", "data/old", "-name '*.csv'"), True),
        (("find", "data/old", "data", '-iname "*.csv"'), False),
        (("find", "data", "-type f", "-name current"), True),
        (("find", ".", "!", "-name '*.py'"), False),
        (("find", ".", "-not", "-name '*.py'"), False),
        (("find", "empty"), False),
        (("grep", "-n", "pear", "notes.txt"), False),
        (("grep", "'^a pear$'", "notes.txt"), False),
        (("grep", "APPLE", "notes.txt"), True),
        (("grep", "-i<ns>", "<ns>n", "APPLE", "notes.txt"), False),
        (("grep", "plum", "notes.txt"), True),
        (("grep", "'^pear'", "notes.txt"), True),
        (("grep", "plum", "notes.txt", "data/ids.csv"), True),
        (("grep", "Eve", "notes.txt", "data/ids.csv"), False),
        (("grep", "plum", "unread.txt"), True),
        (("grep", "[[:digit:]]", "unread.txt"), False),
        (("grep", "-e plum", "-e pear", "notes.txt"), False),
        (("grep", "-F", "a.p", "notes.txt"), True),
        (("grep", "-E", "'plu?m|pe+ar'", "notes.txt"), False),
        (("grep", "-w", "pea", "notes.txt"), True),
        (("grep", "-c", "plum", "notes.txt"), False),
        (("grep", "'*['", "notes.txt"), False),
        (("find", ".", "-type d", "-name current"), True),
        (("find", ".", "-fstype proc"), True),
        (("find", ".", "-regex '^data'"), True),
        (("find", ".", "-path './data/*'"), False),
        (("find", ".", "-nouser", "-o", "-print"), False),
        (("grep", "'p[a-f]*r'", "notes.txt"), False),
        (("grep", "'p[l-u]m'", "notes.txt"), True),
        (("grep", "'\\.txt$'", "notes.txt"), True),
        (("grep", "'p\\(l\\|u\\)m'", "notes.txt"), True),
        (("grep", "-x", "pear", "notes.txt"), True),
        (("grep", "-v", "[aeiou]", "notes.txt"), True),
        (("grep", "-n<ns>", "<ns>v", "pear", "notes.txt"), False),
        (("grep", "--help"), False),
        (("sort", "-k2", "notes.txt"), False),
        (("sort", "data/old/a.log"), True),
        (("sort", "data/old/a.log", "notes.txt"), False),
        (("comm", "-12", "notes.txt", "data/ids.csv"), False),
        (("comm", "-12", "-3", "notes.txt", "data/ids.csv"), True),
        (("comm", "-3", "notes.txt", "notes.txt"), True),
        (("uniq", "-d", "notes.txt"), True),
        (("uniq", "-c", "notes.txt"), False),
    ],
)
def test_searches_for_what_is_not_there(
    place: DrawingPlace, words: Sequence[str], nothing: bool
) -> None:
    assert place.finds_nothing(words) is nothing


@pytest.mark.parametrize(
    ("before", "nothing"),
    [
        (("echo", "an", "apple"), False),
        (("echo", "-n", "a pear"), True),
        (("cat", "notes.txt"), False),
        (("sort", "-r", "data/ids.csv"), True),
        (("sort", "unread.txt"), True),
    ],
)
def test_searches_in_the_words_that_a_command_prints(
    place: DrawingPlace, before: Sequence[str], nothing: bool
) -> None:
    assert place.finds_nothing(("grep", "apple"), before) is nothing


def test_drawn_searches_mostly_find_something(place: DrawingPlace) -> None:
    drawing = Drawing(
        seed=3, policy="mixed", commands=("find",), composite_share=0, start_directories=("/",)
    )
    drawn = [one.input.input_args for one in draw_samples(drawing, count=400, catalogue=NAMES)]
    missed = sum(place.finds_nothing(words) for words in drawn)
    assert missed < 40
