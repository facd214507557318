"""The backend that everything runs on unless it tests one: which it is, is decided here alone."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping

from shioenv.errors import ShellStateError, ShioenvError
from shioenv.sandbox.base import BARE, MACHINES, Limits, Sandbox
from shioenv.sandbox.microvm.backend import FirecrackerSandbox, MicrovmSandbox
from shioenv.sandbox.microvm.bare import BareSandbox
from shioenv.sandbox.namespaces.backend import NamespaceSandbox
from shioenv.sandbox.namespaces.lower import file_system_of, form_here
from shioenv.sandbox.namespaces.probe import prove_shell, proven_shell
from shioenv.sandbox.namespaces.wire import ShellMode
from shioenv.system.build import cache_directory
from shioenv.system.microvm import find_microvm
from shioenv.system.store import System, find_system

_BACKENDS: Mapping[str, type[NamespaceSandbox]] = {
    "namespaces": NamespaceSandbox,
    "microvm": MicrovmSandbox,
    "firecracker": FirecrackerSandbox,
}


def default_sandbox(system: System, limits: Limits | None = None) -> Sandbox:
    """An open sandbox of a built system, which serves inputs as that system's bash bears it.

    Errors: HostError (exit status 3, with the fix) where this host forbids what isolation needs.
    ShellStateError where no bash of the system can be served and the limits do not say
    `without_shell_state`. SandboxError where it could not be opened for another reason, as with a
    damaged system.
    """
    limits = limits or Limits()
    if limits.sandbox == BARE:
        return BareSandbox(system, limits)
    backend = _BACKENDS[limits.sandbox]
    if limits.without_shell_state:
        return backend(system, limits, mode=ShellMode.FRESH)
    verdict = proven_shell(system)
    if verdict.mode is ShellMode.FRESH:
        raise ShellStateError(system.name, verdict.reason)
    return backend(system, limits, mode=verdict.mode)


def lower_layer() -> str:
    """What inputs see of systems' files on this host, such as `names over ext4`. It is how much of
    a tree is in memory (`LowerForm`), and on which file system the cache directory lies. `unknown`
    where no sandbox opens.
    """
    try:
        return f"{form_here()} over {file_system_of(cache_directory())}"
    except (ShioenvError, OSError):
        return "unknown"


def kernel_of(system: str, limits: Limits) -> str:
    """The release of the kernel that inputs run under: this host's, or a microVM's."""
    if limits.sandbox in MACHINES:
        return find_microvm(find_system(system)).release
    return platform.release()


def layer_of(limits: Limits) -> str:
    """What inputs see of systems' files: as `lower_layer` says, or in a microVM."""
    if limits.sandbox == BARE:
        return "ext4 of a microVM, bare"
    return "ext4 in a microVM" if limits.sandbox in MACHINES else lower_layer()


def prove(system: System, report: Callable[[str], None], *, anew: bool) -> None:
    """Finds out how the system's bash can be served, and keeps that beside the system.

    `anew`: also where it is known already. `report` is told what came out, where it is tried now.
    Errors: HostError as above.
    """
    find_out = prove_shell if anew else proven_shell
    find_out(system, report)
