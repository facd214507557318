"""Cases cover every option, and are deterministic for the same arguments."""

from __future__ import annotations

from collections import Counter
from itertools import islice

from shioenv.bash.read import read
from shioenv.system.store import System
from shioenv_eval.conform.cases import KINDS, CaseStream, DrawnCase
from support.nightly import NIGHTLY

COMMANDS = ("sort", "cpio", "mktemp")


def cases(system: System, count: int, *commands: str, seed: int = 0) -> list[DrawnCase]:
    return list(islice(CaseStream(system, commands, seed), count))


@NIGHTLY
def test_every_option_has_a_case(system: System) -> None:
    """Those of cpio appear with other options; all of mktemp are volatile."""
    stream = CaseStream(system, COMMANDS)
    wanted = {(name, option) for name, options in stream.options.items() for option in options}
    drawn = list(islice(stream, 600))
    found = {(one.command, option) for one in drawn for option in one.options}
    assert len(wanted) > 130
    for name, option in wanted - found:  # its case was drawn before, for another reason
        assert any(one.has(option) for one in drawn if one.command == name), (name, option)
    for one in drawn:
        assert all(one.has(option) for option in one.options if option[:2] == "--")


def test_all_kinds_are_drawn_and_no_case_twice(system: System) -> None:
    drawn = cases(system, 300, "sort", "mkdir", "cd")
    assert {one.kind for one in drawn} == {*KINDS}
    assert len({one.key for one in drawn}) == len(drawn)
    counted = Counter(len(one.options) for one in drawn if one.kind == "pair")
    assert {*counted} == {2}
    assert all(one.history for one in drawn if one.kind == "lines")
    assert all(one.input.operators for one in drawn if one.kind == "composite")


def test_what_is_drawn_can_be_read_as_bash(system: System) -> None:
    for one in cases(system, 200, "sort", "find", "cd"):
        if one.kind != "mistake":
            read(one.input.text)


def test_a_longer_stream_begins_with_the_shorter_one(system: System) -> None:
    longer = cases(system, 120, "sort", "ls", seed=4)
    assert cases(system, 50, "sort", "ls", seed=4) == longer[:50]
    assert cases(system, 50, "sort", "ls", seed=5) != longer[:50]


def test_an_option_stands_where_it_is_steady(system: System) -> None:
    """Without `-s` curl shows a progress meter."""
    drawn = [one for one in cases(system, 60, "curl") if one.kind == "option"]
    steady = [one for one in drawn if not one.volatile]
    assert len(drawn) >= 20
    assert len(steady) >= 0.9 * len(drawn)
