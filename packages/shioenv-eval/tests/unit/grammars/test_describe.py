"""Inputs parsed and explained."""

import pytest

from shioenv.grammar.library import load_grammars
from shioenv.grammar.load import read_grammar
from shioenv_eval.grammars.describe import ArgumentKind, DescribedSegment, Describer

HEADER = "command {}\nmanual ip(8), T 1\npackage t\nvolatile no\n"
ADDRESS = (
    "start ip <option>* (addr | address | a) <rest>*\noptions\n  -4\n  -f <f>\n"
    "<f> = link\n<rest> = show | dev lo\n"
)
LINK = "start ip <option>* link <rest>*\noptions\n  -s\n<rest> = show | {dev <Interface>}\n"


@pytest.fixture(scope="module")
def describer() -> Describer:
    extra = [
        read_grammar(HEADER.format("ip-addr") + ADDRESS, "ip-addr.grammar").grammar,
        read_grammar(HEADER.format("ip-link") + LINK, "ip-link.grammar").grammar,
    ]
    return Describer([*load_grammars(["ls", "sort", "head", "export", "find"]), *extra])


def only(describer: Describer, text: str) -> DescribedSegment:
    description = describer.describe(text)
    assert description.parsed
    (segment,) = description.segments
    return segment


@pytest.mark.parametrize(
    ("text", "kind", "option", "value"),
    [
        ("head -n 5", ArgumentKind.OPTION, "-n", "5"),
        ("head -n5", ArgumentKind.OPTION, "-n", "5"),
        ("head --lines=5", ArgumentKind.OPTION, "--lines", "5"),
        ("head --lines 5", ArgumentKind.OPTION, "--lines", "5"),
        ("head -q", ArgumentKind.OPTION, "-q", None),
        ("head -J", ArgumentKind.OPTION, "-J", None),
        ("head --", ArgumentKind.DASHES, None, None),
        ("head -", ArgumentKind.OPERAND, None, None),
        ("find -name '*.c'", ArgumentKind.OPTION, "-name", "'*.c'"),
        ("find -print0", ArgumentKind.OPTION, "-print0", None),
        ("find -exec wc -l {} \\;", ArgumentKind.OPTION, "-exec", "wc -l {} \\;"),
        ("export A=1", ArgumentKind.ASSIGNMENT, None, None),
        ("ls A=1", ArgumentKind.OPERAND, None, None),
        ("unknown -n", ArgumentKind.OPTION, "-n", None),
    ],
)
def test_what_an_argument_is(
    describer: Describer, text: str, kind: ArgumentKind, option: str | None, value: str | None
) -> None:
    (argument,) = only(describer, text).arguments
    assert (argument.kind, argument.option, argument.value) == (kind, option, value)


def test_flags_in_a_cluster_have_names_of_their_own(describer: Describer) -> None:
    arguments = only(describer, "ls -laT32").arguments
    assert [(one.kind, one.option, one.value) for one in arguments] == [
        (ArgumentKind.CLUSTER, "-l", None),
        (ArgumentKind.CLUSTER, "-a", None),
        (ArgumentKind.CLUSTER, "-T", "32"),
    ]


def test_everything_behind_dashes_is_an_operand(describer: Describer) -> None:
    kinds = [one.kind for one in only(describer, "ls -a -- -l x").arguments]
    assert kinds == [
        ArgumentKind.OPTION,
        ArgumentKind.DASHES,
        ArgumentKind.OPERAND,
        ArgumentKind.OPERAND,
    ]


def test_what_the_grammar_does_not_write_is_said(describer: Describer) -> None:
    segment = only(describer, "ls --sort=size --sort=siez some/file")
    assert [one.derivable for one in segment.arguments] == [True, False, True]
    assert not segment.derivable


def test_options_in_another_order_are_derived_all_the_same(describer: Describer) -> None:
    assert only(describer, "sort data/users.csv -k2 -s -t,").derivable
    assert not only(describer, "sort --nope data/users.csv").derivable


def test_segments_operators_redirections_and_assignments(describer: Describer) -> None:
    text = "LC_ALL=C ls 2>/dev/null > out 3>&- | sort 2>&1 && nope"
    first, second, third = describer.describe(text).segments
    assert (first.operator, first.command, first.assignments) == (None, "ls", ("LC_ALL=C",))
    assert first.redirections == (("2>", "/dev/null"), (">", "out"), ("3>&-", None))
    assert (second.operator, second.redirections) == ("|", (("2>&1", None),))
    assert (third.operator, third.grammar, third.derivable) == ("&&", None, False)


@pytest.mark.parametrize(
    ("text", "grammar"),
    [
        ("ip addr show", "ip-addr"),
        ("ip -4 a", "ip-addr"),
        ("ip -f link a", "ip-addr"),
        ("ip", "ip-addr"),
        ("ip ad", "ip-addr"),
        ("ip address", "ip-addr"),
        ("ip l", "ip-link"),
        ("ip -s link show", "ip-link"),
    ],
)
def test_grammars_of_one_command_are_told_apart(
    describer: Describer, text: str, grammar: str
) -> None:
    assert only(describer, text).grammar == grammar


