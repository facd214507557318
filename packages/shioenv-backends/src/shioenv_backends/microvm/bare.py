"""Inputs as root of a machine of their own, with nothing around them: the paper's executor.

Process 1 of the guest runs the inputs itself (`native/guest/bare.c`) and says what a supervisor
says. It runs in the same machine as an input that may do anything there. Such an input can make
process 1 say whatever it likes, until the machine is restored.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from shioenv.errors import SandboxError
from shioenv.sandbox.base import MEBIBYTE, Execution, FileChange, Limits, Request, ShellMode
from shioenv.sandbox.namespaces.backend import Connection, Supervisor, in_turn
from shioenv.sandbox.namespaces.wire import Ask
from shioenv.system.contents import read_contents
from shioenv.system.declare import Machine
from shioenv.system.store import System
from shioenv_backends.microvm.backend import STARTING_SECONDS, MicrovmSandbox
from shioenv_backends.microvm.channel import SupervisorStream
from shioenv_backends.microvm.qemu import Hardware, accelerator

_LEAST_MEMORY = 192 * MEBIBYTE
"""With less, the guest's kernel has no room for itself."""


class BareSandbox(MicrovmSandbox):
    """A machine that an input is root of; see `shioenv.sandbox.base.Sandbox`.

    The machine has the declared memory (192 MiB at least), the disk of the system, and the declared
    network, in which nobody answers. Every run begins on a machine that was restored. The state of
    a run's shell is unknown.
    """

    _ahead = 0.0

    def __init__(self, system: System, limits: Limits) -> None:
        self._contents: Mapping[str, str] = {}
        with suppress(OSError, ValueError, EOFError):  # then a moved file is one removed, one new
            self._contents = read_contents(system.path)
        super().__init__(system, limits, mode=ShellMode.FRESH)

    def run(self, request: Request) -> Execution:
        """What a fresh `bash --norc --noprofile -c` did with this input; see `Sandbox.run`."""
        execution = super().run(request)
        return replace(execution, changes=tuple(map(self._compared, execution.changes)))

    def run_fresh(self, request: Request) -> Execution:
        """The same as `run`: every run has a newly executed bash."""
        return self.run(request)

    @in_turn
    def network(self) -> bytes:
        """The pristine network as `Execution.network` has it, read in a machine of its own."""
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
            raise SandboxError(f"the machine was not prepared: {prepared.output!r}")

    def _compared(self, change: FileChange) -> FileChange:
        """The change with the known digest of the content before.

        Where both sides hold the same content, neither side has a digest.
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
    """What an init system would have done, as an input that prints nothing."""
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
    lines.append("sleep 3")  # until addresses of IPv6 are no longer tentative
    return "\n".join(lines)
