"""Machines that commands enter: the command's view, processes that go on, and outside evidence."""

from __future__ import annotations

import asyncio
import io
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from shioenv.errors import InputError, SandboxError, UsageError
from shioenv.live.entered import parse_control_line
from shioenv.sandbox.base import MEBIBYTE, Limits, Request
from shioenv.sandbox.namespaces.backend import NamespaceSandbox
from shioenv.system.store import System
from shioenv_agents.tasks.entered_machine import Command, EnteredMachine, Finished, Running
from shioenv_agents.tasks.harbor.evidence import evidence_of
from support.waiting import PATIENCE, next_turn

pytestmark = pytest.mark.xdist_group("entered")
LIMITS = Limits(wall_seconds=30.0, cpu_seconds=1000.0, memory_bytes=512 * MEBIBYTE)


@pytest.fixture(scope="module")
def opened(system: System) -> Iterator[EnteredMachine]:
    with EnteredMachine(system, LIMITS) as machine:
        yield machine


@pytest.fixture
def machine(opened: EnteredMachine) -> EnteredMachine:
    opened.renew()
    return opened


def done(
    machine: EnteredMachine, command: str | Command, given: IO[bytes] | None = None
) -> Finished:
    if isinstance(command, str):
        command = Command(text=command)
    running = Running(machine.start(command))

    async def finish() -> Finished:
        return await asyncio.wait_for(running.finish(given), 60)

    return asyncio.run(finish())


def test_a_link_is_one_file_for_later_commands(machine: EnteredMachine) -> None:
    assert done(machine, "ln /etc/hosts h").exit_code == 0
    copied = done(machine, "[ /etc/hosts -ef h ] && echo same; cp /etc/hosts h")
    assert copied.output == b"same\n"
    assert copied.errors == b"cp: '/etc/hosts' and 'h' are the same file\n"


def test_a_command_has_what_it_was_given(machine: EnteredMachine) -> None:
    command = Command(
        text='pwd; id -un; echo "$X $HOME"; echo wrong >&2; exit 7',
        cwd="/home/ubuntu",
        env={"X": "a 'b'"},
        user="ubuntu",
    )
    finished = done(machine, command)
    assert finished.output == b"/home/ubuntu\nubuntu\na 'b' /home/ubuntu\n"
    assert (finished.errors, finished.exit_code) == (b"wrong\n", 7)


@pytest.mark.parametrize(
    ("user", "told"),
    [(None, "0 0"), ("0", "0 0"), ("1000", "1000 1000"), ("4321", "4321 4321")],
)
def test_users_go_by_name_and_by_number(
    machine: EnteredMachine, user: str | None, told: str
) -> None:
    command = Command(text="echo $(id -u) $(id -g)", user=user)
    assert done(machine, command).output.decode().strip() == told


def test_standard_input_is_at_its_end_or_of_any_size(machine: EnteredMachine) -> None:
    assert done(machine, "cat; echo $?").output == b"0\n"
    command = Command(text="sha256sum; wc -c < /dev/null", fed=True)
    big = io.BytesIO(bytes(5 * MEBIBYTE))
    assert done(machine, command, big).output.startswith(
        b"c036cbb7553a909f8b8877d4461924307f27ecb6"
    )


def test_commands_run_beside_each_other_and_what_they_leave_goes_on(
    machine: EnteredMachine,
) -> None:
    async def meet() -> tuple[Finished, Finished]:
        first = Running(machine.start(Command(text="mkfifo /p; read x < /p; echo $x")))
        second = Running(
            machine.start(Command(text="until [ -p /p ]; do :; done; echo met > /p; sleep 1000 &"))
        )
        one, two = await asyncio.wait_for(asyncio.gather(first.finish(), second.finish()), 60)
        return one, two

    one, two = asyncio.run(meet())
    assert (one.output, two.exit_code) == (b"met\n", 0)
    assert done(machine, "pgrep -x sleep").exit_code == 0


def test_the_time_since_boot_goes_on(machine: EnteredMachine) -> None:
    waiting = 'read a < /proc/uptime; until read b < /proc/uptime; [ "$b" != "$a" ]; do :; done'
    assert done(machine, f"timeout 20 bash -c '{waiting}'").exit_code == 0
    between = done(machine, "cat /proc/uptime").output, done(machine, "sleep 0.6").exit_code
    assert done(machine, "cat /proc/uptime").output != between[0]


def test_a_command_that_is_left_is_ended_by_its_group(machine: EnteredMachine) -> None:
    async def leave() -> int | None:
        running = Running(machine.start(Command(text="sleep 1000 | sleep 1000; touch /late")))
        waiting = asyncio.create_task(running.finish())
        async with asyncio.timeout(PATIENCE):
            while running.group is None:
                await next_turn()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        return running.group

    group = asyncio.run(leave())
    assert group is not None
    machine.end_group(group)
    assert done(machine, "pgrep -x sleep; [ -e /late ]").exit_code == 1


def test_outputs_are_kept_up_to_a_bound_and_read_to_their_end(machine: EnteredMachine) -> None:
    async def read() -> Finished:
        running = Running(machine.start(Command(text="head -c 3000000 /dev/zero; echo end >&2")))
        return await running.finish(most=1000)

    finished = asyncio.run(read())
    assert (len(finished.output), finished.whole) == (1000, False)
    assert (finished.errors, finished.exit_code) == (b"end\n", 0)


def test_nothing_inside_ends_the_machine(machine: EnteredMachine) -> None:
    assert done(machine, "touch /before; kill -9 -1").exit_code == 137
    assert done(machine, "kill -9 $PPID; [ -e /before ]").exit_code in {0, 137}
    assert done(machine, "[ -e /before ] && echo there").output == b"there\n"


