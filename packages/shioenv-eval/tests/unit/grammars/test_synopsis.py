"""Operands of usage lines, values in descriptions, and manual pages as text."""

import gzip

import pytest

from shioenv_eval.grammars.help import LARGEST, manual_text, read_help
from shioenv_eval.grammars.synopsis import named_values, usage_forms

SEQ = """Usage: seq [OPTION]... LAST
  or:  seq [OPTION]... FIRST LAST
  or:  seq [OPTION]... FIRST INCREMENT LAST
Print numbers.  seq is old.
"""
PAGE = r""".TH COUNT 1
.SH NAME
count \- counts
.SH SYNOPSIS
.B count
[\fI\,OPTION\/\fR]... \fI\,WORD\/\fR [\fI\,FILE\/\fR]...
.br
.B count
\fB\-\-list\fR
.SH OPTIONS
.TP
\fB\-k\fR, \fB\-\-kind\fR=\fI\,KIND\/\fR
count things of this kind, one of words, lines, or bytes
.TP
\fB\-m\fR, \fB\-\-mark\fR=\fI\,HOW\/\fR
either 'star' or 'dash'; the default is star
"""


def shown(command: str, text: str) -> list[str]:
    marks = {(True, True): "*", (True, False): "?", (False, True): "+", (False, False): ""}
    return [
        " ".join(f"{one.name}{marks[one.optional, one.repeated]}" for one in form.operands)
        for form in usage_forms(command, text)
    ]


@pytest.mark.parametrize(
    ("usage", "operands"),
    [
        (SEQ, ["LAST", "FIRST LAST", "FIRST INCREMENT LAST"]),
        ("Usage: t [OPTION]... [FILE]...", ["FILE*"]),
        ("Usage: t [OPTION]... FILE1 [FILE2 [SKIP1]]", ["FILE1 FILE2? SKIP1?"]),
        ("\nUsage:\n t [options] [<message>]\n\nEnter it.", ["message?"]),
        ("Usage: t [-abc] [-s [-]offset] [-c cols] source target", ["source target"]),
        (
            "Usage: t [options] -f file name\nUsage: t [options] 'program' file ...",
            ["program file+"],
        ),
        ("Usage: t -f file name", ["name"]),
        ("usage: t FILE [FILE ...]", ["FILE+"]),
        ("Usage: t [FILE|-]", ["FILE?"]),
        ("Usage: t [[[[[[", [""]),
        ("t: unknown option --help", []),
    ],
)
def test_operands_of_usage_lines(usage: str, operands: list[str]) -> None:
    command = "seq" if usage == SEQ else "t"
    assert shown(command, usage) == operands


def test_a_manual_page_is_read_as_a_help_text_is() -> None:
    text = manual_text(PAGE.encode())
    assert shown("count", text) == ["WORD FILE*"]
    options = {option.names: option.value for option in read_help("count", text).options}
    assert options == {("-k", "--kind"): "required", ("-m", "--mark"): "required"}
    assert named_values(text, ("-k", "--kind")) == ("words", "lines", "bytes")
    assert named_values(text, ("-m", "--mark")) == ("star", "dash")
    assert manual_text(gzip.compress(PAGE.encode())) == text


def test_hostile_pages_are_bounded() -> None:
    assert manual_text(b"\x1f\x8bgarbage") == ""
    assert len(manual_text(gzip.compress(b"a\n" * (3 * LARGEST)))) < 3 * LARGEST
    assert usage_forms("t", "Usage: t " + "[" * 100_000) != ()
    assert named_values("  -k  " + "'a' " * 100_000, ("-k",)) == ("a",)
    assert manual_text(b".Dd May 1\n.Sh SYNOPSIS\n.Nm t\n.Op Fl x\n") == ""
