"""The interface of backends that other packages provide, in the entry-point group `GROUP`.

The backend `namespaces` belongs to this package. The others give each sandbox a machine with its
own kernel, and come with `shioenv-backends`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, cast

from shioenv.guests import find_guest, load_guest
from shioenv.sandbox.base import MACHINES, Limits, Sandbox, ShellMode
from shioenv.system.bootstrap import Progress
from shioenv.system.host import HostCheck
from shioenv.system.store import System

GROUP: Final = "shioenv.sandboxes"
"""The group of entry points; each has a name of `MACHINES` and is a `Backend`."""


class Backend(Protocol):
    """A kind of sandbox in which each input has a machine with its own kernel."""

    @property
    def layer(self) -> str:
        """Where the system's files lie in the machine, such as `ext4 in a microVM`."""
        ...

    def open(self, system: System, limits: Limits, mode: ShellMode) -> Sandbox:
        """Open a sandbox of a built system. Errors: those of `default_sandbox`."""
        ...

    def release(self, system: System) -> str:
        """The release of the kernel that inputs run under.

        Errors: SystemNotBuiltError where the system has no files to boot from.
        """
        ...

    def checks(self, system: System) -> Sequence[HostCheck]:
        """Check, for `shioenv doctor`, whether such sandboxes can be opened on this host."""
        ...

    def build(self, system: System, kernel: Path | None, report: Progress) -> None:
        """Make the files that the system's machines boot from, where they are missing.

        `kernel` is a kernel's package (`.deb`), None for the backend's own choice. Errors:
        HostError, BuildToolError, SystemBuildError, SystemStorageError.
        """
        ...

    def facts(self, system: System) -> dict[str, Any] | None:
        """Facts about these files, as `shioenv system show --json` prints them.

        None where there are no usable files. `kernel` has the kernel's `release`.
        """
        ...


def load_backend(name: str, feature: str | None = None) -> Backend:
    """The backend with a name of `MACHINES`, for a feature (default: `--sandbox NAME`).

    Errors: MissingExtraError where no installed package provides the backend.
    """
    feature = feature or f"--sandbox {name}"
    return cast("Backend", load_guest(GROUP, name, feature=feature, extra="backends"))


def find_backend(name: str) -> Backend | None:
    """The backend with a name of `MACHINES`; None where no installed package provides it."""
    return cast("Backend | None", find_guest(GROUP, name))


def installed_backends() -> Iterator[Backend]:
    """The backends that installed packages provide, in the order of `MACHINES`."""
    for name in MACHINES:
        if backend := find_backend(name):
            yield backend
