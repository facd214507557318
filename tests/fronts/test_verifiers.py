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

vf = pytest.importorskip("verifiers", reason="not installed: make test-fronts")

from fronts_tasks import REPLIES, TASKS  # noqa: E402
from openai import AsyncOpenAI  # noqa: E402
from verifiers.clients import OpenAIChatCompletionsClient  # noqa: E402

from shioenv.fronts.verifiers import load_environment  # noqa: E402
from shioenv.tasks.task import Task, write_tasks  # noqa: E402

pytestmark = pytest.mark.usefixtures("system")


class Model(ThreadingHTTPServer):
    """Says the next line of the task that a conversation is about, then gives up."""

    def __init__(self, replies: dict[str, list[str]]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.replies = replies

    def reply(self, messages: list[dict[str, Any]]) -> str:
        task = next(task for task in TASKS if task.prompt in str(messages[0]["content"]))
        said = sum(message["role"] == "assistant" for message in messages)
        lines = self.replies[task.id]
        return lines[said] if said < len(lines) else "I give up."


class Handler(BaseHTTPRequestHandler):
    server: Model

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        message = {"role": "assistant", "content": self.server.reply(asked["messages"])}
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


def test_a_reply_without_a_line_is_told_so(tmp_path: Path, model: Model) -> None:
    model.replies["gone"] = ["Sure!", *model.replies["gone"]]
    (output,) = rollouts(tmp_path, model, TASKS[:1])
    assert output["reward"] == 1.0
    assert "no line was found" in str(output["completion"])
