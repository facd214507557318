"""Expressions, words, lists and definitions are interpreted as by the Bash of the host."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from shioenv.bash.program import Function
from shioenv.bash.read import read
from shioenv.bash.words import quoted
from shioenv.domain.context import Context
from shioenv.domain.runner import ScriptedRunner, State
from shioenv.errors import Abstained
from shioenv_model.bash.arithmetic import Complaint, evaluate
from shioenv_model.bash.arrays import Array
from shioenv_model.bash.definitions import definition
from shioenv_model.bash.expand import Expander
from support.host_bash import bash_says

VALUES = {"x": "5", "y": "x + 1", "w": "one  two", "e": "", "p": "/a/b.c/d.e.f", "s": "aXbXc"}
ARRAYS = {"l": ["one", "two words", "*"]}
ARGUMENTS = ("first", "a c", "4")
SET = "; ".join(
    (
        *(f"{name}={quoted(value)}" for name, value in VALUES.items()),
        *(f"{name}=({' '.join(map(quoted, items))})" for name, items in ARRAYS.items()),
        f"set -- {' '.join(map(quoted, ARGUMENTS))}",
    )
)
PLACE = "bash: line 4: "
NO_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)
"""Each example is a list of many inputs already; a failure names the input."""


class Variables:
    """A scope of the variables above, in a directory without files."""

    arguments: Sequence[str] = ARGUMENTS

    def __init__(self) -> None:
        self.values = dict(VALUES)
        document = dict(ScriptedRunner().context("/nowhere").document)
        self.state = State(cwd="/nowhere", context=Context(document))

    def variable(self, name: str) -> str | None:
        name, _, key = name.rstrip("]").partition("[")
        if name in ARRAYS:
            return dict(enumerate(ARRAYS[name])).get(int(key or 0))
        return "0" if name == "?" else self.values.get(name)

    def array(self, name: str) -> Array | None:
        items = ARRAYS.get(name)
        return Array({str(n): each for n, each in enumerate(items)}) if items else None

    def assign(self, name: str, value: str) -> None:
        self.values[name] = value

    def substitute(self, source: str) -> str:
        raise Abstained("nothing runs here")

    def resolved(self, name: str) -> str:
        return name

    def attributes(self, name: str) -> str:
        return ""

    def connect(self, source: str, *, reading: bool) -> str:
        raise Abstained("nothing runs here")


NUMERALS = st.sampled_from(["0", "1", "2", "7", "010", "0x1F", "2#101", "36#z", "x", "y", "gone"])
OPERATORS = (
    *("+", "-", "*", "/", "%", "**", "<<", ">>", "&", "|", "^", "&&", "||", ","),
    *("<", ">", "<=", ">=", "==", "!="),
)


def _wider(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    signs = st.sampled_from(["-", "+", "!", "~", "++x", "--x"])
    assigned = st.sampled_from(["x=", "x+=", "x*=", "x/=", "z-=", "x<<=", "x|="])
    return st.one_of(
        st.tuples(inner, st.sampled_from(OPERATORS), inner).map(" ".join),
        st.tuples(signs, inner).map(lambda pair: pair[0] if "x" in pair[0] else " ".join(pair)),
        st.tuples(assigned, inner).map(lambda pair: f"({pair[0]}{pair[1]})"),
        st.tuples(inner, inner, inner).map(lambda each: f"{each[0]} ? {each[1]} : {each[2]}"),
        inner.map("({})".format),
        st.sampled_from(["x++", "x--", "1 +", ") 2", "3 4", "08", "x y", "1 = 2"]),
    )


EXPRESSIONS = st.recursive(NUMERALS, _wider, max_leaves=6)


@settings(max_examples=8, phases=NO_SHRINKING, derandomize=True)
@given(st.lists(EXPRESSIONS, min_size=30, max_size=60))
def test_expressions_have_bashs_values_and_errors(expressions: list[str]) -> None:
    told = bash_says(f"{SET}; printf '%s %s' $(($input)) $x", expressions)
    known = 0
    for expression, (theirs, _) in zip(expressions, told, strict=True):
        scope = Variables()
        try:
            value = evaluate(expression, scope.variable, scope.assign)
            ours = f"{value} {scope.values['x']}"
        except Complaint as wrong:
            ours = f"{PLACE}{wrong.said}"
        except Abstained:
            continue
        assert ours == theirs.partition("\n")[0], expression
        known += 1
    assert known * 2 > len(expressions)


PIECES = st.sampled_from(
    [
        "a", "b.c", "/", "*", "'q r'", "$x", "$w", '"$w"', "$e", '"$e"', "$gone", "\\$", "\\ ",
        "$'t\\tu'", "{1,2}", "{a..c}", "{3..1}", "{1..9..4}", "{", "}", ",", "{a,{b,c}}", "{x}",
        "${w}", '"${w}"', "${x:-d}", "${gone:-d e}", "${gone-'f g'}", '"${gone:-$w}"', "${e:-h}",
        "${e-i}", "${x:+j}", "${e:+k}", "${e+m}", "${#w}", "${#gone}", "${#l[@]}", "${#}",
        "${p#*/}", "${p##*/}", "${p%.*}", "${p%%.*}", "${p%/}", "${s/X/-}", "${s//X/-}",
        "${s/#a/_}", "${s/%c/_}", "${s//[ab]}", "${s^}", "${s^^}", "${s,,}", "${s:1}",
        "${s:1:2}", "${s: -2}", "${s:0:-1}", "${s:9}", "${w^^[ot]}", '"${w#* }"', "$1", "$2",
        '"$2"', "$9", "$#", "$*", '"$*"', "$@", '"$@"', "${@:2}", '"${@:2:2}"', "${*:3}", "${l}",
        "${l[1]}", '"${l[1]}"', '"${l[@]}"', "${l[@]}", '"${l[*]}"', "${!l[@]}", '"${l[@]:1:2}"',
        '"${l[@]#t}"', "${l[@]/o/0}", "$((x + 1))", '"$((y * 2))"', "${!gone-n}", "~x", "=", ":",
        "-", "${p//\\//-}", "${s@Q}", "$(( x ))", "é",
    ]
)  # fmt: skip
WORDS = st.lists(PIECES, min_size=1, max_size=4).map("".join)
SEPARATORS = st.sampled_from([" \t\n", "X", ":/", " X", "", "b"])


@settings(max_examples=12, phases=NO_SHRINKING, derandomize=True)
@given(st.lists(WORDS, min_size=30, max_size=60), SEPARATORS)
def test_words_stand_for_bashs_fields(words: list[str], ifs: str) -> None:
    ask = f"{SET}; cd /proc/self/fdinfo; IFS={quoted(ifs)}; set -f; eval 'args=('\"$input\"')'; "
    told = bash_says(f"{ask} ((${{#args[@]}})) && printf '[%s]' \"${{args[@]}}\"", words)
    known = 0
    for word, (theirs, _) in zip(words, told, strict=True):
        scope = Variables()
        scope.values["IFS"] = ifs
        scope.state = State(cwd="/nowhere", context=_without_path_names(scope.state))
        try:
            fields = Expander(scope).fields(word)
        except (Abstained, Complaint):
            continue
        known += 1
        assert "".join(map("[{}]".format, fields)) == theirs, (word, ifs)
    assert known * 2 > len(words)


def _without_path_names(state: State) -> Context:
    document = dict(state.before.document)
    return Context(document | {"settings": {"-o noglob": True}})


def test_an_array_is_read_and_written_as_bash_declares_it() -> None:
    texts = ["", "a", "a b", "it's", '"', "$x", "`", "\\", "a\nb", "\t", "é", "*", "~", "!"]
    (theirs, _), *_ = bash_says('eval "a=($input)"; a[99]=z; declare -p a', [shlex.join(texts)])
    stored = theirs.strip().removeprefix("declare -a a=")
    array = Array.read(stored)
    assert array is not None
    assert list(array.items.values()) == [*texts, "z"]
    assert array.text() == stored


DEFINITIONS = (
    "echo a",
    "echo a; echo 'b  c' \"$d\"; true && false || echo x",
    "if a; then b; elif c; then d; else e; fi",
    "while a; do b; done; until c; do d; done",
    "for x in 1 2; do echo $x; done; for y; do :; done",
    "for ((i = 0; i < 3; i++)); do echo $i; done",
    "case $1 in a|b) c ;; *) d; e ;& f) ;; esac",
    "(cd x; ls) | wc -l > f 2>&1; { a; b; } < in",
    "! a | b; [[ $x == y* && -f z ]]; ((x > 2))",
    "x=1 y=2 cmd arg; local -i z=3; arr=(1 2); sleep 1 & wait",
    "select x in a b; do echo $x; done",
    "a && { b; c; }; if ! d; then e & fi",
    "while read -r l; do case $l in q) break;; esac; done < f",
    "echo a |& cat >> g; echo b >&2 2> h; x=$(a)",
    "case x in (y) ;; z) w;; esac",
)


@pytest.mark.parametrize("body", DEFINITIONS)
def test_a_definition_is_printed_as_bash_prints_it(body: str) -> None:
    text = f"f() {{ {body}\n}}"
    ((theirs, _),) = bash_says('eval "$input"; declare -f f', [text])
    command = read(text).program[0].pipelines[0][1].stages[0]
    assert isinstance(command, Function)
    assert f"f () \n{definition(command)}\n" == theirs


LINES = st.text(st.sampled_from("ab \t:,X"), max_size=10)


@settings(max_examples=6, phases=NO_SHRINKING, derandomize=True)
@given(st.lists(LINES, min_size=20, max_size=40), SEPARATORS, st.integers(1, 3))
def test_read_divides_a_line_as_bash_does(lines: list[str], ifs: str, count: int) -> None:
    from shioenv_model.composition.stdin_builtins import _split

    names = ["a", "b", "c"][:count]
    shown = " ".join(f'"${name}"' for name in names)
    ask = f"IFS={quoted(ifs)} read -r {' '.join(names)} <<< \"$input\"; printf '[%s]' {shown}"
    for line, (theirs, _) in zip(lines, bash_says(ask, lines), strict=True):
        assert "".join(map("[{}]".format, _split(line, ifs, count))) == theirs, (line, ifs)
