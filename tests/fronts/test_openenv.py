"""Tasks over a real socket, by OpenEnv's own client and server."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from needs import needed_module

needed_module("openenv")

from fronts_tasks import REPLIES, TASKS  # noqa: E402

from shioenv.fronts.openenv import TaskClient, TypedLine  # noqa: E402
from shioenv.tasks.task import write_tasks  # noqa: E402

pytestmark = pytest.mark.usefixtures("system")


@contextmanager
def serving(directory: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start `shioenv serve openenv` as people do, on a port of the host's choice: its address."""
    file = directory / "tasks.jsonl"
    write_tasks(TASKS, file)
    command = [sys.executable, "-m", "shioenv.cli.main", "serve", "openenv", str(file)]
    with subprocess.Popen(
        [*command, "--port", "0", "--max-turns", "4", "--sessions", "2"],
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


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_server_that_is_stopped_ends_its_sessions_and_leaves_no_process(
    tmp_path: Path, number: signal.Signals, status: int
) -> None:
    with serving(tmp_path) as (server, address), ThreadPoolExecutor(1) as threads:
        session = client(address).__enter__()
        session.reset(task=TASKS[0].id)
        running = threads.submit(session.step, TypedLine(line="sleep 2"))
        while "sleep" not in map(name_of, left := below(server.pid)):
            assert not running.done(), running.result()
            time.sleep(0.01)
        server.send_signal(number)
        _, said = server.communicate(timeout=60)
        assert server.returncode == status
        assert said == ("interrupted\n" if status else "")
        assert not any(name_of(each) for each in left)
        assert running.exception(60) is not None or running.result().done


def below(process: int) -> list[int]:
    """The descendants of a process."""
    found = []
    with suppress(OSError):
        for thread in Path(f"/proc/{process}/task").iterdir():
            for child in map(int, (thread / "children").read_text().split()):
                found += [child, *below(child)]
    return found


def name_of(process: int) -> str:
    """The name of a process; "" for one that is gone."""
    with suppress(OSError):
        return Path(f"/proc/{process}/comm").read_text().strip()
    return ""


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
        ("reset", {"task": "nosuch"}, 404, "no task is called 'nosuch'"),
    ],
)
def test_what_plain_http_cannot_do_is_said(
    url: str, path: str, body: dict[str, Any], status: int, said: str
) -> None:
    """Each of its requests has an environment of its own, by OpenEnv's design."""
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
