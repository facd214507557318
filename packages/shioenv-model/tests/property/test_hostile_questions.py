"""A model answers or abstains in bounded time, for every question."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shioenv.domain.runner import Answer, State
from shioenv.errors import Abstained
from shioenv_model.bash import work
from shioenv_model.files import load_model
from shioenv_model.memory.memory import Memory
from shioenv_model.model import Model
from support.nightly import by_day, scaled

pytestmark = pytest.mark.xdist_group("hostile questions")
"""One process opens the model, once."""

FEW = 300_000
"""Most steps of an answer here: inputs that exceed them are hostile all the same."""

MANY = 5_000

HOSTILE = (
    # results too large for an answer
    "echo /*/../*/../*/../*/../*/../*/../*/../*", "ls /*/*/*/*/../../../../*/*/*/*",
    "echo {1..1000000000}", "echo " + "{1..9999} " * 1_000, "echo {" + "{1..9999}," * 5_000 + "a}",
    "echo {" + "0" * 50_000 + "1..9999}", "echo {1.." + "9" * 5_000 + "}",
    "echo " + "{a,b}" * MANY, "echo " + "{" * MANY, "echo " + "{a," * MANY + "b" + "}" * MANY,
    "for i in {1..9999}; do for j in {1..9999}; do x=1; done; done", "while :; do x=1; done",
    "for ((i=0;i<100000000;i++)); do x=$i; done", "x='eval \"$x\"'; eval \"$x\"",
    "".join(f"f{i}() {{ f{i + 1}; f{i + 1}; }};" for i in range(18)) + "f18() { x=1; }; f0",
    "x=1;" + "".join(f"x{i + 1}='x{i}+x{i}';" for i in range(39)) + "x0=1;echo $((x39))",
    "x=aaaaaaaaaaaaaaaa;" + "x=$x$x;" * 13 + "echo " + "$x" * MANY,
    "x=aaaaaaaaaaaaaaaa;" + "x=$x$x;" * 30 + "echo $x",
    "x=" + "a" * MANY + "; echo ${x##*b} ${x%%b*} ${x//[a]/bb}",
    "case " + "a" * MANY + " in " + "*a" * 1_000 + "b) echo;; esac",
    "[[ " + "a" * 50 + " =~ (a+)+b ]]", "echo " + "a" * 5_000 + " | grep '\\(a*\\)*b'",
    "echo " + "a" * 3_000 + " | grep 'a*a*b'", "printf %1000000000d 1",
    "cat /etc/passwd | grep -E '" + "(" * 5_000 + "a" + ")" * 5_000 + "'",
    "printf '" + "a," * 5_000 + "' | cut -d, -f1- --output-delimiter=" + "x" * MANY,
    "cat /etc/passwd | nl -w 1000 -s " + "x" * MANY, "cat /etc/passwd | nl -v " + "9" * 4_000,
    "cat /etc/passwd | tr -d '" + "\\001-\\377" * 5_000 + "'",
    "yes " + "b" * MANY + " | head -n 99",
    # long
    "echo '" + "a" * 120_000 + "'", 'echo "' + "a" * 120_000 + '"', "echo " + "'a'" * MANY,
    "ls " + " ".join(f"a{i}" for i in range(MANY)), "ls " + "/ " * MANY, "ls " + "-Z " * MANY,
    "a;" * 500, "a|" * 500 + "a", "a=1;" * 1_000, "cat <<E\n" + "a\n" * MANY + "E\n",
    "find . " + "-exec echo {} + " * 2_000, "find . " + "-name a -o " * 2_000,
    "echo a " + ">b " * 2_000, "cd " + "../" * MANY + "; ls",
    "ls " + "?*" * MANY, "ls /" + "*/" * MANY,
    "x=" + ":~" * MANY, "touch " + " ".join(f"f{i}" for i in range(2_000)) + "; ls",
    # nested
    "(" * MANY, "{ " * MANY, "$(" * MANY, "echo " + "$(" * 35 + "echo" + ")" * 35,
    "echo " + '"$(echo ' * 30 + ')"' * 30, "echo " + "${a:-" * MANY + "b" + "}" * MANY,
    "echo $((" + "(" * MANY + "1" + ")" * MANY + "))", "echo $((" + "-" * MANY + "1))",
    "echo $((" + "2**" * MANY + "1))", "x=$((" + "a=" * MANY + "1))",
    "if :; then " * MANY + ":" + "; fi" * MANY, "echo `echo " + "\\`" * MANY + "`",
    # no numbers, no text
    "echo $'\\UFFFFFFFF'", "echo $'\\ud800'", "echo \ud800", "cat \udcff", "echo a\0b",
    "echo $((2**99999999))", "echo $((" + "9" * 5_000 + "#1))", "echo ${" + "9" * 5_000 + "}",
    "echo ${PIPESTATUS[²]}", "echo >&²", "echo a >&" + "9" * 5_000, "echo a " + "9" * 5_000 + ">b",
    "shift " + "9" * 5_000, "set -- a; shift ²", "for i in 1; do break ²; done",
    "for i in 1; do break " + "9" * 5_000 + "; done", "seq 1 9 | head -n " + "9" * 5_000,
    "seq 1 9 | xargs -n ² echo", "seq 1 9 | xargs -n " + "9" * 5_000,
)  # fmt: skip


@pytest.fixture(scope="module")
def model() -> Model:
    return load_model()


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "MOST_STEPS", FEW)


def said(model: Model, text: str, state: State | None = None) -> Answer | str:
    try:
        return model.answer(text, state)
    except Abstained as declined:
        return declined.message


@pytest.mark.parametrize("text", by_day(HOSTILE, 3, [f"{text[:30]!r}" for text in HOSTILE]))
def test_a_hostile_question_is_answered_or_abstained_from(model: Model, text: str) -> None:
    first = said(model, text)
    assert said(model, text) == first  # the same answer with everything cached by then


@pytest.mark.parametrize("last", ["ls", "echo /*/../*/../*/../*/../*/.."])
def test_what_came_before_is_bounded_too(model: Model, last: str) -> None:
    state = State(cwd="/home/ubuntu", history=("x=1", "echo /*/../*/../*/../*/../*/..", last))
    assert "takes more work to answer than 300,000 steps" in str(said(model, "pwd", state))


def test_an_answer_is_the_same_whatever_was_asked_before(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A budget that ends in the middle of an answer ends it at the same place each time."""
    text = "for f in /etc/*; do cat $f | grep -c root | sort; done; ls /etc/*.conf"
    other = Model(Memory(model.memory.index.directory))
    for steps in (2_000, 20_000, 60_000, 150_000):
        monkeypatch.setattr(work, "MOST_STEPS", steps)
        assert said(other, text) == said(model, text)


WORDS = r"""
ls cat echo find -exec {} + xargs tr sort -k cut -d, -f head -n grep -E -1 %d if then fi for i in do
done while case esac f() eval read x= $x $@ $? set -- # ; && || | & ( ) { ; } $( ` " ' $' $(( )) ${x
} // ##* % :- : [ ] [[ ]] =~ * ? / .. ~ {1..9} {a,b} <<E E <<< <( > >> 2>&1 /etc/passwd . ! a* (a+)+
\ \x 999999999999999999999999999999
"""
PIECES = st.sampled_from([*WORDS.split(), " ", " ", " ", "\n", "\n", "²", "é", "\udcff", "\0"])
TEXTS = st.lists(
    st.builds(lambda piece, times: piece * times, PIECES, st.sampled_from((1, 1, 1, 2, 40))),
    min_size=1, max_size=12,
).map("".join)  # fmt: skip


@settings(derandomize=True, max_examples=scaled(40, 150))
@given(TEXTS)
def test_every_text_is_answered_or_abstained_from(model: Model, text: str) -> None:
    said(model, text)
