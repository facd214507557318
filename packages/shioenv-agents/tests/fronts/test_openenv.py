"""Tasks over a real socket, by OpenEnv's own client and server."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.needs import needed_module

needed_module("openenv")

from websockets.exceptions import ConnectionClosed  # noqa: E402
from websockets.sync.client import connect  # noqa: E402

from faults import descendants  # noqa: E402
from shioenv.errors import LimitsError  # noqa: E402
from shioenv_agents.fronts.openenv import (  # noqa: E402
    IDLE_CODE,
    IdleSessions,
    TaskClient,
    TypedLine,
    application,
)
from shioenv_agents.tasks.task import write_tasks  # noqa: E402
from support.fronts_tasks import REPLIES, TASKS, sandboxes  # noqa: E402
from support.waiting import wait_until  # noqa: E402
from visiting import name_of  # noqa: E402

pytestmark = pytest.mark.usefixtures("system")


@contextmanager
def serving(directory: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start `shioenv serve openenv` as users do, on a free port; yield its address."""
    file = directory / "tasks.jsonl"
    write_tasks(TASKS, file)
    command = [sys.executable, "-m", "shioenv.cli.main", "serve", "openenv", str(file)]
    with subprocess.Popen(
        [*command, "--port", "0", "--max-turns", "4", "--sessions", "2", *options],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as server:
        assert server.stderr is not None
        address = None
        for line in server.stderr:
            if found := re.search(r"running on (http://\S+)", line):
                address = found[1]
                break
        try:
            assert address, "the server ended before it listened"
            yield server, address
        finally:
            server.terminate()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("openenv")) as (_, address):
        yield address


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """Start a server whose sessions wait two seconds for their clients; yield its address and
    PID."""
    with serving(tmp_path_factory.mktemp("impatient"), "--idle", "2") as (server, address):
        yield address, server.pid
        server.terminate()
        assert "Traceback" not in server.communicate(timeout=60)[1]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_server_that_is_stopped_ends_its_sessions_and_leaves_no_process(
    tmp_path: Path, number: signal.Signals, status: int
) -> None:
    with serving(tmp_path) as (server, address), ThreadPoolExecutor(1) as threads:
        session = client(address).__enter__()
        session.reset(task=TASKS[0].id)
        running = threads.submit(session.step, TypedLine(line="sleep 2"))

        def processes_with_sleep() -> list[int]:
            assert not running.done(), running.result()
            found = descendants(server.pid)
            return found if "sleep" in map(name_of, found) else []

        left = wait_until(processes_with_sleep, "the line's sleep")
        server.send_signal(number)
        _, said = server.communicate(timeout=60)
        assert server.returncode == status
        assert said == ("interrupted\n" if status else "")
        assert not any(name_of(each) for each in left)
        assert running.exception(60) is not None or running.result().done


def client(url: str) -> Any:
    return TaskClient(base_url=url).sync()


def test_it_answers_over_http(url: str) -> None:
    with urllib.request.urlopen(f"{url}/health", timeout=60) as answer:
        assert answer.status == 200
    with urllib.request.urlopen(f"{url}/schema", timeout=60) as answer:
        assert "line" in json.load(answer)["action"]["properties"]


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        ("step", {"action": {"line": "ls"}}, 409, "WebSocket"),
        ("step", {"action": {"lin": "ls"}}, 422, "lin"),
        ("reset", {"task": "nosuch"}, 404, "unknown task 'nosuch'"),
    ],
)
def test_what_plain_http_cannot_do_is_said(
    url: str, path: str, body: dict[str, Any], status: int, said: str
) -> None:
    """Each HTTP request has a separate environment, by OpenEnv's design."""
    kind = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/{path}", json.dumps(body).encode(), kind)
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=60)
    assert refused.value.code == status
    assert said in refused.value.read().decode()


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)
def test_a_scripted_agent_does_a_task(url: str, task: Any) -> None:
    with client(url) as session:
        first = session.reset(task=task.id)
        assert task.prompt in first.observation.text
        for line in REPLIES[task.id]:
            assert not first.done
            first = session.step(TypedLine(line=line))
        assert (first.reward, first.done, first.observation.progress) == (1.0, True, 1.0)
        assert session.state().step_count == len(REPLIES[task.id])


def test_the_last_line_ends_it_unsolved(url: str) -> None:
    with client(url) as session:
        session.reset(task=TASKS[0].id)
        done = [session.step(TypedLine(line="true")) for _ in range(4)]
        assert [one.done for one in done] == [False, False, False, True]
        assert done[-1].reward == 0.0


def test_two_agents_do_not_see_each_other(url: str) -> None:
    with client(url) as one, client(url) as other:
        one.reset(task=TASKS[0].id)
        other.reset(task=TASKS[0].id)
        one.step(TypedLine(line="touch mine"))
        assert "mine" in one.step(TypedLine(line="ls")).observation.text
        assert "mine" not in other.step(TypedLine(line="ls")).observation.text


