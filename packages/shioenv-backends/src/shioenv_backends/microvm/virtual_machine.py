"""Namespaces in a separate virtual machine: hardware isolation in addition to the kernel's.

A machine boots once, opens the supervisor of the `namespaces` backend, and is saved next to its
boot files. Every machine that runs inputs resumes from that snapshot. A new machine is started as
often as `Limits.revert` requires, after a run that the supervisor cannot undo, and after a failure
of the machine.
"""

from __future__ import annotations

import hashlib
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from shioenv.errors import SandboxError, SystemCorruptError
from shioenv.sandbox.base import MEBIBYTE, Execution, Limits, Request, ShellMode
from shioenv.sandbox.namespaces.backend import NamespaceSandbox, in_turn
from shioenv.sandbox.namespaces.configuration import ShownKernel, configuration
from shioenv.sandbox.namespaces.lower import LowerForm, opening_failed
from shioenv.sandbox.namespaces.wire import Connection, Supervisor
from shioenv.system.store import System
from shioenv_backends.microvm.boot import find_microvm
from shioenv_backends.microvm.channel import FrameKind, GuestChannel, SupervisorStream
from shioenv_backends.microvm.firecracker import FirecrackerTemplate
from shioenv_backends.microvm.firecracker import firecracker_version as firecracker_version
from shioenv_backends.microvm.qemu import Hardware, MachineTemplate, accelerator

_OWN_MEMORY = 192 * MEBIBYTE
"""Memory in bytes for the guest's kernel and the system's tree, beyond that of a run."""
STARTING_SECONDS = 120.0
"""Time limit in seconds for starting a supervisor, also on an emulated processor."""


class GuestMachine(Supervisor, Protocol):
    """A running virtual machine, in QEMU or in Firecracker."""

    @property
    def channel(self) -> GuestChannel:
        """The channel to process 1 of the guest."""
        ...

    def save(self) -> None:
        """Save the memory and the state of the devices in the template, and end the machine."""

    def close(self) -> None:
        """End the machine; closing twice does nothing."""


class AtRest(Protocol):
    """A template: a place for the saved state of a machine, from which other machines resume."""

    def machine(self, *, restored: bool) -> GuestMachine:
        """Start a machine: resume the saved one (`restored`), or boot one to be saved here."""
        ...

    def keep(self, place: Path) -> None:
        """Keep the template in a directory, completely or not at all (OSError)."""

    def close(self) -> None:
        """Free the template's memory, descriptors and files that are not kept."""


class MicrovmSandbox(NamespaceSandbox):
    """A pristine system in a separate virtual machine; see `shioenv.sandbox.base.Sandbox`.

    The first opening with the same limits requires a boot. Raises HostError if QEMU is missing,
    SystemNotBuiltError if the system has no microVM.
    """

    _ahead = STARTING_SECONDS
    """Seconds by which a restored machine's own clock is ahead of the declared instant.

    Used only if the system's C library shows the declared time to inputs. The directory tree is
    filled after the declared instant. So the change and birth times of its files lie between that
    instant and the restored clock. The library recognises such times, and shows the modification
    time instead.
    """

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
        """The form of the sandbox's lower layer in the guest."""
        return self._lower

    def close(self) -> None:
        """End the machine and free its template; closing twice does nothing."""
        super().close()
        if self._template:
            self._template.close()

    @in_turn
    def run(self, request: Request) -> Execution:
        """Run the input in a fresh `bash --norc --noprofile -c`; see `Sandbox.run`."""
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
        """Return a kept or new template of a machine whose supervisor waits for inputs."""
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
            with suppress(OSError):  # if it is not kept, the next opening needs a boot
                template.keep(place)
        except BaseException:
            self._template = None
            self._end()
            template.close()
            raise
        weakref.finalize(self, template.close)
        return template

    def _at_rest(self, kept: Path | None) -> AtRest:
        """Return a template of the machine in the directory `kept`; an empty one for None."""
        return MachineTemplate(self._hardware(), kept)

    def _told(self) -> list[str]:
        """Return all facts that determine a machine, except its supervisor's configuration."""
        hardware = self._hardware()
        return [hardware.told(), *(_processor() if hardware.accelerator == "kvm" else ())]

    def _hardware(self) -> Hardware:
        return Hardware(self._microvm, self._memory(), accelerator(self._microvm))

    def _memory(self) -> int:
        """Return the machine's memory in bytes, a multiple of 1 MiB."""
        needed = _OWN_MEMORY + self.limits.memory_bytes + self.limits.disk_bytes
        return -(-needed // MEBIBYTE) * MEBIBYTE

    def _prepare(self) -> None:
        """Prepare a machine before it is saved; by default, do nothing."""

    def _digest(self) -> str:
        """Return a hash of all facts that determine the saved machine."""
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
            raise SandboxError(f"the machine ended: {error}") from error
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
                f"the microVM of the system {self.system.name} does not match the system's files",
                hint=f"rebuild it: shioenv system build {self.system.name} --microvm",
            )
        return machine, SupervisorStream(machine.channel, STARTING_SECONDS)

    def _machine(self, *, restored: bool) -> GuestMachine:
        """Start a machine, and set its clock so that inputs see the declared instant."""
        assert self._template
        shown = self.system.answers.clock == "declared"
        ahead = self._ahead if restored and shown else 0.0
        machine = self._template.machine(restored=restored)
        try:
            machine.channel.set_time(self._instant + ahead)
        except OSError as error:
            machine.close()
            raise SandboxError(f"the machine ended: {error}") from error
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
    """Return the guest's view of this host's processor: the model's name, and its flags."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return [line for line in lines if line.startswith(("model name", "flags"))][:2]
