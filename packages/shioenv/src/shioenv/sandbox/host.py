"""What `shioenv doctor` checks: each check tries what it is about."""

from __future__ import annotations

from shioenv.errors import SandboxError, ShioenvError
from shioenv.sandbox.backends import default_sandbox, installed_backends
from shioenv.sandbox.base import Limits, Request
from shioenv.sandbox.namespaces.host import host_checks
from shioenv.system.declare import DEFAULT_SYSTEM
from shioenv.system.host import HostCheck, building_checks, try_it
from shioenv.system.store import System, find_system


def check_host() -> list[HostCheck]:
    """Every check, each after those that it depends on; nothing stays behind.

    A sandbox comes after its parts. Where it fails for the reason that a part failed for, that
    reason is said once. Where the sandbox opens, further checks follow: whether it can read what
    inputs change of their shell, and those of installed backends (microVMs, Firecracker).
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
            why="inputs run on it",
            fix="shioenv system build",
            needed=False,
            next_step=True,
        )

    def attempt() -> str:
        with default_sandbox(system, Limits(without_shell_state=True)) as sandbox:
            said = sandbox.run(Request("echo ready")).output.decode("utf-8", "replace").strip()
        return f"{system.name} answers: {said}"

    return try_it("sandbox", attempt, "everything that was tried above, put together")


def _shell_state(system: System) -> HostCheck:
    def attempt() -> str:
        with default_sandbox(system) as sandbox:
            state = sandbox.run(Request("")).shell
        if state is None:
            raise SandboxError("an empty input did not tell the state of its shell")
        return f"{len(state)} bytes, from a fork server in the bash of {system.name}"

    why = "what inputs change of their shell is part of their patch, and of their score"
    return try_it("shell state", attempt, why)
