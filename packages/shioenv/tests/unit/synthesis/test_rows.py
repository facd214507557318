"""Inputs in a row: later ones use names of earlier ones' files, and nothing else changes."""

from __future__ import annotations

import posixpath
from functools import cache
from itertools import groupby, pairwise
from random import Random

import pytest

from shioenv.domain.inputs import Input
from shioenv.errors import UsageError
from shioenv.grammar.bind import stand_in_catalogue
from shioenv.grammar.library import PAPER, load_grammars
from shioenv.grammar.load import read_grammar
from shioenv.grammar.symbols import Grammar
from shioenv.grammar.traits import Traits
from shioenv.synthesis.drawing import Drawing
from shioenv.synthesis.row_sessions import CHANGE, ENTER, LOOK, MAKE, OTHER, REMOVE, TypedSoFar
from shioenv.synthesis.sample import LONGEST_HISTORY, draw_samples
from shioenv.synthesis.traces import Sample
from support.nightly import LARGER, scaled

HERE = ("/home/ubuntu", "/etc")
NAMES = {"File": ["a.txt", "docs/b.txt", "/etc/passwd"], "Directory": ["docs", "/tmp"]}


@cache
def every() -> tuple[Grammar, ...]:
    return load_grammars()


@cache
def usual() -> tuple[Grammar, ...]:
    """Return the grammars that are drawn from where no command is named."""
    return load_grammars(PAPER)


def traits(text: str = "") -> dict[str, Traits]:
    """Return the traits of the shipped commands, or of one whose header is `text`."""
    if text:
        return {
            "pack": read_grammar(f"command pack\n{text}\n", "pack.grammar").grammar.header.traits
        }
    return {word: one.header.traits for one in every() for word in one.command_tokens}


def typed(*texts: str) -> TypedSoFar:
    row = TypedSoFar("/home/u", NAMES, traits())
    for text in texts:
        row.typed(Input.from_marked(text.split()))
    return row


def threaded(row: TypedSoFar, text: str) -> set[str]:
    """Return all possible results for an input."""
    shell_input = Input.from_marked(text.split())
    return {row.threaded(shell_input, Random(seed)).text for seed in range(60)}


def draw(count: int, history: int, **options: object) -> list[Sample]:
    drawing = Drawing(session_length=history, start_directories=HERE, seed=6, **options)  # type: ignore[arg-type]
    grammars = None if drawing.commands else usual()
    return list(
        draw_samples(drawing, count=count, catalogue=stand_in_catalogue(), grammars=grammars)
    )


@pytest.mark.parametrize(
    ("before", "text", "after"),
    [
        (["mkdir d"], "ls -l docs", {"ls -l d"}),
        (["mkdir d"], "cat a.txt", {"cat a.txt"}),  # no file was made
        (["touch x", "touch y"], "cat a.txt", {"cat x", "cat y"}),
        (["touch x"], "cat a.txt > a.txt", {"cat x > a.txt"}),
        (["touch x"], "cat /etc/passwd", {"cat x"}),
        (["touch x"], "cat new.txt -n", {"cat new.txt -n"}),
        (["touch docs"], "du docs a.txt", {"du docs a.txt"}),
        (["echo hello > x"], "wc a.txt", {"wc x"}),
        (["date | tee x"], "wc a.txt", {"wc x"}),
        (["cp a.txt docs"], "wc a.txt", {"wc docs/a.txt"}),
        (["cp a.txt b"], "wc a.txt", {"wc b"}),
        (["touch x", "mv x y"], "wc a.txt", {"wc y"}),
        (["touch x", "rm x"], "wc a.txt", {"wc a.txt"}),
        (["mkdir d", "touch d/x", "rm -r d"], "wc a.txt", {"wc a.txt"}),
        (["mkdir d", "touch d/x", "mv d e"], "wc a.txt", {"wc e/x"}),
        (["mkdir d", "touch d/x", "mv d docs"], "wc a.txt", {"wc docs/d/x"}),
        (["mkdir d", "touch d/x dx", "mv d e"], "wc a.txt", {"wc e/x", "wc dx"}),
        (["mkdir d", "cd d"], "wc a.txt", {"wc ../a.txt"}),
        (["mkdir d", "cd d", "touch x"], "wc a.txt", {"wc x"}),
        (["touch x", "cd docs"], "wc a.txt", {"wc ../x"}),
        (["touch x", "cd docs"], "ls docs /tmp", {"ls . /tmp"}),
        (["touch x", "cd nowhere"], "wc a.txt", {"wc x"}),
        (["mkdir d", "cd d"], "cd docs", {"cd ..", "cd ../docs"}),
        (["touch x"], "diff a.txt docs/b.txt", {"diff x docs/b.txt"}),
        (["touch x && touch y"], "ls docs; wc a.txt", {"ls docs ; wc x", "ls docs ; wc y"}),
    ],
)
def test_operands_name_what_was_made(before: list[str], text: str, after: set[str]) -> None:
    tokens = text.replace(";", " ;")
    assert threaded(typed(*before), tokens) == after


