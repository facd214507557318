"""Grammars drafted from help texts."""

from pathlib import Path

import pytest

from shioenv.errors import GrammarError
from shioenv.grammar.library import load_grammar
from shioenv_eval.grammars.coverage import compare_with_help
from shioenv_eval.grammars.draft import Execute, draft_grammar
from shioenv_eval.grammars.grammar_check import check_grammars
from shioenv_eval.grammars.help import read_help

TOOL = """Usage: tool [OPTION]... [FILE]...
Count things in each FILE.

  -a, --all          everything
  -n, --lines=NUM    this many
  -NUM               the same
  -m, --mark[=WHEN]  mark them
  -k, --kind <one|two>  of this kind
      --odd=THING    what nobody knows
      --help         show this
"""
LETTERS = """ -p, p, --pid <PID>  by number
  k, --sort  in order
"""


def check(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / f"{name}.grammar").write_text(text)
    assert [str(fault) for fault in check_grammars([name], directory=tmp_path)] == []


def answering(name: str, text: str, kind: str = "file") -> Execute:
    def execute(shell_input: str) -> tuple[int, str]:
        if shell_input.startswith("type -t"):
            return 0, kind
        if "help" in shell_input:
            return 0, text
        return (3, f"{name}: no\n")

    return execute


def test_a_draft_has_every_option_and_passes_the_check(tmp_path: Path) -> None:
    text = draft_grammar("tool", answering("tool", TOOL), package="tools", version="1.2")
    check(tmp_path, "tool", text)
    assert "start     tool <option>* <files>" in text
    assert "manual    tool(1), tools 1.2" in text
    assert "  -n, --lines=<count>\n" in text
    assert "<kind-value> = one | two" in text
    assert "example tool documents/notes.txt\n  exit 3\n  prints tool: no\n" in text
    assert compare_with_help(
        load_grammar("tool", directory=tmp_path), read_help("tool", TOOL)
    ).complete


def test_words_without_a_dash_and_commands_of_two_words(tmp_path: Path) -> None:
    text = draft_grammar("ps", answering("ps", LETTERS), package="p", version="1")
    check(tmp_path, "ps", text)
    assert "{p <Pid>}" in text
    assert "  --sort\n" in text
    shown = "Usage: ip address show [ dev NAME ]\n"
    text = draft_grammar("ip-addr", answering("ip", shown), package="p", version="1")
    check(tmp_path, "ip-addr", text)
    assert "start     ip addr <word>*" in text


def test_a_builtin_is_asked_for_its_help_and_may_have_no_option(tmp_path: Path) -> None:
    text = draft_grammar(
        "true", answering("true", "true: true\n", "builtin"), package="b", version="1"
    )
    check(tmp_path, "true", text)
    assert "options" not in text


def test_a_command_that_is_not_there_is_refused() -> None:
    with pytest.raises(GrammarError, match="no command 'nope'"):
        draft_grammar("nope", lambda _: (1, ""), package="p", version="1")


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("gerp", "did you mean grep?"),
        ("zzzz", "shioenv run 'compgen -c' lists all commands of the system"),
        (
            "./new/sleep.grammar",
            "give the name of the command: shioenv grammar draft sleep > ./new/sleep.grammar",
        ),
    ],
)
def test_what_to_draft_instead_is_said(command: str, hint: str) -> None:
    def execute(text: str) -> tuple[int, str]:
        return (0, "ls\ngrep\nsed\n") if text == "compgen -c" else (1, "")

    with pytest.raises(GrammarError) as caught:
        draft_grammar(command, execute, package="p", version="1")
    assert caught.value.hint == hint
