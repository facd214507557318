"""A fake of the program `firecracker`: `--api-sock PATH`, where QEMU runs the guest; `--version`.

It checks requests against Firecracker's published API description: the existing requests, the
required and allowed fields of a body with their types, and the machine states in which a request is
valid. A refusal has status 400 and `fault_message`. The virtio socket is a Unix socket: a peer
sends `CONNECT 52` and receives `OK PORT`; behind it is the guest's virtio serial port. A snapshot
closes all connections. The fake does not model Firecracker's devices, speed or faults.
"""

from __future__ import annotations

import http.server
import json
import re
import shutil
import socket
import socketserver
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from shioenv_backends.microvm.boot import Microvm
from shioenv_backends.microvm.qemu import Hardware, MachineTemplate, QemuMachine

Fields = dict[str, tuple[type, bool]]
"""Type of a field, and whether it is required."""

CONFIGURED = "Not started"
REQUESTS: dict[str, tuple[set[str], Fields]] = {
    "PUT /machine-config": (
        {CONFIGURED},
        {"vcpu_count": (int, True), "mem_size_mib": (int, True), "smt": (bool, False)},
    ),
    "PUT /boot-source": (
        {CONFIGURED},
        {"kernel_image_path": (str, True), "initrd_path": (str, False), "boot_args": (str, False)},
    ),
    r"PUT /drives/\w+": (
        {CONFIGURED},
        {
            "drive_id": (str, True),
            "path_on_host": (str, False),
            "is_root_device": (bool, True),
            "is_read_only": (bool, False),
        },
    ),
    "PUT /vsock": ({CONFIGURED}, {"guest_cid": (int, True), "uds_path": (str, True)}),
    "PUT /actions": ({CONFIGURED}, {"action_type": (str, True)}),
    "PATCH /vm": ({"Running", "Paused"}, {"state": (str, True)}),
    "PUT /snapshot/create": (
        {"Paused"},
        {"snapshot_path": (str, True), "mem_file_path": (str, True), "snapshot_type": (str, False)},
    ),
    "PUT /snapshot/load": (
        {CONFIGURED},
        {"snapshot_path": (str, True), "mem_backend": (dict, True), "resume_vm": (bool, False)},
    ),
}
"""By method and path: the states in which it is valid, and its fields."""


class Refused(Exception):  # noqa: N818 - no error of ours
    """A request that Firecracker rejects."""


