"""`shioenv serve mcp` as tests start it, over both transports."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

KEYS = ("first-key", "second-key")
COMMAND = (sys.executable, "-m", "shioenv.cli.main", "serve", "mcp")
MODES = ("auto", "legacy")
"""The newest protocol, and the one with a handshake."""


def over_stdio(root: Path, *options: str, mode: str = "auto") -> Client:
    """Return a client of a new server whose previews start in `root`."""
    words = [*COMMAND[1:], "--root", str(root), *options]
    server = StdioServerParameters(command=COMMAND[0], args=words, env=dict(os.environ))
    return Client(server, mode=mode)


@asynccontextmanager
async def over_http(url: str, key: str | None, *, mode: str = "auto") -> AsyncIterator[Client]:
    """Yield a client of a running server."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        yield client


@contextmanager
def serving(root: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start a server on a free port; yield it and its address."""
    words = [*COMMAND, "--http", "--port", "0", "--root", str(root), *options]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            found = next(
                (found for line in server.stderr if (found := re.search(r"http://\S+", line))), None
            )
            assert found, "the server ended before it listened"
            yield server, f"{found[0]}/mcp"
        finally:
            server.terminate()


async def called(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """Return the structure that a call returns; the call must succeed."""
    answer = await client.call_tool(tool, arguments)
    assert not answer.is_error, answer.content
    assert answer.structured_content is not None
    return dict(answer.structured_content)


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    """Return the text of a call that must fail."""
    answer = await client.call_tool(tool, arguments)
    assert answer.is_error, answer.structured_content
    content: Any = answer.content[0]
    return str(content.text)
