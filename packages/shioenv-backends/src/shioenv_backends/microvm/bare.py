"""The paper's executor: inputs run as root in a separate virtual machine, not further isolated.

Process 1 of the guest runs the inputs itself (`native/guest/bare.c`) and speaks a supervisor's
protocol. An input may do anything in the same machine. It can make process 1 send arbitrary
messages until the machine is restored.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from shioenv.errors import SandboxError
from shioenv.sandbox.base import MEBIBYTE, Execution, FileChange, Limits, Request, ShellMode
from shioenv.sandbox.namespaces.backend import in_turn
from shioenv.sandbox.namespaces.wire import Ask, Connection, Supervisor
from shioenv.system.contents import read_contents
from shioenv.system.declare import Machine
from shioenv.system.store import System
from shioenv_backends.microvm.channel import SupervisorStream
from shioenv_backends.microvm.qemu import Hardware, accelerator
from shioenv_backends.microvm.virtual_machine import STARTING_SECONDS, MicrovmSandbox

_LEAST_MEMORY = 192 * MEBIBYTE
"""Minimum memory for the guest's kernel."""


class BareSandbox(MicrovmSandbox):
    """A virtual machine in which inputs run as root; see `shioenv.sandbox.base.Sandbox`.

    The machine has the declared memory (192 MiB at least), the disk of the system, and the declared
    network, without any other hosts. Every run begins on a restored machine. The state of a run's
    shell is unknown.
    """

    _ahead = 0.0

    def __init__(self, system: System, limits: Limits) -> None:
        self._contents: Mapping[str, str] = {}
        with suppress(OSError, ValueError, EOFError):  # without digests, a move is two operations
            self._contents = read_contents(system.path)
        super().__init__(system, limits, mode=ShellMode.FRESH)

    def run(self, request: Request) -> Execution:
        """Run the input in a fresh `bash --norc --noprofile -c`; see `Sandbox.run`."""
        execution = super().run(request)
        return replace(execution, changes=tuple(map(self._compared, execution.changes)))

    def run_fresh(self, request: Request) -> Execution:
        """Run the input like `run`: every run has a newly executed bash."""
        return self.run(request)

    @in_turn
    def network(self) -> bytes:
        """Return the pristine network as in `Execution.network`, read in a separate machine."""
        self._end()
        try:
            return super().network()
        finally:
            self._end()

    def _hardware(self) -> Hardware:
        declared = self.system.declaration.machine
        memory = max(_LEAST_MEMORY, -(-declared.memory // MEBIBYTE) * MEBIBYTE)
        cards = tuple(face.mac for face in declared.interfaces)
        how = accelerator(self._microvm)
        booted = int(self.system.declaration.boot_time.timestamp())
        return Hardware(self._microvm, memory, how, bare=True, booted=booted, cards=cards)

    def _start(self) -> tuple[Supervisor, Connection]:
        machine = self._machine(restored=False)
        return machine, SupervisorStream(machine.channel, STARTING_SECONDS)

    def _prepare(self) -> None:
        script = _preparation(self.system.declaration.machine)
        prepared = self._run(Request(script, cwd="/", wall_seconds=STARTING_SECONDS), Ask.KEEP)
        if prepared.exit_code or prepared.output:
            raise SandboxError(f"the machine could not be prepared: {prepared.output!r}")

    def _compared(self, change: FileChange) -> FileChange:
        """Return the change with the known digest of the previous content.

        If both sides hold the same content, neither has a digest.
        """
        before, after = change.before, change.after
        if before is None or not stat.S_ISREG(before.mode):
            return change
        digest = self._contents.get("rootfs" + os.fsdecode(change.path))
        if after is None:
            return replace(change, before=replace(before, digest=digest))
        if stat.S_ISREG(after.mode) and after.digest == digest:
            return replace(change, after=replace(after, digest=None))
        return change


def _preparation(machine: Machine) -> str:
    """Return a shell input that does the work of an init system and prints nothing."""
    lines = ["set -e", "ip link set lo up"]
    faces = machine.interfaces
    renamed = [(n, face.name) for n, face in enumerate(faces) if face.name != f"eth{n}"]
    # another interface may still have the name
    lines += [f"ip link set eth{number} name renamed{number}" for number, _ in renamed]
    lines += [f"ip link set renamed{number} name {name}" for number, name in renamed]
    for face in faces:
        lines.append(f"ip link set {face.name} mtu {face.mtu} up")
        lines.append(f"ip address add {face.address}/{face.prefix} brd + dev {face.name}")
        if face.gateway:
            lines.append(f"ip route add default via {face.gateway} dev {face.name}")
    lines.append("sleep 3")  # until IPv6 addresses are no longer tentative
    return "\n".join(lines)
