"""The choice of the backend, made here alone. Only tests of one backend open it themselves."""

from __future__ import annotations

import platform
from collections.abc import Callable

from shioenv.errors import ShellStateError, ShioenvError
from shioenv.files.cache import cache_directory
from shioenv.sandbox.backends import load_backend
from shioenv.sandbox.base import MACHINES, Limits, Sandbox, ShellMode
from shioenv.sandbox.namespaces.backend import NamespaceSandbox
from shioenv.sandbox.namespaces.host import inherited
from shioenv.sandbox.namespaces.lower import file_system_of, form_here
from shioenv.sandbox.namespaces.probe import prove_shell, proven_shell
from shioenv.system.store import System, find_system


def default_sandbox(system: System, limits: Limits | None = None) -> Sandbox:
    """An open sandbox of a built system. It serves inputs in the fastest way that its bash bears.

    Errors:

    - HostError (exit status 3, with the fix): this host forbids what isolation needs, or the
      package with the backend is not installed.
    - ShellStateError: the system's bash cannot be served, and `without_shell_state` is not set.
    - SandboxError: the sandbox could not be opened for another reason, as with a damaged system.
    """
    limits = limits or Limits()
    backend = load_backend(limits.sandbox) if limits.sandbox in MACHINES else None
    mode = ShellMode.FRESH
    if not limits.without_shell_state:
        verdict = proven_shell(system)
        if verdict.mode is ShellMode.FRESH:
            raise ShellStateError(system.name, verdict.reason)
        mode = verdict.mode
    if backend:
        return backend.open(system, limits, mode)
    return NamespaceSandbox(system, limits, mode=mode)


def lower_layer() -> str:
    """Where systems' files lie on this host, such as `names over ext4`.

    The first word says how much of a tree is in memory (`LowerForm`), the last which file system
    the cache directory lies on. `unknown` where no sandbox opens.
    """
    try:
        return f"{form_here()} over {file_system_of(cache_directory())}"
    except (ShioenvError, OSError):
        return "unknown"


def kernel_of(system: str, limits: Limits) -> str:
    """The release of the kernel that inputs run under: this host's, or a microVM's."""
    if limits.sandbox in MACHINES:
        return load_backend(limits.sandbox).release(find_system(system))
    return platform.release()


def layer_of(limits: Limits) -> str:
    """Where the systems' files lie for these limits: `lower_layer`, or in a machine."""
    return load_backend(limits.sandbox).layer if limits.sandbox in MACHINES else lower_layer()


def inherited_by_inputs(limits: Limits) -> list[str]:
    """What inputs inherit of this process and show, in a sentence each."""
    return [] if limits.sandbox in MACHINES else inherited()


def prove(system: System, report: Callable[[str], None], *, anew: bool) -> None:
    """Finds out how the system's bash can be served, and keeps that verdict beside the system.

    `anew`: the bash is probed even where a verdict is kept. `report` is told the verdict of a probe
    that is made now. Errors: HostError, as from `default_sandbox`.
    """
    find_out = prove_shell if anew else proven_shell
    find_out(system, report)
