"""Parsing of grammar files, and the reported errors."""

from pathlib import Path

import pytest

from shioenv.errors import UnknownGrammarError
from shioenv.grammar.library import load_grammar
from shioenv.grammar.load import Loaded, read_grammar
from shioenv.grammar.notation import Fault, FaultKind
from shioenv.grammar.symbols import Nonterminal, TerminalText
from shioenv.grammar.validation import check

HEADER = "command x\nmanual x(1), Things 9.1\npackage things\nvolatile no\n"
HEADER_LINES = 4


def read(body: str) -> Loaded:
    return read_grammar(HEADER + body, "x.grammar")


def faults(body: str) -> list[Fault]:
    loaded = read(body)
    return [*loaded.faults, *check(loaded)]


def forms(body: str, head: str = "x:option") -> list[str]:
    productions = read(body).grammar.productions[Nonterminal(head)]
    return [str(production).partition(" = ")[2] for production in productions]


def alternatives(text: str) -> list[str]:
    return forms(f"start x <a>\n<a> = {text}\n", "x:a")


def test_a_blank_separates_arguments_and_braces_hold_one_together() -> None:
    (production,) = read("start x {-B 512K} -a\n").grammar.productions[Nonterminal("x:start")]
    assert production.body == (
        (TerminalText("x"),),
        (TerminalText("-B 512K"),),
        (TerminalText("-a"),),
    )


def test_braces_without_a_blank_are_shell_text() -> None:
    assert alternatives("{} | {a,b} | {1..5} | ${HOME}") == ["{}", "{a,b}", "{1..5}", "${HOME}"]


def test_a_brace_group_may_hold_literal_braces() -> None:
    (production,) = read(r"start x {-exec wc {} \;}" + "\n").grammar.productions[
        Nonterminal("x:start")
    ]
    assert production.body[1] == (TerminalText(r"-exec wc {} \;"),)


def test_shell_quotes_protect_every_sign_of_the_notation() -> None:
    words = ["'a | b'", '"(x)*"', r"\|", "$(wc -l)", "`date +%s`", "$((1 + 2))", r"$'it\'s'"]
    shown = [f"{{{word}}}" if " " in word else word for word in words]
    assert alternatives(" | ".join(words)) == shown


def test_a_nonterminal_inside_quotes_is_expanded_without_quotes_of_its_own() -> None:
    (production,) = read("start x '<File>'\n").grammar.productions[Nonterminal("x:start")]
    assert production.body[1] == (TerminalText("'"), Nonterminal("'File"), TerminalText("'"))


def test_indented_lines_are_further_alternatives() -> None:
    assert forms("start x <a>\n<a> = p | q\n  r\n  | s |\n  t # why\n", "x:a") == list("pqrst")


def test_an_indented_line_below_start_has_more_words_and_no_other_input() -> None:
    (production,) = read("start x -a\n  -b\n  -c\n").grammar.productions[Nonterminal("x:start")]
    assert [str(argument[0]) for argument in production.body] == ["x", "-a", "-b", "-c"]
    for keyword in ("start", "pipe"):
        for line in ("x -b | x -c", "| x -c", "-b %weight 2"):
            found = faults(f"start x -z\n{keyword} x -a\n  {line}\n")
            assert [fault.line for fault in found] == [HEADER_LINES + 3], (keyword, line, found)


def test_repetition_alone_makes_arguments_and_inside_a_word_text() -> None:
    productions = read("start x <a>* -<a>+\n<a> = p\n").grammar.productions
    alone, inside = Nonterminal("x:a*"), Nonterminal("x:a~*")
    assert [one.body for one in productions[alone]] == [(), ((Nonterminal("x:a"),), (alone,))]
    assert [one.stops for one in productions[alone]] == [True, False]
    assert [one.body for one in productions[inside]] == [(), ((Nonterminal("x:a"), inside),)]


def test_an_option_item_is_there_or_not() -> None:
    productions = read("start x --output(=<a>)?\n<a> = p\n").grammar.productions
    optional = next(head for head in productions if head.name.endswith("?"))
    assert [one.body == () for one in productions[optional]] == [True, False]


def test_flags_form_clusters() -> None:
    body = "start x <option>*\noptions\n  -a, --all\n  -T, --tab=<n>\n<n> = 8\n"
    assert forms(body, "x:option.flag") == ["a"]
    assert forms(body, "x:option.valued") == ["{T <x:n>}", "T<x:n>"]
    assert forms(body, "x:option.long") == ["--all", "{--tab <x:n>}", "--tab=<x:n>"]
    assert forms(body, "x:option.rest") == [
        "<ns><x:option.flag><ns> <x:option.rest>",
        "<ns><x:option.flag>",
        "<ns><x:option.valued>",
    ]
    assert forms(body)[-1] == "<x:option.cluster>"


