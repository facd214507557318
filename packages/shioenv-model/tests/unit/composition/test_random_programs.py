"""Random programs behave as with the Bash of the host."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from shioenv.errors import Abstained
from support.composed_shell import composed, executed, make_files

NO_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)

WORDS = st.sampled_from(
    ['"b  c"', "$x", '"$y"', "${x:-d}", "$((n + 1))", "$?", "$1", '"$@"', "$#", "*.txt", "{p,q}"]
)  # fmt: skip
CONDITIONS = st.sampled_from(
    ["true", "false", "[ -n \"$x\" ]", "[ $n -gt 2 ]", "[[ $x == a* ]]", "((n % 2))", "! false",
     "[ -f f ]", "test -d d", "{ true; false; }", "(exit 3)", "cat f > /dev/null 2>&1"]
)  # fmt: skip
SIMPLE = st.one_of(
    st.lists(WORDS, max_size=3).map(lambda words: " ".join(["echo", *words])),
    CONDITIONS,
    st.sampled_from(
        ["x=abc", "y='u v'", "n=$((n + 1))", "((n += 2))", "x+=z", "unset x", "set -- r 's t'",
         "shift", "cd d", "cd ..", "read x y < a.txt", "f", "g k", "x=$(echo s; echo t)",
         "export x", "local n=9", "return 2", "break", "continue", "cat numbers", "nosuch",
         "umask 027", "rm -f f", "touch f", "printf '%s-' $x q", "let n=n*2", "set +e", "exit 4"]
    ),
)  # fmt: skip
TARGETS = st.sampled_from(
    ["> f", ">> f", "2> f", "> f 2>&1", "2>&1", ">&2", "2> /dev/null", "< a.txt"]
)


def _wider(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    lists = st.lists(inner, min_size=1, max_size=3).map("; ".join)
    bodies = lists.map("{{ {}; }}".format)
    return st.one_of(
        lists,
        st.tuples(inner, st.sampled_from(["&&", "||"]), inner).map(" ".join),
        st.tuples(CONDITIONS, lists, lists).map(
            lambda each: f"if {each[0]}; then {each[1]}; else {each[2]}; fi"
        ),
        lists.map("for i in 1 2; do {}; done".format),
        lists.map("while ((n < 3)); do ((n++)); {}; done".format),
        lists.map("( {} )".format),
        st.tuples(bodies, TARGETS).map(" ".join),
        st.tuples(SIMPLE, TARGETS).map(" ".join),
        st.tuples(
            bodies, st.sampled_from(["cat", "sort", "wc -l", "while read l; do echo =$l; done"])
        ).map(" | ".join),
        st.tuples(inner, lists).map(
            lambda each: f"case $x in a*) {each[0]} ;; *) {each[1]} ;; esac"
        ),
        st.lists(WORDS, max_size=2).map(lambda words: f"echo [$(echo {' '.join(words)}; false)]$?"),
    )


PROGRAMS = st.recursive(SIMPLE, _wider, max_leaves=8)


@settings(max_examples=120, phases=NO_SHRINKING, derandomize=True)
@given(
    st.lists(PROGRAMS, min_size=1, max_size=4).map("; ".join),
    PROGRAMS,
    st.sampled_from(["", "set -e; ", "set -o pipefail; ", "set -u; "]),
)
def test_a_random_program_does_what_bash_does(program: str, body: str, options: str) -> None:
    text = f"{options}n=1; f() {{ {body}; }}; g() {{ local n=5; echo $n $1; }}; {program}"
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        make_files(home)
        try:
            ours = composed([text], home)
        except Abstained:
            return
        theirs = executed([text], home)
    assert (ours.output, ours.status) == (theirs.output, theirs.status)
    assert ours.files == theirs.files
