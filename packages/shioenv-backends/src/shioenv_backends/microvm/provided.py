"""The backends `microvm`, `microvm-bare` and `firecracker`, for entry points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from shioenv.errors import HostError, ShioenvError
from shioenv.sandbox.base import Limits, Sandbox, ShellMode
from shioenv.system.bootstrap import Progress
from shioenv.system.host_checks import HostCheck, try_it
from shioenv.system.store import System
from shioenv_backends.microvm.bare import BareSandbox
from shioenv_backends.microvm.boot import build_microvm, find_microvm
from shioenv_backends.microvm.firecracker import find_firecracker
from shioenv_backends.microvm.firecracker import firecracker_version as firecracker_version
from shioenv_backends.microvm.qemu import KVM, accelerator, find_qemu, may_open_kvm
from shioenv_backends.microvm.virtual_machine import FirecrackerSandbox, MicrovmSandbox


class MicrovmBackend:
    """Machines in QEMU, with namespaces inside; see `shioenv.sandbox.backends.Backend`."""

    layer = "ext4 in a microVM"

    def open(self, system: System, limits: Limits, mode: ShellMode) -> Sandbox:
        """Open a sandbox of a built system; see `Backend.open`."""
        return MicrovmSandbox(system, limits, mode=mode)

    def release(self, system: System) -> str:
        """Return the release of the kernel that inputs run under; see `Backend.release`."""
        return find_microvm(system).release

    def checks(self, system: System) -> Sequence[HostCheck]:
        """Check whether inputs can run in a separate machine, and how fast it is."""

        def attempt() -> str:
            program = find_qemu()
            microvm = find_microvm(system)
            how = (
                "KVM: the guest runs on the processor"
                if accelerator(microvm) == "kvm"
                else "TCG: the processor is simulated, ten to a hundred times as slow"
            )
            return f"{program}, Linux {microvm.release}, {how}"

        why = "with --sandbox microvm, inputs run under a separate kernel"
        return [replace(try_it("microVM", attempt, why), needed=False)]

    def build(self, system: System, kernel: Path | None, report: Progress) -> None:
        """Build the files that the system's machines boot from; see `Backend.build`."""
        build_microvm(system, kernel=kernel, report=report)

    def facts(self, system: System) -> dict[str, Any] | None:
        """Return the record of the boot files; None if no usable microVM is built."""
        try:
            return dict(find_microvm(system).record)
        except ShioenvError:
            return None


class BareBackend(MicrovmBackend):
    """Machines in QEMU in which inputs run as root."""

    layer = "ext4 of a microVM, bare"

    def open(self, system: System, limits: Limits, mode: ShellMode) -> Sandbox:
        """Open a sandbox of a built system; each run has a newly executed bash in any mode."""
        return BareSandbox(system, limits)

    def checks(self, system: System) -> Sequence[HostCheck]:
        """Return no checks: the check of `microvm` covers these machines too."""
        return ()


class FirecrackerBackend(MicrovmBackend):
    """Machines in Firecracker, with namespaces inside."""

    def open(self, system: System, limits: Limits, mode: ShellMode) -> Sandbox:
        """Open a sandbox of a built system; see `Backend.open`."""
        return FirecrackerSandbox(system, limits, mode=mode)

    def checks(self, system: System) -> Sequence[HostCheck]:
        """Check whether the machines can also run in Firecracker."""

        def attempt() -> str:
            program = find_firecracker()
            microvm = find_microvm(system)
            if not may_open_kvm():
                raise HostError(
                    f"{program} is installed, but this user cannot open {KVM}",
                    hint="Firecracker requires KVM; --sandbox microvm does not",
                )
            version = firecracker_version()
            return f"{program} ({version}), Linux {microvm.release}; untested"

        why = "with --sandbox firecracker, inputs run in a machine like the paper's"
        return [replace(try_it("Firecracker", attempt, why), needed=False)]


MICROVM = MicrovmBackend()
BARE = BareBackend()
FIRECRACKER = FirecrackerBackend()
