"""Programs of verifiers over our tasks, against a server that answers from a list."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from support.needs import needed_module

needed_module("verifiers")

from msgspec.structs import replace  # noqa: E402

from shioenv_agents.tasks.task import Goal, Task, write_tasks  # noqa: E402
from support.fronts_tasks import REPLIES, TASKS  # noqa: E402

pytestmark = pytest.mark.usefixtures("system")

PROGRAMS = Path(sys.executable).parent


class Model(ThreadingHTTPServer):
    """Returns the next line for the conversation's task, then gives up."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.replies = {name: [f"<line>{one}</line>" for one in REPLIES[name]] for name in REPLIES}
        self.tools: set[str] = set()

    def reply(self, asked: dict[str, Any]) -> str:
        messages = asked["messages"]
        task = next(task for task in TASKS if task.prompt in str(messages))
        said = sum(message["role"] == "assistant" for message in messages)
        lines = self.replies[task.id]
        return lines[said] if said < len(lines) else "I give up."


class Handler(BaseHTTPRequestHandler):
    server: Model

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.tools |= {tool["function"]["name"] for tool in asked.get("tools", ())}
        head: dict[str, Any] = {
            "id": "x",
            "object": "chat.completion.chunk",
            "created": 0,
            "model": "m",
        }
        said = {"role": "assistant", "content": self.server.reply(asked)}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        chunks: list[dict[str, Any]] = [
            {"choices": [{"index": 0, "delta": said, "finish_reason": None}]},
            {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
            {"choices": [], "usage": usage},
        ]
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for chunk in chunks:
            self.wfile.write(f"data: {json.dumps({**head, **chunk})}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def model() -> Iterator[Model]:
    server = Model()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def run(program: str, directory: Path, tasks: list[Task], prefix: str, *options: str) -> Path:
    """Return the one directory that a program of verifiers wrote about tasks."""
    write_tasks(tasks, directory / "tasks.jsonl")
    path = f"{PROGRAMS}:{os.environ['PATH']}"  # verifiers starts uv, which is there as well
    done = subprocess.run(
        [
            *(str(PROGRAMS / program), "shioenv_tasks", f"--{prefix}.file", "tasks.jsonl"),
            *("--no-rich", *options),
        ],
        cwd=directory,
        env=os.environ | {"PATH": path, "SHIOENV_TEST_KEY": "none"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (written,) = {path.parent for path in (directory / "outputs").rglob("*.jsonl")}
    return written


def played(directory: Path, model: Model, tasks: list[Task], *options: str) -> dict[str, Any]:
    """Return the trace of each task's rollout, by the task's id."""
    url = f"http://127.0.0.1:{model.server_port}/v1"
    client = ("--client.base-url", url, "--client.api-key-var", "SHIOENV_TEST_KEY")
    written = run(
        "vf-eval", directory, tasks, "env.taskset", "-m", "m", *client, "--no-push", *options
    )
    rollouts = [json.loads(line) for line in (written / "traces.jsonl").read_text().splitlines()]
    return {one["task"]["data"]["id"]: one["traces"][0] for one in rollouts}


def reward(trace: dict[str, Any]) -> float:
    return float(trace["rewards"]["reached"]["score"])


def test_solutions_are_valid_and_doing_nothing_is_not(tmp_path: Path) -> None:
    holds = replace(TASKS[1], id="holds", goal=Goal(patch=[]))
    tasks = [*TASKS, replace(TASKS[0], id="wrong", solution="true"), holds]
    written = run("vf-validate", tmp_path, tasks, "taskset", "--runtime.type", "subprocess")
    rows = [json.loads(line) for line in (written / "results.jsonl").read_text().splitlines()]
    told = {row["name"]: (row["gold"]["valid"], row["noop"]["valid"]) for row in rows}
    assert told == {
        "gone": (True, True),
        "user": (True, True),
        "wrong": (False, True),
        "holds": (True, False),
    }


def test_a_model_plays_by_lines_alone(tmp_path: Path, model: Model) -> None:
    model.replies["gone"].insert(0, "Sure!")
    traces = played(tmp_path, model, TASKS)
    assert {name: reward(trace) for name, trace in traces.items()} == {"gone": 1.0, "user": 1.0}
    assert traces["user"]["metrics"]["progress"] == 1.0
    assert "no line found" in json.dumps(traces["gone"])
    assert not model.tools


@pytest.mark.parametrize(("fewer", "reached"), [(0, 1.0), (1, 0.0)])
def test_the_last_reply_that_is_allowed_counts(
    tmp_path: Path, model: Model, fewer: int, reached: float
) -> None:
    turns = str(len(REPLIES["gone"]) - fewer)
    traces = played(tmp_path, model, TASKS[:1], "--env.taskset.max-turns", turns)
    assert reward(traces["gone"]) == reached
