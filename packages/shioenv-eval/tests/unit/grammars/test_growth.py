"""Grammars of any shape are checked in time proportional to their size, and none overflows."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from shioenv.grammar.arguments import ArgumentSplitter
from shioenv.grammar.grammar_lines import MOST_INHERITED
from shioenv.grammar.library import load_grammar
from shioenv.grammar.notation import Fault
from shioenv.grammar.symbols import MAX_ARGUMENT_LENGTH, Nonterminal
from shioenv.grammar.validation import MOST_BEFORE_TEXT, longest_length
from shioenv_eval.grammars.describe import Describer
from shioenv_eval.grammars.grammar_check import check_grammars
from shioenv_eval.grammars.recognise import Recogniser
from support.nightly import by_day

HEAD = """command   say
manual    say(1), words 1.0
package   words
volatile  no

start     say <a0>
"""
EXAMPLE = "example say x\n"


def chain(body: str, last: str = "x") -> Callable[[int], str]:
    """Return a grammar of so many definitions, each of which references the next."""

    def written(number: int) -> str:
        lines = [f"<a{n}> = " + body.format(f"<a{n + 1}>", n) for n in range(number)]
        return "\n".join([*lines, f"<a{number}> = {last}"])

    return written


def each(line: str, before: str = "<a0> = x") -> Callable[[int], str]:
    """Return a grammar with a line for each number."""
    return lambda number: "\n".join([before, *(line.format(n) for n in range(number))])


def blocks(number: int) -> str:
    lines = [f"options <b{n}> = <b{n - 1}>\n  --o{n}" for n in range(1, number)]
    return "\n".join(["<a0> = <b0>* x", "options <b0>\n  --o0", *lines])


SHAPES: dict[str, Callable[[int], str]] = {
    "one after the other": chain("{0}"),
    "alternatives": chain("x{1} | {0}"),
    "arguments": chain("a {0}"),
    "parts of an argument": chain("x | a{0}"),
    "doubling": chain("{0} {0}"),
    "doubling where it is longest": chain("x | b{0}{0}"),
    "a way into a loop": chain("{0} | x", "<a{0}> | x".replace("{0}", "0")),
    "a loop behind a text": chain("b{0} | x", "b<a0> | x"),
    "names that are not defined": chain("<b{1}> {0}"),
    "names that are nearly defined": chain("x | <a{1}-> {0}"),
    "tokens that are none": each("  | <File{}>"),
    "not used by any start line": each("<c{}> = x"),
    "never ending": chain("{0}", "y <a0>"),
    "options": each("  --o{}=<number>", "<a0> = <option>* x\noptions"),
    "an option twice": each("  -x", "<a0> = <option>* x\noptions"),
    "an alternative twice": each("  | x"),
    "blocks that inherit": blocks,
    "options that are not inherited": lambda number: "\n".join(
        [
            *("<a0> = <b>* x", "options <one>"),
            *(f"  --o{n}" for n in range(number)),
            "options <b> = <one> without " + ", ".join(f"--p{n}" for n in range(number)),
        ]
    ),
    "groups": lambda number: "<a0> = " + " ".join(f"(x{n}|y)" for n in range(number)),
    "groups in groups": lambda number: "<a0> = " + "(" * number + "x" + ")" * number,
    "repetitions": lambda number: "<a0> = " + " ".join(f"(x{n})*" for n in range(number)),
    "braces that are not closed": lambda number: "<a0> = " + "{a " * number,
    "braces in braces": lambda number: "<a0> = " + "{a " * number + "}x " * number,
    "one word": lambda number: "<a0> = " + "a%" * number,
    "spellings of an option": lambda number: (
        "<a0> = <option>* x\noptions\n  " + ", ".join(f"--o{n}" for n in range(number))
    ),
    "lines that are none": each("optins {}"),
    "examples": each("example say x"),
}


def faults_of(directory: Path, text: str) -> tuple[Fault, ...]:
    (directory / "say.grammar").write_text(f"{HEAD}\n{text}\n{EXAMPLE}")
    return check_grammars(["say"], directory=directory)


def calls(work: Callable[[], object]) -> int:
    """Count the function calls during `work`."""
    count = 0

    def called(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    re.purge()
    before = sys.getprofile()
    sys.setprofile(called)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("shape", by_day([*SHAPES], 2))
def test_twice_the_grammar_is_twice_the_work(tmp_path: Path, shape: str) -> None:
    faults_of(tmp_path, "<a0> = x")  # what is read once
    found: list[Fault] = []
    counts = []
    for number in (200, 400):
        text = SHAPES[shape](number)
        counts.append(calls(partial(lambda text: found.extend(faults_of(tmp_path, text)), text)))
    fewer, more = counts
    assert more < 2.5 * fewer
    assert all(str(fault).startswith("say.grammar:") for fault in found)


def test_what_comes_before_any_text_has_a_bound(tmp_path: Path) -> None:
    assert not faults_of(tmp_path, chain("{0}")(MOST_BEFORE_TEXT - 1))
    (fault,) = faults_of(tmp_path, chain("{0}")(MOST_BEFORE_TEXT))
    assert fault.message.startswith("<a0> expands through more than")
    assert fault.line == HEAD.count("\n") + 2


def test_what_the_checker_permits_is_recognised(tmp_path: Path) -> None:
    text = chain("{0}")(MOST_BEFORE_TEXT - 2)
    (tmp_path / "say.grammar").write_text(f"{HEAD.replace('<a0>', '<a0>*')}\n{text}\n{EXAMPLE}")
    recogniser = Recogniser(load_grammar("say", directory=tmp_path))
    assert recogniser.derives(["say", *["x"] * 149])
    assert not recogniser.derives(["say", *["x"] * 148, "y"])


def test_a_word_that_nests_too_deeply_is_not_derived(tmp_path: Path) -> None:
    (tmp_path / "say.grammar").write_text(f"{HEAD}\n<a0> = x<a0> | x\n{EXAMPLE}")
    grammar = load_grammar("say", directory=tmp_path)
    recogniser = Recogniser(grammar)
    for number, is_derived in ((64, True), (150, True), (400, False), (5000, False)):
        assert recogniser.derives(["say", "x" * number]) is is_derived
        assert recogniser.derives_argument("x" * number) is is_derived
        (segment,) = Describer([grammar]).describe(f"say {'x' * number}").segments
        assert segment.derivable is is_derived


def test_names_are_suggested_in_a_grammar_of_any_usual_size(tmp_path: Path) -> None:
    text = "\n".join(["<a0> = x", *(f"<c{n}> = <colour{n}>" for n in range(200)), "<colours> = y"])
    messages = [fault.message for fault in faults_of(tmp_path, text)]
    assert sum("did you mean <colours>?" in message for message in messages) > 100


def test_blocks_may_inherit_so_many_options(tmp_path: Path) -> None:
    lines = [f"  --o{n}" for n in range(MOST_INHERITED // 10)]
    heirs = [f"options <b{n}> = <b>" for n in range(11)]
    text = "\n".join(["<a0> = x", "options <b>", *lines, *heirs])
    (fault,) = (fault for fault in faults_of(tmp_path, text) if "inherit" in fault.message)
    assert fault.line == HEAD.count("\n") + 2 + len(lines) + 2 + 10


@pytest.mark.parametrize("name", ["find", "test", "tar"])
def test_lengths_that_are_kept_give_the_same_faults(name: str) -> None:
    grammar = load_grammar(name)
    known: dict[Nonterminal, int] = {}
    for bodies in grammar.own.values():
        for argument in (argument for production in bodies for argument in production.body):
            alone = longest_length(grammar.productions, argument)
            kept = longest_length(grammar.productions, argument, known)
            assert (alone > MAX_ARGUMENT_LENGTH) == (kept > MAX_ARGUMENT_LENGTH)


@pytest.mark.parametrize(
    ("value", "levels"),
    [("a{0} | b{0}", 50), ("a{0} | {{c d{0}}} | b{0}", 20), ("'a{0}' | b{0} | c{0}", 20)],
)
def test_values_whose_spellings_double_are_taken_apart(
    tmp_path: Path, value: str, levels: int
) -> None:
    lines = chain(value)(levels).replace("<a0>", "<value>").split("\n")
    text = "\n".join(["<a0> = {-o <value>} | x", *lines])
    assert not faults_of(tmp_path, text)
    splitter = ArgumentSplitter(load_grammar("say", directory=tmp_path))
    assert [each.text for each in splitter.arguments(["-o", "aab", "-o"])] == ["-o aab", "-o"]


def test_values_inside_one_another_are_taken_apart(tmp_path: Path) -> None:
    links = [f"<u{n}x{m}> = <u{n}x{m + 1}>" for n in range(60) for m in range(30)]
    ends = [f"<u{n}x30> = a<u{n + 1}x0> | a" for n in range(60)]
    text = "\n".join(["<a0> = {-o <u0x0>} | x", *links, *ends, "<u60x0> = a"])
    assert not faults_of(tmp_path, text)
