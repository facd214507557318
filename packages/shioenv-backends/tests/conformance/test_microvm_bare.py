"""Inputs as root of a microVM: the parts of the contract that hold, and its additional powers."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256

import pytest

from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.errors import SandboxError, ShioenvError, StartDirectoryError
from shioenv.sandbox.base import Limits, Request
from shioenv.sandbox.namespaces.backend import NamespaceSandbox
from shioenv.system.store import System
from shioenv_backends.microvm.bare import BareSandbox
from shioenv_backends.microvm.boot import build_microvm
from support import sandbox_conformance as checks
from support.needs import MICROVM, needs
from support.nightly import NIGHTLY, by_day
from support.sandbox_conformance import Check

pytestmark = [needs(*MICROVM), pytest.mark.xdist_group("microvm")]

LIMITS = Limits(
    wall_seconds=60.0,
    cpu_seconds=60.0,
    background_seconds=5.0,
    scan_seconds=60.0,
    sandbox="microvm-bare",
)
HELD = (
    checks.output_and_exit_code,
    checks.messages_are_those_of_bash_c,
    checks.both_channels_in_order,
    checks.separate_channels,
    checks.standard_input_is_empty,
    checks.standard_input_is_given,
    checks.changes_are_complete,
    checks.output_is_bounded,
    checks.descriptors_are_closed,
)
"""The checks among those that hold which these tests run."""

OTHERWISE = {
    checks.working_directory: "where a shell ends is part of its state, which is unknown",
    checks.shell_state_is_known: "reading it takes a library in the shell",
    checks.disk_is_bounded: "the disk has the room that its file system has",
    checks.the_host_is_out_of_reach: "an input is root of the machine: of its kernel as well",
}
"""The checks that do not hold, with the reason; these are no defects."""


@pytest.fixture(scope="module")
def runner(system: System) -> Iterator[SandboxRunner]:
    build_microvm(system)
    with open_sandbox(system, LIMITS) as opened:
        yield opened


@pytest.fixture(scope="module")
def machine(runner: SandboxRunner) -> BareSandbox:
    opened = runner._sandbox
    assert isinstance(opened, BareSandbox)
    return opened


@pytest.mark.parametrize("check", by_day(HELD, 4), ids=lambda check: check.__name__)
def test_contract(check: Check, machine: BareSandbox) -> None:
    check(machine)


@pytest.mark.parametrize("check", by_day([*OTHERWISE], 4), ids=lambda check: check.__name__)
def test_where_a_bare_machine_is_none_of_the_contracts(check: Check, machine: BareSandbox) -> None:
    with pytest.raises(AssertionError):
        check(machine)


def test_an_input_is_root_of_the_machine_itself(machine: BareSandbox) -> None:
    told = machine.run(
        Request(
            "cat /proc/self/uid_map; grep ' / ' /proc/mounts; grep Seccomp: /proc/self/status;"
            "ls -l /proc/1/ns/pid /proc/self/ns/pid | sed 's/.*-> //' | uniq | wc -l;"
            "echo 8 > /proc/sys/vm/swappiness && echo written"
        )
    )
    lines = told.output.decode().splitlines()
    assert lines[0].split() == ["0", "0", "4294967295"]
    assert lines[1].split()[0] == "/dev/vda"
    assert lines[2:] == ["Seccomp:\t0", "1", "written"]


RUINS = (
    "rm -rf /usr /etc /home; echo done",
    "echo b > /proc/sysrq-trigger; sleep 60",
    "dd if=/dev/zero of=/dev/vda bs=1M count=64; umount -l /",
)


@pytest.mark.parametrize("ruin", by_day(RUINS, 3))
def test_what_an_input_ruins_the_next_one_finds_whole(machine: BareSandbox, ruin: str) -> None:
    ordinary = Request("ls -lA / /etc /home/ubuntu | md5sum; md5sum /etc/passwd; hostname")
    before = machine.run(ordinary)
    with suppress(SandboxError):  # the machine is gone, and the run may be repeated
        machine.run(Request(ruin, wall_seconds=20.0))
    assert machine.run(ordinary).output == before.output


def test_what_changed_is_recorded(runner: SandboxRunner) -> None:
    told = runner.run(
        "echo text > new; mv documents moved; chmod 600 README.md; rm data/data.csv; ln -s a link;"
        " echo more >> logs/app.log; touch /dev/shm/shared; hostname other; ip link set eth0 down"
    )
    assert not told.shell_state_known
    by_code: dict[str, set[str]] = {}
    for code, path, *_ in told.patch.operations:
        by_code.setdefault(code, set()).add(str(path))
    assert {"/fs/new", "/fs/link", "/fs/~1dev~1shm~1shared"} <= by_code["a"]
    assert by_code["r"] == {"/fs/data~1data.csv"}
    assert "/fs/documents" in by_code["m"]
    assert {"/hostname", "/fs/README.md/perms", "/fs/logs~1app.log/size"} <= by_code["="]
    assert any(path.startswith("/network/") for path in by_code["="])
    assert told.content_digests["new"] == sha256(b"text\n").hexdigest()
    assert "README.md" not in told.content_digests, "its content is what it was"


def test_nothing_is_changed_by_what_only_reads(runner: SandboxRunner) -> None:
    told = runner.run("cat README.md > /dev/null; ls -R / > /dev/null 2>&1; ip address > /dev/null")
    assert told.patch.operations == ()


def test_the_clock_stands_where_it_is_declared(machine: BareSandbox) -> None:
    told = [
        machine.run(Request("date +%FT%R; cut -c1-4 /proc/uptime; uptime -s")) for _ in range(2)
    ]
    assert told[0].output == told[1].output
    assert told[0].output.startswith(f"{machine.system.declaration.instant:%FT%R}\n".encode())


def test_files_are_as_old_as_in_namespaces(machine: BareSandbox, system: System) -> None:
    """Files of the disk, and files that a kernel makes when it boots."""
    text = (
        "find / -xdev -path /dev -prune -o ! -type d -printf '%p %T@ %C@ %B@\\n' | sort | md5sum;"
        "find /dev/null /dev/shm -maxdepth 0 -printf '%p %TF %TH\\n'"
    )
    with NamespaceSandbox(system) as other:
        expected = other.run(Request(text)).output
    assert machine.run(Request(text)).output == expected


def test_a_start_directory_that_is_none_is_an_error(machine: BareSandbox) -> None:
    assert machine.run(Request("pwd", cwd="/etc")).output == b"/etc\n"
    with pytest.raises(StartDirectoryError):
        machine.run(Request("pwd", cwd="/etc/passwd"))


def test_a_terminal(machine: BareSandbox) -> None:
    told = machine.run(Request("tty; stty size; read -r line; echo $?", tty=True))
    assert told.output == b"/dev/pts/0\r\n24 80\r\n1\r\n"


@NIGHTLY
@pytest.mark.parametrize(
    ("text", "waited"),
    [
        ("end=$((SECONDS + 3)); while ((SECONDS < end)); do :; done; sleep 600", True),
        ("while :; do :; done", False),
    ],
)
def test_a_run_that_goes_on_is_ended(machine: BareSandbox, text: str, waited: bool) -> None:
    """Its time limit is long: starting bash takes seconds of it on a busy host."""
    told = machine.run(Request(text, wall_seconds=12.0))
    assert (told.exit_code, told.timed_out, told.waited) == (124, True, waited)


def test_forks_are_bounded(machine: BareSandbox) -> None:
    # bash would try again for fifteen seconds
    forks = """perl -e 'for (1 .. 400) { $n = fork // die "fork: $!"; sleep 600 unless $n }'"""
    told = machine.run(Request(forks))
    assert b"fork: " in told.output
    assert "processes" in told.limits_hit


def test_a_machine_that_is_killed_costs_a_run_and_no_record(runner: SandboxRunner) -> None:
    """The runner repeats the run in the next machine."""
    machine = runner._sandbox
    assert isinstance(machine, BareSandbox)
    ends = iter([True])
    opens = machine._open

    def open_and_kill() -> None:
        opens()
        if next(ends, False):
            assert machine._process
            machine._process._process.send_signal(signal.SIGKILL)  # type: ignore[attr-defined]

    machine._open = open_and_kill  # type: ignore[method-assign]
    try:
        told = runner.run("echo recorded")
    finally:
        machine._open = opens  # type: ignore[method-assign]
    assert next(ends, None) is None, "one was killed"
    assert (told.output, told.exit_code, told.limits_hit) == (b"recorded\n", 0, ())


def test_limits_that_no_bare_machine_has_are_refused() -> None:
    for other in ({"revert": 0}, {"revert": 2}, {"sandbox": "namespaces-bare"}):
        with pytest.raises(ShioenvError):
            replace(LIMITS, **other)
