"""A terminal: rows typed, undone, forked and repeated; rows and commands next to the shell."""

from __future__ import annotations

import asyncio
import base64
import os
import posixpath
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shioenv.behavior.typed_rows import Row, RowKind
from shioenv.domain.behavior import Behavior
from shioenv.domain.patch import ContextPatch
from shioenv.errors import InputError, ShellEndedError, TerminalError, UsageError
from shioenv.live.entered import close
from shioenv.sandbox.base import LARGEST, Limits
from shioenv_agents.tasks.entered_machine import Command
from shioenv_agents.tasks.make import contents
from shioenv_agents.tasks.terminal import ROWS, Terminal, for_rows, runner_seat
from support.scripted_machine import ScriptedLines, ScriptedMachine

KINDS = pytest.mark.parametrize("keeps_shells", [True, False], ids=["stays", "repeated"])
LINES = st.sampled_from(["put a 1", "put b 2", "rm a", "set x y", "echo $x", "echo z"])


def terminal(machine: Any, *history: str) -> Terminal:
    return Terminal(machine, "/start", history)


def files(behavior: Behavior) -> list[str]:
    return [str(operation[1]) for operation in behavior.patch.operations]


def test_processor_time_is_that_of_all_rows_together() -> None:
    limits = for_rows(Limits(cpu_seconds=2))
    assert limits.cpu_seconds == 2 * ROWS
    assert (
        for_rows(Limits(cpu_seconds=LARGEST["cpu_seconds"])).cpu_seconds == LARGEST["cpu_seconds"]
    )
    assert for_rows(None).wall_seconds == Limits().wall_seconds


@KINDS
def test_rows_go_on_from_the_history(keeps_shells: bool) -> None:
    machine = ScriptedMachine(keeps_shells=keeps_shells)
    typed = terminal(machine, "put old text", "set x one")
    assert typed.run("echo $x").output == b"one\n"
    assert files(typed.run("put new text")) == ["/fs/new"]
    assert typed.rows == ["echo $x", "put new text"]
    assert [each.output for each in typed.behaviors] == [b"one\n", b""]
    assert files(typed.since_start()) == files(typed.done()) == ["/fs/new"]
    assert files(typed.repeated()) == ["/fs/new", "/fs/old"]
    assert set(typed.before().document["fs"]) == {"old"}
    assert typed.before().document["cwd"] == "/start"
    assert terminal(machine).before() == machine.context("/start")


@KINDS
@settings(max_examples=25)
@given(rows=st.lists(LINES, max_size=5), count=st.integers(0, 5))
def test_taking_back_is_as_never_typed_and_a_fork_goes_its_own_way(
    keeps_shells: bool, rows: list[str], count: int
) -> None:
    machine = ScriptedMachine(keeps_shells=keeps_shells)
    typed, other = terminal(machine), terminal(machine)
    for row in rows:
        typed.run(row)
    kept = rows[: len(rows) - count] if count <= len(rows) else None
    if kept is None:
        with pytest.raises(UsageError, match=f"cannot undo {count} rows"):
            typed.undo(count)
        return
    typed.undo(count)
    for row in kept:
        other.run(row)
    fork = typed.fork()
    assert fork.rows == typed.rows == kept
    assert fork.run("put c 3").patch == other.run("put c 3").patch
    assert typed.rows == kept
    assert typed.run("echo $x").output == other.run("echo $x").output


@KINDS
def test_a_row_that_runs_out_of_time_is_taken_back(keeps_shells: bool) -> None:
    typed = terminal(ScriptedMachine(keeps_shells=keeps_shells))
    typed.run("put a 1")
    assert typed.run("hang").timed_out
    assert typed.rows == ["put a 1"]
    assert files(typed.run("put b 2")) == ["/fs/b"]


def test_nothing_runs_after_exit_in_the_shell_that_stays() -> None:
    machine = ScriptedMachine()
    typed = terminal(machine)
    typed.run("exit 7")
    after = typed.run("put a 1")
    assert (after.exit_code, after.output, after.patch) == (7, b"", ContextPatch())
    assert typed.rows == ["exit 7", "put a 1"]
    assert machine.lent[0].files == {}
    ended = terminal(ScriptedMachine(), "exit 3")
    assert ended.run("echo").output == b""


