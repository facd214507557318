"""Bash programs are read as Bash reads them, and refused where Bash refuses."""

from __future__ import annotations

from contextlib import suppress

import pytest

from shioenv.errors import Abstained
from shioenv.modeling.program import (
    Case,
    Counting,
    For,
    Function,
    Group,
    If,
    Pipeline,
    Redirect,
    Redirected,
    Simple,
    Verbatim,
    While,
)
from shioenv.modeling.reading import read_program


def pipelines(text: str) -> list[Pipeline]:
    return [pipeline for job in read_program(text) for _, pipeline in job.pipelines]


def only(text: str) -> object:
    (pipeline,) = pipelines(text)
    (stage,) = pipeline.stages
    return stage


def simple(text: str) -> Simple:
    command = only(text)
    assert isinstance(command, Simple)
    return command


def test_words_keep_their_quotes_and_lose_their_redirections() -> None:
    command = simple("""A=1 B="x y" ls 2>&1 'a b'$x"$(echo ")")" >out -l 3<in <<<"w" # more""")
    assert command.assignments == ("A=1", 'B="x y"')
    assert command.words == ("ls", """'a b'$x"$(echo ")")\"""", "-l")
    assert command.redirects == (
        Redirect(2, ">&", "1"),
        Redirect(None, ">", "out"),
        Redirect(3, "<", "in"),
        Redirect(None, "<<<", '"w"'),
    )


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("{ a; }", Group),
        ("( a )", Group),
        ("((a); (b))", Group),
        ("(( 1 + (2) ))", Verbatim),
        ("[[ a < b && -f c ]]", Verbatim),
        ("if a; then b; elif c; then d; else e; fi", If),
        ("while a; do b; done", While),
        ("for x in a b; do c; done", For),
        ("for x\ndo c; done", For),
        ("for ((i=0; i<3; i++)); do c; done", Counting),
        ("case x in (a|b) c;; *) d; esac", Case),
        ("f() { a; }", Function),
        ("function f { a; }", Function),
        ("{ a; } > b 2>&1", Redirected),
        ("curl -0# a#b", Simple),
    ],
)
def test_every_kind_of_command_is_told(text: str, kind: type) -> None:
    assert isinstance(only(text), kind)


def test_a_redirection_belongs_to_the_command_before_it() -> None:
    first, second = pipelines("a && b > f")
    assert [len(one.stages[0].redirects) for one in (first, second)] == [0, 1]  # type: ignore[union-attr]


def test_a_negation_is_that_of_the_whole_pipeline() -> None:
    (pipeline,) = pipelines("! a | b |& c")
    assert (len(pipeline.stages), pipeline.merged, pipeline.negated) == (3, (False, True), True)


def test_here_documents_stand_behind_their_line() -> None:
    text = "cat <<A - <<-'B' | tac; d\nx $y\nA\n\tz\n\tB\ne"
    first, second, third = pipelines(text)
    assert first.stages[0].redirects == (  # type: ignore[union-attr]
        Redirect(None, "<<", "x $y\n"),
        Redirect(None, "<<", "z\n", quoted=True),
    )
    assert (len(first.stages), second.stages[0].words) == (2, ("d",))  # type: ignore[union-attr]
    assert third.stages[0] == Simple((), ("e",), (), 6)


def test_lines_are_counted_and_where_bash_reads_at_once() -> None:
    program = read_program("a; b\n\nif c; then\nd; fi; e &\nf")
    assert [job.end for job in program] == [1, 1, 4, 4, 5]
    assert [job.background for job in program] == [False, False, False, True, False]


@pytest.mark.parametrize(
    "text",
    [
        "ls |",
        "a;;b",
        "; a",
        "if a; fi",
        "{ a; ",
        "( a",
        "a )",
        "echo 'x",
        'echo "x',
        "echo `x",
        "echo $(x",
        "a | ! b",
        "cat <<E\nx",
        "x=(1 2)",
        "time ls",
        "coproc ls",
        "{fd}> x",
        "a(b)",
        "case a in b) c",
        "fi",
        "( " * 100 + "a" + " )" * 100,
        "$[1]",
    ],
)
def test_what_cannot_be_read_is_abstained_from(text: str) -> None:
    with pytest.raises(Abstained):
        read_program(text)


def test_nothing_is_a_program_without_commands() -> None:
    assert read_program(" \n# only this\n") == ()


@pytest.mark.parametrize("opening", ["$(", "${x:-", "$((", "`", '"$(', "<(", "(", "{ ", "if "])
@pytest.mark.parametrize("closed", [False, True])
def test_deep_nesting_is_read_or_refused_soon(opening: str, closed: bool) -> None:
    closing = {"$(": ")", "${x:-": "}", "$((": "))", '"$(': ')"', "<(": ")", "(": ")"}
    for depth in (25, 2_000):
        text = "echo " + opening * depth + "a" + closing.get(opening, "; }") * depth * closed
        with suppress(Abstained):
            read_program(text)
