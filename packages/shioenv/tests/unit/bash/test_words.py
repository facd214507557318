"""Words are quoted and unquoted as Bash does."""

from __future__ import annotations

import os
import shlex
import subprocess

import pytest

from shioenv.bash.builtins import KEYWORDS
from shioenv.bash.words import ansi, plain_words, quoted, split_words, unquoted

TEXTS = (
    *("", "a", "a b", "it's", "$x", '"', "\\", "~", "a=b", "é", "\n", "-n", "!", "{a,b}", "#"),
    *("*", "`a`", "a\tb", "''", ";"),
)
WORDS = (
    *("a", "'a b'", '"a b"', "a\\ b", "'a'\\''b'", '"a\\"b"', '"a\\nb"', "\\\\", '""', "''"),
    *('"it\'s"', "'\"'", "\\'", '"\\\\"', '"a\\\nb"', "a\\\nb", "'a\nb'", "\\#", "x=\\~", '"!"'),
    *("$'a\\tb'", "$'it\\'s'", '$"a b"', "a$'b'\"c\"'d'", "\"$'a'\"", "'$\\'", "é'é'", "$'\\''"),
    *('"\\`\\$"', "'\\n'", "\\n", "\\-\\n", "a''b"),
)
ESCAPES = (
    *(r"a\nb", r"\a\b\e\E\f\n\r\t\v", r"\\", r"\'", r"\"", r"\?", r"\q", r"\1", r"\101"),
    *(r"\0101", r"\x41", r"\x4", r"\x411", r"\xg", r"\x{41}", r"\x{141}z", r"\u41", r"\u00e9"),
    *(r"\U1F600", r"\u", r"\303\251", r"\xc3\xa9", r"\xff", r"\377a", r"a\0b", r"a\x00b"),
    *(r"\ca", r"\c?", r"\cA", r"\c\\x", r"\c[", r"é\n", r"\é", r"\400", r"\8"),
)


def shown(words: str) -> list[str]:
    """Return the arguments that a command gets from words, by Bash."""
    asked = ["bash", "--norc", "-c", "printf '%s\\0' " + words]
    environment = os.environ | {"LC_ALL": "C.UTF-8"}
    run = subprocess.run(asked, capture_output=True, check=True, env=environment)
    return run.stdout.decode("utf-8", "surrogateescape").split("\0")[:-1]


def test_words_are_unquoted_as_bash_does() -> None:
    assert [unquoted(word) for word in WORDS] == shown(" ".join(WORDS))


def test_ansi_quotes_are_decoded_as_bash_does() -> None:
    assert [ansi(text) for text in ESCAPES] == shown(" ".join(f"$'{text}'" for text in ESCAPES))


def test_what_is_quoted_stands_for_itself_and_is_unquoted_again() -> None:
    made = [quoted(text) for text in TEXTS] + [quoted(text, always=True) for text in TEXTS]
    assert shown(" ".join(made)) == [*TEXTS, *TEXTS]
    assert [unquoted(word) for word in made] == [*TEXTS, *TEXTS]
    assert plain_words(" ".join(made)) == [*TEXTS, *TEXTS]


def test_records_are_quoted_in_the_same_way() -> None:
    """`shioenv.domain.inputs` is a lower layer than this package, and writes the start of
    records."""
    assert [quoted(text) for text in TEXTS] == [shlex.quote(text) for text in TEXTS]


@pytest.mark.parametrize("text", [*sorted(KEYWORDS), "a=b", "%1", "a b"])
def test_no_command_is_taken_for_something_else(text: str) -> None:
    assert quoted(text, command=True)[0] == "'"


@pytest.mark.parametrize("text", ["'", '"a', "\\", "$'a", "$'\\", '"\\', "`a", "$(a", "${a", "<(a"])
def test_what_is_never_closed_reaches_to_the_end(text: str) -> None:
    assert split_words(f"{text} b") in ([f"{text} b"], [text, "b"])
    unquoted(text)


def test_words_without_quotes_are_split_at_blanks_alone() -> None:
    assert split_words("a\tb\n c\rd\x0be\xa0f ") == ["a", "b", "c\rd\x0be\xa0f"]
    assert split_words("a\\ b 'c d'e <(f g) $(h i)") == ["a\\ b", "'c d'e", "<(f g)", "$(h i)"]
