"""Kinds of value: one declaration that draws and recognises."""

from __future__ import annotations

import re
import time
from random import Random

import pytest

from shioenv.grammar.bind import stand_in_catalogue
from shioenv.grammar.kinds import KINDS, TOKEN_KINDS
from shioenv.grammar.load import read_grammar
from shioenv.grammar.notation import FaultKind
from shioenv.grammar.parts import LONGEST, draw_number
from shioenv.grammar.spelling import received_form, spelt
from shioenv.grammar.system_tokens import SYSTEM_TOKENS
from shioenv.grammar.validation import check
from support.paths import ROOT

HEADER = "command x\nmanual x(1), Things 9.1\npackage things\nvolatile no\n"
REFERENCE = ROOT / "docs" / "reference" / "grammar-format.md"
DRAWN_ELSEWHERE = {"command"}


@pytest.mark.parametrize("name", sorted(KINDS.keys() - DRAWN_ELSEWHERE))
@pytest.mark.parametrize("names", [{}, stand_in_catalogue()], ids=["no system", "a system"])
def test_what_is_drawn_is_in_the_language(name: str, names: dict[str, tuple[str, ...]]) -> None:
    kind, random = KINDS[name], Random(7)
    for _ in range(300):
        word = received_form(spelt(kind.part.draw(random, names), "'"))
        assert len(word) + 1 in kind.ends(f"={word}", 1), word


@pytest.mark.parametrize(
    ("kind", "values", "others"),
    [
        ("number", ["0", "42"], ["x", "4x", "-1", "1.5"]),
        ("signed", ["+4", "-12", "7"], ["+", "x4"]),
        ("size", ["10M", "+100k", "512", "2GiB", "50%"], ["M10", "ten", "1X"]),
        ("mode", ["644", "u+x", "u=rw,go=", "-x", "+t", "0755"], ["888", "u+z", "rwx"]),
        ("time", ["2 hours ago", "next friday", "@0", "12:30", "-1 year"], ["soon", "never"]),
        ("key", ["2", "2,2n", "1.3,1.5", "3nr"], ["x", "k2", ",2"]),
        ("ranges", ["1", "1-3,5-", "-4", "1,2,3"], ["a", "1:3", ""]),
        ("delimiter", [",", " ", "\\t", ""], ["ab", ", "]),
        ("pattern", ["^a[bc]$", "[]x]", "[[:alpha:]]*", "\\.c"], ["[ab", "x\\"]),
        ("path", ["a/b", "..", "~/x", "-", "*.txt", "a b"], ["-x", ""]),
        ("owner", ["root", "a:b", ":users", "0:0"], ["a:b:c"]),
        ("variable", ["HOME", "_x1"], ["1x", "A=1"]),
    ],
)
def test_a_language_holds_what_programs_take(
    kind: str, values: list[str], others: list[str]
) -> None:
    def holds(value: str) -> bool:
        word = received_form("=" + spelt(value, "'"))
        return len(word) in KINDS[kind].ends(word, 1)

    assert [value for value in values if not holds(value)] == []
    assert [value for value in others if holds(value)] == []


@pytest.mark.parametrize("name", sorted(KINDS))
@pytest.mark.parametrize("unit", ["1", "a", "1,", "-1-", "u+", "[", "\\", "1:", "day ", "%a,"])
def test_no_text_takes_long(name: str, unit: str) -> None:
    word = received_form(spelt(unit * (LONGEST // len(unit)) + "\x00", "'"))
    began = time.process_time()
    KINDS[name].ends(word, 0)
    assert KINDS[name].ends(word + unit * 9, 0) == []
    assert time.process_time() - began < 5  # what backtracks would take years


def test_numbers_stay_between_their_bounds_and_small_ones_are_common() -> None:
    random = Random(1)
    numbers = [draw_number(random, 1, 1000) for _ in range(2000)]
    assert {min(numbers), max(numbers)} == {1, 1000}
    assert 600 < sum(number <= 20 for number in numbers) < 1400


def test_every_token_has_a_kind_and_every_kind_is_documented() -> None:
    assert TOKEN_KINDS.keys() == SYSTEM_TOKENS.keys()
    table = REFERENCE.read_text().partition("## Kinds of value")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `([a-z]+)` \| (.+) \|$", table, re.MULTILINE))
    assert rows.pop("closed")
    assert rows == {kind.name: kind.about for kind in KINDS.values()}


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("'a b'", "a\x01b"),
        ('"a b"', "a\x01b"),
        (r"\*.c", "*.c"),
        ("$HOME/x", "\x05/x"),
        ("'$HOME'", "$HOME"),
        ("$(ls -l)/x", "\x04/x"),
        ('"${A:-b c}"', "\x05"),
        (r"$'\t'", "\x02"),
        ("-d' '", "-d\x01"),
        ("a'b'\"c\"", "abc"),
    ],
)
def test_a_word_is_what_its_program_gets(text: str, word: str) -> None:
    assert received_form(text) == word


@pytest.mark.parametrize("text", ["a", "a b", "it's", 'say "x"', "$x", "*", "", "a\\b"])
@pytest.mark.parametrize("quotes", ["", "'", '"'])
def test_a_word_that_was_spelt_reads_back(text: str, quotes: str) -> None:
    assert received_form(spelt(text, quotes)) == text.replace(" ", "\x01")


@pytest.mark.parametrize(
    ("definition", "kind"),
    [
        ("<a> = 1 | 2 | 5", "number"),
        ("<a> = 1K | 2 | 5M", "size"),
        ("<a> = 644 | u+x | 7", "mode"),
        ("<a> = 1 | 2", None),
        ("<a> = 1 | 2 | x", None),
        ("<a> : closed = 1 | 2 | 5", None),
    ],
)
def test_a_list_that_should_be_a_kind_is_named(definition: str, kind: str | None) -> None:
    loaded = read_grammar(f"{HEADER}start x <a>\n{definition}\n", "x.grammar")
    found = [fault for fault in check(loaded) if fault.kind is FaultKind.KIND]
    assert bool(found) == (kind is not None)
    if kind:
        assert f"`<a> : {kind} =`" in found[0].message
