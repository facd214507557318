"""System tokens get values, quoted where the shell needs it."""

import pytest

from shioenv.errors import UnboundTokenError
from shioenv.grammar.bind import bind, stand_in_catalogue, values_of
from shioenv.grammar.load import read_grammar
from shioenv.grammar.symbols import Grammar, Nonterminal
from shioenv.grammar.system_tokens import SYSTEM_TOKENS

HEADER = "command x\nmanual x(1), Things 9.1\npackage things\nvolatile no\n"


def grammar(body: str) -> Grammar:
    return read_grammar(HEADER + body, "x.grammar").grammar


def test_names_are_quoted_for_the_shell() -> None:
    names = ("plain.txt", "a file.txt", "it's", "star*.txt", "-n.txt")
    assert values_of(Nonterminal("File"), {"File": names}) == (
        "plain.txt",
        "'a file.txt'",
        "'it'\"'\"'s'",
        "'star*.txt'",
        "./-n.txt",
    )


def test_inside_quotes_only_names_that_need_none_are_used() -> None:
    names = ("plain.txt", "a file.txt", "it's", 'a"b', "$x")
    assert values_of(Nonterminal("'File"), {"File": names}) == ("plain.txt", "a file.txt")


def test_names_that_cannot_stand_in_a_line_are_left_out() -> None:
    names = ("a\nb", "", "x" * 70, "\udcff", "ok")
    assert values_of(Nonterminal("File"), {"File": names}) == ("ok",)


def test_patterns_for_names_are_always_quoted() -> None:
    assert values_of(Nonterminal("Glob"), {"Glob": ("abc",)}) == ("'abc'",)


def test_vocabularies_are_ours_unless_the_catalogue_has_them() -> None:
    assert "missing.txt" in values_of(Nonterminal("MissingFile"), {})
    assert values_of(Nonterminal("MissingFile"), {"MissingFile": ("no",)}) == ("no",)


def test_an_alternative_without_values_is_left_out() -> None:
    bound = bind(grammar("start x <a>\n<a> = <ZipFile> | p\n"), {})
    assert [str(one) for one in bound.productions[Nonterminal("x:a")]] == ["<x:a> = p"]


def test_a_command_without_any_input_left_says_which_token_lacks() -> None:
    with pytest.raises(UnboundTokenError, match="<ZipFile>"):
        bind(grammar("start x <ZipFile>\n"), {})


def test_every_token_has_a_stand_in() -> None:
    catalogue = stand_in_catalogue()
    assert [token for token in SYSTEM_TOKENS if not catalogue.get(token)] == []
