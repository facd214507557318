"""Tools for agents, called by the protocol's own client over both transports."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.needs import needed_module

needed_module("mcp")

import httpx2  # noqa: E402
from mcp import Client  # noqa: E402

from support.mcp_server import (  # noqa: E402
    COMMAND,
    KEYS,
    MODES,
    called,
    over_http,
    over_stdio,
    refused,
    serving,
)

pytestmark = pytest.mark.usefixtures("system")

TOOLS = ["run", "preview", "shell", "predict"]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with files that a command could destroy."""
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "old.o").write_text("x\n")
    (tmp_path / "settings.ini").write_text("debug = true\nport = 8080\n")
    return tmp_path


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with two keys."""
    place = tmp_path_factory.mktemp("served")
    file = tmp_path_factory.mktemp("keys") / "keys"
    file.write_text("\n".join(KEYS))
    with serving(place, "--key-file", str(file)) as (_, address):
        yield address


@pytest.mark.parametrize("mode", MODES)
def test_each_tool_answers_over_standard_input_and_output(place: Path, mode: str) -> None:
    async def script() -> None:
        async with over_stdio(place, mode=mode) as client:
            listed = (await client.list_tools()).tools
            assert [tool.name for tool in listed] == TOOLS
            assert all(tool.output_schema and tool.description for tool in listed)
            ran = await called(client, "run", command="echo hi > new; cat new; exit 3")
            assert (ran["output"], ran["exit_code"]) == ("hi\n", 3)
            assert {"change": "added", "name": "new"}.items() <= ran["changes"][0].items()
            assert ran["context_patch"][0][:2] == ["a", "/fs/new"]
            again = await called(client, "run", command="ls new", stdin="x")
            assert again["exit_code"] != 0
            guess = await called(client, "predict", command="echo $x", history=["x=5"])
            assert guess["output"] == "5\n"
            assert 0 <= guess["confidence"] <= 1

    asyncio.run(script())


def test_a_preview_reports_changes_and_makes_none(place: Path) -> None:
    async def script() -> None:
        async with over_stdio(place) as client:
            made = await called(
                client, "preview", command="sed -i s/8080/80/ settings.ini; rm -r build"
            )
            changed = {(each["change"], each["name"]) for each in made["changes"]}
            assert {("removed", "build"), ("changed", "settings.ini")} <= changed
            assert "+port = 80\n" in made["diff"]
            inner = await called(client, "preview", command="pwd", cwd="build")
            assert inner["output"] == f"{place}/build\n"
            assert "outside" in await refused(client, "preview", command="true", cwd="..")

    asyncio.run(script())
    assert (place / "settings.ini").read_text() == "debug = true\nport = 8080\n"
    assert (place / "build" / "old.o").exists()


def test_a_shell_keeps_its_state_forks_and_reports_all_changes(place: Path) -> None:
    async def script() -> None:
        async with over_stdio(place) as client:
            shell = (await called(client, "shell", action="open", cwd="/tmp"))["shell"]

            async def line(name: str, command: str) -> Any:
                return await called(client, "shell", action="run", shell=name, command=command)

            await line(shell, "x=1; echo one > f")
            copy = (await called(client, "shell", action="fork", shell=shell))["shell"]
            assert copy != shell
            await line(copy, "x=2")
            assert (await line(shell, "echo $x; cat f"))["effects"]["output"] == "1\none\n"
            whole = await called(client, "shell", action="patch", shell=shell)
            names = {each["name"] for each in whole["effects"]["changes"]}
            assert {"f", "settings x"} <= names
            assert (await line(copy, "exit 4"))["open"] is False
            await called(client, "shell", action="close", shell=shell)
            assert "is not open" in await refused(
                client, "shell", action="run", shell=shell, command="true"
            )
            for wrong in ({"action": "run"}, {"action": "run", "shell": copy}, {"action": "go"}):
                await refused(client, "shell", **wrong)

    asyncio.run(script())


def test_progress_is_reported_while_a_command_runs(place: Path) -> None:
    reports: list[float] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        reports.append(progress)

    async def script() -> None:
        async with over_stdio(place) as client:
            await client.call_tool("run", {"command": "sleep 1.5"}, progress_callback=note)

    asyncio.run(script())
    assert len(reports) >= 2
    assert reports == sorted(set(reports))


def test_a_missing_guest_is_reported_with_its_installer(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The packages are those of this environment, without the one of the models."""
    hidden = place / "sitecustomize.py"
    hidden.write_text(
        "import importlib.metadata as m\n"
        "found = m.entry_points\n"
        "m.entry_points = lambda **k: [] if 'answerers' in k.get('group', '') else found(**k)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(place))

    async def script() -> None:
        async with over_stdio(place) as client:
            assert "shioenv[model]" in await refused(client, "predict", command="ls")

    asyncio.run(script())


@pytest.mark.parametrize("mode", MODES)
def test_clients_over_http_share_a_server_and_no_shells(url: str, mode: str) -> None:
    async def script() -> None:
        async with (
            over_http(url, KEYS[0], mode=mode) as one,
            over_http(url, KEYS[1], mode=mode) as other,
        ):
            assert [tool.name for tool in (await one.list_tools()).tools] == TOOLS
            shells = await asyncio.gather(
                *(called(client, "shell", action="open") for client in (one, other))
            )
            ids = [shell["shell"] for shell in shells]
            for client, id_ in zip((one, other), ids, strict=True):
                await called(client, "shell", action="run", shell=id_, command=f"x={id_}")
            answers = await asyncio.gather(
                *(
                    called(client, "shell", action="run", shell=id_, command="echo $x")
                    for client, id_ in zip((one, other), ids, strict=True)
                )
            )
            assert [each["effects"]["output"].strip() for each in answers] == ids
            for action in ("run", "close", "patch", "fork"):
                said = await refused(other, "shell", action=action, shell=ids[0], command="x=9")
                assert "is not open" in said

    asyncio.run(script())


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": f"Bearer {KEYS[0]}", "Host": "evil.example:80"}, 421),
        ({"Authorization": f"Bearer {KEYS[0]}", "Origin": "http://evil.example"}, 403),
        ({"Authorization": f"Bearer {KEYS[0]}", "Origin": "null"}, 403),
    ],
)
def test_strangers_and_pages_of_other_sites_are_refused(
    url: str, headers: dict[str, str], status: int
) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    accepted = {"Accept": "application/json, text/event-stream"}
    answer = httpx2.post(url, json=message, headers={**accepted, **headers})
    assert answer.status_code == status