def session_of(url: str) -> Any:
    """Open a WebSocket by another client than OpenEnv's own, which does not reconnect."""
    return connect(url.replace("http:", "ws:") + "/ws", open_timeout=60)


def send(session: Any, kind: str, **data: Any) -> None:
    session.send(json.dumps({"type": kind, "data": data}))


def received(session: Any, kind: str = "observation") -> dict[str, Any]:
    answer = json.loads(session.recv(timeout=60))
    assert answer["type"] == kind, answer
    data: dict[str, Any] = answer["data"]
    return data


def wait_for_no_machine(server: int) -> None:
    wait_until(lambda: not sandboxes(server), "the end of all machines")


def test_silent_sessions_end_with_their_machines_and_make_room(impatient: tuple[str, int]) -> None:
    url, server = impatient
    with ExitStack() as stack:
        sessions = []
        for _ in range(2):
            sessions.append(stack.enter_context(session_of(url)))
            send(sessions[-1], "reset", task=TASKS[0].id)
            received(sessions[-1])
        assert sandboxes(server)
        for silent in sessions:
            assert received(silent, "error") == {
                "message": "the session was idle for 2 seconds",
                "code": "SESSION_ERROR",
            }
            with pytest.raises(ConnectionClosed) as closed:
                silent.recv(timeout=60)
            assert closed.value.rcvd is not None
            assert (closed.value.rcvd.code, "idle" in closed.value.rcvd.reason) == (IDLE_CODE, True)
            with pytest.raises(ConnectionClosed, match="idle"):
                send(silent, "step", line="ls")
        wait_for_no_machine(server)
        with session_of(url) as next_one:
            send(next_one, "reset", task=TASKS[0].id)
            assert TASKS[0].prompt in received(next_one)["observation"]["text"]


def test_a_connection_that_never_sends_anything_ends(impatient: tuple[str, int]) -> None:
    with session_of(impatient[0]) as silent:
        assert "idle" in received(silent, "error")["message"]


def test_a_session_whose_line_runs_is_not_idle(impatient: tuple[str, int]) -> None:
    with session_of(impatient[0]) as session:
        send(session, "reset", task=TASKS[0].id)
        send(session, "step", line="sleep 4; echo slept")  # twice as long as a client may be silent
        send(session, "step", line="echo awake")
        texts = [received(session)["observation"]["text"] for _ in range(3)]
        assert [text.strip() for text in texts[1:]] == ["slept", "awake"]


def test_a_client_that_vanishes_while_a_line_runs_ends_its_session(
    impatient: tuple[str, int],
) -> None:
    url, server = impatient
    with session_of(url) as session:
        send(session, "reset", task=TASKS[0].id)
        received(session)
        send(session, "step", line="sleep 1")
        session.socket.shutdown(socket.SHUT_RDWR)
    wait_for_no_machine(server)


def test_its_client_is_told_that_the_session_ended(impatient: tuple[str, int]) -> None:
    url, server = impatient
    with client(url) as session:
        session.reset(task=TASKS[0].id)
        wait_for_no_machine(server)
        with pytest.raises(RuntimeError, match="idle"):
            session.step(TypedLine(line="ls"))
        assert session.reset(task=TASKS[0].id).observation.text


def test_over_http_nobody_makes_sessions_that_no_client_holds(impatient: tuple[str, int]) -> None:
    url, _ = impatient
    call = {"jsonrpc": "2.0", "id": 1, "method": "openenv/session/create", "params": {}}
    for _ in range(2):
        request = urllib.request.Request(
            f"{url}/mcp", json.dumps(call).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert "WebSocket (/ws)" in json.load(answer)["error"]["message"]
    with client(url) as session:
        assert session.reset(task=TASKS[0].id).observation.text


def test_a_client_that_takes_no_answer_is_gone_too() -> None:
    """For example a process that was stopped while it had many answers to read."""

    async def answering(scope: Any, receive: Any, send: Any) -> None:
        for _ in range(2):
            await send({"type": "websocket.send", "text": "an answer"})
        kinds.append((await receive())["type"])

    async def never(*message: Any) -> Any:
        await asyncio.Event().wait()

    kinds: list[str] = []
    asyncio.run(IdleSessions(answering, 0.01)({"type": "websocket"}, never, never))
    assert kinds == ["websocket.disconnect"]


@pytest.mark.parametrize("idle", [0.0, -1.0, float("nan"), float("inf")])
def test_impossible_idle_times_are_refused(idle: float) -> None:
    with pytest.raises(LimitsError, match="idle_seconds"):
        application(TASKS, idle_seconds=idle)
