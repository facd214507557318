"""Normal forms and steps of inputs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shioenv.bash.normal import _normal_of_program, _plain_pieces, is_single, normal


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("ls -la documents", "ls -al A"),
        ("/bin/ls -a -l x y 'z w'", "ls -a -l A"),
        ("head -n 5 a", "head -n N A"),
        ("head -20 a", "head -N A"),
        ("head -n5 a", "head -n N A"),
        ("cut -d: -f1,3 /etc/passwd", "cut -d A -f N A"),
        ("find . -name '*.txt' -size +10k", "find A -name A -size N"),
        ("sort --key=2 a | uniq -c > out; wc -l < out", "sort --key=V A | uniq -c > ; wc -l <"),
        ("LC_ALL=C ls", "X= ls"),
        ("export A=1 && cd ..;", "export A && cd A"),
        ("ls 2>&1", "ls >&"),
        ("sed -i s/a/b/ x", "sed -i A"),
        ("a\nb", "a ; b"),
        ("for f in *; do echo $f; done", None),
        ("(ls)", None),
        ("ls 'open", None),
        ("", None),
    ],
)
def test_the_normal_form_keeps_utilities_options_and_operators(text: str, form: str | None) -> None:
    assert normal(text) == form


@pytest.mark.parametrize(
    ("text", "single"),
    [
        ("ls -la", True),
        ("LC_ALL=C ls", True),
        ("cat 'a;b' \"x|y\"", True),
        ("ls;", True),
        ("cat 'open", True),
        ("", True),
        ("ls; ls", False),
        ("ls &", False),
        ("ls > x", False),
        ("cat <<< x", False),
        ("echo $(date)", False),
        ("! ls", False),
        ("(ls)", False),
        ("ls\nls", False),
        ("ls | 'open", False),
    ],
)
def test_single_is_one_command_and_nothing_else(text: str, single: bool) -> None:
    assert is_single(text) is single


def test_a_list_of_very_many_commands_has_a_normal_form() -> None:
    for operator in ("&&", ";", "|"):
        text = "a" + f" {operator} a" * 5_000
        assert normal(text) == text.replace("a;", "a ;")


PIECES = (
    *("ls", "-la", "-n5", "--key=2", "sudo", "A=1", "b[1]=2", "a", "'b c'", '"d e"', "it's"),
    *("*.md", "declare", "[", "a["),
    *("~/x", "2", "-", "--", "if", "time", "!", "[[", "]]", "{", "}", "in", "é", "#c", "a#b", "$x"),
    *("|", "||", "&&", ";", "&", ";;", "|&", ">", "2>", "2>&1", "<", "<<", "(", ")", "`x`", "\\a"),
    *("\n", "\t", '"$x"', "'open", '"', "^a", "%1", "@(a)", "x=(1)", ""),
)


@given(st.lists(st.tuples(st.sampled_from(PIECES), st.sampled_from((" ", "", "  "))), max_size=8))
def test_plain_commands_have_the_form_that_they_have_as_a_program(
    pieces: list[tuple[str, str]],
) -> None:
    text = "".join(piece + blank for piece, blank in pieces)
    assert normal(text) == _normal_of_program(text)


@pytest.mark.parametrize(
    "text", ["ls -la 'a b'", "cut -d: -f1 x | sort -n; ls", 'echo "a" && ls *']
)
def test_usual_commands_are_plain(text: str) -> None:
    assert _plain_pieces(text)