def test_without_a_key_there_is_no_preview_over_http(place: Path) -> None:
    async def script(address: str) -> None:
        async with over_http(address, None) as client:
            assert "preview" not in {tool.name for tool in (await client.list_tools()).tools}
            assert "unknown tool" in await refused(client, "preview", command="true")

    with serving(place) as (_, address):
        asyncio.run(script(address))


@pytest.mark.parametrize(
    "options",
    [
        ("--http", "--tool", "preview"),
        ("--http", "--host", "0.0.0.0"),
        ("--tool", "nothing"),
        ("--root", "/nowhere"),
    ],
)
def test_wrong_options_are_refused_with_status_2(options: tuple[str, ...]) -> None:
    done = subprocess.run([*COMMAND, *options], stdin=subprocess.DEVNULL, capture_output=True)
    assert done.returncode == 2, done.stderr


class ScriptedAgent:
    """An agent that runs a command for real only if its preview touches nothing but some files."""

    def __init__(self, client: Client, place: Path, allowed: set[str]) -> None:
        self._client, self._place, self._allowed = client, place, allowed

    async def work(self, command: str) -> str:
        made = await called(self._client, "preview", command=command)
        touched = {each["name"].split("/")[0] for each in made["changes"]} - {"."}
        if touched - self._allowed:
            return f"refused: {', '.join(sorted(touched - self._allowed))}"
        return subprocess.run(
            ["bash", "-c", command], cwd=self._place, capture_output=True, text=True, check=True
        ).stdout


def test_a_scripted_agent_works_by_previews(place: Path) -> None:
    async def script() -> list[str]:
        async with over_stdio(place) as client:
            agent = ScriptedAgent(client, place, {"settings.ini"})
            shell = (await called(client, "shell", action="open"))["shell"]
            practised = await called(
                client,
                "shell",
                action="run",
                shell=shell,
                command="echo port = 8080 > f; sed -i s/8080/80/ f; cat f",
            )
            assert practised["effects"]["output"] == "port = 80\n"
            commands = ["rm -rf build *.ini.bak", "sed -i s/8080/80/ settings.ini", "cat *.ini"]
            return [await agent.work(command) for command in commands]

    assert asyncio.run(script()) == ["refused: build", "", "debug = true\nport = 80\n"]
    assert (place / "build" / "old.o").exists()


def test_the_server_ends_with_its_client_and_prints_nothing_else(place: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "--root", str(place)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert sys.executable == COMMAND[0]
