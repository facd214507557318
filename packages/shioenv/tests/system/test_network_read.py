"""A system's network is read completely or with an error: never as an empty network."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from shioenv.errors import SandboxError
from shioenv.sandbox.base import Request
from shioenv.sandbox.namespaces import backend
from shioenv.sandbox.namespaces.backend import NamespaceSandbox
from shioenv.system.store import System

PROBE = backend._NETWORK_PROBE


def without(function: str) -> Request:
    """The same probe in a shell that has this function."""
    assert isinstance(PROBE.text, str)
    return replace(PROBE, text=f"{function}\n{PROBE.text}")


@pytest.mark.parametrize(
    "lacking",
    [
        "ip() { return 127; }",
        "ip() { :; }",
        "ip() { echo '[]'; echo '[]'; }",
        "ip() { [[ $1 == -4 ]] || command ip \"$@\"; }",
        "ip() { command ip \"$@\" | head -c 100; }",
        "ip() { command ip \"$@\" | head -n 1; }",
        "nft() { return 127; }",
        "printf() { :; }",
    ],
)  # fmt: skip
def test_what_cannot_be_listed_is_an_error_that_names_the_packages(
    system: System, lacking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = Request("ip link set eth0 down")
    with NamespaceSandbox(system) as sandbox:
        before = sandbox.network()
        monkeypatch.setattr(backend, "_NETWORK_PROBE", without(lacking))
        with pytest.raises(SandboxError, match="cannot read the network state") as caught:
            sandbox.network()
        assert "iproute2" in str(caught.value.hint)
        with pytest.raises(SandboxError, match="cannot read the network state"):
            sandbox.run(change)
        monkeypatch.setattr(backend, "_NETWORK_PROBE", PROBE)
        assert sandbox.network() == before


def test_a_kernel_without_ipv6_has_a_network_all_the_same(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking = 'ip() { [[ $1 == -6 ]] || command ip "$@"; }'
    monkeypatch.setattr(backend, "_NETWORK_PROBE", without(lacking))
    with NamespaceSandbox(system) as sandbox:
        read = json.loads(sandbox.network())
    assert {link["ifname"] for link in read["links"]} == {"lo", "eth0"}
    assert "routes6" not in read


def test_a_name_with_control_characters_is_read(system: System) -> None:
    with NamespaceSandbox(system) as sandbox:
        run = sandbox.run(Request("ip link set eth0 alias $'a\\1b\\tc'"))
    assert run.network is not None
    aliases = [link.get("ifalias") for link in json.loads(run.network)["links"]]
    assert "a\1b\tc" in aliases


def test_a_hosts_name_that_cannot_be_read_is_an_error(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "_HOSTNAME_PROBE", Request("nonexistent", cwd="/"))
    with NamespaceSandbox(system) as sandbox:
        with pytest.raises(SandboxError, match="cannot read the host name"):
            sandbox.run(Request("hostname other"))
        assert sandbox.run(Request("true")).exit_code == 0


def test_a_network_that_nobody_reads_is_empty(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = system.programs
    for lacking, known in (({"ip", "nft"}, set()), ({"ip"}, {"firewall"})):
        monkeypatch.setitem(system.__dict__, "programs", programs - lacking)
        with NamespaceSandbox(system) as sandbox:
            assert json.loads(sandbox.network()).keys() == known
    monkeypatch.setitem(system.__dict__, "programs", programs - {"nft"})
    with NamespaceSandbox(system) as sandbox:
        network = json.loads(sandbox.network())
    assert network["links"]
    assert network["firewall"] == []
