"""Measure what the Model Context Protocol adds to a call over stdio, and the time of a preview.

    python benchmarks/mcp_calls.py [--calls N] [--files N] [--json]

A call through a client and a server is measured next to the same call in this process, in turns, so
that other load affects both alike. Needs shioenv[mcp].
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from shioenv_agents.mcp.tools import ToolBox, ToolSettings

LINE = "echo a > f; cat f"
"""The command of every call on a machine."""

MUST = {"run": (12.0, 6.0), "shell": (8.0, 3.0), "preview": (100.0, 50.0)}
"""Milliseconds that a call must not exceed, and those aimed at; for `preview` the whole time."""

Call = Callable[[], Awaitable[Any]]


async def spent(call: Call) -> float:
    """Return the milliseconds of a call."""
    began = time.perf_counter()
    await call()
    return (time.perf_counter() - began) * 1e3


async def in_turns(one: Call, other: Call, calls: int) -> tuple[list[float], list[float]]:
    """Return the milliseconds of both calls, measured in turns, after one turn unmeasured."""
    pairs = [(await spent(one), await spent(other)) for _ in range(calls + 1)][1:]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


async def measured(directory: Path, calls: int) -> list[dict[str, Any]]:
    """Return a row for each kind of call."""
    box = ToolBox(ToolSettings(root=directory))
    words = ["-m", "shioenv", "serve", "mcp", "--root", str(directory)]
    rows = []
    try:
        async with Client(StdioServerParameters(command=sys.executable, args=words)) as client:
            opened = await client.call_tool("shell", {"action": "open"})
            shell, _ = await box.call("shell", {"action": "open"}, "")
            ids = (opened.structured_content or {})["shell"], shell.shell  # type: ignore[attr-defined]

            async def over_mcp(name: str, arguments: dict[str, Any]) -> None:
                answer = await client.call_tool(name, arguments)
                assert not answer.is_error, answer.content

            for name, each in {
                "run": ({"command": LINE}, {"command": LINE}),
                "shell": tuple({"action": "run", "shell": id_, "command": LINE} for id_ in ids),
            }.items():
                there, here = await in_turns(
                    lambda name=name, given=each[0]: over_mcp(name, given),  # type: ignore[misc]
                    lambda name=name, given=each[1]: box.call(name, given, ""),  # type: ignore[misc]
                    calls,
                )
                rows.append(row(name, there, here))
            sed = {"command": "sed -i s/line/text/ f77"}
            times = []
            for _ in range(max(calls // 4, 1) + 1):
                times.append(await spent(lambda: over_mcp("preview", sed)))
                await asyncio.sleep(1)  # as an agent, which reads the answer
            rows.append(row("preview", times[1:], [0.0]))
    finally:
        await anyio.to_thread.run_sync(box.close)
    return rows


def row(name: str, there: list[float], here: list[float]) -> dict[str, Any]:
    """Return the figures of one kind of call."""
    must, aim = MUST[name]
    whole, alone = statistics.median(there), statistics.median(here)
    return {
        "call": name,
        "mcp_ms": whole,
        "alone_ms": alone,
        "added_ms": whole - alone,
        "must_ms": must,
        "aim_ms": aim,
        "n": len(there),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=100, help="calls of each kind")
    parser.add_argument(
        "--files", type=int, default=10_000, help="number of files next to the edited one"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        for number in range(options.files):
            Path(name, f"f{number}").write_text(f"line {number}\n")
        rows = asyncio.run(measured(Path(name), options.calls))
    host = {
        "processors": os.cpu_count(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
    }
    if options.json:
        print(json.dumps({"host": host, "rows": rows}))
        return
    print(", ".join(f"{name} {value}" for name, value in host.items()))
    print("| call | p50 over MCP, ms | in process, ms | added, ms | must | aim |")
    print("|---|---:|---:|---:|---:|---:|")
    for each in rows:
        figures = (f"{each[key]:.1f}" for key in ("mcp_ms", "alone_ms", "added_ms"))
        print(
            f"| {each['call']} | {' | '.join(figures)} | {each['must_ms']:g} | {each['aim_ms']:g} |"
        )


if __name__ == "__main__":
    main()