@KINDS
def test_a_row_beside_has_the_files_and_not_the_shell(keeps_shells: bool) -> None:
    machine = ScriptedMachine(keeps_shells=keeps_shells)
    typed = terminal(machine, "set x one")
    assert typed.ends_beside
    typed.run("put a 1")
    assert not typed.ends_beside
    assert typed.beside("echo $x", separate=True, wall_seconds=4).output == b"$x\n"
    assert typed.ends_beside
    assert typed.printed == b""
    assert files(typed.beside("put b 2")) == ["/fs/b"]
    assert files(typed.since_start()) == ["/fs/a", "/fs/b"]
    typed.run("echo $x")
    assert typed.printed == b"one\n"
    if not keeps_shells:
        assert machine.typed[0] == [
            Row(RowKind.AGAIN, "set x one"), Row(RowKind.TYPED, "put a 1"),
        ]  # fmt: skip
        beside = next(rows for rows in machine.typed if rows[-1].how is RowKind.BESIDE)
        assert [row.how for row in beside] == [
            RowKind.AGAIN, RowKind.AGAIN, RowKind.END, RowKind.BESIDE,
        ]  # fmt: skip


def test_a_killed_shell_beside_is_named_and_not_kept() -> None:
    typed = terminal(ScriptedMachine(keeps_shells=False))
    with pytest.raises(TerminalError, match="the shell was killed before it ran 'die'"):
        typed.beside("die")
    assert typed.rows == []


def test_a_typed_shell_that_cannot_be_ended_is_named() -> None:
    machine = ScriptedMachine()
    typed = terminal(machine)
    typed.run("echo")
    machine.lent[0].unkillable = True
    with pytest.raises(TerminalError, match="could not be ended: it cannot be killed"):
        typed.beside("echo")


def test_a_row_that_no_input_can_hold_is_refused() -> None:
    typed = terminal(ScriptedMachine())
    for run in (typed.run, typed.beside):
        with pytest.raises(InputError, match="NUL"):
            run("a\0b")


def test_a_machine_that_was_given_back_has_the_rows_run_again() -> None:
    machine = ScriptedMachine()
    typed = terminal(machine)
    typed.open()
    typed.run("put a 1")
    typed.rest()
    assert files(typed.run("put b 2")) == ["/fs/b"]
    assert machine.lent[1].files == {"a": "1", "b": "2"}
    machine.lent[1].gone = True
    typed.run("echo")
    assert machine.lent[2].files == {"a": "1", "b": "2"}


def test_a_machine_that_is_lent_on_meanwhile_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = ScriptedMachine()
    typed = terminal(machine, "put a 1")
    lend = machine.lend_shell

    def lend_and_take(cwd: str) -> ScriptedLines:
        lines: ScriptedLines = lend(cwd)
        if len(machine.lent) == 1:
            lines.close()
        return lines

    monkeypatch.setattr(machine, "lend_shell", lend_and_take)
    assert files(typed.run("put b 2")) == ["/fs/b"]
    assert len(machine.lent) == 2
    monkeypatch.setattr(ScriptedLines, "repeat", lambda *_: (_ for _ in ()).throw(
        ShellEndedError("it ended by itself")
    ))  # fmt: skip
    with pytest.raises(ShellEndedError, match="by itself"):
        terminal(machine, "put a 1").run("echo")


def test_every_row_is_judged_against_its_repetition() -> None:
    machine = ScriptedMachine()
    typed = terminal(machine, "put old text")
    typed.run("put a 1")
    typed.run("count")
    repeated = typed.repeated()
    both = list(typed.repetitions(repeated))
    assert [files(one) for one, _ in both] == [["/fs/a", "/fs/old"]] * 2
    assert both[0][0].patch == both[0][1].patch
    assert both[1][1] is repeated
    assert both[1][0].output != both[1][1].output


@settings(max_examples=25)
@given(st.lists(st.floats(0.01, 1e5), max_size=4), st.floats(0, 1e6), st.floats(0.01, 86_400))
def test_patience_grows_with_what_rows_needed_and_were_allowed(
    allowed: list[float], spent: float, own: float
) -> None:
    typed = terminal(ScriptedMachine(keeps_shells=False))
    for seconds in allowed:
        typed.beside("echo", wall_seconds=min(seconds, 86_400.0))
    typed._spent = spent
    whole = typed._patience(own)
    assert own <= whole <= LARGEST["wall_seconds"]
    assert whole <= own + sum(min(each, 86_400.0) for each in allowed) + 1
    if spent and allowed and own + 1 < LARGEST["wall_seconds"]:
        assert whole > own


def test_no_row_is_repeated_once_a_command_entered(tmp_path: Path) -> None:
    machine = ScriptedMachine()
    typed = Terminal(machine, str(tmp_path))
    typed.run("put a 1")
    entered = typed.enter(Command(text="pwd; echo x > f; exit 5", cwd="."))
    with os.fdopen(os.dup(entered.output), "rb") as output:
        assert output.read() == f"{tmp_path}\n".encode()
    close(entered)
    assert (tmp_path / "f").read_text() == "x\n"
    assert typed.entered
    for refused in (typed.repeated, typed.undo, typed.fork, lambda: typed.beside("echo")):
        with pytest.raises(TerminalError, match="a command entered the machine"):
            refused()
    machine.lent[0].ended = True
    assert files(typed.run("put b 2")) == ["/fs/b"]
    assert machine.lent[0].restarts == 1
    assert typed.rows == ["put a 1", "put b 2"]
    assert files(typed.done()) == ["/fs/a", "/fs/b"]
    machine.lent[0].ended, machine.lent[0].unkillable = False, True
    with pytest.raises(TerminalError, match="could not be ended"):
        typed.done()
    machine.close()


