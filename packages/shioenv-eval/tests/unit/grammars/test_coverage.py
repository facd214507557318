"""Grammars compared with help texts."""

from shioenv.grammar.bind import bind
from shioenv.grammar.library import load_grammar
from shioenv.grammar.load import read_grammar
from shioenv.grammar.symbols import Grammar
from shioenv_eval.grammars.coverage import (
    Gap,
    compare_with_help,
    count_grammars_size,
    help_command,
    help_coverage,
)
from shioenv_eval.grammars.help import read_help

HELP = """Usage: tool [OPTION]... [FILE]...
  -a, --all          everything
  -n, --lines=NUM    this many
  -NUM               the same
  -i, --interactive  ask
      --help         show this
"""


def grammar(body: str, name: str = "tool") -> Grammar:
    header = f"command {name}\nmanual {name}(1), T 1\npackage t\nvolatile no\n"
    return read_grammar(header + body, f"{name}.grammar").grammar


def test_missing_unknown_and_excused_are_told_apart() -> None:
    tool = grammar(
        "start tool <option>* <old> <mistake>\n<old> = -<n> | -n5\n<mistake> = --nope | ()\n"
        "<n> = 5\noptions\n  -a\n  -q, --quiet\n  --lines=<n>\n  --extra\n"
        "omit -i, --interactive: waits for an answer\nundocumented --extra: in the manual page\n"
    )
    found = compare_with_help(tool, read_help("tool", HELP))
    assert [gap.option for gap in found.missing] == ["--all", "--help"]
    assert [gap.option for gap in found.unknown] == ["--quiet", "-q"]
    assert found.excused == (
        Gap("tool", "-i", "waits for an answer"),
        Gap("tool", "--interactive", "waits for an answer"),
        Gap("tool", "--extra", "in the manual page"),
    )
    assert found.documented == 8
    assert not found.complete


def test_options_in_clusters_and_braces_count() -> None:
    tool = grammar(
        "start tool -a<ns> <ns>i {--lines=<n> x} <rest>\n<rest> = --all | --interactive | --help\n"
        "<n> = 5 | {-n 5} | -5\n"
    )
    assert compare_with_help(tool, read_help("tool", HELP)).complete


def test_operands_of_dd_may_be_named_without_their_sign() -> None:
    dd = grammar("start dd bs=<n> oseek=1\n<n> = 5\nomit if: reads\n", "dd")
    text = "  bs=BYTES  a\n  if=FILE  b\n  seek=N  (or oseek=N) c\n"
    found = compare_with_help(dd, read_help("dd", text))
    assert [gap.option for gap in found.missing] == ["seek="]
    assert [gap.option for gap in found.excused] == ["if="]


def test_any_abbreviation_of_an_option_of_ip_will_do() -> None:
    ip = grammar("start ip <option>* dev lo\noptions %no-clusters\n  -stat\n  -x\n", "ip-addr")
    text = "OPTIONS := { -s[tatistics] | -j[son] }\n\nUsage: ip address show [ dev NAME ]\n"
    found = compare_with_help(ip, read_help("ip-addr", text))
    assert [gap.option for gap in found.missing] == ["-json", "show"]
    assert [gap.option for gap in found.unknown] == ["-x"]


def test_each_command_is_asked_in_its_own_way() -> None:
    asked = []

    def ask(text: str) -> str:
        asked.append(text)
        return HELP

    help_coverage(grammar("start tool -a\n"), ask)
    assert asked == ["tool --help 2>&1"]
    assert help_command(load_grammar("cd").header) == "help cd"
    assert help_command(load_grammar("ip-addr").header) == "ip help; ip address help"


def test_grounded_productions_are_counted_apart() -> None:
    unbound = grammar("start tool <File> <a> '<File>'\n<a> = p | q\n")
    counts = count_grammars_size([unbound])
    assert (counts.nonterminals, counts.productions, counts.grounded) == (3, 3, 0)
    bound = count_grammars_size([bind(unbound, {"File": ("f", "g", "h i")})])
    assert (bound.nonterminals, bound.productions, bound.grounded) == (3, 3, 6)
