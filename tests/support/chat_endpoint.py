"""An endpoint of OpenAI's protocol that answers chat completions from a table."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Endpoint(ThreadingHTTPServer):
    """Answers chat completions from a table, by the last message of the user."""

    def __init__(self, replies: dict[str, str]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.replies = replies
        self.asked: list[dict[str, Any]] = []
        self.refusals = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(asked)
        if self.server.refusals:
            self.server.refusals -= 1
            return self.answer(503, {"error": {"message": "busy"}})
        text = self.server.replies.get(asked["messages"][-1]["content"], "what?")
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107}
        document = {"id": "x", "object": "chat.completion", "created": 0, "model": "m"}
        return self.answer(200, {**document, "choices": [choice], "usage": usage})

    def answer(self, status: int, document: dict[str, Any]) -> None:
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass
