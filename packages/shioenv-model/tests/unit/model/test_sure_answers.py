"""Commands that were once answered with confidence and wrong: right now, or not sure.

The ground truth is that of the system for which the default model was made.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from shioenv_model import confidence
from shioenv_model.files import load_model
from shioenv_model.model import Model

DOUBT, SURE = 0.5, 0.9
"""An answer with a confidence below the first is an admitted guess; from the second, it is sure."""

CASES = (
    ("printf 'Ab\\nCD\\nab\\n' | grep -iE 'a|c'", 0, "Ab\nCD\nab\n"),
    ("echo foo123 | grep -oP '\\d+'", 0, "123\n"),
    ("grep -oP '(?<=a)b' <<< ab", 0, "b\n"),
    ("sed '' < empty.txt", 0, ""),
    ("printf '' | sed 's/a/b/'", 0, ""),
    ("sed -n '$=' empty.txt", 0, ""),
    ("true | sed 5q", 0, ""),
    ("echo a:b:c | cut -d: -f1,3 --output-delimiter=' '", 0, "a c\n"),
    ("echo a:b:c | cut -d: -f1,3 --output-delimiter=' - '", 0, "a - c\n"),
    ("ps -aux | head -n 1 | cut -c1-4", 0, "USER\n"),
    ("diff <(printf 'a\\nb\\n') <(printf 'b\\nc\\n')", 1, "1d0\n< a\n2a2\n> c\n"),
    ("gzip -dc archives/missing.gz", 1, "gzip: archives/missing.gz: No such file or directory\n"),
    ("echo a | gzip | gzip -dc", 0, "a\n"),
    ("gzip -dc README.md", 1, "\ngzip: README.md: not in gzip format\n"),
    ("echo a b | xargs -n1 nosuch; echo $?", 0, "xargs: nosuch: No such file or directory\n127\n"),
    ("echo hi >&9; echo $?", 0, "bash: line 1: 9: Bad file descriptor\n1\n"),
    ("touch f; chmod +111 f; stat -c %a f", 0, "755\n"),
    ("echo hi > ~/tmp/", 1, "bash: line 1: /root/tmp/: Is a directory\n"),
    ("date > ~/nodir/x", 1, "bash: line 1: /root/nodir/x: No such file or directory\n"),
    ("seq 4 | paste - -", 0, "1\t2\n3\t4\n"),
    ("wc README.md gone", 1,
     " 11  49 261 README.md\nwc: gone: No such file or directory\n 11  49 261 total\n"),
    ("wc -l gone data/users.csv", 1,
     "wc: gone: No such file or directory\n  41 data/users.csv\n  41 total\n"),
    ("trap 'echo bye' EXIT; echo hi", 0, "hi\nbye\n"),
    ("expr hello : 'hel'", 0, "3\n"),
    ("expr /usr/bin : '.*/\\(.*\\)'", 0, "bin\n"),
    ("expr abc = abc; expr abc != abc", 1, "1\n0\n"),
    ("# a comment\ngrpe x", 127, "bash: line 2: grpe: command not found\n"),
    ("X=1 for", 127, "bash: line 1: for: command not found\n"),
    ("{nosuch,x}", 127, "bash: line 1: nosuch: command not found\n"),
    ("{v,x}=X", 127, "bash: line 1: v=X: command not found\n"),
    ("# a comment\necho $LINENO", 0, "2\n"),
    ("grep --", 2,
     "Usage: grep [OPTION]... PATTERNS [FILE]...\nTry 'grep --help' for more information.\n"),
    ("su ubuntu -c whoami", 0, "ubuntu\n"),
)  # fmt: skip


RARE = ("fsck missing", "mkfs.ext4 src", "cat README.md | su", "wipefs missing")
"""Commands without a grammar whose neighbours were taken for right."""


@pytest.fixture(scope="module")
def model() -> Model:
    return load_model()


@pytest.mark.parametrize(("text", "code", "output"), CASES)
def test_it_is_right_or_not_sure(model: Model, text: str, code: int, output: str) -> None:
    answer = model.answer(text)
    found = answer.behavior.exit_code, answer.behavior.text
    assert found == (code, output) or answer.confidence < DOUBT


@pytest.mark.parametrize("text", ["echo hi", "x=1; echo $x", "cd data", "seq 3", "f() { :; }; f"])
def test_a_rule_is_never_certain(model: Model, text: str) -> None:
    assert 0.9 < model.answer(text).confidence < 1.0


def test_a_session_keeps_the_state_between_lines(model: Model) -> None:
    session = model.session()
    session.run("n=2; cd documents; echo kept > new")
    assert session.run("echo $n; cat new").text == "2\nkept\n"
    assert session.answer is not None
    assert session.answer.confidence > DOUBT
    assert "documents/new" in session.state.before.document["fs"]
    assert model.session("/tmp").run("pwd").text == "/tmp\n"


def test_every_answerer_has_a_factor(model: Model) -> None:
    assert 0 < min(confidence.factors().values()) <= max(confidence.factors().values()) < 1
    assert confidence.LEAST_KNOWN in confidence.factors()


@pytest.mark.parametrize("text", RARE)
def test_neighbours_of_commands_without_a_grammar_are_not_sure(model: Model, text: str) -> None:
    assert model.answer(text).confidence < 0.75


def test_an_executed_command_without_a_grammar_and_neighbours_of_others_stay_sure(
    model: Model,
) -> None:
    for text in ("stty size", "stty size; wc -l README.md", "ls -la src | head -2"):
        answer = model.answer(text)
        assert confidence.RARE not in confidence.properties(text, answer, model.steps)


SHORT = "x=1\necho $x"


def tags(model: Model, text: str) -> Mapping[str, int]:
    return confidence.properties(text, model.answer(text), model.steps)


@pytest.mark.parametrize(
    ("text", "name", "times"),
    [
        (f"{SHORT}\n:\n:", confidence.LINE, 3),
        ("export x=1; echo $x", confidence.LINE, 0),
        (f"{SHORT}\ngrpe\ngrpe\nfalse", confidence.MESSAGE, 2),
        ("export x=1\nreadonly y=2\nexport z=3", confidence.BUILTIN, 2),
        ("export x=1; readonly y=2", confidence.BUILTIN, 0),
        (f"{SHORT}\n[[ a =~ b ]]; echo $LINENO \\\n  b", confidence.SUBTLE, 3),
    ],
)
def test_a_script_counts_what_makes_answers_wrong(
    model: Model, text: str, name: str, times: int
) -> None:
    assert tags(model, text).get(name, 0) == times


@pytest.mark.parametrize("more", ["\n:" * 30, "\ngrpe\ngrpe", "\nexport x\nreadonly x\ndirs"])
def test_a_script_that_is_long_or_fails_or_changes_the_shell_is_less_sure(
    model: Model, more: str
) -> None:
    assert model.answer(SHORT + more).confidence < SURE < model.answer(SHORT).confidence


def test_a_syntax_error_below_the_last_line_is_abstained_from(model: Model) -> None:
    answer = model.answer("case x in\na)\tif false\n\tthen\n\t\t:\n\tfi\n\t;;\n")
    assert answer.confidence == 0
