"""A resident shell: its state, its forks, and the lines that a repetition runs again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shioenv.errors import ForkError, ShellEndedError
from shioenv.live import resident
from shioenv.live.model_shell import RepeatedShell
from shioenv.live.resident import ResidentShell, open_shell, shell_of
from support.scripted_machine import ScriptedMachine


def opened(machine: Any, **options: Any) -> ResidentShell:
    return ResidentShell(machine, "/start", **options)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> ScriptedMachine:
    """Return a machine that `open_sandbox` opens."""
    machine = ScriptedMachine()
    monkeypatch.setattr(resident, "open_sandbox", lambda _system, _limits: machine)
    return machine


def test_the_state_follows_lines_and_looks() -> None:
    machine = ScriptedMachine()
    shell = opened(machine)
    shell.run("put a one")
    shell.run("rm nothing", timeout=3)
    assert machine.timeouts == [None, 3]
    assert shell.state.history == ("put a one", "rm nothing")
    assert shell.state.status == 1
    machine.lent[0].files["b"] = "two"
    assert [each[1] for each in shell.look().patch.operations] == ["/fs/b"]
    assert (shell.state.history, shell.state.status) == (("put a one", "rm nothing"), 1)
    assert set(shell.state.before.document["fs"]) == {"a", "b"}
    assert shell.beside("echo $x", timeout=9).output == b"$x\n"
    assert [each[1] for each in shell.patch().operations] == ["/fs/a", "/fs/b"]


def test_an_ended_shell_takes_no_line_and_is_closed_once() -> None:
    closed: list[bool] = []
    shell = opened(ScriptedMachine(), close=lambda: closed.append(True))
    shell.run("exit 3")
    with pytest.raises(ShellEndedError, match="'echo'"):
        shell.run("echo")
    shell.close()
    shell.close()
    assert closed == [True]


def test_an_interrupt_ends_the_machine() -> None:
    shell = opened(ScriptedMachine())
    shell.interrupt()
    assert shell.ended


@settings(max_examples=25)
@given(st.lists(st.sampled_from(["put a 1", "put b 2", "rm a", "set x y", "echo $x"]), max_size=6))
def test_a_fork_has_the_files_variables_and_state_of_its_original(lines: list[str]) -> None:
    machine = ScriptedMachine()
    shell = opened(machine)
    for line in lines:
        shell.run(line)
    fork = shell.fork()
    assert fork.state.before.document == shell.state.before.document
    assert fork.state.history == shell.state.history
    assert machine.lent[1].variables == machine.lent[0].variables
    fork.run("put c 3")
    assert "c" not in machine.lent[0].files


def test_a_line_that_does_something_else_again_is_named() -> None:
    machine = ScriptedMachine()
    shell = opened(machine)
    shell.run("echo a")
    shell.run("count")
    with pytest.raises(ForkError, match=r"line 2 behaved differently .* 'count'"):
        shell.fork()
    assert machine.lent[1].given_back
    assert shell.fork(exact=False).state.history == ("echo a", "count")


def test_changes_that_come_out_otherwise_are_refused() -> None:
    machine = ScriptedMachine()
    shell = opened(machine)
    shell.run("put a one")
    machine.lent[0].files["left"] = "by a process that goes on"
    with pytest.raises(ForkError, match="the replayed lines made other changes"):
        shell.fork()


def test_lines_behind_an_end_are_refused() -> None:
    machine = ScriptedMachine()
    shell = opened(machine)
    shell.run("exit 0")
    machine.lent[0].ended = False
    shell.run("echo")
    with pytest.raises(ForkError, match="ended before line 2"):
        shell.fork()


def test_a_closed_shell_is_forked_all_the_same() -> None:
    shell = opened(ScriptedMachine())
    shell.run("put a one", timeout=8)
    shell.close()
    assert shell.fork().state.history == ("put a one",)


def test_a_repetition_that_takes_too_long_is_refused() -> None:
    machine = ScriptedMachine()
    shell = opened(machine)
    shell.run("put a one", timeout=8)
    shell.close()
    shell.fork(seconds=5)
    assert machine.timeouts[1:] == [pytest.approx(5, abs=1)]
    with pytest.raises(ForkError, match=r"lines 1 to 1 of 1 took more than 1e-09 s"):
        shell.fork(seconds=1e-9)


def test_a_shell_that_cannot_start_closes_its_runner(machine: ScriptedMachine) -> None:
    with open_shell(cwd="/start"):
        pass
    assert machine.closed == 1
    machine.start_shell = lambda *_, **__: 1 / 0  # type: ignore
    with pytest.raises(ZeroDivisionError):
        open_shell(cwd="/start")
    assert machine.closed == 2


def test_a_runner_that_keeps_no_shell_runs_lines_again() -> None:
    machine: Any = ScriptedMachine(keeps_shells=False)
    assert isinstance(shell_of(machine), RepeatedShell)
    machine.keeps_shells = True
    assert isinstance(shell_of(machine), ResidentShell)
    assert machine.lent[0].cwd == "/start"
    assert shell_of(machine, "/tmp").state.cwd == "/tmp"
