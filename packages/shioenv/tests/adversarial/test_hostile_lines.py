"""Hostile inputs as lines of a resident shell: the first line attacks, nine others follow it.

A sibling of the shell, the next shell on the same machine, and the host must be unaffected. The
hostile shell itself may be in any state, but every line must end.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.errors import ShioenvError
from shioenv.live.resident import ResidentShell
from shioenv.sandbox.base import Limits
from shioenv.system.store import System
from support.case_files import DIRECTORY, Case, load, unescape
from support.host_state import Canaries, host_state
from support.nightly import LARGER, scaled

MODE = "root" if os.geteuid() == 0 else "user"
GROUPS = sorted(path.stem for path in DIRECTORY.glob("[a-z]*.txt"))
HOME = "/home/ubuntu"
AFTER = (
    "true", "echo $?", "ls", "pwd", "x=1", "touch made", "cat /etc/hostname", "ps", "echo end",
)  # fmt: skip
LOOK = (
    "ls -lA . /tmp /dev/shm /etc /var/tmp /dev/mqueue; ls -lA --time-style=+ /dev; "
    "hostname; ip -br addr; ip route; id; "
    "ps -e -o comm=; env; ulimit -a; umask; cat /proc/mounts; ipcs; jobs; trap; ss -x; ss -tl; "
    "curl -s localhost:4444 localhost:8000; ip neigh; nft list ruleset; cat /proc/swaps; tty"
)
"""Without the times of devices: an ordinary user's are the host's, and /dev/tty is written to."""
LIMITS = Limits(
    wall_seconds=1.0, cpu_seconds=2.0, memory_bytes=96 << 20, processes=200,
    disk_bytes=16 << 20, disk_inodes=8192, output_bytes=256 << 10, drain_bytes=4 << 20,
)  # fmt: skip


@pytest.fixture(scope="module")
def canaries() -> Iterator[Canaries]:
    with tempfile.TemporaryDirectory(prefix="shioenv-lines-", dir="/var/tmp") as name:
        directory = Path(name) / "canary"
        directory.mkdir()
        made = Canaries(directory, f"secret-of-{directory.parent.name}")
        yield made
        made.close()


@LARGER
@pytest.mark.parametrize(
    "group", [pytest.param(one, marks=pytest.mark.xdist_group(f"lines-{one}")) for one in GROUPS]
)
def test_hostile_lines(group: str, system: System, canaries: Canaries) -> None:
    with open_sandbox(system, LIMITS) as quiet, open_sandbox(system, LIMITS) as attacked:
        expected = _seen(quiet)
        with ResidentShell(quiet, HOME) as sibling:
            assert sibling.run(LOOK, timeout=30.0).output == expected
            before = _host(canaries)
            for case in load(DIRECTORY / f"{group}.txt", MODE)[:: scaled(16, 1)]:
                if "only" in case.values or "tty" in case.values:
                    continue
                _attack(attacked, case, canaries)
                assert sibling.run(LOOK, timeout=30.0).output == expected, case.name
                assert _seen(attacked) == expected, case.name
                assert _host(canaries) == before, case.name


def _host(canaries: Canaries) -> dict[str, Any]:
    """Return the host's state without its mounts, which other tests change meanwhile."""
    state = host_state(canaries, os.getpid())
    del state["mounts"]
    return state


def _seen(runner: SandboxRunner) -> bytes:
    """Return what the next shell of a runner's machine shows."""
    with ResidentShell(runner, HOME) as shell:
        return shell.run(LOOK, timeout=30.0).output


def _attack(runner: SandboxRunner, case: Case, canaries: Canaries) -> None:
    text = case.text
    for name, value in (canaries.words() | {"WORKER": str(os.getpid())}).items():
        text = text.replace(f"@{name}@", value)
    cwd = unescape(case.values["cwd"]) if "cwd" in case.values else HOME
    try:
        shell = ResidentShell(runner, cwd)
    except ShioenvError:
        return
    with shell:
        for line in (text, *AFTER):
            began = time.monotonic()
            try:
                behavior = shell.run(line)
            except ShioenvError:
                break
            assert canaries.secret.encode() not in behavior.output, case.name
            assert time.monotonic() - began < 120, case.name  # it does not hang, at any load
            if shell.ended:
                break