class StandIn:
    """The one machine of the process."""

    def __init__(self) -> None:
        self.state = CONFIGURED
        self.configured: dict[str, Any] = {}
        self.machine: QemuMachine | None = None

    def take(self, request: str, body: dict[str, Any]) -> None:
        pattern = next((each for each in REQUESTS if re.fullmatch(each, request)), None)
        if pattern is None:
            raise Refused(f"Invalid request method and/or path: {request}")
        states, fields = REQUESTS[pattern]
        for name, value in body.items():
            if name not in fields:
                raise Refused(f"unknown field `{name}`")
            if type(value) is not fields[name][0]:
                raise Refused(f"invalid type of `{name}`")
        if missing := [name for name, (_, must) in fields.items() if must and name not in body]:
            raise Refused(f"missing field `{missing[0]}`")
        if self.state not in states:
            raise Refused(f"The requested operation is not supported in {self.state} state")
        path = request.partition(" ")[2]
        if path == "/actions":
            self.start(body)
        elif path == "/vm":
            self.pause(body)
        elif path == "/snapshot/create":
            self.save(body)
        elif path == "/snapshot/load":
            self.load(body)
        else:
            self.configure(path, body)

    def configure(self, path: str, body: dict[str, Any]) -> None:
        if path.startswith("/drives/") and path.rpartition("/")[2] != body["drive_id"]:
            raise Refused("The id from the path does not match the id from the body!")
        if path == "/vsock" and body["guest_cid"] < 3:
            raise Refused("invalid guest_cid")
        self.configured[path] = body

    def start(self, body: dict[str, Any]) -> None:
        if body["action_type"] != "InstanceStart":
            raise Refused("unknown action")
        if "/boot-source" not in self.configured:
            raise Refused("Cannot start microvm without kernel configuration.")
        self.template = MachineTemplate(self.hardware())
        self.machine = QemuMachine(self.template, restored=False)
        self.state = "Running"
        self.listen()

    def hardware(self) -> Hardware:
        drive, boot = self.configured["/drives/system"], self.configured["/boot-source"]
        if not drive["is_read_only"] or drive["is_root_device"]:
            raise Refused("the guest's disk is read-only and not its root")
        if not boot["boot_args"].endswith("-- vsock"):
            raise Refused("process 1 was not told to listen on a virtio socket")
        path = Path(drive["path_on_host"]).parent
        memory = self.configured["/machine-config"]["mem_size_mib"] << 20
        return Hardware(Microvm(path, {}), memory)

    def pause(self, body: dict[str, Any]) -> None:
        assert self.machine
        if body["state"] not in ("Paused", "Resumed"):
            raise Refused("unknown state")
        self.machine._ask("stop" if body["state"] == "Paused" else "cont")
        self.state = "Paused" if body["state"] == "Paused" else "Running"

    def save(self, body: dict[str, Any]) -> None:
        assert self.machine
        self.machine.save()  # its connections end with it
        memory = Path(body["mem_file_path"])
        kept = memory.with_name("stand-in")
        self.template.keep(kept)
        shutil.move(kept / "memory", memory)
        told = json.dumps([self.configured, (kept / "sum").read_text()])
        Path(body["snapshot_path"]).write_bytes(
            told.encode() + b"\n" + (kept / "state").read_bytes()
        )
        shutil.rmtree(kept)

    def load(self, body: dict[str, Any]) -> None:
        if self.configured:
            raise Refused("Loading a microVM snapshot not allowed after configuring resources.")
        backend = body["mem_backend"]
        if set(backend) != {"backend_type", "backend_path"} or backend["backend_type"] != "File":
            raise Refused("the memory is a file")
        told, _, state = Path(body["snapshot_path"]).read_bytes().partition(b"\n")
        self.configured, written = json.loads(told)
        kept = Path("kept")
        kept.mkdir()
        (kept / "memory").symlink_to(backend["backend_path"])
        (kept / "state").write_bytes(state)
        (kept / "sum").write_text(written)
        self.template = MachineTemplate(self.hardware(), kept)
        self.machine = QemuMachine(self.template, restored=True)
        self.state = "Running" if body.get("resume_vm") else "Paused"
        self.listen()

    def listen(self) -> None:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self.configured["/vsock"]["uds_path"])  # which must not be there yet
        listener.listen()
        threading.Thread(target=self.connections, args=(listener,), daemon=True).start()

    def connections(self, listener: socket.socket) -> None:
        assert self.machine
        guest = self.machine.channel._connection
        while True:
            peer, _ = listener.accept()
            with suppress(OSError):
                if peer.makefile("rb", buffering=0).readline(32) != b"CONNECT 52\n":
                    peer.close()
                    continue
                peer.sendall(b"OK 1073741824\n")
                guest.settimeout(None)
                threading.Thread(target=pump, args=(guest, peer), daemon=True).start()
                pump(peer, guest)


def pump(source: socket.socket, target: socket.socket) -> None:
    """Pass bytes on until the end."""
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)


class Handler(http.server.BaseHTTPRequestHandler):
    """The API."""

    protocol_version = "HTTP/1.1"
    stand_in = StandIn()

    def address_string(self) -> str:
        return "a Unix socket"

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        said = b""
        try:
            self.stand_in.take(f"{self.command} {self.path}", json.loads(body))
        except (Refused, ValueError) as error:
            said = json.dumps({"fault_message": str(error)}).encode()
        self.send_response(400 if said else 204)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    do_GET = do_PUT = do_PATCH = answer  # noqa: N815 - the library's names


class Server(socketserver.UnixStreamServer):
    """One request after the other, as Firecracker answers them."""


if __name__ == "__main__":
    if "--version" in sys.argv:
        print("Firecracker v0.0.0")
        sys.exit()
    Server(sys.argv[sys.argv.index("--api-sock") + 1], Handler).serve_forever()
