"""The driver for Firecracker, against a fake that checks its requests."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shioenv.behavior.observe import open_sandbox
from shioenv.cli.main import app
from shioenv.cli.shared import LimitsOptions
from shioenv.errors import HostError, SandboxError
from shioenv.sandbox.backends import check_host
from shioenv.sandbox.base import Request
from shioenv.system.store import System
from shioenv_backends.microvm.boot import build_microvm
from shioenv_backends.microvm.firecracker import FirecrackerMachine
from shioenv_backends.microvm.virtual_machine import STARTING_SECONDS
from support.needs import MICROVM, needs
from support.nightly import NIGHTLY

pytestmark = [needs(*MICROVM), pytest.mark.xdist_group("microvm")]
INSTANT = 1_760_643_780.0
PROGRAM = (sys.executable, str(Path(__file__).with_name("firecracker_stand_in.py")))


@pytest.fixture
def kept(system: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the directory with the snapshots of a system; put the fake on PATH."""
    place = build_microvm(system).path / "snapshots"
    program = tmp_path / "firecracker"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(PROGRAM)} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    _remove_own(place)
    yield place
    _remove_own(place)


def _remove_own(place: Path) -> None:
    for state in place.glob("*/state"):
        if state.read_bytes()[:2] == b"[{":  # the first bytes that the fake writes
            shutil.rmtree(state.parent)


@NIGHTLY
def test_a_command_runs_inputs_in_it(kept: Path) -> None:
    """It boots a machine and saves it. Later machines continue from the saved state, twice: at the
    declared instant with other entropy, and with the supervisor that was opened before.
    """
    text = "date +%F; cat /proc/sys/kernel/osrelease /proc/sys/kernel/random/uuid; ls; echo > new"
    given = ["run", "--sandbox", "firecracker", "--timeout", "200", "--json", text]
    result = CliRunner().invoke(app, given)
    assert result.exit_code == 0, result.output
    outputs = [json.loads(result.stdout)["output"]]
    (place,) = (state.parent for state in kept.glob("*/state") if state.read_bytes()[:2] == b"[{")
    began = place.stat().st_mtime_ns
    with open_sandbox(None, LimitsOptions(200, sandbox="firecracker").limits()) as opened:
        assert opened.limits.revert == 1
        outputs += [opened.run(text).text for _ in range(2)]
        started = opened._sandbox.run(Request("true")).started - INSTANT
    assert place.stat().st_mtime_ns == began
    assert not [*kept.glob(".*")], "nothing is left of what was not kept"
    assert STARTING_SECONDS <= started < STARTING_SECONDS + 60, "the machine's own clock was set"
    days, releases, uuids, *listings = zip(*(each.splitlines() for each in outputs), strict=True)
    assert {*days} == {"2025-10-16"}
    assert {*releases} != {os.uname().release}
    assert len({*uuids}) == 3
    assert all(len({*names}) == 1 for names in listings)


def test_without_the_program_a_command_says_what_to_install(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin:/usr/sbin")
    with pytest.raises(HostError, match="firecracker is missing") as caught:
        open_sandbox(None, sandbox="firecracker")
    assert "PATH" in (caught.value.hint or "")
    (check,) = (each for each in check_host() if each.name == "Firecracker")
    assert (check.ok, check.needed, check.detail) == (False, False, caught.value.message)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda machine: machine._call("PUT", "/boot-source", kernel="x"),
        lambda machine: machine._call("PUT", "/boot-source", initrd_path="x"),
        lambda machine: machine._call("PUT", "/actions", action_type="InstanceStart"),
        lambda machine: machine._call("PATCH", "/vm", state="Paused"),
        lambda machine: machine._call("PUT", "/vsock", guest_cid="3", uds_path="v"),
        lambda machine: machine._call("PUT", "/nowhere"),
        lambda machine: machine.save(),
    ],
)
def test_a_request_that_is_none_or_comes_too_early_is_refused(
    wrong: Callable[[FirecrackerMachine], None],
) -> None:
    machine = FirecrackerMachine(PROGRAM, Path("/nowhere"))
    with pytest.raises(SandboxError, match="refused"):
        wrong(machine)
    assert machine._process.returncode is not None


def test_a_program_that_ends_at_once_is_an_error() -> None:
    with pytest.raises(SandboxError, match="did not start"):
        FirecrackerMachine(("true",), Path("/nowhere"))


def test_a_socket_that_is_there_before_anybody_listens_is_waited_for() -> None:
    program = (
        "import socket, sys, time\n"
        "listener = socket.socket(socket.AF_UNIX)\n"
        "listener.bind(sys.argv[2])\n"
        "time.sleep(0.5)\n"
        "listener.listen()\n"
        "peer, _ = listener.accept()\n"
        "said = b''\n"
        "while b'}' not in said: said += peer.recv(65536)\n"
        "peer.sendall(b'HTTP/1.1 204 No Content\\r\\n\\r\\n')\n"
    )
    machine = FirecrackerMachine((sys.executable, "-c", program), Path("/nowhere"))
    machine._call("PUT", "/actions", action_type="InstanceStart")
    machine.close()
