"""Commands that would read nothing, or search for what is not there, are recognised."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from random import Random

import pytest

from shioenv.domain.inputs import SEPARATORS
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
    return prepared("mixed")


def prepared(policy: str) -> DrawingPlace:
    grammars = load_grammars(
        ("find", "grep", "echo", "sort", "cat", "comm", "uniq", "touch", "chmod", "export", "cd")
    )
    settings = settings_named(policy)
    sampler = partial(Sampler, "gcs", policy=settings.chooser, horizon=12)
    parser = InputParser(grammars)
    return prepare_drawing(
        sampler, grammars, parser, settings, NAMES, start="/home/ubuntu", text=TEXTS.get
    )


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


@pytest.mark.parametrize(
    ("words", "nothing"),
    [
        (("touch", "-c", "none.txt"), True),
        (("touch", "-a<ns>", "<ns>c", "none.txt"), True),
        (("touch", "--no-create", "none.txt", "notes.txt"), False),
        (("touch", "-c", "*.txt"), False),
        (("touch", "none.txt"), False),
        (("sort", "--check=quiet", "notes.txt"), True),
        (("export", "HOME"), True),
        (("export", "HOME", "NEW=1"), False),
        (("comm", "-12", "notes.txt", "data/ids.csv"), True),
        (("comm", "-3", "notes.txt", "data/ids.csv"), False),
        (("comm", "-12", "--total", "notes.txt", "data/ids.csv"), False),
    ],
)
def test_lines_of_grammars_say_what_does_nothing(
    place: DrawingPlace, words: Sequence[str], nothing: bool
) -> None:
    assert place.does_nothing(words) is nothing
    assert not prepared("people").does_nothing(words), "only mixed heeds these lines"


def test_a_search_gets_a_word_of_the_text(place: DrawingPlace) -> None:
    found = place.finding(("grep", "-n", "plum", "notes.txt"), (), Random(1))
    assert found is not None
    assert found[2] in {"apple", "pear"}
    assert [*found[:2], found[3]] == ["grep", "-n", "notes.txt"]
    assert place.finding(("grep", "plum"), ("echo", "red", "pear"), Random(1)) is not None
    assert place.finding(("grep", "plum", "unread.txt"), (), Random(1)) is None
    assert place.finding(("sort", "data/old/a.log"), (), Random(1)) is None


@pytest.mark.parametrize(
    ("words", "silent"),
    [
        (("find", ".", "-delete"), True),
        (("find", ".", "-print", "-delete"), False),
        (("find", ".", "-exec chmod +x {} \\;"), True),
        (("find", ".", "-exec cat {} \\;"), False),
        (("grep", "-q", "pear", "notes.txt"), True),
        (("cd", "data"), True),
        (("chmod", "u+x", "notes.txt"), True),
        (("chmod", "-R<ns>", "<ns>v", "u+x", "data"), False),
        (("export", "NEW=1"), True),
        (("export",), False),
        (("echo", "an apple"), False),
    ],
)
def test_commands_that_print_nothing(
    place: DrawingPlace, words: Sequence[str], silent: bool
) -> None:
    assert place.is_silent(words) is silent


@pytest.mark.parametrize(
    ("before", "after", "joined"),
    [
        ("cat notes.txt", "sort -r data/ids.csv", "sort -r notes.txt"),
        ("touch new.txt", "chmod 600 notes.txt", "chmod 600 new.txt"),
        ("chmod 600 notes.txt", "sort notes.txt", "sort notes.txt"),
        ("sort data/*.csv", "cat notes.txt", "cat data/*.csv"),
        ("cd data", "cat notes.txt", "cat ids.csv"),
        ("cat data/ids.csv", "cd empty", "cd data"),
        ("export A=1", "echo done", "echo done"),
        ("sort --output=out.txt", "cat notes.txt", "cat out.txt"),
        ("echo hi", "cat notes.txt", None),
        ("touch new.txt", "export A=1", None),
    ],
)
def test_a_later_command_names_a_thing_of_an_earlier_one(
    place: DrawingPlace, before: str, after: str, joined: str | None
) -> None:
    chain = place.chain()
    chain.ran(before.split())
    found = {
        None if made is None else " ".join(made)
        for seed in range(9)
        for made in [place.joined(chain, after.split(), Random(seed))]
    }
    assert joined in found
    assert joined is not None or found == {None}


def test_after_a_failure_only_what_was_there_is_named(place: DrawingPlace) -> None:
    chain = place.chain()
    chain.ran(("cp", "notes.txt", "new.txt"), failed=True)
    assert place.joined(chain, ("cat", "data/ids.csv"), Random(1)) == ["cat", "notes.txt"]
    known, others = place.taking(frozenset({"file"}))
    assert {"echo", "cat"} <= {*known}
    assert {"cd", "export"} <= {*others}


def test_drawn_chains_share_things_and_pipes_are_read(place: DrawingPlace) -> None:
    names = ("cat", "sort", "touch", "chmod", "grep", "find", "cd")
    drawing = Drawing(
        seed=3, policy="mixed", commands=names, composite_share=0.6, start_directories=("/",)
    )
    ends = [
        (one.input.input_args[:at], one.input.input_args[at], one.input.input_args[at + 1 :])
        for one in draw_samples(drawing, count=900, catalogue=NAMES)
        if len(one.input.segments) == 2
        for at, word in enumerate(one.input.input_args)
        if word in SEPARATORS
    ]
    chains = [(left, right) for left, operator, right in ends if operator in {"&&", ";"}]
    assert len(chains) > 50
    related = 0
    for left, right in chains:
        chain = place.chain()
        chain.ran(left)
        made = chain.joined(right, Random(1))
        related += not chain.things or (made is not None and [*made] == [*right])
    assert related > 0.7 * len(chains)
    piped = [(left, right) for left, operator, right in ends if operator == "|"]
    assert len(piped) > 50
    wasted = sum(place.is_silent(left) or place._ignores_input(right) for left, right in piped)
    assert wasted < 0.05 * len(piped)


def test_spellings_of_the_same_arguments(place: DrawingPlace) -> None:
    def alike(*inputs: str) -> bool:
        read = (place.parser.parse(text) for text in inputs)
        return len({place.spelt_alike(one) for one in read}) == 1

    assert alike("sort -rn notes.txt", "sort -n --reverse -- ./notes.txt", "sort -r -n 'notes.txt'")
    assert alike("sort -k 2 notes.txt", "sort -k2 notes.txt", "sort --key=2 /home/ubuntu/notes.txt")
    assert alike("cat notes.txt | sort -r", "cat -- notes.txt | sort --reverse")
    assert not alike("sort notes.txt data/ids.csv", "sort data/ids.csv notes.txt")
    assert not alike('echo "$HOME"', "echo '$HOME'")
    assert not alike("echo -n a", "echo a -n")
    assert not alike("find . -name a -print", "find . -print -name a")
    assert not alike("echo ./data", "echo data")
