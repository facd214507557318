"""The table of Bash's builtins and keywords equals Bash's own."""

from __future__ import annotations

import subprocess

import pytest

from shioenv.bash.builtins import (
    BUILTINS,
    DECLARING,
    FILLING,
    KEYWORDS,
    LEAVING_STDIN,
    WITH_ARRAYS,
    WITH_PROGRAMS,
)
from shioenv.bash.read import read
from shioenv.bash.scan import Refused


def bash(text: str, stdin: str = "") -> list[str]:
    asked = ["bash", "--norc", "-c", text]
    run = subprocess.run(asked, input=stdin, capture_output=True, text=True, check=False)
    return run.stdout.split()


def test_keywords_and_builtins_are_those_of_bash() -> None:
    assert sorted(KEYWORDS) == sorted(bash("compgen -k"))
    assert sorted(BUILTINS) == sorted(bash("compgen -b"))


def test_every_part_of_the_table_is_builtins() -> None:
    parts = (DECLARING, FILLING, LEAVING_STDIN, WITH_ARRAYS, WITH_PROGRAMS)
    assert all(part < BUILTINS for part in parts)
    assert not BUILTINS & KEYWORDS


def test_builtins_that_are_programs_too_are_found_in_path() -> None:
    found = bash(f"for name in {' '.join(sorted(BUILTINS))}; do type -P -- $name; done")
    names = {path.rpartition("/")[2] for path in found}
    assert WITH_PROGRAMS - {"kill"} <= names <= WITH_PROGRAMS  # /bin/kill is of procps


@pytest.mark.parametrize("name", sorted(BUILTINS))
def test_arrays_are_read_where_bash_reads_them(name: str) -> None:
    text = f"{name} x=(a b)"
    asked = ["bash", "-n", "-c", text]
    accepted = subprocess.run(asked, capture_output=True, check=False).returncode == 0
    try:
        read(text)
    except Refused:
        assert not accepted
    else:
        assert accepted
    assert accepted == (name in WITH_ARRAYS)


@pytest.mark.parametrize("name", sorted(DECLARING - {"local"}))
def test_declaring_builtins_split_nothing(name: str) -> None:
    assert bash(f'v="a b"; {name} x=$v; printf "%s\\n" "${{x// /_}}"') == ["a_b"]


@pytest.mark.parametrize("name", sorted(LEAVING_STDIN - {"exit", "logout", "return", "suspend"}))
def test_what_leaves_standard_input_alone_reads_none_of_it(name: str) -> None:
    assert bash(f"{name} 1 >&2; cat", stdin="all-of-it") == ["all-of-it"]
