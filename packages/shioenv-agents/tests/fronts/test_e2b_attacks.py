"""Hostile clients of the E2B API, and hostile machines behind it."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import shlex
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import pytest

from support.needs import needed_module

needed_module("e2b")

import e2b  # noqa: E402
import httpx  # noqa: E402
from e2b import Sandbox, SandboxException  # noqa: E402

from faults import descendants  # noqa: E402
from shioenv.sandbox.base import Limits  # noqa: E402
from shioenv.system.store import System  # noqa: E402
from shioenv_agents.e2b.process_service import MOST_PROCESSES  # noqa: E402
from shioenv_agents.e2b.sandboxes import (  # noqa: E402
    OF_ONE_CLIENT,
    ClientSandbox,
    NewSandbox,
    Sandboxes,
)
from shioenv_agents.e2b.watching import MOST_WATCHERS  # noqa: E402
from support.e2b_server import KEYS, reached, serving  # noqa: E402
from support.waiting import next_turn, wait_until  # noqa: E402
from visiting import name_of  # noqa: E402

pytestmark = pytest.mark.usefixtures("system")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The address of a server, which must report no failure until its end."""
    with serving("--disk-mib", "16") as (server, address):
        yield address
        server.terminate()
        assert server.stderr is not None
        reported = server.stderr.read()
    assert "Traceback" not in reported, reported


@pytest.fixture
def sandbox(url: str) -> Iterator[Sandbox]:
    opened = Sandbox.create(**reached(url))
    yield opened
    opened.kill()


def inside(sandbox: Sandbox, **other: str) -> dict[str, str]:
    """Return the headers of a request to a sandbox, some of them replaced."""
    headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, **sandbox.connection_config.sandbox_headers}
    return {**headers, **other}


def test_a_client_reaches_no_sandbox_of_another(url: str, sandbox: Sandbox) -> None:
    other = reached(url, KEYS[1])
    assert Sandbox.list(**other).next_items() == []
    for call in (Sandbox.connect, Sandbox.get_info, Sandbox.pause):
        with pytest.raises(SandboxException, match="not found"):
            call(sandbox.sandbox_id, **other)
    with pytest.raises(SandboxException, match="not found"):
        Sandbox.set_timeout(sandbox.sandbox_id, 1, **other)
    assert not Sandbox.kill(sandbox.sandbox_id, **other)
    mine = Sandbox.create(**other)
    try:
        stolen = inside(mine)["X-Access-Token"]
        for headers in (
            inside(sandbox, **{"X-Access-Token": stolen}),
            inside(sandbox, **{"X-Access-Token": ""}),
            inside(sandbox, **{"X-Access-Token": "ü".encode().decode("latin-1")}),
            inside(sandbox, **{"E2b-Sandbox-Id": "-", "X-Access-Token": "-"}),
            {},
        ):
            raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
            for path in ("/health", "/files?path=/etc/passwd", "/process.Process/List"):
                assert httpx.get(url + path, headers=raw).status_code == 502
            listed = httpx.post(f"{url}/process.Process/List", headers=raw, json={})
            assert listed.status_code == 502
    finally:
        mine.kill()
    assert sandbox.is_running()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"X-API-Key": "a", "Origin": "http://127.0.0.1"}, 403),
        ({"X-API-Key": "a", "Origin": "null"}, 403),
        ({"X-API-Key": "a", "Host": "evil.example:80"}, 421),
        ({"X-API-Key": "a", "Host": "127.0.0.1.evil.example"}, 421),
        ({"X-API-Key": "a", "Host": "[::1]:80"}, 200),
    ],
)
def test_strangers_and_pages_in_browsers_are_refused(
    url: str, headers: dict[str, str], status: int
) -> None:
    assert httpx.get(f"{url}/v2/sandboxes", headers=headers).status_code == status


BODIES = (
    *(b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"timeout": "x"}', b'{"timeout": 1e999}'),
    *(b'{"metadata": {"a": 1}}', b'{"envVars": []}', b'{"templateID": 7}', b"x" * (2 << 20)),
)
"""Bodies that make no sandbox."""


