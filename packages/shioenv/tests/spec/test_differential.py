"""A sandbox's shell, compared with a fresh bash, probe by probe."""

from __future__ import annotations

import pytest

from shioenv.sandbox.base import Request, ShellMode
from shioenv.sandbox.namespaces.backend import NamespaceSandbox
from shioenv.sandbox.namespaces.probe import divergences, probes, proven_shell
from shioenv.system.store import System


def test_there_are_enough_probes() -> None:
    assert len(probes()) >= 200
    assert len(set(probes())) == len(probes())


@pytest.mark.parametrize("mode", [ShellMode.LATE, ShellMode.MAIN])
def test_no_probe_tells_a_served_shell_from_a_fresh_one(system: System, mode: ShellMode) -> None:
    with NamespaceSandbox(system, mode=mode) as sandbox:
        told = divergences(sandbox)
    assert not told, told


def test_a_probe_can_fail(system: System) -> None:
    """A shell that evaluates its input, as naive servers do, is told apart from a fresh one."""
    told = 0
    with NamespaceSandbox(system) as sandbox:
        for probe in probes():
            quoted = probe.replace("'", "'\\''")
            fresh, evaluated = (
                sandbox.run_fresh(Request(probe)),
                sandbox.run_fresh(Request(f"eval '{quoted}'")),
            )
            told += (fresh.exit_code, fresh.output) != (evaluated.exit_code, evaluated.output)
    assert told >= 20


def test_the_default_system_is_served_in_the_fastest_mode(system: System) -> None:
    assert proven_shell(system).mode is ShellMode.LATE
