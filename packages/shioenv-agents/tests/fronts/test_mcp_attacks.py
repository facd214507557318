"""Hostile clients of the server: what they send, cancel and leave must not stay behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from support.needs import needed_module

needed_module("mcp")

from faults import descendants  # noqa: E402
from shioenv_agents.mcp.machines import OF_ONE_CLIENT  # noqa: E402
from shioenv_agents.mcp.transports import LARGEST_MESSAGE  # noqa: E402
from support.mcp_server import (  # noqa: E402
    COMMAND,
    called,
    over_http,
    over_stdio,
    refused,
    serving,
)
from support.waiting import wait_until  # noqa: E402
from visiting import name_of  # noqa: E402

pytestmark = pytest.mark.usefixtures("system")

HELLO = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "raw", "version": "0"},
    },
}


class RawClient:
    """A client that writes any bytes, and reads messages."""

    def __init__(self, server: subprocess.Popen[bytes]) -> None:
        self.server = server

    def send(self, *messages: Any) -> None:
        assert self.server.stdin is not None
        for message in messages:
            raw = message if isinstance(message, bytes) else json.dumps(message).encode()
            self.server.stdin.write(raw + b"\n")
        self.server.stdin.flush()

    def answer(self, number: Any) -> dict[str, Any]:
        """Return the next answer to a request; other messages are skipped."""
        assert self.server.stdout is not None
        for line in self.server.stdout:
            message: dict[str, Any] = json.loads(line)
            if message.get("id") == number:
                return message
        raise AssertionError("the server ended")


@contextmanager
def raw(root: Path) -> Iterator[RawClient]:
    words = [*COMMAND, "--root", str(root)]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as server:
        client = RawClient(server)
        client.send(HELLO, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        client.answer(0)
        try:
            yield client
        finally:
            server.kill()


def call(number: Any, tool: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


def test_a_session_survives_messages_that_are_none(tmp_path: Path) -> None:
    with raw(tmp_path) as client:
        client.send(
            b"",
            b"{",
            b"\xff\xfe\x00",
            b"[" * 100_000,
            b"[]",
            b"null",
            b'{"jsonrpc": "2.0", "id": {}, "method": "tools/call"}',
            b'{"jsonrpc": "2.0", "id": 5, "method": 7}',
            b"x" * (2 * LARGEST_MESSAGE),
            json.dumps(call(6, "run", command="x" * (2 * LARGEST_MESSAGE))).encode(),
            call(8, "run", command="\ud800"),
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 99}},
            call(7, "run", command="echo still here"),
        )
        answer = client.answer(7)["result"]
        assert answer["structuredContent"]["output"] == "still here\n"


WRONG: tuple[dict[str, Any], ...] = (
    {},
    {"command": ""},
    {"command": 7},
    {"command": "x" * 200_000},
    {"command": "a\0b"},
    {"command": "true", "more": 1},
    {"command": "true", "timeout_seconds": -1},
    {"command": "true", "timeout_seconds": 1e9},
    {"command": "true", "output_limit": 10**9},
    {"command": "true", "cwd": "/no/such"},
    {"command": "true", "cwd": "a\0b"},
    {"command": "\u00e9" * 100_000},
)
"""Arguments that no tool accepts."""


def test_wrong_arguments_are_errors_that_a_model_can_read(tmp_path: Path) -> None:
    with raw(tmp_path) as client:
        for number, (tool, given) in enumerate(product(("run", "preview"), WRONG), 10):
            client.send(call(number, tool, **given))
            result = client.answer(number)["result"]
            assert result["isError"], (tool, given, result)
            assert "Traceback" not in json.dumps(result)
        client.send(call(1, "run", command="echo on"))
        assert client.answer(1)["result"]["structuredContent"]["output"] == "on\n"


def test_results_are_bounded_and_say_so(tmp_path: Path) -> None:
    async def script() -> None:
        async with over_stdio(tmp_path) as client:
            flood = await called(client, "run", command="yes | head -c 10000000", output_limit=100)
            assert len(flood["output"]) < 200
            assert flood["output_omitted"] > 0
            assert flood["output_truncated"]
            files = await called(client, "run", command="mkdir d; touch d/{1..5000}")
            assert files["changes_omitted"] > 0
            assert len(json.dumps(files)) < 200_000
            large = await called(client, "preview", command="seq 40000 > new; seq 9999 > b")
            assert len(json.dumps(large)) < 200_000
            assert large["diff_truncated"] or large["diff_omitted"]
            for command, limit in (
                ("while :; do :; done", "wall_seconds"),
                ("x=y; while :; do x=$x$x; done", "memory_bytes"),
            ):
                over = await called(client, "run", command=command, timeout_seconds=2)
                assert over["limits_hit"], (limit, over)

    asyncio.run(script())


def test_an_id_that_is_used_again_gets_an_answer_each_time(tmp_path: Path) -> None:
    with raw(tmp_path) as client:
        client.send(*(call(1, "run", command="echo same") for _ in range(3)))
        client.send(call(2, "run", command="echo other"))
        assert client.answer(2)["result"]["structuredContent"]["output"] == "other\n"


def test_thousands_of_shells_are_refused_and_leave_room(tmp_path: Path) -> None:
    async def script() -> None:
        async with over_stdio(tmp_path) as client:
            answers = await asyncio.gather(
                *(client.call_tool("shell", {"action": "open"}) for _ in range(1000))
            )
            opened = [each.structured_content for each in answers if not each.is_error]
            assert len(opened) == OF_ONE_CLIENT
            assert "close one" in await refused(client, "shell", action="open")
            for each in opened:
                assert each is not None
                await called(client, "shell", action="close", shell=each["shell"])
            await called(client, "shell", action="open")

    asyncio.run(script())


def sleepers(server: int) -> list[int]:
    return [each for each in descendants(server) if name_of(each) == "sleep"]


@pytest.mark.parametrize("tool", ["run", "preview", "shell"])
def test_a_cancelled_call_ends_its_processes(tmp_path: Path, tool: str) -> None:
    with raw(tmp_path) as client:
        given: dict[str, Any] = {"command": "sleep 50", "timeout_seconds": 60}
        if tool == "shell":
            client.send(call(1, "shell", action="open"))
            shell = client.answer(1)["result"]["structuredContent"]["shell"]
            given |= {"action": "run", "shell": shell}
        client.send(call(2, tool, **given))
        wait_until(lambda: sleepers(client.server.pid), "the command")
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
        client.send({**cancel, "params": {"requestId": 2}})
        wait_until(lambda: not sleepers(client.server.pid), "the end of the command")
        client.send(call(3, "run", command="echo on"))
        assert client.answer(3)["result"]["structuredContent"]["output"] == "on\n"
        if tool == "shell":
            client.send(call(4, "shell", action="run", shell=given["shell"], command="true"))
            assert client.answer(4)["result"]["isError"]


@pytest.mark.parametrize("how", ["input", "kill", "terminate", "interrupt"])
def test_nothing_stays_when_the_client_goes(tmp_path: Path, how: str) -> None:
    with raw(tmp_path) as client:
        client.send(call(1, "shell", action="open"))
        shell = client.answer(1)["result"]["structuredContent"]["shell"]
        slow = {"command": "sleep 50", "timeout_seconds": 60}
        client.send(call(2, "shell", action="run", shell=shell, **slow))
        client.send(call(3, "run", **slow), call(4, "preview", **slow))
        server = client.server
        wait_until(lambda: len(sleepers(server.pid)) == 3, "the commands")
        left = descendants(server.pid)
        if how == "input":
            assert server.stdin is not None
            server.stdin.close()
        else:
            numbers = {"kill": signal.SIGKILL, "terminate": signal.SIGTERM}
            server.send_signal(numbers.get(how, signal.SIGINT))
        server.wait(60)
        wait_until(lambda: not any(map(name_of, left)), "the end of all processes")
        if how != "kill":
            assert server.returncode == (130 if how == "interrupt" else 0)
            assert server.stderr is not None
            assert b"Traceback" not in server.stderr.read()


def test_clients_of_http_that_go_leave_no_shell(tmp_path: Path) -> None:
    async def leave(url: str, mode: str) -> None:
        async with over_http(url, None, mode=mode) as client:
            shell = (await called(client, "shell", action="open"))["shell"]
            line = "sleep 300 & echo on"
            await called(client, "shell", action="run", shell=shell, command=line)

    with serving(tmp_path, "--idle", "3") as (server, url):
        asyncio.run(leave(url, "legacy"))  # ends its session
        wait_until(lambda: not sleepers(server.pid), "the end of the session's shell")
        asyncio.run(leave(url, "auto"))  # has no session
        wait_until(lambda: not sleepers(server.pid), "the end of the idle shell")


def test_a_body_over_http_is_bounded(tmp_path: Path) -> None:
    import httpx2

    headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    with serving(tmp_path) as (_, url):
        large = httpx2.post(url, content=b"x" * (LARGEST_MESSAGE + 1), headers=headers)
        assert large.status_code == 413
        for body in (b"{", b"[]", b"\xff", b"[" * 100_000):
            assert 400 <= httpx2.post(url, content=body, headers=headers).status_code < 500


def test_a_preview_shows_no_secret_and_no_other_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id").write_text("hunter2")
    monkeypatch.setenv("HOME", str(home))

    async def script() -> None:
        async with over_stdio(tmp_path) as client:
            seen = await called(
                client, "preview", command=f"cat {home}/.ssh/id; kill -9 {os.getpid()}; echo on"
            )
            assert "hunter2" not in seen["output"]
            assert seen["output"].endswith("on\n")

    asyncio.run(script())