def test_an_optional_value_reaches_a_short_form_only_where_it_is_shown() -> None:
    plain = "start x <option>\noptions\n  -F, --classify[=<w>]\n<w> = auto\n"
    assert forms(plain, "x:option.flag") == ["F"]
    assert forms(plain, "x:option.long") == ["--classify", "--classify=<x:w>"]
    shown = "start x <option>\noptions\n  -i[<w>], --in-place[=<w>]\n<w> = .bak\n"
    assert forms(shown, "x:option.valued") == ["i", "i<x:w>"]


def test_every_line_of_a_block_is_as_likely_as_the_next() -> None:
    body = "start x <option>\noptions\n  -a, --all\n  --size=<n>\n  -q %weight 3\n<n> = 1\n"
    productions = read(body).grammar.productions
    flags = {
        str(p).partition(" = ")[2]: p.weight for p in productions[Nonterminal("x:option.flag")]
    }
    longs = {
        str(p).partition(" = ")[2]: p.weight for p in productions[Nonterminal("x:option.long")]
    }
    assert flags == {"a": 0.5, "q": 3.0}
    assert longs == {"--all": 0.5, "--size=<x:n>": 0.5, "{--size <x:n>}": 0.5}


def test_one_dash_and_several_letters_is_no_cluster() -> None:
    body = "start x <option>\noptions %no-clusters\n  -name <n>\n  -print\n<n> = a\n"
    assert forms(body) == ["{-name <x:n>}", "-print"]


def test_attributes_of_an_option_line_limit_its_forms() -> None:
    lines = ("-n, --num=<n> %joined", "-m <n>", "-k <n> %separate", "-v %alone")
    body = "start x <option>\noptions\n  " + "\n  ".join(lines) + "\n<n> = 1\n"
    assert forms(body, "x:option.valued") == ["n<x:n>", "{m <x:n>}", "m<x:n>", "{k <x:n>}"]
    assert "-v" in forms(body)


def test_a_block_can_take_over_another_ones_lines() -> None:
    body = (
        "start x <option>* <quiet>\noptions\n  -a, --all\n  -v\n"
        "options <quiet> = <option> without -v\n  -q\n"
    )
    assert forms(body, "x:quiet.flag") == ["a", "q"]


def test_percent_and_one_letter_is_text() -> None:
    assert alternatives("%Y | %s | %d %weight 2") == ["%Y", "%s", "%d"]


def test_a_shared_definition_is_there_and_can_be_replaced() -> None:
    assert Nonterminal("size") in read("start x <size>\n").grammar.productions
    replaced = read("start x <size>\n<size> = 1\n").grammar.productions
    assert Nonterminal("size") not in replaced


def test_the_header_is_read() -> None:
    header = read("start x\npermutes no\n").grammar.header
    assert (header.version, header.package, header.volatile, header.permutes) == (
        "9.1",
        "things",
        False,
        False,
    )


@pytest.mark.parametrize(
    ("said", "runs"), [("", None), ("runs no", None), ("runs yes", 0), ("runs after 2", 2)]
)
def test_a_header_says_after_how_many_operands_a_command_is_run(said: str, runs: object) -> None:
    assert read(f"start x\n{said}\n").grammar.header.runs == runs


@pytest.mark.parametrize("said", ["runs maybe", "runs after", "runs after -1", "runs yes 1"])
def test_what_no_command_runs_is_a_fault(said: str) -> None:
    (fault,) = read_grammar(f"{HEADER}start x\n{said}\n", "x.grammar").faults
    assert "`after N`" in fault.message


@pytest.mark.parametrize(
    ("line", "words", "matches"),
    [
        ("-q|--quiet https?:.*", ["-q", "http://a/"], True),
        ("-q|--quiet https?:.*", ["-q", "a"], False),
        ("-q", ["-l<ns>", "<ns>q"], True),
        ("-q !-v", ["-q<ns>", "<ns>v"], False),
        ("-c @missing", ["-c", "new"], True),
        ("-c @missing", ["-c", "new", "there"], False),
        ("-p @existing", ["-p", "there"], True),
        ("-p @existing", ["-p", "there", "new"], False),
    ],
)
def test_avoided_inputs(line: str, words: list[str], matches: bool) -> None:
    (avoided,) = read(f"start x\navoid {line}: it does nothing\n").grammar.avoided
    assert avoided.matches(words, {"there"}.__contains__) is matches


