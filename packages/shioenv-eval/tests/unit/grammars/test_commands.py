"""The shipped grammars: free of faults, and with the paper's derivations."""

import re
from pathlib import Path

import pytest

from shioenv.errors import UnknownGrammarError
from shioenv.grammar.library import (
    COMMANDS,
    load_grammar,
    load_grammars,
    names_of_grammars,
)
from shioenv.grammar.load import read_grammar
from shioenv.grammar.notation import FaultyGrammarError
from shioenv_eval.grammars.grammar_check import check_grammars, check_values, run_examples
from shioenv_eval.grammars.recognise import Recogniser
from support.paths import ROOT


@pytest.mark.parametrize("name", names_of_grammars())
def test_the_grammar_has_no_fault_and_its_examples_parse(name: str) -> None:
    assert [str(fault) for fault in check_grammars([name])] == []


@pytest.mark.parametrize("name", names_of_grammars())
def test_the_grammar_shows_enough_examples(name: str) -> None:
    grammar = load_grammar(name)
    assert len(grammar.examples) >= 4
    where_the_host_tells_the_time = load_grammar(name, host_clock=True)
    assert where_the_host_tells_the_time.header.volatile == bool(grammar.header.volatile_reason)


def test_the_papers_example_is_derived_with_its_three_arguments() -> None:
    recogniser = Recogniser(load_grammar("df"))
    assert recogniser.derives(["df", "-a", "--output=source", "-B 512K"])
    assert not recogniser.derives(["df", "-a", "--output=sauce", "-B 512K"])
    assert not recogniser.derives(["df", "-a", "--output=source", "-B", "512K"])


def test_the_papers_cluster_is_derived() -> None:
    recogniser = Recogniser(load_grammar("ls"))
    assert recogniser.derives(["ls", "-l<ns>", "<ns>a<ns>", "<ns>T 32"])
    assert not recogniser.derives(["ls", "-l<ns>", "a<ns>", "<ns>T 32"])


def test_arguments_are_judged_one_by_one() -> None:
    recogniser = Recogniser(load_grammar("ls"))
    assert recogniser.derives_argument("--sort=size")
    assert not recogniser.derives_argument("--sort=siez")


def test_an_unknown_grammar_is_named_with_the_nearest_one() -> None:
    with pytest.raises(UnknownGrammarError, match="did you mean diff"):
        load_grammars(["dff"])


def test_examples_are_compared_with_what_running_them_shows() -> None:
    text = (
        "command x\nmanual x(1), T 1\npackage t\nvolatile no\nstart x -a\n"
        "example x -a\n  prints one\n  contains wo\n"
    )
    grammar = read_grammar(text, "x.grammar").grammar
    (good,) = run_examples([grammar], lambda _: (0, "one\ntwo\n"))
    assert (good.text, good.failures) == ("x -a", ())
    (bad,) = run_examples([grammar], lambda _: (2, "x one"))
    assert len(bad.failures) == 3


def test_a_faulty_file_raises_all_its_faults(tmp_path: Path) -> None:
    (tmp_path / "x.grammar").write_text("command x\nstart x <nope>\n")
    (tmp_path / "y.grammar").write_text("command z\n")
    with pytest.raises(FaultyGrammarError) as caught:
        load_grammars(directory=tmp_path)
    assert {fault.path for fault in caught.value.faults} == {"x.grammar", "y.grammar"}
    assert "SHIO-G12" in str(caught.value)


def test_the_guides_grammar_is_right(tmp_path: Path) -> None:
    guide = ROOT / "docs" / "how-to" / "write-a-grammar.md"
    text = guide.read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    plain = [content for language, content in blocks if language == "text"]
    (tmp_path / "nl.grammar").write_text("\n".join(plain[:2]))
    assert check_grammars(["nl"], directory=tmp_path) == ()


@pytest.mark.parametrize(("run", "faults"), [("ls -n 5", 0), ("<a> -n 5", 1), ("-n 5", 1)])
def test_options_of_a_command_that_is_run_take_no_values_of_its_own(run: str, faults: int) -> None:
    text = (
        "command x\nmanual x(1), T 1\npackage t\nvolatile no\npermutes no\nruns yes\n"
        f"start x <run>\noptions\n  -n <a>\n<a> = 5\n<run> = {run} | <option>\nexample x ls\n"
    )
    grammar = read_grammar(text, "x.grammar").grammar
    assert len([*check_values(grammar)]) == faults


def test_a_grammar_may_begin_with_a_mark_of_the_byte_order(tmp_path: Path) -> None:
    shipped = COMMANDS / "wc.grammar"
    (tmp_path / "wc.grammar").write_bytes(b"\xef\xbb\xbf" + shipped.read_bytes())
    assert load_grammar("wc", directory=tmp_path).examples == load_grammar("wc").examples
