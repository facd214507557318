"""The supervisor takes network changes from the kernel alone; forged messages are ignored."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shioenv.sandbox.base import Request
from shioenv.sandbox.namespaces.backend import NamespaceSandbox
from shioenv.system.store import System

WRITE = """python3 - <<'E'
import os, socket, struct
for protocol in (socket.NETLINK_ROUTE, 6, 12):
    talk = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
    for kind in (16, 20, 24, 28, 3, 2):
        for _ in range({times}):
            try:
                message = struct.pack("=IHHII", 32, kind, 2, 0, 0) + bytes(16)
                talk.sendto(message, socket.MSG_DONTWAIT, (1, 0))
            except BlockingIOError:
                pass
{change}
E"""


@pytest.fixture(scope="module")
def sandbox(system: System) -> Iterator[NamespaceSandbox]:
    with NamespaceSandbox(system) as opened:
        yield opened


def written(times: int, change: str = "") -> Request:
    return Request(WRITE.format(times=times, change=change))


def test_what_an_input_writes_to_the_listener_is_no_news(sandbox: NamespaceSandbox) -> None:
    execution = sandbox.run(written(1))
    assert (execution.output, execution.exit_code, execution.network) == (b"", 0, None)


@pytest.mark.parametrize("times", [1, 2000])
def test_news_is_not_lost_among_what_an_input_writes(sandbox: NamespaceSandbox, times: int) -> None:
    execution = sandbox.run(written(times, 'os.system("ip addr add 10.99.0.1/24 dev lo")'))
    assert execution.output == b""
    assert b"10.99.0.1" in (execution.network or b"")
    assert b"10.99.0.1" not in sandbox.run(Request("ip addr")).output