@pytest.mark.parametrize("line", ["avoid", "avoid -c", "avoid : why", "avoid (-c: why"])
def test_an_avoid_line_without_patterns_or_reason_is_a_fault(line: str) -> None:
    (fault,) = read_grammar(f"{HEADER}start x\n{line}\n", "x.grammar").faults
    assert fault.kind is FaultKind.SYNTAX


def test_examples_carry_marks_and_expectations() -> None:
    body = "start x -a\nexample x -l<ns> {<ns>T 32}\n  exit 3\n  prints a  b\n  after cat y\n"
    (example,) = read(body).grammar.examples
    assert [argument.marked for argument in example.arguments] == ["-l<ns>", "<ns>T 32"]
    assert (example.exit_code, example.prints, example.after) == (3, ("a  b",), "cat y")


def test_every_fault_of_a_file_is_reported_at_once_with_its_place() -> None:
    text = "command y\nstrat x\nstart x <sise> (a\n<b> =\nomit -i\n"
    found = read_grammar(text, "x.grammar").faults
    assert {(fault.line, fault.kind) for fault in found} == {
        (1, FaultKind.HEADER),
        (2, FaultKind.SYNTAX),
        (3, FaultKind.SYNTAX),
        (3, FaultKind.UNDEFINED),
        (4, FaultKind.SYNTAX),
        (5, FaultKind.SYNTAX),
    }
    undefined = next(fault for fault in found if fault.kind is FaultKind.UNDEFINED)
    assert undefined.column == 9
    assert str(undefined) == (
        "x.grammar:3:9: <sise> is not defined; did you mean <size>? (SHIO-G12)"
    )


def one_fault(body: str) -> tuple[FaultKind, str]:
    (fault,) = faults(body)
    assert fault.line > HEADER_LINES
    return fault.kind, fault.message


def test_an_unknown_system_token_is_named_with_the_nearest_one() -> None:
    kind, message = one_fault("start x <Fiel>\n")
    assert kind is FaultKind.UNDEFINED
    assert "did you mean <File>?" in message


def test_a_name_without_its_capital_is_recognised() -> None:
    assert "did you mean <Directory>?" in one_fault("start x <directory>\n")[1]


def test_a_definition_nobody_uses_is_unreachable() -> None:
    assert one_fault("start x\n<a> = p\n")[0] is FaultKind.UNREACHABLE


def test_a_nonterminal_that_never_ends_is_a_fault() -> None:
    kinds = {fault.kind for fault in faults("start x <a>\n<a> = p<a>\n")}
    assert kinds == {FaultKind.ENDLESS}


def test_left_recursion_is_a_fault() -> None:
    kind, message = one_fault("start x <a>\n<a> = p | <a> q\n")
    assert kind is FaultKind.ENDLESS
    assert "is left-recursive" in message


def test_an_alternative_written_twice_is_a_duplicate() -> None:
    assert one_fault("start x <a>\n<a> = p | q\n  p\n")[0] is FaultKind.DUPLICATE


def test_an_option_written_twice_is_a_duplicate() -> None:
    body = "start x <option>\noptions\n  -a, --all\n  -b, --all\n"
    assert one_fault(body)[0] is FaultKind.DUPLICATE


def test_an_argument_that_can_get_too_long_is_a_fault() -> None:
    assert (
        one_fault(f"start x <a>\n<a> = {'p' * 40}<b>\n<b> = {'q' * 25}\n")[0] is FaultKind.TOO_LONG
    )


def test_several_arguments_inside_a_word_are_a_fault() -> None:
    kind, message = one_fault("start x --a=<b>\n<b> = p q\n")
    assert kind is FaultKind.SEVERAL_ARGUMENTS
    assert "braces" in message


def test_misspelt_attributes_are_reported() -> None:
    assert "did you mean %weight?" in one_fault("start x p %wieght 3\n")[1]
    assert "is not valid here" in one_fault("start x p %alone\n")[1]


def test_a_command_may_be_called_like_a_shared_definition() -> None:
    text = HEADER.replace("command x", "command date") + "start date <date>\n"
    grammar = read_grammar(text, "date.grammar").grammar
    assert grammar.start != Nonterminal("date")
    assert {Nonterminal("date"), grammar.start} <= set(grammar.productions)


