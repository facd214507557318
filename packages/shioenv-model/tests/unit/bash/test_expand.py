"""Words are expanded as Bash expands them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from shioenv.bash.words import quoted
from shioenv.domain.context import Context
from shioenv.domain.runner import ScriptedRunner, State
from shioenv.errors import Abstained
from shioenv_model.bash.arithmetic import evaluate
from shioenv_model.bash.arrays import Array
from shioenv_model.bash.expand import Expander
from shioenv_model.bash.patterns import matches
from shioenv_model.bash.unexpanded import braces, references

FILE = {"perms": "-rw-r--r--", "links": 1, "owner": "root", "group": "root", "size": 0}
FILE |= {"month": "Jan", "day": 1, "year": 2025, "time": "00:00"}
DIRECTORY = FILE | {"perms": "drwxr-xr-x"}


class Known:
    """A scope of a few variables and files."""

    def __init__(self, *arguments: str, **variables: str) -> None:
        self.arguments: Sequence[str] = arguments
        self.variables = {"x": "one two", "e": "", "p": "/a/b.tar.gz", "HOME": "/home/u"}
        self.variables |= variables
        files = {"a.txt": FILE, "b c.txt": FILE, ".hidden": FILE, "d": DIRECTORY, "d/e.txt": FILE}
        document: dict[str, Any] = dict(ScriptedRunner().context("/home/u").document)
        document["fs"] = {".": DIRECTORY, **files}
        self.state = State(cwd="/home/u", context=Context(document))

    def variable(self, name: str) -> str | None:
        return "0" if name == "?" else self.variables.get(name)

    def array(self, name: str) -> Array | None:
        return None

    def assign(self, name: str, value: str) -> None:
        self.variables[name] = value

    def substitute(self, source: str) -> str:
        return f"<{source}>\n\n"

    def resolved(self, name: str) -> str:
        return name

    def attributes(self, name: str) -> str:
        return ""

    def connect(self, source: str, *, reading: bool) -> str:
        return "/dev/fd/63"


@pytest.mark.parametrize(
    ("word", "fields"),
    [
        ("a", ["a"]),
        ("''", [""]),
        ("$x", ["one", "two"]),
        ('"$x"', ["one two"]),
        ("$e", []),
        ('"$e"', [""]),
        ("pre$x", ["preone", "two"]),
        ("'$x'\\ $e", ["$x "]),
        ("$(ls | wc)", ["<ls", "|", "wc>"]),
        ('"$(ls)"', ["<ls>"]),
        ("`a \\`b\\``", ["<a", "`b`>"]),
        ("$((1 + 2 * 3))", ["7"]),
        ("*.txt", ["a.txt", "b c.txt"]),
        ("*", ["a.txt", "b c.txt", "d"]),
        (".*", [".", "..", ".hidden"]),
        ("*/*.txt", ["d/e.txt"]),
        ("d*/", ["d/"]),
        ("[ab]*", ["a.txt", "b c.txt"]),
        ("[!a]*", ["b c.txt", "d"]),
        ("*.md", ["*.md"]),
        ("'*'.txt", ["*.txt"]),
        ("~/f", ["/home/u/f"]),
        ("'~'/f", ["~/f"]),
        ("a~", ["a~"]),
        ("x{a,b}y", ["xay", "xby"]),
        ("{01..03}", ["01", "02", "03"]),
        ("{1..010..3}", ["001", "004", "007", "010"]),
        ("{01..100..33}", ["001", "034", "067", "100"]),
        ("{-01..1}", ["-01", "000", "001"]),
        ("{c..a}", ["c", "b", "a"]),
        ("{1..7..3}", ["1", "4", "7"]),
        ("{a}", ["{a}"]),
        ('"{a,b}"', ["{a,b}"]),
        ("${x}", ["one", "two"]),
        ("${#x}", ["7"]),
        ("${no:-a b}", ["a", "b"]),
        ("${e:-z}${e-z}", ["z"]),
        ("${x:+set}", ["set"]),
        ("${no:=q}$no", ["qq"]),
        ("${p##*/}", ["b.tar.gz"]),
        ("${p%.*}", ["/a/b.tar"]),
        ("${p%%.*}", ["/a/b"]),
        ("${p/b*/Z}", ["/a/Z"]),
        ("${p//a/-}", ["/-/b.t-r.gz"]),
        ("${p:1:3}", ["a/b"]),
        ("${p: -2}", ["gz"]),
        ('"${x^^}"', ["ONE TWO"]),
        ("$'a\\tb\\x41'", ["a\tbA"]),
        ("<(ls)", ["/dev/fd/63"]),
        ("$#", ["3"]),
        ("$@", ["1", "2", "3"]),
        ('"$@"', ["1 2", "", "3"]),
        ('"a$@b"', ["a1 2", "", "3b"]),
        ('"$*"', ["1 2  3"]),
        ("$2$4", []),
    ],
)
def test_a_word_stands_for_fields(word: str, fields: list[str]) -> None:
    assert Expander(Known("1 2", "", "3")).fields(word) == fields


def test_current_and_parent_directory_match_no_pattern_with_globskipdots() -> None:
    scope = Known()
    document = {**scope.state.before.document, "shell_options": {"globskipdots": True}}
    scope.state = State(cwd="/home/u", context=Context(document))
    assert Expander(scope).fields(".*") == [".hidden"]
    assert Expander(scope).fields("d/.*") == ["d/.*"]
    assert Expander(scope).fields("./a*") == ["./a.txt"]


def test_other_separators_make_empty_fields() -> None:
    assert Expander(Known(IFS=":", y="a::b:")).fields("$y") == ["a", "", "b"]
    assert Expander(Known(IFS=" :", y=" a : b")).fields("$y") == ["a", "b"]
    assert Expander(Known(IFS="", y="a b")).fields("$y") == ["a b"]


@pytest.mark.parametrize("word", ["${!x}", "${e:?gone}", "${x:z", "$'\\xff'"])
def test_what_is_beyond_it_is_abstained_from(word: str) -> None:
    with pytest.raises(Abstained):
        Expander(Known()).fields(word)


def test_here_documents_keep_their_quotes() -> None:
    assert Expander(Known()).document("a \"$x\" '$e' \\$x $(ls)\n") == "a \"one two\" '' $x <ls>\n"


def test_assigned_values_are_not_split_and_have_more_tildes() -> None:
    assert Expander(Known()).text("$x:~:~/f", assigned=True) == "one two:/home/u:/home/u/f"


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("", 0),
        ("2**3**2", 512),
        ("-7/2", -3),
        ("-7%3", -1),
        ("1?2:3", 2),
        ("0x1f+010+2#101", 44),
        ("!0&&1||0", 1),
        ("1<<62<<1", -(2**63)),
        ("x=5,x+=2,x++ +x", 15),
        ("0 && (y=1)", 0),
        ("~0 & 6 ^ 3", 5),
        ("unset", 0),
    ],
)
def test_arithmetic_is_that_of_c(expression: str, value: int) -> None:
    variables: dict[str, str] = {}
    assert evaluate(expression, variables.get, variables.__setitem__) == value
    assert "y" not in variables


@pytest.mark.parametrize("expression", ["1/0", "1+", "08", "2**-1", "(1", "a b", "x=1"])
def test_arithmetic_that_bash_refuses_is_abstained_from(expression: str) -> None:
    with pytest.raises(Abstained):
        evaluate(expression, dict[str, str]().get)


@pytest.mark.parametrize(
    ("pattern", "text", "does"),
    [
        ("a*c", "abbc", True),
        ("[[:digit:]]?", "7x", True),
        ("[^a-c]", "b", False),
        ("[]]", "]", True),
        ("[a", "[a", True),
        ("\\*", "*", True),
        ("\\*", "x", False),
        ("[a\\-c]", "b", False),
        ("*a*b", "xaxbxaab", True),
        ("a**", "a", True),
        ("*aa", "aaa", True),
        ("*a" * 20 + "*b", "a" * 2_000, False),
    ],
)
def test_patterns_match_whole_texts(pattern: str, text: str, does: bool) -> None:
    assert matches(pattern, text) is does


def test_references_are_found_without_expanding() -> None:
    found = references("a\"${x:-$y}\"$((z+1))'$no'")
    assert {"x", "y", "z"} <= found.names
    assert "no" not in found.names
    assert not found.substitutes
    assert references('"a $(ls)"').substitutes
    assert references("<(ls)").substitutes
    assert references("$?$1").names == {"?", "1"}


def test_a_quoted_word_stands_for_itself() -> None:
    for text in ("plain", "a b", "it's", "*", "", "if", "a=b", "é"):
        assert Expander(Known()).fields(quoted(text)) == [text]
    assert quoted("if", command=True) == "'if'"
    assert quoted("a=b", command=True) == "'a=b'"
    assert braces("a") == ["a"]
