"""What `shioenv doctor` checks, by trying it."""

from __future__ import annotations

from shioenv.errors import ShioenvError
from shioenv.sandbox.base import Request
from shioenv.sandbox.default import default_sandbox
from shioenv.sandbox.namespaces.host import host_checks
from shioenv.system.declare import DEFAULT_SYSTEM
from shioenv.system.host import HostCheck, building_checks, try_it
from shioenv.system.store import System, find_system


def check_host() -> list[HostCheck]:
    """Every check in the order in which one thing needs the other; nothing stays behind.

    The last is a sandbox, which lacks what was found missing before: that is said once.
    """
    system = _built()
    parts = [*host_checks(), *building_checks(needed=system is None)]
    whole = _sandbox(system)
    said = {check.detail for check in parts if not check.ok}
    return parts if whole.detail in said else [*parts, whole]


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
        )

    def attempt() -> str:
        with default_sandbox(system) as sandbox:
            said = sandbox.run(Request("echo ready")).output.decode("utf-8", "replace").strip()
        return f"{system.name} answers: {said}"

    return try_it("sandbox", attempt, "everything that was tried above, put together")