def test_an_option_may_show_its_value_at_every_name() -> None:
    body = "start x <option>\noptions\n  --color[=<w>], --colour[=<w>]\n<w> = always\n"
    assert not faults(body)
    longs = forms(body, "x:option.long")
    assert longs == ["--color", "--color=<x:w>", "--colour", "--colour=<x:w>"]


def test_braces_around_one_option_are_one_argument() -> None:
    assert alternatives("{--checkpoint=1} | {-n5}") == ["--checkpoint=1", "-n5"]
    assert alternatives("{} | {a,b} | {1..3} | file{1}") == ["{}", "{a,b}", "{1..3}", "file{1}"]


def test_a_plus_before_an_equals_sign_is_text() -> None:
    body = "start x <n>+=<v>\n<n> = PATH\n<v> = /opt\n"
    (production,) = read(body).grammar.productions[Nonterminal("x:start")]
    assert str(production) == "<x:start> = x <x:n>+=<x:v>"


def test_process_substitutions_are_shell_text() -> None:
    body = "start x <a>\n<a> = <(sort -u <b>) | >(cat)\n<b> = y\n"
    assert not faults(body)
    assert forms(body, "x:a") == ["{<(sort -u <x:b>)}", ">(cat)"]


def test_few_flags_make_few_clusters() -> None:
    def share(letters: str) -> float:
        lines = "".join(f"  -{letter}\n" for letter in letters)
        bodies = read(f"start x <option>\noptions\n{lines}").grammar.productions
        weights = {
            str(one).partition(" = ")[2]: one.weight for one in bodies[Nonterminal("x:option")]
        }
        return weights["<x:option.cluster>"] / sum(weights.values())

    assert share("n") < 0.005
    assert share("ns") < 0.05
    assert 0.15 < share("abcdef") < 0.2


def test_volatile_alternatives_and_options_are_marked() -> None:
    body = "start x <option> <a>\noptions\n  --now %volatile\n  --all\n<a> = p %volatile | q\n"
    productions = read(body).grammar.productions
    marked = [str(one) for bodies in productions.values() for one in bodies if one.volatile]
    assert marked == ["<x:a> = p", "<x:option.long> = --now"]


def test_what_shows_the_time_is_volatile_where_that_is_the_hosts() -> None:
    text = HEADER.replace("volatile no", "volatile clock: it shows the time")
    text += "start x <option> <a>\noptions\n  --now %clock\n<a> = p %clock | q | r %volatile\n"
    for host_clock, expected in ((False, ["<x:a> = r"]), (True, ["<x:a> = p", "<x:a> = r"])):
        loaded = read_grammar(text, "x.grammar", host_clock=host_clock)
        assert loaded.faults == ()
        assert loaded.grammar.header.volatile is host_clock
        marked = [
            str(one)
            for bodies in loaded.grammar.productions.values()
            for one in bodies
            if one.volatile
        ]
        assert [one for one in marked if one[:4] == "<x:a"] == expected
        assert ("<x:option.long> = --now" in marked) is host_clock


def test_reasons_for_options_that_help_does_not_show() -> None:
    loaded = read("start x -a\nundocumented -a, --all: in the manual page only\n")
    (line,) = loaded.grammar.undocumented
    assert (line.options, line.reason) == (("-a", "--all"), "in the manual page only")
    (fault,) = faults("start x -a\nundocumented -a\n")
    assert "undocumented needs options and a reason" in fault.message


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("mime", "did you mean {directory}/mine.grammar?"),
        ("sleep", "draft one: shioenv grammar draft sleep > {directory}/sleep.grammar"),
    ],
)
def test_a_file_that_is_missing_is_named_with_what_to_do(
    tmp_path: Path, name: str, hint: str
) -> None:
    (tmp_path / "mine.grammar").touch()
    with pytest.raises(UnknownGrammarError) as caught:
        load_grammar(name, directory=tmp_path)
    assert caught.value.message == f"no such file: {tmp_path}/{name}.grammar"
    assert caught.value.hint == hint.format(directory=tmp_path)


def test_a_value_attached_to_an_option_of_several_letters_is_a_fault() -> None:
    (fault,) = faults("start x <option> <v>\noptions\n  -V:<v>\n<v> : text = a | b\n")
    assert fault.kind == FaultKind.SYNTAX
    assert "-V: has several letters: write a blank before its value" in fault.message
    assert fault.line == HEADER_LINES + 3
