"""Namespaces in a machine of its own: the hardware's wall around the kernel's.

A machine boots once, opens the same supervisor that the other backend has, and is saved beside what
it booted from. Every machine that runs inputs continues from that moment: as often as
`Limits.revert` says, after every run that the supervisor cannot undo, and after a machine broke.
"""

from __future__ import annotations

import hashlib
import weakref
from contextlib import suppress
from pathlib import Path

from shioenv.errors import SandboxError, SystemCorruptError
from shioenv.sandbox.base import MEBIBYTE, Execution, Limits, Request
from shioenv.sandbox.microvm.accelerator import accelerator
from shioenv.sandbox.microvm.channel import Kind, SupervisorStream
from shioenv.sandbox.microvm.qemu import Hardware, Machine, Template
from shioenv.sandbox.namespaces.backend import Connection, NamespaceSandbox, Supervisor
from shioenv.sandbox.namespaces.configuration import Kernel, configuration
from shioenv.sandbox.namespaces.lower import LowerForm, opening_failed
from shioenv.sandbox.namespaces.wire import ShellMode
from shioenv.system.microvm import find_microvm
from shioenv.system.store import System

_OWN_MEMORY = 192 * MEBIBYTE
"""What the guest needs beside what a run may take: its kernel, and the tree of names in memory."""
STARTING_SECONDS = 120.0
"""How long a supervisor may take to start where the processor is simulated."""


class MicrovmSandbox(NamespaceSandbox):
    """A pristine system on a machine of its own; see `shioenv.sandbox.base.Sandbox`.

    The first opening with the same limits costs a boot. Raises HostError where QEMU is missing,
    SystemNotBuiltError where the system has no microVM.
    """

    def __init__(
        self, system: System, limits: Limits | None = None, *, mode: ShellMode = ShellMode.LATE
    ) -> None:
        self._microvm = find_microvm(system)
        self._instant = system.declaration.instant.timestamp()
        self._template: Template | None = None
        self._runs = 0
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

    def _saved(self) -> Template:
        """A machine whose supervisor waits for inputs, at rest."""
        hardware = self._hardware()
        place = self._microvm.path / "snapshots" / self._digest(hardware)
        with suppress(OSError):
            template = Template(hardware, place)
            weakref.finalize(self, template.close)
            return template
        template = Template(hardware)
        try:
            self._template = template
            super()._open()
            self._prepare()
            machine = self._process
            assert isinstance(machine, Machine)
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

    def _hardware(self) -> Hardware:
        needed = _OWN_MEMORY + self.limits.memory_bytes + self.limits.disk_bytes
        memory = -(-needed // MEBIBYTE) * MEBIBYTE
        return Hardware(self._microvm, memory, accelerator(self._microvm))

    def _prepare(self) -> None:
        """What is done to a machine before it is saved: nothing more."""

    def _digest(self, hardware: Hardware) -> str:
        """Of everything that decides what the machine is when it is saved."""
        configured = configuration(self.system, self.limits, self.mode, self._kernel(), plain=False)
        about = [hardware.told(), self._lower]
        if hardware.accelerator == "kvm":
            about += [line for line in Path("/proc/cpuinfo").read_text().splitlines()
                      if line.startswith(("model name", "flags"))][:2]  # fmt: skip
        return hashlib.sha256(repr(about).encode() + configured).hexdigest()[:16]

    def _start(self) -> tuple[Supervisor, Connection]:
        machine = self._machine(restored=False)
        try:
            machine.channel.send(Kind.OPEN, f"{self._instant:.0f} {self._lower}".encode())
            said = machine.channel.expect(Kind.KEPT, STARTING_SECONDS).decode("utf-8", "replace")
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

    def _machine(self, *, restored: bool) -> Machine:
        """One that runs, at the declared instant."""
        assert self._template
        machine = Machine(self._template, restored=restored)
        try:
            machine.channel.set_time(self._instant)
        except OSError as error:
            machine.close()
            raise SandboxError(f"the machine is gone: {error}") from error
        return machine

    def _kernel(self) -> Kernel:
        return Kernel(self._microvm.release, self._instant)
