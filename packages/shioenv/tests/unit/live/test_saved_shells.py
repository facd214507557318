"""A resident shell: its state, its forks, its file, and the lines that a repetition runs again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shioenv.errors import ForkError, LimitsError, SavedShellError, ShellEndedError
from shioenv.live import resident
from shioenv.live.model_shell import RepeatedShell
from shioenv.live.resident import ResidentShell, open_shell, restore, shell_of
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


def test_a_closed_shell_is_saved_and_forked_all_the_same(tmp_path: Path) -> None:
    shell = opened(ScriptedMachine())
    shell.run("put a one")
    shell.close()
    shell.save(tmp_path / "saved")
    assert shell.fork().state.history == ("put a one",)


def test_a_saved_shell_is_restored_on_the_same_system_alone(
    machine: ScriptedMachine, tmp_path: Path
) -> None:
    file = tmp_path / "saved"
    with open_shell(cwd="/start") as shell:
        shell.run("put a one", timeout=8)
        shell.run("set x y")
        shell.save(file)
    assert machine.closed == 1
    again = restore(file)
    assert machine.timeouts[2:] == [8, machine.limits.wall_seconds]
    assert again.state.before.document == shell.state.before.document
    restore(file, seconds=5)
    assert all(each is not None and each <= 5 for each in machine.timeouts[4:])
    again.save(file)  # what all lines did is known already
    machine.system.digest = "1" * 64
    with pytest.raises(SavedShellError, match="belongs to another system: scripted 0000") as caught:
        restore(file)
    assert caught.value.hint == "the system of this host is scripted 1111111111111111"
    assert machine.closed == 2


def test_a_file_that_takes_too_long_or_does_something_else_is_refused(
    machine: ScriptedMachine, tmp_path: Path
) -> None:
    file = tmp_path / "saved"
    shell = opened(machine)
    shell.run("count")
    shell.save(file)
    with pytest.raises(SavedShellError, match=r"saved: line 1 behaved differently"):
        restore(file)
    with pytest.raises(SavedShellError, match=r"lines 1 to 1 of 1 took more than 1e-09 s"):
        restore(file, seconds=1e-9)
    with pytest.raises(LimitsError, match="seconds"):
        restore(file, seconds=0)
    assert machine.closed == 2


def test_other_errors_close_what_was_opened(machine: ScriptedMachine, tmp_path: Path) -> None:
    file = tmp_path / "saved"
    opened(machine).save(file)
    document = json.loads(file.read_bytes())
    document["lines"] = [{"line": "crash", "did": "", "timeout": None}]
    file.write_text(json.dumps(document))
    with pytest.raises(Exception, match="the machine is gone"):
        restore(file)
    assert machine.closed == 1
    machine.system.declaration.start_directory = None
    machine.start_shell = lambda *_, **__: 1 / 0  # type: ignore
    with pytest.raises(ZeroDivisionError):
        open_shell()
    assert machine.closed == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": "other"}, "has an unknown format: 'other'"),
        ({"cwd": 3}, "is not a saved shell"),
        ({"lines": [{"line": "x", "did": "", "timeout": -1}]}, "is not a saved shell: the limit"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    file = tmp_path / "saved"
    shell = opened(ScriptedMachine())
    shell.save(file)
    file.write_text(json.dumps(json.loads(file.read_bytes()) | change))
    with pytest.raises(SavedShellError, match=said):
        restore(file)
    file.write_bytes(b"{")
    with pytest.raises(SavedShellError, match="is not a saved shell"):
        restore(file)
    with pytest.raises(SavedShellError, match="is not a saved shell"):
        restore(tmp_path / "missing")


def test_a_runner_that_keeps_no_shell_runs_lines_again() -> None:
    machine: Any = ScriptedMachine(keeps_shells=False)
    assert isinstance(shell_of(machine), RepeatedShell)
    machine.keeps_shells = True
    assert isinstance(shell_of(machine), ResidentShell)
    assert machine.lent[0].cwd == "/start"
    assert shell_of(machine, "/tmp").state.cwd == "/tmp"
