"""Machines in Firecracker, over its published API (HTTP on a Unix socket) and its virtio socket.

Tried against a stand-in alone, which checks requests and their order and has QEMU run the guest
(`tests/conformance/firecracker_stand_in.py`): no machine with the hardware for it was at hand, and
nothing chooses this driver by itself.

Every machine has a directory of its own and works in it, and all name their socket by the same
relative path: a snapshot holds that path, and two machines restored from one must not meet there.
"""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from shioenv.errors import SandboxError
from shioenv.sandbox.base import MEBIBYTE
from shioenv.sandbox.microvm.channel import Channel, Kind
from shioenv.system.microvm import Microvm

PORT = 52
"""Where process 1 of the guest listens (`native/guest/agent.c`)."""

_API, _VSOCK = "api", "vsock"
_SECONDS = 240.0
_PING = b"shioenv"
_BOOT = "console=ttyS0 quiet panic=-1 reboot=k pci=off random.trust_cpu=on -- vsock"


class FirecrackerMachine:
    """A machine in Firecracker. Raises SandboxError where it does not start or answer."""

    def __init__(self, program: Sequence[str]) -> None:
        """`program` is the command that is given `--api-sock PATH`."""
        self._directory = Path(tempfile.mkdtemp(prefix="shioenv-machine-"))
        self._channel: Channel | None = None
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
        """Firecracker's."""
        return self._process.pid

    @property
    def channel(self) -> Channel:
        """To process 1 of the guest; it changes at each snapshot."""
        if self._channel is None:
            raise SandboxError("the machine is not connected")
        return self._channel

    def boot(self, microvm: Microvm, memory: int) -> None:
        """Boots a guest of so many bytes of memory, and waits until it answers."""
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

    def save(self, place: Path) -> None:
        """Writes memory and devices to a directory, and ends the machine: its connections end with
        a snapshot, and what runs inputs is what was restored.
        """
        self._call("PATCH", "/vm", state="Paused")
        self._call(
            "PUT",
            "/snapshot/create",
            snapshot_type="Full",
            snapshot_path=str(place / "state"),
            mem_file_path=str(place / "memory"),
        )
        self.close()

    def restore(self, place: Path, now: float) -> None:
        """Continues from what was saved; the clock then stands at `now`, seconds since 1970, and
        entropy is fresh.
        """
        self._call(
            "PUT",
            "/snapshot/load",
            snapshot_path=str(place / "state"),
            mem_backend={"backend_type": "File", "backend_path": str(place / "memory")},
            resume_vm=True,
        )
        self._connect()
        self.channel.set_time(now)

    def wait(self, timeout: float | None = None) -> int:
        """Ends it: there is nothing to wait for. Its exit status."""
        self.close()
        return self._process.returncode

    def kill(self) -> None:
        """Ends it."""
        self.close()

    def close(self) -> None:
        """Ends it; closing twice does nothing."""
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
            raise SandboxError(f"Firecracker is gone: {error}") from error
        finally:
            connection.close()
        if answer.status >= 300:
            self.close()
            raise SandboxError(f"Firecracker refused {method} {path}: {answer.status} {said}")

    def _connect(self) -> None:
        """Until process 1 answers: it takes connections once it has booted."""
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
                raise SandboxError("the guest does not answer")
            time.sleep(0.02)
        self._channel = Channel(connection)
        self._channel.send(Kind.PING, _PING)
        while self._channel.receive(_SECONDS) != (Kind.PING.value, _PING):
            pass  # it says as well that it booted

    def _reach(self, connection: socket.socket) -> None:
        """Connects to the API: its socket is there a moment before somebody listens."""
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