def test_wrong_requests_are_refused_and_the_server_goes_on(url: str, sandbox: Sandbox) -> None:
    key = {"X-API-Key": KEYS[0]}
    for body in BODIES:
        made = httpx.post(f"{url}/v2/sandboxes", headers=key, content=body)
        assert 400 <= made.status_code < 500, body[:40]
        assert json.loads(made.content)["code"] == made.status_code
    for query in ("limit=x", "nextToken=-1", "limit=" + "9" * 5000, "startedAfter=never"):
        assert httpx.get(f"{url}/v2/sandboxes?{query}", headers=key).status_code == 400
    for name in ("..%2f..", "%00", "x" * 8000, "💥"):
        assert httpx.get(f"{url}/sandboxes/{name}", headers=key).status_code in (404, 501)
    headers = {**inside(sandbox), "Content-Type": "application/json"}
    service = "/process.Process"
    calls: dict[str, tuple[Any, ...]] = {
        f"{service}/Start": ({}, {"process": {}}, {"process": {"cmd": "x" * 200_000}}),
        f"{service}/SendInput": ({}, {"process": {"pid": 1}}, {"process": {"pid": -1}}, [1]),
        f"{service}/SendSignal": ({"process": {"tag": "none"}, "signal": 64},),
        f"{service}/Update": ({"process": {"pid": 1}, "pty": {"size": {"rows": 0}}},),
        "/filesystem.Filesystem/Stat": ({}, {"path": "a\0b"}, {"path": "/" + "x" * 300_000}, 7),
        "/filesystem.Filesystem/ListDir": ({"path": "/", "depth": -1}, {"path": "/nope"}),
        "/filesystem.Filesystem/GetWatcherEvents": ({"watcherId": "x"},),
        "/none.Service/Nothing": ({},),
    }
    for path, given in calls.items():
        for each in given:
            answer = httpx.post(url + path, headers=headers, json=each)
            assert 400 <= answer.status_code < 600, (path, each)
    for encoded in ("!", "cm9vdDo=" * 9, "LXg6", "//79"):  # the third is the user -x
        wrong = {**headers, "Authorization": f"Basic {encoded}"}
        answer = httpx.post(
            f"{url}/filesystem.Filesystem/Stat", headers=wrong, json={"path": "/etc"}
        )
        assert answer.status_code == 401
    assert sandbox.commands.run("echo on").stdout == "on\n"


