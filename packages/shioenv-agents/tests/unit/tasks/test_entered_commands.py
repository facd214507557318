"""Commands that enter a machine from outside: their words, ends, outputs and groups.

The host's bash executes them in place of a machine.
"""

from __future__ import annotations

import asyncio
import io
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shioenv.errors import InputError, UsageError
from shioenv.live.entered import close
from shioenv.live.machine_thread import Seat
from shioenv.sandbox.base import LONGEST_INPUT, Entered, Execution, Limits
from shioenv_agents.tasks import entered_machine as entering
from shioenv_agents.tasks.entered_machine import (
    Command,
    CommandTimeoutError,
    EnteredMachine,
    Finished,
    Running,
    end_group,
    finished,
    group_of,
    start,
    started,
)
from support.scripted_machine import ScriptedMachine
from support.waiting import next_turn


@pytest.fixture
def machine() -> Iterator[ScriptedMachine]:
    machine = ScriptedMachine()
    yield machine
    machine.close()


def run(machine: ScriptedMachine, command: Command, **options: Any) -> Finished:
    entered = start(command, machine.system, machine.enter)
    return asyncio.run(_finish(entered, options))


async def _finish(entered: Entered, options: dict[str, Any]) -> Finished:
    return await Running(entered).finish(**options)


def test_a_command_has_its_directory_variables_and_words(
    machine: ScriptedMachine, tmp_path: Path
) -> None:
    text = 'pwd; echo "$A" >&2; echo "${OLDPWD-unset}"; read x || echo end; exit 7'
    done = run(machine, Command(text=text, cwd=str(tmp_path), env={"A": "b  c'"}))
    assert done == Finished(7, f"{tmp_path}\nunset\nend\n".encode(), b"b  c'\n", True, True)
    words = Command(program=["printf", "%s|", "a b", "", "$HOME", "é\udcff"])
    assert run(machine, words).output == b"a b||$HOME|\xc3\xa9\xff|"


@settings(max_examples=10)
@given(st.lists(st.text("ab '\"\\$\n`!é", max_size=8), max_size=4))
def test_words_arrive_as_they_are(words: list[str]) -> None:
    machine = ScriptedMachine()
    done = run(machine, Command(program=["printf", "%s\\0", "first", *words]))
    machine.close()
    assert done.output == b"".join(f"{word}\0".encode() for word in ("first", *words))


def test_words_longer_than_an_input_are_sent_behind_it(machine: ScriptedMachine) -> None:
    word = "x" * (LONGEST_INPUT - 64)
    done = run(machine, Command(text=f": {word}; echo $#; cat", fed=True), given=io.BytesIO(b"in"))
    assert done.output == b"0\nin"
    with pytest.raises(InputError):
        start(Command(text="a\0b"), machine.system, machine.enter)


def test_a_directory_that_is_missing_fails_the_command(machine: ScriptedMachine) -> None:
    done = run(machine, Command(text="echo never", cwd="/no such place"))
    assert (done.exit_code, done.output) == (1, b"")
    assert b"/no such place" in done.errors


@pytest.mark.parametrize(
    ("user", "words"),
    [
        (None, ""),
        ("root", ""),
        ("0", ""),
        ("ann", "/usr/bin/env HOME=~ann /usr/sbin/runuser -u ann -- "),
        ("1000", "/usr/bin/env HOME=~ann /usr/sbin/runuser -u ann -- "),
        ("7", "/usr/bin/setpriv --reuid=7 --regid=7 --clear-groups "),
        ("a; rm", "/usr/sbin/runuser -u 'a; rm' -- "),
    ],
)
def test_users_go_by_name_and_number(user: str | None, words: str) -> None:
    texts: list[str] = []

    def enter(text: str) -> Entered:
        texts.append(text)
        return Entered(-1, -1, -1)

    start(Command(program=["id"], user=user), ScriptedMachine().system, enter)
    assert f"set -- {words}/usr/bin/env id\n" in texts[0]
    assert "</dev/null" in texts[0]


def test_output_is_kept_up_to_its_bound(machine: ScriptedMachine) -> None:
    done = run(machine, Command(text="printf 12345; printf ab >&2"), most=3)
    assert (done.output, done.whole, done.errors, done.errors_whole) == (b"123", False, b"ab", True)
    exact = run(machine, Command(text="printf 123; printf abcd >&2"), most=3)
    assert (exact.output, exact.whole, exact.errors_whole) == (b"123", True, False)
    file = io.BytesIO()
    filed = run(machine, Command(text="yes; echo never"), most=5, into=file)
    assert (filed.output, filed.whole, file.getvalue()) == (b"", False, b"y\ny\ny")


def test_what_a_killed_command_and_its_words_say_is_no_status(machine: ScriptedMachine) -> None:
    done = run(machine, Command(text="echo; : 'status 3'; kill -9 $$"))
    assert done.exit_code == 137
    gone = run(machine, Command(text="kill -9 0"))
    assert (gone.exit_code, gone.output) == (137, b"")


