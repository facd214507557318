"""Namespaces in a machine of the sandbox's own: the hardware's wall around the kernel's.

A machine boots once, opens the supervisor of the `namespaces` backend, and is saved beside the
files that it booted from. Every machine that runs inputs continues from that moment. A new one does
so as often as `Limits.revert` says, after a run that the supervisor cannot undo, and after a broken
machine.
"""

from __future__ import annotations

import hashlib
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from shioenv.errors import SandboxError, SystemCorruptError
from shioenv.sandbox.base import MEBIBYTE, Execution, Limits, Request, ShellMode
from shioenv.sandbox.namespaces.backend import Connection, NamespaceSandbox, Supervisor, in_turn
from shioenv.sandbox.namespaces.configuration import ShownKernel, configuration
from shioenv.sandbox.namespaces.lower import LowerForm, opening_failed
from shioenv.system.store import System
from shioenv_backends.microvm.boot import find_microvm
from shioenv_backends.microvm.channel import FrameKind, GuestChannel, SupervisorStream
from shioenv_backends.microvm.firecracker import FirecrackerTemplate
from shioenv_backends.microvm.firecracker import version as firecracker_version
from shioenv_backends.microvm.qemu import Hardware, MachineTemplate, accelerator

_OWN_MEMORY = 192 * MEBIBYTE
"""Memory that the guest needs beside a run's: for its kernel, and for the tree of names."""
STARTING_SECONDS = 120.0
"""How long a supervisor may take to start, on a simulated processor too."""


class GuestMachine(Supervisor, Protocol):
    """A machine that runs, in QEMU or in Firecracker."""

    @property
    def channel(self) -> GuestChannel:
        """The channel to process 1 of the guest."""
        ...

    def save(self) -> None:
        """Puts the memory and the state of the devices into the template, and ends the machine."""

    def close(self) -> None:
        """Ends the machine; closing twice does nothing."""


class AtRest(Protocol):
    """A template: a machine that was saved, or will be, and that other machines continue from."""

    def machine(self, *, restored: bool) -> GuestMachine:
        """A machine: `restored` from the saved one, or else booting into this template."""
        ...

    def keep(self, place: Path) -> None:
        """Keeps the template in a directory, wholly or not at all (OSError)."""

    def close(self) -> None:
        """Frees the template's memory, descriptors and files that are not kept."""


class MicrovmSandbox(NamespaceSandbox):
    """A pristine system on a machine of its own; see `shioenv.sandbox.base.Sandbox`.

    The first opening with the same limits costs a boot. Raises HostError where QEMU is missing,
    SystemNotBuiltError where the system has no microVM.
    """

    _ahead = STARTING_SECONDS
    """Seconds by which a restored machine's own clock is ahead of the declared instant.

    For systems alone whose library shows inputs the declared time. The tree was made between the
    two moments, as on a host. The library shows a file's content time in place of such a time."""

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
        """The form that the sandbox's lower layer has in the guest."""
        return self._lower

    def close(self) -> None:
        """Ends the machine and frees its template; closing twice does nothing."""
        super().close()
        if self._template:
            self._template.close()

    @in_turn
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
        """A template, kept or made now, of a machine whose supervisor waits for inputs."""
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
            with suppress(OSError):  # not kept, it costs the next opening a boot
                template.keep(place)
        except BaseException:
            self._template = None
            self._end()
            template.close()
            raise
        weakref.finalize(self, template.close)
        return template

    def _at_rest(self, kept: Path | None) -> AtRest:
        """A template of the machine in the directory `kept`; an empty one for None."""
        return MachineTemplate(self._hardware(), kept)

    def _told(self) -> list[str]:
        """Everything that decides what a machine is, except its supervisor's configuration."""
        hardware = self._hardware()
        return [hardware.told(), *(_processor() if hardware.accelerator == "kvm" else ())]

    def _hardware(self) -> Hardware:
        return Hardware(self._microvm, self._memory(), accelerator(self._microvm))

    def _memory(self) -> int:
        """Bytes, whole MiB."""
        needed = _OWN_MEMORY + self.limits.memory_bytes + self.limits.disk_bytes
        return -(-needed // MEBIBYTE) * MEBIBYTE

    def _prepare(self) -> None:
        """Prepares a machine before it is saved; here there is nothing to do."""

    def _digest(self) -> str:
        """A hash of everything that decides what the machine is when it is saved."""
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
        """A running machine whose inputs are shown the declared instant."""
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
    """A `MicrovmSandbox` in Firecracker, which needs KVM. HostError without Firecracker."""

    def _at_rest(self, kept: Path | None) -> AtRest:
        return FirecrackerTemplate(self._microvm, self._memory(), kept)

    def _told(self) -> list[str]:
        return [firecracker_version(), str(self._microvm.path), str(self._memory()), *_processor()]


def _processor() -> list[str]:
    """What a guest sees of this host's processor: the model's name, and its flags."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return [line for line in lines if line.startswith(("model name", "flags"))][:2]
