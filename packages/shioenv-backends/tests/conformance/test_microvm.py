"""MicroVMs meet the same contract. This tests a part of it: `soak/microvm.py` checks all.

Booting a machine takes half a minute where the processor is simulated, so one is shared.
"""

from __future__ import annotations

import os
import shutil
import signal
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shioenv.errors import SandboxError
from shioenv.files.durable import sha256_of
from shioenv.sandbox.base import Request
from shioenv.sandbox.namespaces.backend import NamespaceSandbox
from shioenv.system.store import System
from shioenv_backends.microvm import boot as building
from shioenv_backends.microvm.boot import build_microvm, find_microvm, make_disk
from shioenv_backends.microvm.virtual_machine import MicrovmSandbox
from support import sandbox_conformance
from support.needs import MICROVM, needs
from support.sandbox_conformance import LIMITS, Check

SLOWER = 60
"""Factor on the time limits of a run, for a host that is busy with other tests as well."""

SHORT = (
    sandbox_conformance.output_and_exit_code,
    sandbox_conformance.messages_are_those_of_bash_c,
    sandbox_conformance.separate_channels,
    sandbox_conformance.standard_input_is_given,
    sandbox_conformance.process_ids_are_fixed,
    sandbox_conformance.shell_state_is_known,
    sandbox_conformance.changes_are_complete,
    sandbox_conformance.shell_is_pristine_again,
)

pytestmark = [needs(*MICROVM), pytest.mark.xdist_group("microvm")]


@pytest.fixture(scope="module")
def machine(system: System) -> Iterator[MicrovmSandbox]:
    build_microvm(system)
    limits = replace(
        LIMITS,
        sandbox="microvm",
        revert=0,
        wall_seconds=LIMITS.wall_seconds * SLOWER,
        cpu_seconds=LIMITS.cpu_seconds * SLOWER,
        background_seconds=LIMITS.background_seconds * SLOWER,
    )
    with MicrovmSandbox(system, limits) as opened:
        yield opened


@pytest.mark.parametrize("check", SHORT, ids=lambda check: check.__name__)
def test_contract(check: Check, machine: MicrovmSandbox) -> None:
    check(machine)


def test_a_disk_is_the_same_bytes_each_time(
    machine: MicrovmSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While root builds it, no other user can write it."""
    modes, real = set(), building._run_mapped

    def run_mapped(*given: Any, **options: Any) -> Any:
        modes.add(stat.S_IMODE((place / "disk").stat().st_mode))
        return real(*given, **options)

    monkeypatch.setattr(building, "_run_mapped", run_mapped)
    made = find_microvm(machine.system)
    place = Path(tempfile.mkdtemp(prefix="test-", dir=made.path.parent))
    try:
        make_disk(machine.system, 0, place / "disk")
        assert sha256_of(place / "disk") == made.record["files"]["disk"]
        assert modes == {0o600 if os.geteuid() == 0 else 0o666}
    finally:
        shutil.rmtree(place)


def test_the_same_bytes_as_in_namespaces(machine: MicrovmSandbox, system: System) -> None:
    machine._end()  # a clock that has gone on since would hide when the tree was made
    with NamespaceSandbox(system, machine.limits) as other:
        for text in (
            "find / -xdev ! -path /proc ! -path /dev/mqueue"
            " -printf '%p %y %i %m %s %n %U:%G %T@ %A@ %C@ %B@ %l\\n' | md5sum",
            "ps -eo pid,ppid,user,tty,args; df -h; mount; id; date +%F; uname -a; ip -br address",
            "echo x > new; mv documents moved; rm -r logs; ls -la --time-style=+%F",
        ):
            here, there = machine.run(Request(text)), other.run(Request(text))
            assert here.output == there.output, text
            assert {each.path for each in here.changes} == {each.path for each in there.changes}


def test_the_kernel_is_the_guests(machine: MicrovmSandbox) -> None:
    """The kernel's own answer, which no library of the system provides."""
    said = machine.run(Request("od -An -c /proc/sys/kernel/osrelease | tr -d ' \\n'"))
    assert said.exit_code == 0
    assert os.uname().release.encode() not in said.output


def test_a_machine_that_is_killed_costs_a_run_and_no_record(machine: MicrovmSandbox) -> None:
    assert machine.run(Request("echo before")).output == b"before\n"
    assert machine._process
    os.kill(machine._process.pid, signal.SIGKILL)
    with pytest.raises(SandboxError):
        machine.run(Request("echo lost"))
    assert machine.run(Request("echo after; date +%F")).output == b"after\n2025-10-16\n"


@pytest.mark.parametrize(("revert", "machines"), [(0, 1), (1, 6), (3, 2)])
def test_a_machine_is_restored_as_often_as_is_said(
    machine: MicrovmSandbox, revert: int, machines: int
) -> None:
    with MicrovmSandbox(machine.system, replace(machine.limits, revert=revert)) as opened:
        seen = set()
        for _ in range(6):
            assert opened.run(Request("echo same")).output == b"same\n"
            assert opened._process
            seen.add(opened._process.pid)
    assert len(seen) == machines


def test_every_restore_begins_at_the_same_moment_with_other_entropy(
    machine: MicrovmSandbox,
) -> None:
    text = "date +%s; cut -d. -f1 /proc/uptime; cat /proc/sys/kernel/random/uuid"
    told = []
    for _ in range(2):
        machine._end()
        told.append(machine.run(Request(text)))
    declared = machine.system.declaration
    begins = int(declared.instant.timestamp()), declared.machine.uptime
    for each in told:  # a simulated processor takes seconds to get there
        shown = map(int, each.output.split()[:2])
        assert all(0 <= now - begin < 60 for now, begin in zip(shown, begins, strict=True))
    assert told[0].output.split()[2] != told[1].output.split()[2]
    assert abs(told[0].started - told[1].started) < 60
