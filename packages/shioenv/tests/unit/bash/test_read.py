"""Bash programs are parsed as by Bash, and refused where Bash refuses."""

from __future__ import annotations

from contextlib import suppress

import pytest

from shioenv.bash.program import (
    Case,
    Coprocess,
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
from shioenv.bash.read import read
from shioenv.bash.scan import Refused
from shioenv.bash.walk import commands


def pipelines(text: str) -> list[Pipeline]:
    return [pipeline for job in read(text).program for _, pipeline in job.pipelines]


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
        ("select x in a; do b; done", For),
        ("coproc a b", Coprocess),
        ("coproc N { a; }", Coprocess),
        ("x=(1 $(a)\n2)", Simple),
        ("declare -A x=([a b]=1)", Simple),
        ("x[1 + 2]=3", Simple),
        ("exec {fd}> x", Simple),
        ("echo $[1 + 2]", Simple),
        ("f() { a; } > b", Function),
        ("for x in a; { b; }", For),
        ("if (a) then b; fi", If),
        ("[[ a =~ (b|c) && ! -f d ]]", Verbatim),
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
    program = read("a; b\n\nif c; then\nd; fi; e &\nf").program
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
        "a |&\n time b",
        "x=(1 2",
        "x=(a; b)",
        "! ! | a",
        "in",
        "> 2>x",
        "for ((i = 0; i < 3)); do a; done",
        "[[ a b ]]",
        "[[ -f ]]",
        "[[ a == ]]",
        "declare x (1)",
        "echo $(if)",
        "echo $(time { a; })",
        "f() a",
        "a(b)",
        "case a in b) c",
        "fi",
        "( " * 120 + "a" + " )" * 120,
    ],
)
def test_what_bash_refuses_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        read(text)


def test_nothing_is_a_program_without_commands() -> None:
    assert read(" \n# only this\n").program == ()


@pytest.mark.parametrize("opening", ["$(", "${x:-", "$((", "`", '"$(', "<(", "(", "{ ", "if "])
@pytest.mark.parametrize("closed", [False, True])
def test_deep_nesting_is_read_or_refused_soon(opening: str, closed: bool) -> None:
    closing = {"$(": ")", "${x:-": "}", "$((": "))", '"$(': ')"', "<(": ")", "(": ")"}
    for depth in (25, 2_000):
        text = "echo " + opening * depth + "a" + closing.get(opening, "; }") * depth * closed
        with suppress(Refused):
            read(text)


def test_what_stands_before_a_pipeline_is_told() -> None:
    (pipeline,) = pipelines("time -p ! a | b")
    assert (pipeline.timed, pipeline.negated, len(pipeline.stages)) == (True, True, 2)
    assert [(one.timed, one.stages) for one in pipelines("time\n!")] == [(True, ()), (False, ())]


def test_a_here_document_without_an_end_reaches_to_the_end() -> None:
    (redirect,) = simple("cat <<E\nx").redirects
    assert (redirect.target, redirect.ended) == ("x\n", False)
    (redirect,) = simple("cat <<E").redirects
    assert (redirect.target, redirect.ended) == ("", False)
    (redirect,) = simple("cat <<E\nx\\\nE\nE\n").redirects
    assert (redirect.target, redirect.ended) == ("x\\\nE\n", True)


def test_a_newline_in_quotes_begins_no_here_document() -> None:
    command = simple("cat <<E 'a\nb'\nx\nE")
    assert command.words == ("cat", "'a\nb'")
    assert command.redirects == (Redirect(None, "<<", "x\n"),)


@pytest.mark.parametrize(
    "text",
    [
        'A=1 b 2>c $(d `e "f"` <(g)) | h && { i; } >j; for k in l m; do n; done; o=(p q)',
        "function a { b <<C; }\nd\nC\ne",
        "time ! a; [[ b == c ]] && ((1)) || case d in e) f;; esac &",
    ],
)
def test_everything_stands_where_it_says(text: str) -> None:
    source = read(text)
    for command, shift in commands(source):
        assert 0 <= command.start + shift < command.end + shift <= len(text)
        if isinstance(command, Simple):
            texts = (*command.assignments, *command.words)
            for place, word in zip(command.places, texts, strict=True):
                assert text.startswith(word, place + shift)
            for redirect in command.redirects:
                if redirect.operator != "<<":
                    assert text[: redirect.end + shift].endswith(redirect.target)
    for one in source.substitutions:
        assert text[one.start] in "$`<"
        assert text[one.end - 1] in ")`"
    for name, place in source.expansions:
        assert text.startswith(("$" + name, "${" + name + "}"), place)


def test_commands_in_substitutions_come_where_they_begin() -> None:
    found = [
        command.words[0]
        for command, _ in commands(read('a "$(b `c $(d)`)" ${x:-$(e)}; f() { g; }; coproc h'))
        if isinstance(command, Simple)
    ]
    assert found == ["a", "b", "c", "d", "e", "g", "h"]


@pytest.mark.parametrize(
    ("unit", "count"),
    [
        *(("$x", 30_000), ("a ", 30_000), ("a;", 10_000), ("(", 50_000), ("`a` ", 5_000)),
        *(("\\\n", 50_000), ("a <<E;", 3_000), ("x=(", 3_000), ("$(( ", 3_000), ("! ", 5_000)),
    ],
)
@pytest.mark.parametrize("around", ["", "'", '"'])
def test_what_is_long_is_read_or_refused_soon(unit: str, count: int, around: str) -> None:
    with suppress(Refused):
        read(around + unit * count + around)
