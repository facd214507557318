"""The driver for Firecracker, against a stand-in that checks its requests."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from shioenv.errors import SandboxError, ShioenvError
from shioenv.sandbox.base import MEBIBYTE
from shioenv.sandbox.microvm.channel import Kind
from shioenv.sandbox.microvm.firecracker import FirecrackerMachine
from shioenv.sandbox.microvm.qemu import find_qemu
from shioenv.system.microvm import Microvm, build_microvm
from shioenv.system.store import System

pytestmark = pytest.mark.xdist_group("microvm")
PROGRAM = (sys.executable, str(Path(__file__).with_name("firecracker_stand_in.py")))
INSTANT = 1_760_643_780.0


@pytest.fixture(scope="module")
def microvm(system: System) -> Microvm:
    try:
        find_qemu()
        return build_microvm(system)
    except ShioenvError as error:
        pytest.skip(f"no microVM can be had here: {error.message}")


def test_it_boots_is_saved_and_restored_twice(microvm: Microvm, tmp_path: Path) -> None:
    machine = FirecrackerMachine(PROGRAM)
    machine.boot(microvm, 640 * MEBIBYTE)
    machine.channel.set_time(INSTANT)
    machine.channel.send(Kind.OPEN, f"{INSTANT:.0f} names".encode())
    assert machine.channel.expect(Kind.KEPT, 240).startswith(b"names ")
    machine.save(tmp_path)
    for _ in range(2):
        machine = FirecrackerMachine(PROGRAM)
        try:
            machine.restore(tmp_path, INSTANT)
            machine.channel.send(Kind.CLOSE)
            assert machine.channel.expect(Kind.CLOSE, 60) == b"", "the supervisor was still there"
        finally:
            machine.close()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda machine: machine._call("PUT", "/boot-source", kernel="x"),
        lambda machine: machine._call("PUT", "/boot-source", initrd_path="x"),
        lambda machine: machine._call("PUT", "/actions", action_type="InstanceStart"),
        lambda machine: machine._call("PATCH", "/vm", state="Paused"),
        lambda machine: machine._call("PUT", "/vsock", guest_cid="3", uds_path="v"),
        lambda machine: machine._call("PUT", "/nowhere"),
        lambda machine: machine.save(Path("/nowhere")),
    ],
)
def test_a_request_that_is_none_or_comes_too_early_is_refused(
    wrong: Callable[[FirecrackerMachine], None],
) -> None:
    machine = FirecrackerMachine(PROGRAM)
    with pytest.raises(SandboxError, match="refused"):
        wrong(machine)
    assert machine._process.returncode is not None


def test_a_program_that_ends_at_once_is_an_error() -> None:
    with pytest.raises(SandboxError, match="did not start"):
        FirecrackerMachine(("true",))


def test_a_socket_that_is_there_before_anybody_listens_is_waited_for() -> None:
    program = (
        "import socket, sys, time\n"
        "listener = socket.socket(socket.AF_UNIX)\n"
        "listener.bind(sys.argv[2])\n"
        "time.sleep(0.5)\n"
        "listener.listen()\n"
        "peer, _ = listener.accept()\n"
        "peer.recv(65536)\n"
        "peer.sendall(b'HTTP/1.1 204 No Content\\r\\n\\r\\n')\n"
    )
    machine = FirecrackerMachine((sys.executable, "-c", program))
    machine._call("PUT", "/actions", action_type="InstanceStart")
    machine.close()
