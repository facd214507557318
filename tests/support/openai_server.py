"""A server of `shioenv serve openai` as a process, and OpenAI's client for it."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai

KEY = "a-key"
LIMITED = (
    "import shioenv_serve.serving as serving; serving.REQUEST_SECONDS = {}; "
    "serving.MOST_CONNECTIONS = 80; from shioenv.cli.main import main; main()"
)
"""`shioenv`, with limits that a test chooses or reaches within a second."""


@dataclass(frozen=True)
class Server:
    process: subprocess.Popen[str]
    port: int
    log: Path

    def client(self, key: str = KEY) -> openai.OpenAI:
        url = f"http://127.0.0.1:{self.port}/v1"
        return openai.OpenAI(base_url=url, api_key=key, max_retries=0)

    def post(self, body: bytes, **headers: str) -> tuple[int, Any]:
        """Send a raw request; return its status and document."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(
                "POST", "/v1/chat/completions", body, {"Authorization": f"Bearer {KEY}", **headers}
            )
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def logged(self) -> list[dict[str, Any]]:
        """Return the log entries of each line."""
        lines = self.log.read_text().splitlines()
        told = {"shioenv.command", "shioenv.abstained"}
        return [event for event in map(json.loads, lines) if event["eventid"] in told]


@contextmanager
def serving(directory: Path, *options: str, request_seconds: float = 60) -> Iterator[Server]:
    """Start a server; a busy machine needs seconds to send it the requests of many clients."""
    code = LIMITED.format(request_seconds)
    log = directory / "visits.jsonl"
    words = [sys.executable, "-c", code, "serve", "openai", "--port", "0", "--log", str(log)]
    process = subprocess.Popen([*words, *options], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        port = None
        for line in process.stderr:
            if found := re.search(r"running on http://127\.0\.0\.1:(\d+)", line):
                port = int(found[1])
                break
        assert port, "the server ended before it listened"
        yield Server(process, port, log)
    finally:
        process.kill()
        process.communicate()
