"""Machines in Firecracker, over its published API (HTTP on a Unix socket) and its virtio socket.

No machine with hardware for Firecracker was available. This module was tested only against a stub
(`tests/conformance/firecracker_stand_in.py` of this distribution). The stub checks requests and
their order, and runs the guest in QEMU.

All machines use the same relative path for their socket, because a snapshot holds that path. Every
machine runs in a separate directory, so that machines restored from one snapshot do not conflict.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from shioenv.errors import HostError, SandboxError
from shioenv.sandbox.base import MEBIBYTE
from shioenv_backends.microvm.boot import Microvm
from shioenv_backends.microvm.channel import FrameKind, GuestChannel
from shioenv_backends.microvm.qemu import KVM, may_open_kvm
from shioenv_backends.microvm.saved_machines import NAMES, open_kept, save_machine

PROGRAM = "firecracker"
PORT = 52
"""Port of the virtio socket on which process 1 of the guest listens (`native/guest/agent.c`)."""

_API, _VSOCK = "api", "vsock"
_SECONDS = 240.0
_PING = b"shioenv"
_BOOT = "console=ttyS0 quiet panic=-1 reboot=k pci=off random.trust_cpu=on -- vsock"


def find_firecracker() -> str:
    """Return the program's path. HostError if it is not installed."""
    found = shutil.which(PROGRAM)
    if found is None or shutil.which("setpriv") is None:
        raise HostError(
            f"{PROGRAM if found is None else 'setpriv'} is missing; --sandbox firecracker needs it",
            hint="install a release of Firecracker (github.com/firecracker-microvm/firecracker) in "
            "PATH, or use --sandbox microvm, which runs in QEMU"
            if found is None
            else "apt-get install util-linux",
        )
    return found


def firecracker_version() -> str:
    """Return the first line of `firecracker --version`."""
    command = [find_firecracker(), "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.partition("\n")[0]


class FirecrackerTemplate:
    """A saved machine: a directory that holds its memory and the state of its devices.

    `kept` is the directory of a machine that was saved before. With None, a new, empty directory is
    made next to the boot files of the system's machines. OSError if `kept` holds no machine, or its
    bytes have changed.
    """

    def __init__(self, microvm: Microvm, memory: int, kept: Path | None = None) -> None:
        """Open the template; `memory` is in bytes."""
        self._microvm, self._memory = microvm, memory
        self._kept = kept is not None
        if kept is None:
            beside = microvm.path / "snapshots"
            beside.mkdir(exist_ok=True)
            kept = Path(tempfile.mkdtemp(prefix=".machine-", dir=beside))
        else:
            for each in open_kept(kept):
                os.close(each)
        self._place = kept

    def machine(self, *, restored: bool) -> FirecrackerMachine:
        """Start a machine: resume the saved one (`restored`), or boot one to be saved here."""
        machine = FirecrackerMachine((find_firecracker(),), self._place)
        if restored:
            machine.restore()
        else:
            machine.boot(self._microvm, self._memory)
        return machine

    def keep(self, place: Path) -> None:
        """Move the saved machine to `place`, completely and durably, or not at all."""

        def write(work: Path) -> None:
            for name in NAMES:
                os.link(self._place / name, work / name)

        save_machine(place, write)
        self.close()
        self._place, self._kept = place, True

    def close(self) -> None:
        """Remove the directory, unless it is a kept one."""
        if not self._kept:
            shutil.rmtree(self._place, ignore_errors=True)


class FirecrackerMachine:
    """A machine in Firecracker. Raises SandboxError if it does not start or answer."""

    def __init__(self, program: Sequence[str], place: Path) -> None:
        """Start Firecracker: the command `program`, followed by `--api-sock PATH`.

        `place` is the directory in which the machine is saved and from which it is restored.
        """
        self._place = place
        self._directory = Path(tempfile.mkdtemp(prefix="shioenv-machine-"))
        self._channel: GuestChannel | None = None
        command = ["setpriv", "--pdeathsig", "KILL", "--", *program, "--api-sock", _API]
        self._process = subprocess.Popen(
            command,
            cwd=self._directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._wait_for(_API)

    @property
    def pid(self) -> int:
        """The process ID of Firecracker."""
        return self._process.pid

    @property
    def channel(self) -> GuestChannel:
        """The channel to process 1 of the guest. SandboxError before `boot` or `restore`."""
        if self._channel is None:
            raise SandboxError("the machine is not connected")
        return self._channel

    def boot(self, microvm: Microvm, memory: int) -> None:
        """Boot a guest with `memory` bytes of memory, and wait until it answers."""
        self._call("PUT", "/machine-config", vcpu_count=1, mem_size_mib=memory // MEBIBYTE)
        self._call(
            "PUT",
            "/boot-source",
            kernel_image_path=str(microvm.kernel),
            initrd_path=str(microvm.initramfs),
            boot_args=_BOOT,
        )
        self._call(
            "PUT",
            "/drives/system",
            drive_id="system",
            path_on_host=str(microvm.disk),
            is_root_device=False,
            is_read_only=True,
        )
        self._call("PUT", "/vsock", guest_cid=3, uds_path=_VSOCK)
        self._call("PUT", "/actions", action_type="InstanceStart")
        self._connect()

    def save(self) -> None:
        """Write memory and devices to `place`, and end the machine.

        A snapshot closes the connections of a machine, so inputs run only in restored machines.
        """
        self._call("PATCH", "/vm", state="Paused")
        self._call(
            "PUT",
            "/snapshot/create",
            snapshot_type="Full",
            snapshot_path=str(self._place / "state"),
            mem_file_path=str(self._place / "memory"),
        )
        self.close()

    def restore(self) -> None:
        """Resume from the saved machine, with the clock and the entropy of the time of saving."""
        self._call(
            "PUT",
            "/snapshot/load",
            snapshot_path=str(self._place / "state"),
            mem_backend={"backend_type": "File", "backend_path": str(self._place / "memory")},
            resume_vm=True,
        )
        self._connect()

    def wait(self, timeout: float | None = None) -> int:
        """End the machine immediately, and return the exit status of Firecracker."""
        self.close()
        return self._process.returncode

    def kill(self) -> None:
        """End the machine."""
        self.close()

    def poll(self) -> int | None:
        """Return the exit status of Firecracker; None while it runs."""
        return self._process.poll()

    def close(self) -> None:
        """End the machine; closing twice does nothing."""
        if self._channel:
            self._channel.close()
        with suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _call(self, method: str, path: str, **body: Any) -> None:
        connection = http.client.HTTPConnection("localhost", timeout=_SECONDS)
        connection.sock = socket.socket(socket.AF_UNIX)
        try:
            connection.sock.settimeout(_SECONDS)
            self._reach(connection.sock)
            head = {"Content-Type": "application/json", "Accept": "application/json"}
            connection.request(method, path, json.dumps(body), head)
            answer = connection.getresponse()
            said = answer.read().decode("utf-8", "replace")
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise SandboxError(f"Firecracker ended: {error}") from error
        finally:
            connection.close()
        if answer.status >= 300:
            self.close()
            raise SandboxError(
                f"Firecracker refused {method} {path}: {answer.status} {said}",
                hint=None if may_open_kvm() else f"it needs {KVM}, which this user cannot open",
            )

    def _connect(self) -> None:
        """Connect to process 1, which accepts connections after the guest has booted."""
        until = time.monotonic() + _SECONDS
        self._wait_for(_VSOCK)
        while True:
            connection = socket.socket(socket.AF_UNIX)
            connection.settimeout(_SECONDS)
            try:
                connection.connect(str(self._directory / _VSOCK))
                connection.sendall(f"CONNECT {PORT}\n".encode())
                if _line(connection).startswith(b"OK "):
                    break
            except (ConnectionError, FileNotFoundError, TimeoutError):
                pass
            connection.close()
            if time.monotonic() > until or self._process.poll() is not None:
                self.close()
                raise SandboxError("the guest does not respond")
            time.sleep(0.02)
        self._channel = GuestChannel(connection)
        self._channel.send(FrameKind.PING, _PING)
        while self._channel.receive(_SECONDS) != (FrameKind.PING.value, _PING):
            pass  # a BOOTED frame may come first

    def _reach(self, connection: socket.socket) -> None:
        """Connect to the API, whose socket appears before it accepts connections."""
        until = time.monotonic() + _SECONDS
        while True:
            try:
                return connection.connect(str(self._directory / _API))
            except ConnectionRefusedError:
                if time.monotonic() > until or self._process.poll() is not None:
                    raise
            time.sleep(0.01)

    def _wait_for(self, name: str) -> None:
        until = time.monotonic() + _SECONDS
        while not (self._directory / name).exists():
            if time.monotonic() > until or self._process.poll() is not None:
                self.close()
                raise SandboxError("Firecracker did not start")
            time.sleep(0.01)


def _line(connection: socket.socket) -> bytes:
    read = bytearray()
    while not read.endswith(b"\n") and len(read) < 64 and (byte := connection.recv(1)):
        read += byte
    return bytes(read)