def test_what_an_input_does_is_told_by_its_first_command() -> None:
    kinds = {
        "mkdir d": {MAKE}, "cp a b": {MAKE, CHANGE}, "ls | rm": {LOOK}, "rm -r d": {REMOVE},
        "cd docs": {ENTER}, "cd": {OTHER}, "cd -- -": {OTHER}, "date": {OTHER}, "> x": {OTHER},
    }  # fmt: skip
    assert {text: set(typed().kinds_of(Input.from_marked(text.split()))) for text in kinds} == kinds


def test_a_command_from_outside_makes_and_removes_what_its_header_says() -> None:
    row = TypedSoFar("/home/u", NAMES, traits("operands output file*\nmakes archive"))
    packed = Input.from_marked(["pack", "all.p", "a.txt"])
    assert row.kinds_of(packed) == {MAKE}
    row.typed(packed)
    assert row._made == {"/home/u/all.p": "file"}
    gone = TypedSoFar("/home/u", NAMES, traits("operands path+\nremoves yes"))
    assert gone.kinds_of(packed) == {REMOVE}
    for nothing in ("", "operands text*"):
        assert TypedSoFar("/home/u", NAMES, traits(f"{nothing}\nvolatile no")).kinds_of(packed) == {
            OTHER
        }


def test_only_what_names_something_made_fits_after_it() -> None:
    row, empty = typed("mkdir d"), typed()
    fits = [
        text
        for text in ("ls", "ls -l", "ls docs", "ls /nowhere", "cat a.txt", "stat docs", "date")
        if row.fits(Input.from_marked(text.split()), LOOK)
    ]
    assert fits == ["ls", "ls -l", "ls docs", "stat docs"]
    assert empty.fits(Input.from_marked(["cat", "a.txt"]), LOOK)
    assert not empty.fits(Input.from_marked(["cat", "a.txt"]), MAKE)


@LARGER
def test_each_of_a_row_has_those_before_it_as_its_history() -> None:
    count = scaled(24, 200)
    drawn = draw(count, 4)
    assert [len(one.history) for one in drawn] == [0, 1, 2, 3] * (count // 4)
    for one, after in pairwise(drawn):
        if after.history:
            assert after.history == (*one.history, one.input.text)
            assert (after.cwd, after.volatile) == (one.cwd, one.volatile or after.volatile)
    assert {one.cwd for one in drawn} == {*HERE}
    assert len({(one.cwd, one.history, one.input.text) for one in drawn}) == count
    assert draw(12, 4) == drawn[:12]


@LARGER
def test_most_rows_make_something_and_come_back_to_it() -> None:
    rows = [
        [*row] for _, row in groupby(enumerate(draw(scaled(40, 400), 5)), lambda one: one[0] // 5)
    ]
    back = 0
    for row in rows:
        names = [
            {
                posixpath.basename(token.argument.text.rstrip("/"))
                for token in one.input.tokens
                if token.argument.text[:1] not in "-'\""
            }
            for _, one in row
        ]
        words = {"", ".", "..", *(one.input.tokens[0].argument.text for _, one in row)}
        back += any((a & b) - words for place, a in enumerate(names) for b in names[place + 1 :])
    assert back > len(rows) / 2


def test_one_in_a_row_is_the_stream_as_it_is() -> None:
    alone = draw(60, 1)
    assert alone == draw(60, 1, mistakes=0.0)
    assert not any(one.history for one in alone)


@LARGER
def test_mistakes_stay_as_they_were_made() -> None:
    drawn = draw(scaled(45, 200), 3, mistakes=0.3)
    alone = {one.input.text for one in draw(scaled(900, 3000), 1, mistakes=0.3) if one.mistake}
    wrong = [one for one in drawn if one.mistake]
    assert len(wrong) > scaled(4, 20)
    assert sum(one.input.text in alone for one in wrong) > len(wrong) * 0.9


def test_rows_of_few_commands_are_drawn_all_the_same() -> None:
    drawn = draw(12, 3, commands=("ls",), composite_share=0.0)
    assert {one.input.segments[0].command for one in drawn} == {"ls"}


@pytest.mark.parametrize("history", [0, -1, LONGEST_HISTORY + 1])
def test_a_row_has_one_input_at_least(history: int) -> None:
    with pytest.raises(UsageError, match="out of range"):
        draw(1, history)
