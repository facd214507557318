"""Differences between two shells that run one script."""

from __future__ import annotations

from typing import Any

from shioenv.live.model_shell import RepeatedShell
from shioenv.live.resident import ResidentShell
from support.scripted_machine import ScriptedMachine
from support.shell_conformance import OTHERWISE, SCRIPTS, differences, refuses_lines

SCRIPT = ("put a one", "echo $x", "put b two", "rm a", "rm a", "exit 2", "echo never")


def both() -> tuple[ResidentShell, RepeatedShell]:
    machines: Any = ScriptedMachine(), ScriptedMachine(keeps_shells=False)
    return ResidentShell(machines[0], "/start"), RepeatedShell(machines[1], "/start")


def test_equal_shells_have_no_difference_and_a_script_ends_with_its_shell() -> None:
    one, other = both()
    assert list(differences(one, other, SCRIPT)) == []
    assert one.ended
    assert refuses_lines(one)
    assert not refuses_lines(other)


def test_each_difference_is_named_with_its_line() -> None:
    one, other = both()
    one.run("put a text")
    one.run("set x y")
    told = list(differences(one, other, ("echo $x", "rm a")))
    assert [(each.number, each.what) for each in told] == [
        (1, "output"), (2, "exit_code"), (2, "patch"),
    ]  # fmt: skip
    assert (told[0].line, told[0].one, told[0].other) == ("echo $x", b"y\n", b"$x\n")


def test_a_shell_that_ends_alone_is_a_difference() -> None:
    one, other = both()
    other.ended = True
    (told,) = differences(one, other, ("echo",))
    assert (told.what, told.one, told.other) == ("ended", False, True)


def test_every_exception_is_a_script_with_a_reason() -> None:
    assert set(OTHERWISE) <= set(SCRIPTS)
    assert all(OTHERWISE.values())
    assert len(set(SCRIPTS)) == len(SCRIPTS)