def test_a_connection_that_sends_nonsense_harms_no_other(url: str, sandbox: Sandbox) -> None:
    place = urlsplit(url)
    assert place.hostname is not None
    for data in (
        b"\x16\x03\x01" * 100,
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 5000,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"POST /files HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ):
        with socket.create_connection((place.hostname, place.port or 0), timeout=30) as connection:
            connection.sendall(data)
            connection.recv(1 << 16)
    assert sandbox.is_running()


def test_files_that_are_too_large_or_broken_leave_nothing(url: str, sandbox: Sandbox) -> None:
    bomb = gzip.compress(bytes(64 << 20))
    for body, more, status in (
        (bomb, {"Content-Encoding": "gzip"}, 415),
        (b"x", {"Content-Type": "multipart/form-data; boundary=b"}, 400),
        (b"x", {"Content-Type": "multipart/form-data"}, 400),
    ):
        sent = httpx.post(f"{url}/files?path=/tmp/f", headers=inside(sandbox, **more), content=body)
        assert sent.status_code == status, more
    assert not sandbox.files.exists("/tmp/f")
    with pytest.raises(SandboxException, match="exceeds"):
        sandbox.files.write("/tmp/g", iter([bytes(1 << 20)] * 20))
    sandbox.commands.run("head -c 14M /dev/zero > /tmp/h")
    with pytest.raises(e2b.NotEnoughSpaceException):
        sandbox.files.write("/tmp/i", bytes(8 << 20))
    sandbox.commands.run("rm /tmp/[hi]; truncate -s 1T /tmp/j")
    with pytest.raises(e2b.NotEnoughSpaceException):
        sandbox.files.read("/tmp/j")


def test_what_a_client_may_have_is_bounded(url: str) -> None:
    there = reached(url, "e2b_greedy")
    made = [Sandbox.create(**there) for _ in range(OF_ONE_CLIENT)]
    try:
        with pytest.raises(e2b.RateLimitException):
            Sandbox.create(retries=0, **there)
        one, *_ = made
        run = one.commands.run
        kept = [run("sleep 300", background=True) for _ in range(MOST_PROCESSES)]
        with pytest.raises(e2b.RateLimitException):
            run("true")
        watches = [one.files.watch_dir("/srv") for _ in range(MOST_WATCHERS)]
        with pytest.raises(e2b.RateLimitException):
            one.files.watch_dir("/srv")
        assert one.files.exists("/etc/passwd")
        assert [each.kill() for each in kept] == [True] * MOST_PROCESSES
        for each in watches:
            each.stop()
        wait_until(lambda: not one.commands.list(), "the end of the commands")
        assert run("echo free").stdout == "free\n"
    finally:
        for each in made:
            each.kill()


def test_a_client_reaches_no_snapshot_of_another(url: str, sandbox: Sandbox) -> None:
    sandbox.files.write("/tmp/secret", "x")
    kept, other = sandbox.create_snapshot(name="secret"), reached(url, KEYS[1])
    try:
        for name in (kept.snapshot_id, "secret"):
            assert Sandbox.list_snapshots(name=name, **other).next_items() == []
            assert not Sandbox.delete_snapshot(name, **other)
            with pytest.raises(SandboxException, match="404"):
                Sandbox.create(name, **other)
        for copy in (Sandbox.create_snapshot, Sandbox.fork):
            with pytest.raises(SandboxException, match="not found"):
                copy(sandbox.sandbox_id, **other)
    finally:
        assert sandbox.delete_snapshot(kept.snapshot_id, **reached(url))


@pytest.mark.parametrize(
    "hidden",
    [
        "setsid -f sleep 300",
        "(exec -a init sleep 300 &)",
        "unshare --pid --fork sleep 300 & sleep .2",
        "perl -e 'use threads; async { sleep 300 }->detach; syscall 60, 0' &",
        "ln -sf /bin/true /usr/bin/ps; ln -sf /bin/true /usr/bin/tar; setsid -f sleep 300",
        "perl -e 'fork && exit while 1' & sleep .1",
    ],
)
def test_no_process_hides_from_a_snapshot(sandbox: Sandbox, hidden: str) -> None:
    sandbox.commands.run(hidden)
    with pytest.raises(SandboxException, match="409: end the running processes"):
        sandbox.create_snapshot()


@pytest.mark.parametrize(
    ("lie", "error"),
    [
        ("exit 0", "tar failed"),
        ("exit 3", "tar failed"),
        ("echo new > /srv/new; exec /srv/tar $*", "changed during the snapshot"),
        ("setsid -f sleep 300; exec /srv/tar $*", "running processes"),
        ("touch /tmp/more; exec /srv/tar $* /etc /tmp/more", "differs|changed"),
        ("yes", "exceeds"),
    ],
)
def test_a_lying_tar_makes_no_wrong_copy(url: str, sandbox: Sandbox, lie: str, error: str) -> None:
    program = shlex.quote(f"#!/bin/bash\n{lie}\n")
    sandbox.commands.run(
        f"mv /usr/bin/tar /srv/tar; echo {program} > /usr/bin/tar; chmod +x /usr/bin/tar"
    )

    def copy() -> None:
        Sandbox.create(sandbox.create_snapshot(name="lie").snapshot_id, **reached(url))

    with pytest.raises(SandboxException, match=error):
        copy()
    Sandbox.delete_snapshot("lie", **reached(url))
    assert sandbox.is_running()


def test_snapshots_count_as_sandboxes(url: str) -> None:
    there = {**reached(url, "e2b_hoarder"), "retries": 0}
    source = Sandbox.create(**there)
    taken = [source.create_snapshot() for _ in range(OF_ONE_CLIENT - 1)]
    for make in (source.create_snapshot, lambda: Sandbox.create(**there)):
        with pytest.raises(e2b.RateLimitException):
            make()
    assert [type(each) for each in source.fork(count=2)] == [e2b.RateLimitException] * 2
    for count in (0, 21):
        wrong = httpx.post(
            f"{url}/sandboxes/{source.sandbox_id}/fork",
            headers={"X-API-Key": "e2b_hoarder"},
            json={"count": count},
        )
        assert wrong.status_code == 400
    Sandbox.delete_snapshot(taken[0].snapshot_id, **there)
    one, other = source.fork(count=2)
    assert isinstance(one, Sandbox)
    assert isinstance(other, e2b.RateLimitException)
    for each in taken[1:]:
        assert Sandbox.delete_snapshot(each.snapshot_id, **there)
    source.kill()
    one.kill()


def test_a_snapshot_deleted_during_a_creation_is_whole_or_missing(
    url: str, sandbox: Sandbox
) -> None:
    sandbox.commands.run("head -c 5M /dev/urandom > /srv/f; sha256sum /srv/f > /srv/sum")

    def create(name: str) -> int | None:
        try:
            made = Sandbox.create(name, **reached(url))
        except SandboxException as error:
            assert "404" in str(error)  # noqa: PT017 - it may as well succeed
            return None
        exit_code = made.commands.run("sha256sum -c /srv/sum").exit_code
        made.kill()
        return exit_code

    with ThreadPoolExecutor(3) as threads:
        for _ in range(4):
            taken = sandbox.create_snapshot().snapshot_id
            creating = [threads.submit(create, taken) for _ in range(2)]
            deleting = threads.submit(Sandbox.delete_snapshot, taken, **reached(url))
            assert deleting.result()
            assert {each.result() for each in creating} <= {0, None}


def test_a_copy_or_fork_does_not_delay_the_end_of_other_sandboxes(system: System) -> None:
    async def scenario() -> None:
        sandboxes = Sandboxes(system, Limits(), 9)
        source = await sandboxes.create("key", NewSandbox(auto_pause=True))
        other = await sandboxes.create("key", NewSandbox())
        source.ends = other.ends = 0.0
        async with source.turn:  # as during a copy
            await asyncio.wait_for(sandboxes.sweep(), 60)
        assert (source.state, other.state) == ("running", "ended")
        forking = asyncio.create_task(sandboxes.fork(source, 2, 300))
        while not sandboxes._opening:
            await next_turn()
        assert not source.turn.locked()
        await sandboxes.sweep()
        assert source.state == "paused"
        assert [type(made) for made in await forking] == [ClientSandbox] * 2
        await sandboxes.close()

    asyncio.run(scenario())


def test_a_client_that_does_not_read_stops_only_its_own_command(sandbox: Sandbox) -> None:
    flood = sandbox.commands.run("yes; echo", background=True)
    assert sandbox.commands.run("echo on").stdout == "on\n"
    assert flood.kill()
    deaf = sandbox.commands.run("sleep 300", background=True, stdin=True)
    large = bytes(700_000)
    with pytest.raises(SandboxException):
        sandbox.commands.stream_input(deaf.pid, [large] * 20, timeout=1)
    assert sandbox.commands.run("echo on").stdout == "on\n"


def test_root_inside_deceives_nobody_but_itself(sandbox: Sandbox) -> None:
    sandbox.files.write("/tmp/f", "x")
    lies = (
        'printf "f\\0"',
        'printf "f\\0f\\0x\\0y\\0z\\0u\\0g\\0t\\0l\\0p\\0"',
        'printf "f\\0f\\099999999999999999999\\07777777\\0z\\0u\\0g\\0-9e9.9\\0l\\0p\\0"',
        'printf "f\\0f\\0-1\\0-7\\0z\\0u\\0g\\099999999999999999999.1\\0l\\0../../p\\0"',
        "head -c 40000000 /dev/zero",
        "kill -9 $PPID",
    )
    for lie in lies:
        program = f"#!/bin/bash\n{lie}\n"
        sandbox.commands.run(
            f"cd /usr/bin; rm -f find; echo {shlex.quote(program)} > find; chmod +x find"
        )
        for call in (sandbox.files.get_info, sandbox.files.list):
            with suppress(SandboxException):
                call("/tmp/f" if call == sandbox.files.get_info else "/tmp")
    assert sandbox.files.read("/tmp/f") == "x"
    sandbox.commands.run("kill -9 -1 || true", background=True)
    wait_until(lambda: not sandbox.commands.list(), "the end of the commands")
    assert sandbox.commands.run("echo on").stdout == "on\n"


@pytest.mark.parametrize("how", ["kill", "terminate", "interrupt"])
def test_nothing_stays_when_the_server_goes(how: str) -> None:
    with serving() as (server, address):
        opened = Sandbox.create(**reached(address))
        opened.commands.run("sleep 300", background=True)
        other = Sandbox.create(**reached(address))
        other.commands.run("sleep 300", background=True)
        other.pause()
        left = descendants(server.pid)
        assert left
        numbers = {"kill": signal.SIGKILL, "terminate": signal.SIGTERM}
        os.kill(server.pid, numbers.get(how, signal.SIGINT))
        server.wait(60)
        wait_until(lambda: not any(map(name_of, left)), "the end of all processes")
        if how != "kill":
            assert server.returncode == (130 if how == "interrupt" else 0)
