"""Selection of the sandbox backend on this host, and the checks of `shioenv doctor`.

The backend `namespaces` belongs to this package. The others run each sandbox in a virtual machine.
`shioenv-backends` provides them through the entry-point group `GROUP`. All code opens sandboxes
through this module; only the tests of a backend open one directly.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, cast

from shioenv.errors import SandboxError, ShellStateError, ShioenvError
from shioenv.files.durable import cache_directory
from shioenv.guests import find_guest, load_guest
from shioenv.sandbox.base import MACHINES, Limits, Request, Sandbox, ShellMode
from shioenv.sandbox.namespaces.backend import NamespaceSandbox
from shioenv.sandbox.namespaces.host import host_checks, inherited
from shioenv.sandbox.namespaces.lower import file_system_of, form_here
from shioenv.sandbox.namespaces.probe import prove_shell, proven_shell
from shioenv.system.bootstrap import Progress
from shioenv.system.declare import DEFAULT_SYSTEM
from shioenv.system.host_checks import HostCheck, building_checks, try_it
from shioenv.system.store import System, find_system

GROUP: Final = "shioenv.sandboxes"
"""The entry-point group of backends. Each entry is named as in `MACHINES` and is a `Backend`."""


class Backend(Protocol):
    """A kind of sandbox that runs inputs in a virtual machine with its own kernel."""

    @property
    def layer(self) -> str:
        """The storage of the system's files in the machine, such as `ext4 in a microVM`."""
        ...

    def open(self, system: System, limits: Limits, mode: ShellMode) -> Sandbox:
        """Open a sandbox of a built system. Errors: those of `default_sandbox`."""
        ...

    def release(self, system: System) -> str:
        """Return the release of the kernel that inputs run under.

        Errors: SystemNotBuiltError if the system has no boot files.
        """
        ...

    def checks(self, system: System) -> Sequence[HostCheck]:
        """Check whether such sandboxes can be opened on this host, for `shioenv doctor`."""
        ...

    def build(self, system: System, kernel: Path | None, report: Progress) -> None:
        """Build the boot files of the system's machines, unless they exist.

        `kernel` is a kernel package (`.deb`), or None for the backend's default. Errors:
        HostError, BuildToolError, SystemBuildError, SystemStorageError.
        """
        ...

    def facts(self, system: System) -> dict[str, Any] | None:
        """Describe the boot files, as `shioenv system show --json` prints them.

        The key `kernel` holds the kernel's `release`. None if there are no usable files.
        """
        ...


def load_backend(name: str, feature: str | None = None) -> Backend:
    """Load the backend with a name from `MACHINES`.

    Errors: MissingExtraError if no installed package provides the backend. The message names the
    `feature` that needs it (default: `--sandbox NAME`).
    """
    feature = feature or f"--sandbox {name}"
    return cast("Backend", load_guest(GROUP, name, feature=feature, extra="backends"))


def find_backend(name: str) -> Backend | None:
    """Load the backend with a name from `MACHINES`; None if no installed package provides it."""
    return cast("Backend | None", find_guest(GROUP, name))


def installed_backends() -> Iterator[Backend]:
    """Load the backends that installed packages provide, in the order of `MACHINES`."""
    for name in MACHINES:
        if backend := find_backend(name):
            yield backend


def default_sandbox(system: System, limits: Limits | None = None) -> Sandbox:
    """Open a sandbox of a built system, in the fastest mode that the system's bash supports.

    Errors:

    - HostError (exit status 3, with the fix): this host forbids something that isolation needs, or
      the package with the backend is not installed.
    - ShellStateError: the system's bash cannot run the fork server, and `without_shell_state` is
      not set.
    - SandboxError: the sandbox could not be opened for another reason, such as a damaged system.
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
    """Describe the storage of systems' files on this host, such as `names over ext4`.

    The first word is the part of the tree that is kept in memory (`LowerForm`). The last word is
    the file system of the cache directory. The result is `unknown` if no sandbox opens.
    """
    try:
        return f"{form_here()} over {file_system_of(cache_directory())}"
    except (ShioenvError, OSError):
        return "unknown"


def kernel_of(system: str, limits: Limits) -> str:
    """Return the release of the kernel that inputs run under: this host's, or a microVM's."""
    if limits.sandbox in MACHINES:
        return load_backend(limits.sandbox).release(find_system(system))
    return platform.release()


def layer_of(limits: Limits) -> str:
    """Describe the storage of systems' files: `lower_layer`, or that of a virtual machine."""
    return load_backend(limits.sandbox).layer if limits.sandbox in MACHINES else lower_layer()


def inherited_by_inputs(limits: Limits) -> list[str]:
    """Describe the attributes of this process that inputs inherit and reveal, a sentence each."""
    return [] if limits.sandbox in MACHINES else inherited()


def prove(system: System, report: Callable[[str], None], *, anew: bool) -> None:
    """Determine how the system's bash can run the fork server, and save the verdict.

    With `anew`, probe the bash even if a verdict is saved. `report` is called with the verdict of a
    new probe. Errors: HostError, as from `default_sandbox`.
    """
    find_out = prove_shell if anew else proven_shell
    find_out(system, report)


def check_host() -> list[HostCheck]:
    """Run every check, each after those that it depends on, and clean up.

    The check of a whole sandbox follows the checks of its parts. If the sandbox fails for the same
    reason as a part, only the part is reported. If the sandbox opens, further checks follow:
    whether it can read the shell state, and the checks of installed backends (microVMs,
    Firecracker).
    """
    system = _built()
    parts = [*host_checks(), *building_checks(needed=system is None)]
    whole = _sandbox(system)
    said = {check.detail for check in parts if not check.ok}
    if whole.detail in said:
        return parts
    if system is None or not whole.ok:
        return [*parts, whole]
    others = [check for backend in installed_backends() for check in backend.checks(system)]
    return [*parts, whole, _shell_state(system), *others]


def _built() -> System | None:
    try:
        return find_system()
    except ShioenvError:
        return None


def _sandbox(system: System | None) -> HostCheck:
    if system is None:
        return HostCheck(
            name=f"system {DEFAULT_SYSTEM}",
            ok=False,
            detail="not built yet",
            why="inputs run on this system",
            fix="shioenv system build",
            needed=False,
            next_step=True,
        )

    def attempt() -> str:
        with default_sandbox(system, Limits(without_shell_state=True)) as sandbox:
            answer = sandbox.run(Request("echo ready")).output.decode("utf-8", "replace").strip()
        return f"{system.name} answers: {answer}"

    return try_it("sandbox", attempt, "it combines all features above")


def _shell_state(system: System) -> HostCheck:
    def attempt() -> str:
        with default_sandbox(system) as sandbox:
            state = sandbox.run(Request("")).shell
        if state is None:
            raise SandboxError("an empty input reported no shell state")
        return f"{len(state)} bytes, from a fork server in the bash of {system.name}"

    why = "patches and scores include changes of the shell itself"
    return try_it("shell state", attempt, why)
