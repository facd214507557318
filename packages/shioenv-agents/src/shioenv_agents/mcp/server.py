"""The server of the Model Context Protocol, over the official `mcp` package."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import msgspec
from mcp import types
from mcp.server.lowlevel import Server

from shioenv.errors import ShioenvError
from shioenv.guests import package_version
from shioenv_agents.mcp.schema import schema_of
from shioenv_agents.mcp.tools import Tool, ToolBox

SESSION_HEADER: Final = "mcp-session-id"
"""The HTTP header that names a session."""

PROGRESS_SECONDS: Final = 1.0
"""Seconds between two progress reports (our choice)."""

SWEEP_SECONDS: Final = 5.0
"""Seconds between two searches for idle shells (our choice)."""

INSTRUCTIONS: Final = (
    "Run Bash commands where they can do no harm, and see every change that they make. Use "
    "`preview` before a command that changes the user's files. Use `run` to learn what a command "
    "does on a pristine machine, `shell` for several commands in a row, `predict` for a guess."
)

logger = logging.getLogger(__name__)


def server_of(box: ToolBox) -> Server[Any]:
    """Create the MCP server for a tool box. Its lifespan opens machines, and closes the box."""
    listed = [_declared(tool) for tool in box.tools]

    @asynccontextmanager
    async def lifespan(_: Server[Any]) -> AsyncIterator[None]:
        box.make_ready()
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_sweep, box)
                yield
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(box.close)

    async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=listed)

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        return await _called(box, context, params)

    return Server(
        "shioenv",
        version=package_version(),
        instructions=INSTRUCTIONS,
        lifespan=lifespan,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def owner_of(key: str | None, session: str | None) -> str:
    """Return the owner under which a client's shells are kept.

    Only the owner can use a shell, even if others know its id. Clients of stdio have neither a key
    nor a session. HTTP clients of the newest protocol have no session; for them, the key and the
    shell's id identify the shell.
    """
    return hashlib.sha256(f"{key or ''}\0{session or ''}".encode()).hexdigest()


def _declared(tool: Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=schema_of(tool.arguments),
        output_schema=schema_of(tool.result),
        annotations=types.ToolAnnotations(
            title=tool.title,
            read_only_hint=tool.read_only,
            destructive_hint=False,
            open_world_hint=False,
        ),
    )


async def _called(
    box: ToolBox, context: Any, params: types.CallToolRequestParams
) -> types.CallToolResult:
    """Call a tool. A failure is a result with `isError`, which the model can read."""
    headers = context.request.headers if context.request is not None else {}
    owner = owner_of(headers.get("authorization"), headers.get(SESSION_HEADER))
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_report, context)
            try:
                result, text = await box.call(params.name, params.arguments or {}, owner)
            except ShioenvError as error:
                return _failed(error)
            finally:
                tasks.cancel_scope.cancel()
    except Exception:
        logger.exception("a call of %.80r failed", params.name)
        return _failed(ShioenvError("the server failed; its log has the reason"))
    return types.CallToolResult(
        content=[types.TextContent(text=text)], structured_content=msgspec.to_builtins(result)
    )


def _failed(error: ShioenvError) -> types.CallToolResult:
    text = "\n".join(filter(None, [f"{error.message} [{error.code}]", error.hint]))
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)


async def _report(context: Any) -> None:
    """Report the seconds that a call has taken, to clients that ask for progress."""
    seconds = 0.0
    while True:
        await context.session.report_progress(seconds, None, f"running for {seconds:g} s")
        await anyio.sleep(PROGRESS_SECONDS)
        seconds += PROGRESS_SECONDS


async def _sweep(box: ToolBox) -> None:
    while True:
        await anyio.sleep(SWEEP_SECONDS)
        box.close_idle()
