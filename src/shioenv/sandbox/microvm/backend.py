"""Namespaces in a machine of its own: the hardware's wall around the kernel's.

A machine boots once, opens the same supervisor that the other backend has, and is saved beside what
it booted from. Every machine that runs inputs continues from that moment. It does so as often as
`Limits.revert` says, after every run that the supervisor cannot undo, and after a machine broke.
"""

from __future__ import annotations

import hashlib
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from shioenv.errors import SandboxError, SystemCorruptError
from shioenv.sandbox.base import MEBIBYTE, Execution, Limits, Request
from shioenv.sandbox.microvm.accelerator import accelerator
from shioenv.sandbox.microvm.channel import FrameKind, GuestChannel, SupervisorStream
from shioenv.sandbox.microvm.firecracker import FirecrackerTemplate
from shioenv.sandbox.microvm.firecracker import version as firecracker_version
from shioenv.sandbox.microvm.qemu import Hardware, MachineTemplate
from shioenv.sandbox.namespaces.backend import Connection, NamespaceSandbox, Supervisor
from shioenv.sandbox.namespaces.configuration import ShownKernel, configuration
from shioenv.sandbox.namespaces.lower import LowerForm, opening_failed
from shioenv.sandbox.namespaces.wire import ShellMode
from shioenv.system.microvm import find_microvm
from shioenv.system.store import System

_OWN_MEMORY = 192 * MEBIBYTE
"""What the guest needs beside what a run may take: its kernel, and the tree of names in memory."""
STARTING_SECONDS = 120.0
"""How long a supervisor may take to start where the processor is simulated."""


class GuestMachine(Supervisor, Protocol):
    """One that runs, in whatever runs machines."""

    @property
    def channel(self) -> GuestChannel:
        """To its process 1."""
        ...

    def save(self) -> None:
        """Puts its memory and the state of its devices into its template, and ends it."""

    def close(self) -> None:
        """Ends it; closing twice does nothing."""


class AtRest(Protocol):
    """A machine that was saved, or will be: what others continue from."""

    def machine(self, *, restored: bool) -> GuestMachine:
        """One that continues from what was saved, or boots into this template."""
        ...

    def keep(self, place: Path) -> None:
        """Keeps it in a directory, wholly or not at all (OSError)."""

    def close(self) -> None:
        """Frees what it takes."""


