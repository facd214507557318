"""Every sampled input of every command parses back to its own arguments."""

from itertools import islice

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shioenv.bash.words import split_words
from shioenv.domain.inputs import Input
from shioenv.errors import SamplesExhaustedError
from shioenv.grammar.bind import stand_in_catalogue
from shioenv.grammar.library import load_grammar, load_grammars, names_of_grammars
from shioenv.grammar.parse import InputParser
from shioenv.synthesis.drawing import Drawing
from shioenv.synthesis.sample import draw_samples
from support.nightly import LARGER, scaled

CATALOGUE = {
    **stand_in_catalogue(),
    "File": ("documents/notes.txt", "misc/a file.txt", "misc/it's.txt", "misc/star*.txt", "-n.txt"),
}


@LARGER
@pytest.mark.parametrize("policy", ["paper", "people"])
@pytest.mark.parametrize("name", names_of_grammars())
def test_single_inputs_parse_back(name: str, policy: str) -> None:
    grammar = load_grammar(name)
    catalogue = dict(CATALOGUE)
    if policy == "people":  # it writes `./-n.txt`, and never a word that begins with a dash
        catalogue["File"] = CATALOGUE["File"][:-1]
    parser = InputParser([grammar])
    drawing = Drawing(policy=policy, seed=7, start_directories=("/home/ubuntu",), composite_share=0)
    stream = draw_samples(drawing, catalogue=catalogue, grammars=[grammar])
    drawn = 0
    try:
        for one in islice(stream, scaled(8, 200) if policy == "paper" else scaled(4, 60)):
            drawn += 1
            assert parser.parse(one.input.text) == one.input
    except SamplesExhaustedError:
        assert drawn > 0  # `hostid` takes next to nothing


@LARGER
@pytest.mark.parametrize("policy", ["paper", "mixed"])
def test_composite_inputs_parse_back(policy: str) -> None:
    grammars = load_grammars()
    parser = InputParser(grammars)
    drawing = Drawing(
        policy=policy, seed=11, start_directories=("/home/ubuntu",), composite_share=1
    )
    stream = draw_samples(drawing, count=scaled(60, 600), catalogue=CATALOGUE, grammars=grammars)
    for one in stream:
        assert parser.parse(one.input.text) == one.input


LS = load_grammar("ls")


@given(st.text(alphabet="ab -'\"\\|&;<>$(){}`*\n#=", max_size=30).map("ls ".__add__))
def test_no_text_makes_the_parser_fail(text: str) -> None:
    parsed = InputParser([LS]).parse(text)
    assert parsed.tokens


@given(st.text(alphabet="ab \t'\"\\$(){}`", max_size=30))
def test_words_hold_everything_but_the_blanks_between_them(text: str) -> None:
    words = split_words(text)
    assert all(words)
    position = 0
    for word in words:
        assert not text[position : text.index(word, position)].strip()
        position = text.index(word, position) + len(word)
    assert not text[position:].strip()


PIECES = (
    "ls", "-l", "-la", "a", "'b c'", '"$X"', "X=1", "#", "1", "[[", "]]", "==", "(", ")", "{", "}",
    "&&", "||", "|", "|&", ";", "&", "\n", "\\;", "$(ls > x)", "<(ls)", ">(cat)", "$((1<2))",
    ">", ">>", ">|", "<", "<<<", "<>", "2>", "2>>", "&>", "&>>", "2>&1", "1>&2", ">&2", "3>&-",
    "<&3", "<&-", "0<&-", "3<>f", "4>log", "5>>log", "{fd}>f", "6>&1-", ">&f", "2>/dev/null",
    "<ns>",
)  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=9), st.sampled_from((" ", "")))
@example(["ls", "3>&-", "2>&1", "<&3"], " ")
@example(["[[", "a", "<", "b", "]]", "&&", "ls"], " ")
@example(["<", "a"], " ")
@example(["0<&-"], " ")
def test_whatever_was_parsed_reads_back_from_its_tokens(pieces: list[str], blank: str) -> None:
    parsed = InputParser([LS]).parse(blank.join(pieces))
    assert Input.from_marked(parsed.input_args) == parsed


@pytest.mark.parametrize("operator", ["3>&-", "2>&1", "<&3", "0<&-", "4>log", "{fd}>f", "6>&1-"])
def test_rare_redirections_are_operators(operator: str) -> None:
    parsed = InputParser([LS]).parse(f"ls -l {operator} a")
    assert parsed.operators == (operator,)
    assert [argument.text for argument in parsed.segments[0].arguments] == ["-l", "a"]
    assert Input.from_marked(parsed.input_args) == parsed
