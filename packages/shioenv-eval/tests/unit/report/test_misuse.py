"""The definition of misuse: messages in the style of the programs, written for this test."""

import pytest

from shioenv_eval.report.grammar_report import complaint, is_misuse

MISUSE = (
    "nl: invalid option -- 'k'\nTry 'nl --help' for more information.",
    "nl: unrecognized option '--kk'",
    "nl: option '--numb' is ambiguous; possibilities: '--number-format' '--number-width'",
    "nl: option '--width' requires an argument",
    "nl: option '--help' doesn't allow an argument",
    "rmdir: missing operand",
    "link: missing operand after \u2018a\u2019",
    "link: extra operand \u2018c\u2019",
    "cp: missing destination file operand after 'x'",
    "tee: invalid argument \u2018soon\u2019 for \u2018--output-error\u2019",
    "tail: invalid number of lines: \u2018many\u2019",
    "chmod: invalid mode: \u20189z\u2019",
    "date: invalid date \u2018never\u2019",
    "tr: range-endpoints of \u2018z-a\u2019 are in reverse collating sequence order",
    "cut: you must specify a list of bytes, characters, or fields",
    "cut: the delimiter must be a single character",
    "sort: multi-character tab \u2018xy\u2019",
    "grep: Unmatched [, [^, [:, [., or [=",
    "sed: -e expression #1, char 4: unterminated `s' command",
    "find: unknown predicate `-nme'",
    "find: invalid -size type `q'",
    "dd: invalid conversion: \u2018upp\u2019",
    "dd: cannot combine lcase and ucase",
    "lscpu: mutually exclusive arguments: --caches --parse",
    "lscpu: unknown column: size",
    "mktemp: too few X's in template \u2018a\u2019",
    "bash: line 1: pwd: -x: invalid option",
    "bash: line 1: export: `1a': not a valid identifier",
    "bash: line 1: ulimit: much: invalid number",
    "curl: option --noproxi: is unknown\ncurl: try 'curl --help' or 'curl --manual'",
    "curl: option -m: expected a proper numerical parameter",
    'Error: argument "much" is wrong: Invalid "mtu" value',
    'Command "shwo" is unknown, try "ip link help".',
    'Option "-zz" is unknown, try "ip -help".',
    "ethtool (-s): unknown parameter 'tzo'",
    'Error: duplicate "mtu": "9" is the second value.',
    "error: process ID list syntax error",
    "ping: invalid argument: 'x'",
    "free: failed to parse count argument: 'many'",
    "some output\nUsage: file [-b] [file ...]",
)

FAILURES = (
    "cat: nothing.txt: No such file or directory",
    "rm: cannot remove 'documents': Is a directory",
    "touch: cannot touch '/etc/x': Permission denied",
    "chown: invalid user: \u2018nobody7\u2019",
    "chgrp: invalid group: \u2018nogroup7\u2019",
    "id: \u2018eve\u2019: no such user",
    "readlink: notes.txt: Invalid argument",
    "rev: a.txt: 0: Invalid or incomplete multibyte or wide character",
    "comm: file 1 is not in sorted order",
    "gzip: a.gz: not in gzip format",
    "curl: (7) Failed to connect to 127.0.0.1 port 81 after 0 ms: Couldn't connect to server",
    'Error: argument "br7" is wrong: Device does not exist',
    "RTNETLINK answers: File exists",
    "a line of a file that says invalid option in passing",
    "",
)


@pytest.mark.parametrize("output", MISUSE)
def test_complaints_about_the_command_line_are_misuse(output: str) -> None:
    assert is_misuse(1, output)
    assert is_misuse(255, f"{output}\n")


@pytest.mark.parametrize("output", FAILURES)
def test_other_failures_are_not(output: str) -> None:
    assert complaint(1, output) is None


def test_what_succeeded_or_was_ended_is_no_misuse() -> None:
    usage = "nl: invalid option -- 'k'"
    assert not any(is_misuse(code, usage) for code in (0, 124, 137, 143))
    assert complaint(1, f"a\n{usage}\nb") == usage