@pytest.mark.parametrize(
    ("said", "exit_code", "group"),
    [
        (b"odd\ngroup 5\nstatus 258\n", 2, 5),
        (b"group 5\n", 137, 5),
        (b"x" * 70_000 + b"\n", 137, None),
        (b"", 137, None),
    ],
)
def test_the_talk_is_read_to_its_status(said: bytes, exit_code: int, group: int | None) -> None:
    async def finish() -> tuple[int, int | None]:
        ours, theirs = socket.socketpair()
        ends = [os.pipe() for _ in range(2)]
        for _, writing in ends:
            os.close(writing)
        running = Running(Entered(ours.detach(), ends[0][0], ends[1][0]))
        sending = asyncio.get_running_loop().run_in_executor(None, theirs.sendall, said)
        sending.add_done_callback(lambda _: theirs.close())
        return (await running.finish()).exit_code, running.group

    assert asyncio.run(finish()) == (exit_code, group)


def ends_of(said: bytes) -> tuple[Entered, socket.socket]:
    ours, theirs = socket.socketpair()
    theirs.sendall(said)
    return Entered(ours.detach(), *os.pipe()), theirs


def test_a_group_is_read_and_no_byte_more() -> None:
    entered, theirs = ends_of(b"group 31\nstatus 0\n")
    with theirs:
        assert group_of(entered) == 31
        assert os.read(entered.talk, 99) == b"status 0\n"
        running = Running(entered, 31)
        running.close()
        running.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(entered.talk)
    other, theirs = ends_of(b"status 1\n")
    theirs.close()
    assert group_of(other) is None
    close(other)


class Seated:
    """A machine that commands enter, which can be closed."""

    def __init__(self) -> None:
        self.machine = ScriptedMachine()
        self.ended: list[int] = []

    def start(self, command: Command) -> Entered:
        return start(command, self.machine.system, self.machine.enter)

    def end_group(self, group: int) -> None:
        self.ended.append(group)
        end_group(group, self.machine.enter)

    def close(self) -> None:
        self.machine.close()


def test_a_seat_runs_a_command_to_its_end() -> None:
    async def use() -> bytes:
        seat = Seat(Seated)
        done = await finished(seat, Command(text="echo a"))
        await seat.close()
        return done.output

    assert asyncio.run(use()) == b"a\n"


def test_a_command_that_runs_out_of_time_is_ended_with_what_it_printed() -> None:
    machine = Seated()

    async def use() -> CommandTimeoutError:
        seat = Seat(lambda: machine)
        with pytest.raises(CommandTimeoutError, match=r"after 0\.5 seconds") as caught:
            await finished(seat, Command(text="echo a; sleep 600"), seconds=0.5)
        await seat.close()
        return caught.value

    error = asyncio.run(use())
    assert len(machine.ended) == 1
    assert error.errors == b""


def test_a_caller_that_is_cancelled_ends_the_command_that_just_started() -> None:
    machine = Seated()

    async def use() -> None:
        seat = Seat(lambda: machine)
        task = asyncio.ensure_future(started(seat, Command(text="sleep 600")))
        await next_turn()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await seat.close()

    asyncio.run(use())
    assert len(machine.ended) == 1


class Sandboxed:
    """A sandbox as `EnteredMachine` uses it."""

    def __init__(self, network: bytes | None) -> None:
        self._network = network
        self.calls: list[Any] = []

    def enter(self, request: Any, *, idle_seconds: float) -> Entered:
        self.calls.append((request.text, request.cwd, idle_seconds))
        return ends_of(b"")[0]

    def look(self) -> Execution:
        return Execution(exit_code=0, output=b"", network=self._network)

    def network(self) -> bytes:
        return b"{}"

    def end_shell(self) -> None:
        self.calls.append("end")

    def close(self) -> None:
        self.calls.append("close")

    def __enter__(self) -> Sandboxed:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@pytest.mark.parametrize(
    ("network", "told_network"), [(None, None), (b"{}", None), (b'{"x":[]}', b'{"x":[]}')]
)
def test_an_entered_machine_tells_a_network_that_is_not_pristine(
    monkeypatch: pytest.MonkeyPatch, network: bytes | None, told_network: bytes | None
) -> None:
    sandbox = Sandboxed(network)
    monkeypatch.setattr(entering, "default_sandbox", lambda *_: sandbox)
    monkeypatch.setattr(entering, "network_fields", lambda document: document)
    with EnteredMachine(ScriptedMachine().system, Limits(), idle_seconds=5) as machine:
        close(machine.start(Command(program=["id"])))
        machine.end_group(31)
        assert machine.changes().network == told_network
        machine.renew()
    assert sandbox.calls[0][0].endswith("printf 'group %d\\n' $! >&9")
    assert sandbox.calls[1] == ("kill -KILL -- -31 2> /dev/null", "/", 5)
    assert sandbox.calls[-2:] == ["end", "close"]


@pytest.mark.parametrize("limits", [Limits(sandbox="microvm"), Limits(without_shell_state=True)])
def test_a_machine_is_entered_in_namespaces_alone(limits: Limits) -> None:
    with pytest.raises(UsageError, match="only with the sandbox namespaces"):
        EnteredMachine(ScriptedMachine().system, limits)
