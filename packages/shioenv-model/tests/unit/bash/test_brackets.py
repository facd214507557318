"""Patterns match what Bash matches; brackets are those of regular expressions as well."""

from __future__ import annotations

import os
import re
import subprocess
from contextlib import suppress
from itertools import product

import pytest

from shioenv.errors import Abstained
from shioenv_model.bash.patterns import bracket, matches
from shioenv_model.bash.work import answering

PATTERNS = r"""
    [a-c] [!a] [^a] []a] [!]a] [a-] [-a] [a--] [--a] [[:alpha:]] [[:word:]] [[:foo:]] [![:digit:]]
    [a [] [!] [[.a.]] [[=a=]] [[.-.]] [\]] [\a] [a\-c] [a\]b] [[:alpha:]-z] [z-a] [[] [[a] [*] [?]
    [a[:digit:]b] [[:digit:] [[:digit: [a-c-e] [!-a] []-a] [+--] [a/b] [[.a.]-c] [\\] [[:alpha:]]*
    *[ab] [ a[ [[:upper:][:digit:]] [^^] [!!] [^] [[.].]] [[=]=]] [[a]-c] [[:foo:]a] [a[:foo:]]
    [![:foo:]] [[:foo:]-a] [a-[:alpha:]] [[:alpha:]-] [[=a=]-c] [z-ab] [b-[.d.]] [a-\c]
    [[:alpha:][:foo:]1] [a-[:alpha:]]] [a-[b] [[.a.] [[:alpha:] [z-a]* [!z-a]
    [=a=] [[:alpha:]a-c] [a-c [a- [&&a] [a||b] ?[~-]
"""
TEXTS = r"""
    a b c d e z - ] [ ! ^ 1 \ * ? _ A a] [a ]] a-c + , . : [] [!] [^] -] a]b] [[:digit: [[:foo:]]
    f o = x] b] & | b~ [a-c [a-
"""
ASK = """
mapfile -t -d '' patterns <&3
mapfile -t -d '' texts
for pattern in "${patterns[@]}"; do
    for text in "${texts[@]}"; do
        case $text in $pattern) printf 1 ;; *) printf 0 ;; esac
    done
done
"""


def test_patterns_match_what_bash_matches() -> None:
    patterns, texts = PATTERNS.split(), ["", " ", "\n", *TEXTS.split()]
    given = "\0".join(texts) + "\0"
    read, write = os.pipe()
    os.write(write, ("\0".join(patterns) + "\0").encode())
    os.close(write)
    asked = ["bash", "--norc", "-c", f"{{ {ASK}\n}} 3<&{read}"]
    environment = os.environ | {"LC_ALL": "C.UTF-8"}
    run = subprocess.run(
        asked, input=given.encode(), capture_output=True, check=True, pass_fds=[read],
        env=environment,
    )  # fmt: skip
    os.close(read)
    pairs = zip(product(patterns, texts), run.stdout.decode(), strict=True)
    wrong = [pair for pair, said in pairs if matches(*pair) != (said == "1")]
    assert wrong == []


def test_a_character_by_its_name_is_not_guessed() -> None:
    with pytest.raises(Abstained, match="space"):
        matches("[[.space.]]", " ")
    for pattern in ("[[:]", "[[.]", "[[=a]"):
        with pytest.raises(Abstained, match="never closed"):
            matches(pattern, "[")


def test_a_bracket_of_a_regular_expression_has_other_rules() -> None:
    def inside(text: str) -> str:
        found = bracket(text, 1, shell=False)
        assert found is not None
        return "".join(filter(re.compile(found[0]).match, "ab!\\^]-"))

    assert inside("[!a]") == "a!"
    assert inside(r"[\]") == "\\"
    assert inside("[^a]") == "b!\\^]-"
    assert inside("[]-]") == "]-"
    assert bracket("[a", 1, shell=False) is None
    for text in ("[b-a]", "[[:word:]]", "[a-[:alpha:]]"):
        with pytest.raises(ValueError, match=r"a range ends|unknown class"):
            bracket(text, 1, shell=False)


@pytest.mark.parametrize("unit", ["[", "[a", "[[:", "[[.a", "[[:alpha:]", "[a-"])
def test_brackets_that_are_never_closed_are_matched_or_refused_soon(unit: str) -> None:
    with suppress(Abstained), answering("a"):
        matches(unit * 5000, "a")