def test_a_shell_that_ended_since_its_last_row_is_started_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = ScriptedMachine()
    typed = Terminal(machine, "/", ["put old text"])
    close(typed.enter(Command(program=["true"])))
    machine.processes = "1 2 3"
    typed.run("echo")
    run = ScriptedLines.run

    def run_late(lines: ScriptedLines, line: str, **options: Any) -> Behavior:
        monkeypatch.setattr(ScriptedLines, "run", run)
        raise ShellEndedError("a limit")

    monkeypatch.setattr(ScriptedLines, "run", run_late)
    assert typed.run("echo now").output == b"now\n"
    assert machine.lent[0].restarts == 1
    assert files(typed.done()) == []
    machine.close()


@pytest.mark.parametrize(
    ("changes", "stays_entered"),
    [
        ({}, False),
        ({"processes": "1 2 3"}, True),
        ({"unrecorded": b"sem 0 600 1\n"}, True),
        ({"unrecorded": b"\0"}, True),
    ],
    ids=["nothing", "a process", "a semaphore", "nobody knows"],
)
def test_a_command_that_changed_nothing_is_forgotten(
    changes: dict[str, Any], stays_entered: bool
) -> None:
    machine = ScriptedMachine()
    if changes.get("unrecorded") == b"\0":
        machine.unrecorded = b"\0"  # before the command, too
    typed = Terminal(machine, "/")
    close(typed.enter(Command(text="true", reads=True)))
    assert not typed.entered
    close(typed.enter(Command(text="true")))
    for name, value in changes.items():
        setattr(machine, name, value)
    typed.run("put a 1")
    assert typed.entered is stays_entered
    assert len(machine.lent) == (1 if stays_entered else 2)
    machine.close()


def test_a_group_of_a_command_is_killed(tmp_path: Path) -> None:
    machine = ScriptedMachine()
    typed = Terminal(machine, str(tmp_path))
    entered = typed.enter(Command(text="echo up; sleep 600; touch late"))
    with os.fdopen(entered.talk, "rb", buffering=0) as talk:
        group = int(talk.readline().split()[1])
        os.read(entered.output, 3)
        typed.end_group(group)
        assert talk.read() == b""  # the process that reports the status is in the group
    os.close(entered.output)
    os.close(entered.errors)
    assert not (tmp_path / "late").exists()
    machine.close()


def test_what_no_patch_names_is_read_before_and_after() -> None:
    machine = ScriptedMachine()
    machine.unrecorded = b"sem 0 600 1\n"
    typed = terminal(machine)
    assert dict(typed.unrecorded() or {})["IPC objects"] == b"sem 0 600 1\n"
    asked: list[Any] = []
    machine.type = lambda rows, *_, **__: asked.extend(rows) or Behavior(0, b"odd")  # type: ignore
    assert typed.unrecorded_before() is None
    assert asked[-1].how is RowKind.BESIDE


def test_contents_are_read_beside_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    typed = terminal(ScriptedMachine())
    rows: list[str] = []
    told = {
        0: base64.b64encode(b"\0bytes").decode(), 2: "no base64!", 9: "eA==", "x": "eA==",
    }  # fmt: skip

    def beside(_: Terminal, row: str) -> Behavior:
        rows.append(row)
        return Behavior(0, "".join(f"{number} {text}\n" for number, text in told.items()).encode())

    monkeypatch.setattr(Terminal, "beside", beside)
    assert contents(typed, []) == {}
    assert rows == []
    assert contents(typed, ["a b", "d/\\xff", "c"]) == {"a b": b"\0bytes"}
    assert "< 'a b')" in rows[0]
    long = posixpath.join(*["x" * 200] * 400)
    contents(typed, [long, "short"])
    assert rows[1] == "exec 2> /dev/null"


def test_a_seat_of_a_runner_opens_it_with_the_limits_of_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[Any] = []
    runner = SimpleNamespace(close=lambda: None)

    def open_sandbox(*given: Any) -> Any:
        opened.append(given)
        return runner

    monkeypatch.setattr("shioenv_agents.tasks.terminal.open_sandbox", open_sandbox)

    async def use() -> None:
        seat: Any = runner_seat("one", Limits(cpu_seconds=1))
        assert await seat.do(lambda one: one is runner)
        await seat.close()

    asyncio.run(use())
    assert (opened[0][0], opened[0][1].cpu_seconds) == ("one", 100)
