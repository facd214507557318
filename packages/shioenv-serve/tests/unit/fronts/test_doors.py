"""A server's listening address, and whether other hosts can connect to it."""

from __future__ import annotations

import socket
from types import SimpleNamespace

import pytest

from shioenv.errors import UsageError
from shioenv_serve.listener import ListenAddress, socket_url


@pytest.mark.parametrize(
    ("host", "is_local"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False),
     ("192.0.2.1", False), ("example.org", False)],
)  # fmt: skip
def test_a_door_is_local_where_no_other_host_reaches_it(host: str, is_local: bool) -> None:
    assert ListenAddress(host, 1).is_local is is_local


def test_a_door_listens_or_names_the_next_step() -> None:
    with ListenAddress("127.0.0.1", 0).opened() as listening:
        place = socket_url(listening)
        host, _, port = place.rpartition(":")
        assert host == "127.0.0.1"
        with socket.create_connection((host, int(port))):
            pass
        with pytest.raises(UsageError, match=f"cannot listen on 127.0.0.1, port {port}"):
            ListenAddress("127.0.0.1", int(port)).opened()
    six = SimpleNamespace(getsockname=lambda: ("::1", 22, 0, 0))
    assert socket_url(six) == "[::1]:22"  # type: ignore[arg-type]