class MicrovmSandbox(NamespaceSandbox):
    """A pristine system on a machine of its own; see `shioenv.sandbox.base.Sandbox`.

    The first opening with the same limits costs a boot. Raises HostError where QEMU is missing,
    SystemNotBuiltError where the system has no microVM.
    """

    _ahead = STARTING_SECONDS
    """How much later than the declared instant a restored machine's own clock stands, where the
    system's library shows inputs the declared time. The tree was made in between, as on a host: the
    library takes such times of a file for those of its content."""

    def __init__(
        self, system: System, limits: Limits | None = None, *, mode: ShellMode = ShellMode.LATE
    ) -> None:
        self._microvm = find_microvm(system)
        self._instant = system.declaration.instant.timestamp()
        self._template: AtRest | None = None
        self._runs = 0
        self._process: GuestMachine | None = None
        super().__init__(system, limits, mode=mode)

    @property
    def lower(self) -> LowerForm:
        """The form that its lower layer has in the guest."""
        return self._lower

    def close(self) -> None:
        """Ends the machine and frees what it was saved in; closing twice does nothing."""
        super().close()
        if self._template:
            self._template.close()

    def run(self, request: Request) -> Execution:
        """What a fresh `bash --norc --noprofile -c` did with this input; see `Sandbox.run`."""
        if self.limits.revert and self._runs >= self.limits.revert:
            self._end()
            self._runs = 0
        self._runs += 1
        return super().run(request)

    def _open(self) -> None:
        if self._template is None:
            self._template = self._saved()
        machine = self._machine(restored=True)
        self._process, self._socket = machine, SupervisorStream(machine.channel, STARTING_SECONDS)

    def _saved(self) -> AtRest:
        """A machine whose supervisor waits for inputs, at rest."""
        place = self._microvm.path / "snapshots" / self._digest()
        with suppress(OSError):
            template = self._at_rest(place)
            weakref.finalize(self, template.close)
            return template
        template = self._at_rest(None)
        try:
            self._template = template
            super()._open()
            self._prepare()
            machine = self._process
            assert machine
            machine.save()
            self._process = None
            with suppress(OSError):  # nobody's loss but time
                template.keep(place)
        except BaseException:
            self._template = None
            self._end()
            template.close()
            raise
        weakref.finalize(self, template.close)
        return template

    def _at_rest(self, kept: Path | None) -> AtRest:
        """An empty template, or one of what is kept there."""
        return MachineTemplate(self._hardware(), kept)

    def _told(self) -> list[str]:
        """What decides about a machine, but for what its supervisor is told."""
        hardware = self._hardware()
        return [hardware.told(), *(_processor() if hardware.accelerator == "kvm" else ())]

    def _hardware(self) -> Hardware:
        return Hardware(self._microvm, self._memory(), accelerator(self._microvm))

    def _memory(self) -> int:
        """Bytes, whole MiB."""
        needed = _OWN_MEMORY + self.limits.memory_bytes + self.limits.disk_bytes
        return -(-needed // MEBIBYTE) * MEBIBYTE

    def _prepare(self) -> None:
        """What is done to a machine before it is saved: nothing more."""

    def _digest(self) -> str:
        """Of everything that decides what the machine is when it is saved."""
        configured = configuration(self.system, self.limits, self.mode, self._kernel(), plain=False)
        about = [*self._told(), self._lower]
        return hashlib.sha256(repr(about).encode() + configured).hexdigest()[:16]

    def _start(self) -> tuple[Supervisor, Connection]:
        machine = self._machine(restored=False)
        try:
            machine.channel.send(FrameKind.OPEN, f"{self._instant:.0f} {self._lower}".encode())
            said = machine.channel.expect(FrameKind.KEPT, STARTING_SECONDS).decode(
                "utf-8", "replace"
            )
        except OSError as error:
            machine.close()
            raise SandboxError(f"the machine is gone: {error}") from error
        except BaseException:
            machine.close()
            raise
        form, _, total = said.partition(" ")
        if said.startswith("E") or not total:
            machine.close()
            raise opening_failed(said)
        self._lower = LowerForm(form)
        if self.system.tree_sums.get(form, total) != total:
            machine.close()
            raise SystemCorruptError(
                f"the microVM of the system {self.system.name} holds other files than the system",
                hint=f"shioenv system build {self.system.name} --microvm makes it anew",
            )
        return machine, SupervisorStream(machine.channel, STARTING_SECONDS)

    def _machine(self, *, restored: bool) -> GuestMachine:
        """One that runs; inputs are shown the declared instant."""
        assert self._template
        shown = self.system.answers.clock == "declared"
        ahead = self._ahead if restored and shown else 0.0
        machine = self._template.machine(restored=restored)
        try:
            machine.channel.set_time(self._instant + ahead)
        except OSError as error:
            machine.close()
            raise SandboxError(f"the machine is gone: {error}") from error
        return machine

    def _kernel(self) -> ShownKernel:
        return ShownKernel(self._microvm.release, self._instant)


class FirecrackerSandbox(MicrovmSandbox):
    """The same in Firecracker, which needs KVM. Raises HostError where that program is missing."""

    def _at_rest(self, kept: Path | None) -> AtRest:
        return FirecrackerTemplate(self._microvm, self._memory(), kept)

    def _told(self) -> list[str]:
        return [firecracker_version(), str(self._microvm.path), str(self._memory()), *_processor()]


def _processor() -> list[str]:
    """What of this host's processor a guest sees."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return [line for line in lines if line.startswith(("model name", "flags"))][:2]
