"""Network interfaces of a bare machine get their declared names, regardless of their order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shioenv.system.declare import load_declaration
from shioenv_backends.microvm.bare import _preparation


@pytest.mark.parametrize("names", [("eth0", "eth1"), ("eth1", "eth0"), ("lan", "eth0", "eth1")])
def test_a_name_is_free_when_an_interface_gets_it(names: tuple[str, ...]) -> None:
    machine = load_declaration().machine
    faces = tuple(
        replace(machine.interfaces[0], name=name, address=f"10.0.{number}.2")
        for number, name in enumerate(names)
    )
    present = {f"eth{number}": number for number in range(len(names))}
    for line in _preparation(replace(machine, interfaces=faces)).split("\n"):
        if " name " in line:
            _, _, _, old, _, new = line.split()
            assert new not in present, line
            present[new] = present.pop(old)
        elif line.startswith("ip address add"):
            address, name = line.split()[3], line.split()[-1]
            assert address.startswith(f"10.0.{present[name]}.2/"), line
