"""The backend that everything runs on unless it tests one: which it is, is said here alone."""

from __future__ import annotations

from collections.abc import Callable

from shioenv.sandbox.base import Limits, Sandbox
from shioenv.sandbox.namespaces.backend import NamespaceSandbox
from shioenv.sandbox.namespaces.probe import choose_shell_mode, shell_mode
from shioenv.system.store import System


def default_sandbox(system: System, limits: Limits | None = None) -> Sandbox:
    """An open sandbox of a built system, which serves inputs as that system's bash bears it.

    Errors: HostError (exit status 3, with the fix) where this host forbids what isolation needs,
    SandboxError where it could not be opened for another reason, as with a damaged system.
    """
    return NamespaceSandbox(system, limits, mode=shell_mode(system))


def prove(system: System, report: Callable[[str], None], *, anew: bool) -> None:
    """Finds out how the system's bash can be served, and keeps that beside the system.

    `anew`: also where it is known already, and `report` is told what came out. Errors: HostError
    as above.
    """
    if anew:
        choose_shell_mode(system, report)
    else:
        shell_mode(system)