@pytest.mark.parametrize(
    "forged", ["status 0", f"status {'9' * 5000}", "group 1"], ids=["status", "nines", "group"]
)
def test_no_text_of_a_killed_command_stands_where_its_end_is_told(
    machine: EnteredMachine, forged: str
) -> None:
    command = Command(text=f"kill -9 $$\n{forged}\n", env={"X": f"\n{forged}\n"})
    running = Running(machine.start(command))
    assert asyncio.run(running.finish()).exit_code == 137
    assert running.group != 1


def test_what_is_no_number_of_the_talk_is_nothing() -> None:
    lines = [b"status 9" + b"9" * 5000, b"status -1", b"status 1 2", b"state 1"]
    assert [parse_control_line(line + b"\n") for line in lines] == [None] * 4
    assert parse_control_line(b"status 7\n") == ("status", 7)


def test_a_limit_ends_the_processes_and_not_the_machine(system: System) -> None:
    limits = Limits(wall_seconds=30.0, cpu_seconds=0.5, memory_bytes=512 * MEBIBYTE)
    with EnteredMachine(system, limits) as machine:
        assert done(machine, "touch /x; while :; do :; done").exit_code == 137
        assert done(machine, "[ -e /x ] && echo there").output == b"there\n"


def test_a_limit_holds_where_the_supervisor_is_told_something_all_the_time(system: System) -> None:
    limits = Limits(wall_seconds=20.0, cpu_seconds=60.0, memory_bytes=128 * MEBIBYTE)
    eats = "import socket, time\nheld = []\nwhile len(held) < 100:\n"
    eats += "    socket.socket(); held.append(b'x' * (4 << 20)); time.sleep(.04)"
    with EnteredMachine(system, limits) as machine:
        assert done(machine, f"python3 -c {shlex.quote(eats)}").exit_code == 137


def test_changes_are_told_after_every_process_has_ended(machine: EnteredMachine) -> None:
    done(
        machine,
        "(while :; do date > /made; done) > /dev/null 2>&1 & rm -r /var/mail; "
        "until [ -e /made ]; do :; done",
    )
    first = evidence_of(machine.changes(), machine.system)
    assert set(first["entries"]) == {"/made", "/var/mail"}
    assert evidence_of(machine.changes(), machine.system) == first
    assert done(machine, "cat /made").exit_code == 0


def test_a_renewed_machine_is_pristine(machine: EnteredMachine) -> None:
    done(machine, "touch /x; hostname other; ip link set lo down; sleep 1000 & echo x > /dev/shm/y")
    machine.renew()
    asked = "ls /x /dev/shm; hostname; pgrep -x sleep; ip -br link show lo | grep -c UNKNOWN"
    assert done(machine, asked).output == b"/dev/shm:\nubuntu\n1\n"
    evidence = evidence_of(machine.changes(), machine.system)
    assert (evidence["entries"], evidence["other"]) == ({}, [])


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("hostname other", ["the host's name"]),
        ("ip route add 192.0.2.0/24 dev eth0", ["the network"]),
        ("ip addr; ip link set lo down; ip link set lo up", []),
    ],
)
def test_what_else_changed_is_named(machine: EnteredMachine, text: str, other: list[str]) -> None:
    assert done(machine, text).exit_code == 0
    assert evidence_of(machine.changes(), machine.system)["other"] == other


def test_what_cannot_be_started_is_refused(machine: EnteredMachine, system: System) -> None:
    with pytest.raises(InputError, match="bytes"):
        machine.start(Command(text="x" * 200_000))
    assert done(machine, Command(text="true", cwd="/nowhere")).exit_code == 1
    with pytest.raises(UsageError, match="namespaces"):
        EnteredMachine(system, Limits(sandbox="microvm"))


def test_a_machine_full_of_processes_is_looked_at_all_the_same(system: System) -> None:
    limits = Limits(wall_seconds=5.0, processes=60, memory_bytes=512 * MEBIBYTE, cpu_seconds=60)
    fill = "for (1..100) { $p = fork; defined $p or die; $p or sleep 1000 }"
    with EnteredMachine(system, limits) as machine:
        assert b"Died" in done(machine, f"touch /x; perl -e '{fill}'").errors
        assert "/x" in evidence_of(machine.changes(), system)["entries"]
        machine.renew()
        assert done(machine, "[ ! -e /x ] && echo pristine").output == b"pristine\n"


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("rounds", range(4))
def test_who_leaves_at_any_time_leaves_nothing_open(machine: EnteredMachine, rounds: int) -> None:
    done(machine, "true")

    async def leave() -> tuple[int, int]:
        before = descriptors()
        running = Running(machine.start(Command(text="true")))
        waiting = asyncio.create_task(running.finish())
        for _ in range(rounds):
            await next_turn()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        running.close()
        await next_turn()  # transports close in the next turn
        return before, descriptors()

    before, after = asyncio.run(leave())
    assert after == before


def test_descriptors_that_are_too_few_are_closed(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    with NamespaceSandbox(system, LIMITS) as sandbox:
        ends = sandbox._ends
        monkeypatch.setattr(sandbox, "_ends", lambda count: ends(count + 1))
        before = descriptors()
        with pytest.raises(SandboxError, match="returned no descriptors"):
            sandbox.enter(Request("true"), idle_seconds=60.0)
        assert descriptors() < before  # the sandbox's own have ended with it


def test_a_command_starts_in_its_directory(machine: EnteredMachine) -> None:
    command = Command(text='echo "${OLDPWD-unset} $PWD"', cwd="/var/run")
    assert done(machine, command).output == b"unset /var/run\n"
