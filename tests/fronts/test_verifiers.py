"""Rollouts of verifiers with its own client, against a server that answers from a list."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from needs import needed_module

vf = needed_module("verifiers")

from fronts_tasks import REPLIES, TASKS, sandboxes  # noqa: E402
from msgspec.structs import replace  # noqa: E402
from openai import AsyncOpenAI  # noqa: E402
from verifiers.clients import OpenAIChatCompletionsClient  # noqa: E402

from shioenv.fronts.verifiers import load_environment  # noqa: E402
from shioenv.tasks.task import Goal, Task, encode, write_tasks  # noqa: E402

pytestmark = pytest.mark.usefixtures("system")


class Model(ThreadingHTTPServer):
    """Says the next line of the task that a conversation is about, then gives up."""

    def __init__(self, replies: dict[str, list[str]]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.replies = replies
        self.last: str | None = "I give up."

    def reply(self, messages: list[dict[str, Any]]) -> str | None:
        """None: the conversation is too long for it."""
        task = next(task for task in TASKS if task.prompt in str(messages[0]["content"]))
        said = sum(message["role"] == "assistant" for message in messages)
        lines = self.replies[task.id]
        return lines[said] if said < len(lines) else self.last


class Handler(BaseHTTPRequestHandler):
    server: Model

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        reply = self.server.reply(asked["messages"])
        if reply is None:
            said = b'{"error": {"message": "This model\'s maximum context length is 1 token"}}'
            self.send_response(400)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)
            return
        message = {"role": "assistant", "content": reply}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        document = {"id": "x", "object": "chat.completion", "created": 0, "model": "m"}
        content = json.dumps({**document, "choices": [choice], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def model() -> Iterator[Model]:
    server = Model(
        {name: [f"<line>{one}</line>" for one in said] for name, said in REPLIES.items()}
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def rollouts(tmp_path: Path, model: Model, tasks: list[Task], **options: Any) -> list[Any]:
    write_tasks(tasks, tmp_path / "tasks.jsonl")
    environment = load_environment(tmp_path / "tasks.jsonl", **options)
    url = f"http://127.0.0.1:{model.server_port}/v1"
    client = OpenAIChatCompletionsClient(AsyncOpenAI(base_url=url, api_key="none"))
    done = asyncio.run(environment.evaluate(client, model="m", num_examples=-1))
    return list(done["outputs"])


def test_a_scripted_model_does_every_task(tmp_path: Path, model: Model) -> None:
    outputs = rollouts(tmp_path, model, TASKS)
    assert [one["reward"] for one in outputs] == [1.0, 1.0]
    assert [one["metrics"]["progress"] for one in outputs] == [1.0, 1.0]


def test_the_last_line_that_is_allowed_counts(tmp_path: Path, model: Model) -> None:
    (output,) = rollouts(tmp_path, model, TASKS[:1], max_turns=len(REPLIES["gone"]))
    assert output["reward"] == 1.0
    (output,) = rollouts(tmp_path / "less", model, TASKS[:1], max_turns=len(REPLIES["gone"]) - 1)
    assert output["reward"] == 0.0


def test_a_line_is_typed_once_where_the_conversation_grows_too_long(
    tmp_path: Path, model: Model
) -> None:
    entry = {"perms": "-rw-r--r--", "links": 1, "owner": "root", "group": "root", "size": 4}
    entry |= {"month": "Oct", "day": 16, "year": 2025, "time": "19:43"}
    twice = replace(TASKS[1], goal=Goal(patch=[["a", "/fs/made", entry]], output="x\nx\n"))
    model.replies["user"] = ["<line>true</line>", "<line>echo x >> made; cat made</line>"]
    model.last = None
    before = sandboxes()
    (output,) = rollouts(tmp_path, model, [twice])
    assert (output["reward"], output["is_truncated"]) == (0.0, True)
    assert output["error"] is None
    assert sandboxes() == before


def test_a_rollout_that_was_cut_off_after_its_end_is_closed(tmp_path: Path) -> None:
    write_tasks(TASKS[:1], tmp_path / "tasks.jsonl")
    environment = load_environment(tmp_path / "tasks.jsonl")

    async def run() -> dict[str, Any]:
        state: dict[str, Any] = {"info": {"shioenv": encode(TASKS[0]).decode()}}
        await environment.setup_state(state)
        line = f"<line>{TASKS[0].solution}</line>"
        state["trajectory"] = [{"completion": [{"role": "assistant", "content": line}]}]
        state["episode"].act(TASKS[0].solution)
        await environment.leave(state)
        return state

    before = sandboxes()
    state = asyncio.run(run())
    assert (state["reached"], state["progress"]) == (1.0, 1.0)
    assert "seat" not in state
    assert sandboxes() == before


def test_a_reply_without_a_line_is_told_so(tmp_path: Path, model: Model) -> None:
    model.replies["gone"] = ["Sure!", *model.replies["gone"]]
    (output,) = rollouts(tmp_path, model, TASKS[:1])
    assert output["reward"] == 1.0
    assert "no line was found" in str(output["completion"])
