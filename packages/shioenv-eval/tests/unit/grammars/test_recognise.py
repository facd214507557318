"""Recognition of words by kinds of value, in any spelling."""

from __future__ import annotations

from random import Random

import pytest

from shioenv.grammar.bind import bind, stand_in_catalogue
from shioenv.grammar.library import load_grammar, load_grammars
from shioenv.grammar.load import read_grammar
from shioenv.synthesis.samplers import Sampler
from shioenv_eval.grammars.recognise import Recogniser

HEADER = "command x\nmanual x(1), Things 9.1\npackage things\nvolatile no\n"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("head", ["-n 37", "-n37", "--lines=37", "--lines 37", "--li=37", "-37", "-c '12'"]),
        ("cut", ["-d' '", '-d " "', r"-d\ ", "-f 2-9,14", '--fields="3"', "-d %"]),
        ("tar", ["-z<ns>", "<ns>x<ns>", "<ns>f out/of/it.tgz", "-C /srv/www"]),
        ("find", ['-name "*.rs"', r"-name \*.rs", "-name *.rs", "-mtime -13", "-size +73M"]),
        ("grep", ["-A 17", "--include=*.rs", "'fo[ox]$'", '"two words"', "-e fu.*"]),
        ("chmod", ["0711", "o-rwx", "some/where", "-x"]),
        ("sort", ["-k 3,4n", "-k7", "-t '%'"]),
        ("curl", ["https://example.org/a?b=c", "-o page.html", "-H 'X-Y: z'"]),
        ("touch", ["-d '3 weeks ago'", "-t 200203040506"]),
    ],
)
def test_values_and_spellings_that_no_list_holds_are_derived(
    command: str, words: list[str]
) -> None:
    recogniser = Recogniser(load_grammar(command))
    assert [word for word in words if not recogniser.derives_argument(word)] == []


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("head", ["-n tenfold", "-J", "--lnes=3", "-q3"]),
        ("cut", ["-d ab", "-f one"]),
        ("tar", ["--bogus", "--no=1"]),
        ("find", ["-naem", "-size big", "-type e"]),
        ("chmod", ["--recursively", "-R=1"]),
        ("df", ["--output=sauce"]),
        ("rm", ["-a", "--a", "--all"]),
    ],
)
def test_mistakes_are_not_derived(command: str, words: list[str]) -> None:
    recogniser = Recogniser(load_grammar(command))
    assert [word for word in words if recogniser.derives_argument(word)] == []


def test_a_kind_stands_behind_the_name_and_an_unknown_one_is_a_fault() -> None:
    body = "start x <a>\n<a> : {} = 1 | 2 | 3\n"
    loaded = read_grammar(HEADER + body.format("number"), "x.grammar")
    assert Recogniser(loaded.grammar).derives(["x", "77"])
    assert not Recogniser(loaded.grammar).derives(["x", "y"])
    (fault,) = read_grammar(HEADER + body.format("nubmer"), "x.grammar").faults
    assert "did you mean number" in fault.message


def test_gcs_inputs_are_derived_by_their_grammar() -> None:
    names = ["cat", "df", "echo", "ls"]
    grammars = [bind(grammar, stand_in_catalogue()) for grammar in load_grammars(names)]
    sampler, random = Sampler("gcs", grammars), Random(3)
    for grammar in grammars:
        recogniser = Recogniser(grammar)
        for _ in range(100):
            drawn = sampler.draw(grammar.start, random)
            assert recogniser.derives(drawn.words), drawn.words
