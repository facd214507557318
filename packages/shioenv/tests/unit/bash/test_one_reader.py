"""The parser accepts what Bash accepts, and refuses what Bash refuses."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from importlib.resources import files

import pytest

from shioenv.bash.program import Simple
from shioenv.bash.read import read
from shioenv.bash.scan import Refused
from shioenv.bash.walk import commands
from shioenv.grammar.library import load_grammars
from support.nightly import LARGER, scaled

ASK = r"""
mapfile -t -d '' texts
for text in "${texts[@]}"; do
    said=$(bash -n -c -- "$text" 2>&1 >/dev/null </dev/null)
    status=$?
    said=${said//*warning:*/}
    [[ $status = 0 && -z $said ]]
    printf %s $?
done
"""
"""Prints 0 for each text that Bash accepts. For some faults Bash only prints a message."""

DOCUMENTS = (
    "cat <(. x <<'E'\nfoo\nE)",
    "cat <(. x <<'E'\nfoo\nE ;& b) c\nE)",
    "cat <(a <<E\nE foo\nE)",
    "cat <(a <<E\nx\nE ) foo\nE)",
    "cat <(a <<E\nE; echo a)",
    "cat <(a <<E\nEND d e)",
    "cat <(a <<E\nE; echo (a)",
    'cat <(a <<E\nE; echo "(a)"\n)',
    "cat <(a <<E\nE b (c)\n)",
    "cat $( (a <<E\nE ) )",
    'cat $( {\na <<E\nE echo "$(d)"\n}; )',
    'cat $(cat "$(a <<E\nE)")',
    'cat $(a <<E; echo "$(d\ne\nE)"\nE)',
    "x=(a $(b <<E\nE) )",
    "a <<E <(cat <<F\nF)\nE",
    "cat <(a <<A <<B\nx\nA)\ny\nB\n)",
    "cat <(a <<A <<B\nx\nA\ny\nB)",
    "cat <(a <<AB\nA\\\nB\n)",
    "cat <(a <<AB\nA\\\nB\\\n)\n)",
    "cat <<AB\nA\\\nB\n)",
    "cat <<-AB\n\\\n\t\\\n\tA\\\nB\\\n\n)",
    "cat <<'AB'\nA\\\nB\n)",
    "cat <<$'\\x45'\nE\n)",
    'cat <<$"E"\nE\n )',
    "cat <<''\n\n)",
    "echo $(cat <<''\nx)\n)",
    "cat <<-'\tE'\n\tE\n)",
    "cat <<-'\tE'\n\t\tE\n)",
    "cat <<E\\\nF\nEF\n)",
    'cat <<"a\\b"\na\\b\n)',
    'cat <<"a\\$b"\na$b\n)',
    'cat <<\'$(a "b")\'\n$(a "b")\n)',
    "cat <<\"$(a 'b')\"\n$(a 'b')\n)",
    "cat <<a\"b'c\"\nab'c\n)",
    "cat <<A <<B\nA",
    "cat <<E\nE\\\n",
)
"""Here-documents with unusual ends."""

OTHERS = (
    'Q="q"d() { a; }',
    'Q="q" () { a; }',
    "Q+=q() (a)",
    "a[1]=x() { a; }",
    '"q"() { a; }',
    "function Q=q() { a; }",
    "coproc N (( 2 ))",
    "coproc N=a (( 2 ))",
    "coproc N=a { b; }",
    "coproc N=a ( b )",
    "coproc N=a [[ b ]]",
    "while a; do coproc set done",
    "if coproc a then b; fi",
    "{ coproc a }",
    "case x in x) coproc a esac",
    "while a; do coproc a b done",
    "coproc a done",
    "a <(((2)); case x in x) j;; esac )",
    "a <(((2)); case x in (x) j;; esac )",
    "a <( ((2)); case x in x) j;; esac )",
    "a >((b); c)",
    "a <(( let (9 + 20) * 9; ) & b)",
    "a <(((a); b); case x in x) j; esac )",
    "a $(((2)); case x in x) j;; esac )",
    "a <(((2)); $(case x in x) j;; esac) )",
    "((a); case x in x) j;; y) k;; esac )",
)
"""Texts that resemble assignments or arithmetic."""


def accepted(texts: Sequence[str]) -> list[bool]:
    """Return for each text whether Bash accepts it."""
    run = subprocess.run(
        ["bash", "--norc", "-c", ASK],
        input="\0".join(texts) + "\0",
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(run.stdout) == len(texts)
    return [answer == "0" for answer in run.stdout]


def is_read(text: str) -> bool:
    try:
        read(text)
    except Refused:
        return False
    return True


def corpus(name: str) -> list[str]:
    if name == "suite":
        lines = files("shioenv.dataset").joinpath("inputs/public.jsonl").read_text("utf-8")
        return [json.loads(line)["input"] for line in lines.splitlines()]
    if name == "cut":  # what is cut off anywhere, Bash often refuses
        return [text[: 1 + len(text) * 2 // 3] for text in corpus("suite")[::3]]
    if name == "examples":
        return [each.text for grammar in load_grammars() for each in grammar.examples]
    return [*DOCUMENTS, *OTHERS]


@LARGER
@pytest.mark.parametrize("name", ["suite", "examples", "cut", "odd"])
def test_what_bash_accepts_is_what_is_read(name: str) -> None:
    texts = list(dict.fromkeys(corpus(name)))[:: scaled(12, 1)]
    said = zip(texts, accepted(texts), strict=True)
    assert [text for text, answer in said if answer != is_read(text)] == []


def test_a_line_that_ends_a_document_is_read_on() -> None:
    source = read("cat <(a <<E; b\nx\nE c)")
    called = [command.words for command, _ in commands(source) if isinstance(command, Simple)]
    assert called == [("cat", "<(a <<E; b\nx\nE c)"), ("a",), ("b",), ("c",)]