@pytest.mark.parametrize(
    "text",
    [
        *("", "ls 'open", "a\n)", "(" * 3000, "\0", "cat <<E\nx\nE", ";;"),
        *('ls "' + '$("' * 3000, "chmod " + "u+x " * 3000, "ls " + "$(ls) " * 300),
    ],
    ids=range(10),
)
def test_any_text_has_a_description(describer: Describer, text: str) -> None:
    assert describer.describe(text).segments


def test_a_command_of_more_words_than_are_looked_at_is_not_derivable(describer: Describer) -> None:
    assert only(describer, "ls" + " -l" * 149).derivable
    assert not only(describer, "ls" + " -l" * 150).derivable


@pytest.mark.parametrize(
    ("text", "spelling", "value_kind", "cause"),
    [
        ("head -n 5", "short separate", "number", None),
        ("head -n5", "short joined", "number", None),
        ("head --lines=5", "long =", "number", None),
        ("head --lines 5", "long separate", "number", None),
        ("head -q", "short", None, None),
        ("head --quiet", "long", None, None),
        ("head -n x%", "short separate", None, "value"),
        ("head -n", "short", None, "missing value"),
        ("head --quiet=1", "long =", None, "unexpected value"),
        ("head -J", "short", None, "unknown option"),
        ("find -name 'a b'", "short separate", "glob", None),
    ],
)
def test_spelling_kind_and_cause(
    describer: Describer, text: str, spelling: str, value_kind: str | None, cause: str | None
) -> None:
    (argument,) = only(describer, text).arguments
    assert (argument.spelling, argument.value_kind, argument.cause) == (spelling, value_kind, cause)


def test_a_value_with_a_blank_is_not_cut(describer: Describer) -> None:
    (argument, *_) = only(describer, "sort -t' ' -k2").arguments
    assert (argument.option, argument.value, argument.derivable) == ("-t", "' '", True)


@pytest.mark.parametrize("end", ["\\;", "';'", "+"])
def test_what_find_runs_is_not_finds(describer: Describer, end: str) -> None:
    segment = only(describer, f"find . -exec sort -k 9 -u {{}} {end}")
    assert [argument.derivable for argument in segment.arguments] == [True, True]
    (nested,) = segment.nested
    assert (nested.command, [one.text for one in nested.arguments]) == (
        "sort",
        ["-k 9", "-u", "{}"],
    )
    wrong = only(describer, f"find . -exec sort --nope {{}} {end}")
    assert [argument.derivable for argument in wrong.arguments] == [True, False]
    assert wrong.nested[0].arguments[0].cause == "unknown option"


def test_what_xargs_runs_is_derived_by_its_own_grammar() -> None:
    describer = Describer(load_grammars(["xargs", "rm", "env"]))
    segment = only(describer, "xargs -0 env rm -rf --")
    assert all(argument.derivable for argument in segment.arguments)
    (nested,) = segment.nested
    assert (nested.command, nested.nested[0].command) == ("env", "rm")
    assert not all(one.derivable for one in only(describer, "xargs rm --nope").arguments)


@pytest.mark.parametrize("text", ["env - ls -la", "xargs -n 1 ls -la", "env A=1 ls -la"])
def test_the_arguments_of_a_nested_command_are_not_those_of_what_runs_it(text: str) -> None:
    segment = only(Describer(load_grammars(["xargs", "ls", "env"])), text)
    (nested,) = segment.nested
    assert nested.command == "ls"
    assert [one.kind for one in nested.arguments] == [ArgumentKind.CLUSTER, ArgumentKind.CLUSTER]
    behind = [one.text for one in segment.arguments].index("ls")
    assert {one.kind for one in segment.arguments[behind:]} == {ArgumentKind.OPERAND}
    assert all(one.derivable for one in segment.arguments)


@pytest.mark.parametrize("text", ["find . -exec \\;", "find . -exec + -print", "find . -ok ';'"])
def test_a_command_that_find_runs_may_be_missing(text: str) -> None:
    description = Describer(load_grammars(["find"])).describe(text)
    assert description.segments[0].nested == ()


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("ls $(find . -name '*.txt')", [("find", [True, True])]),
        ('ls "$(find . -nope)" -l', [("find", [True, False])]),
        ("sort <(ls -l) <(ls | head -n 3)", [("ls", [True]), ("ls", []), ("head", [True])]),
        ("ls `head -n 1`", [("head", [True])]),
        ("head -n $(ls -l)", [("ls", [True])]),
        ("ls '$(head)' \\$(x) $((1 + 2)) ${x}", []),
        ("ls $(", []),
        ("nosuch $(ls -l)", [("ls", [True])]),
    ],
)
def test_commands_in_substitutions_are_described(
    describer: Describer, text: str, commands: list[tuple[str, list[bool]]]
) -> None:
    found = describer.describe(text).segments[0].substituted
    shown = [(one.command, [each.derivable for each in one.arguments]) for one in found]
    assert shown == commands


def test_substitutions_are_described_two_deep(describer: Describer) -> None:
    (first,) = only(describer, "ls $(ls $(ls $(ls)))").substituted
    (second,) = first.substituted
    assert second.substituted == ()


def test_substitutions_of_a_command_that_is_run_are_its_own() -> None:
    segment = only(Describer(load_grammars(["xargs", "ls", "head"])), "xargs ls $(head -n 1)")
    assert segment.substituted == ()
    assert segment.nested[0].substituted[0].command == "head"
