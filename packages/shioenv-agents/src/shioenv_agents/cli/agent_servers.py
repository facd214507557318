"""`shioenv serve mcp`, `e2b` and `openenv`: servers for agents."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shioenv.cli import printing, shared
from shioenv.cli.interrupts import stoppable

app = typer.Typer()

Tasks = Annotated[Path, typer.Argument(metavar="FILE", help="The file of tasks (JSON Lines).")]


@shared.command(app, "shioenv serve mcp --http --port 8000")
def mcp(
    *,
    http: Annotated[
        bool, typer.Option("--http", help="Serve over HTTP instead of standard input and output.")
    ] = False,
    host: shared.Host = "127.0.0.1",
    port: shared.Port = 8000,
    key_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Keys that HTTP clients must send, one a line."),
    ] = None,
    tool: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Offer a tool: run, preview, shell or predict. May be given again (default: all; "
            "over HTTP without a key all but preview).",
        ),
    ] = None,
    root: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="The directory at or below which previews start (default: the working directory).",
        ),
    ] = None,
    hide: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="Hide a path from previews. May be given again."),
    ] = None,
    system: shared.SystemName = None,
    machines: Annotated[
        int, typer.Option(min=1, max=64, metavar="N", help="Maximum concurrent commands of run.")
    ] = 4,
    shells: Annotated[int, typer.Option(min=1, max=256, metavar="N", help="Open shells.")] = 32,
    idle: Annotated[
        float,
        typer.Option(
            min=1, max=86_400, metavar="SECONDS", help="How long a shell waits for a command."
        ),
    ] = 900.0,
) -> None:
    """Serve tools for coding agents over the Model Context Protocol (MCP).

    The tools run commands on pristine machines, preview them on the user's own files, keep shells
    open, and predict. A client starts this command and talks to it over standard input and output.
    With --http, many clients share one server, until Ctrl-C. A key is required unless only this
    host can reach the address. The extra shioenv[mcp] is needed.
    """
    from shioenv.errors import MissingExtraError, UsageError
    from shioenv_agents.mcp.tools import TOOLS, ToolBox, ToolSettings

    try:
        import anyio

        from shioenv_agents.mcp.server import server_of
        from shioenv_agents.mcp.transports import http_application, serve_stdio
        from shioenv_serve.listener import ListenAddress, read_keys
        from shioenv_serve.serving import serve
    except ImportError:
        raise MissingExtraError(
            "shioenv serve mcp", "mcp", "mcp", "shioenv-serve", "uvicorn"
        ) from None
    listen_address = ListenAddress(host, port)
    keys = read_keys([], key_file, listen_address) if http else []
    offered = tool or [name for name in TOOLS if not http or keys or name != "preview"]
    if http and not keys and "preview" in offered:
        raise UsageError(
            "without keys, any user of this host could read files by previews",
            hint="use --key-file FILE, or serve without --http",
        )
    settings = ToolSettings(
        tools=offered,
        system=system,
        root=root or Path(),
        hide=tuple(hide or ()),
        machines=machines,
        shells=shells,
        idle_seconds=idle,
    )
    with stoppable():
        box = ToolBox(settings)
        if not http:
            anyio.run(serve_stdio, server_of(box))
            return
        printing.note(f"tools: {', '.join(offered)}; the address is /mcp")
        application = http_application(
            server_of(box),
            box.close_of,
            listen_address=listen_address,
            keys=keys,
            idle_seconds=idle,
        )
        serve(application, listen_address, printing.note)


@shared.command(app, "shioenv serve e2b --port 8000")
def e2b(
    *,
    host: shared.Host = "127.0.0.1",
    port: shared.Port = 8000,
    key_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keys that clients must send, one a line.")
    ] = None,
    system: shared.SystemName = None,
    sandboxes: Annotated[
        int,
        typer.Option(
            min=1, max=256, metavar="N", help="Maximum sandboxes and snapshots at a time."
        ),
    ] = 16,
    memory_mib: Annotated[
        int, typer.Option(min=16, max=1 << 20, metavar="MIB", help="Memory of each sandbox.")
    ] = 512,
    disk_mib: Annotated[
        int, typer.Option(min=16, max=1 << 20, metavar="MIB", help="New files of each sandbox.")
    ] = 512,
) -> None:
    """Serve sandboxes over the E2B API, until Ctrl-C.

    Each sandbox is a separate machine without a network. Clients of the Python package e2b set
    E2B_API_URL and E2B_SANDBOX_URL to the address. A key is required unless only this host can
    reach it. The extra shioenv[e2b] is needed.
    """
    from shioenv.errors import MissingExtraError
    from shioenv.sandbox.base import MEBIBYTE, Limits
    from shioenv.system.store import find_system

    try:
        from shioenv_agents.e2b.application import SDK, e2b_application, refusal
        from shioenv_agents.e2b.sandboxes import Sandboxes
        from shioenv_serve.listener import ListenAddress, read_keys
        from shioenv_serve.serving import serve
    except ImportError:
        raise MissingExtraError(
            "shioenv serve e2b", "e2b", "e2b", "python-multipart", "shioenv-serve", "starlette"
        ) from None
    listen_address = ListenAddress(host, port)
    keys = read_keys([], key_file, listen_address)
    limits = Limits(memory_bytes=memory_mib * MEBIBYTE, disk_bytes=disk_mib * MEBIBYTE)
    with stoppable():
        kept = Sandboxes(find_system(system), limits, sandboxes, keys)
        printing.note(f"the API of the Python package e2b {SDK}, at most {sandboxes} sandboxes")
        served = e2b_application(kept, listen_address)
        serve(served, listen_address, printing.note, refusal, bounded=False)


@shared.command(app, "shioenv serve openenv ./tasks.jsonl --port 8000")
def openenv(
    file: Tasks,
    *,
    host: shared.Host = "127.0.0.1",
    port: shared.Port = 8000,
    max_turns: Annotated[
        int, typer.Option(min=1, metavar="N", help="Maximum lines that an agent may type.")
    ] = 20,
    sessions: Annotated[
        int,
        typer.Option(
            min=1, metavar="N", help="Maximum concurrent sessions, each with a separate sandbox."
        ),
    ] = 16,
    idle: Annotated[
        float,
        typer.Option(
            min=1,
            max=86_400,
            metavar="SECONDS",
            help="Maximum time between two messages of a client.",
        ),
    ] = 1800.0,
    limits: shared.LimitsOptions,
) -> None:
    """Serve tasks over OpenEnv's protocol, until Ctrl-C.

    Anyone who can reach the port can run anything in the sandboxes, and nothing outside them. This
    needs the extra shioenv[openenv].
    """
    from shioenv.errors import MissingExtraError
    from shioenv_agents.tasks.task import read_tasks

    tasks = read_tasks(file)
    try:
        from shioenv_agents.fronts.openenv import application
        from shioenv_serve.listener import ListenAddress
        from shioenv_serve.serving import serve
    except ImportError:
        raise MissingExtraError("shioenv serve openenv", "openenv", "openenv") from None
    with stoppable():
        served = application(
            tasks, max_turns=max_turns, sessions=sessions, idle_seconds=idle, limits=limits.limits()
        )
        printing.note(
            f"{printing.counted(len(tasks), 'task')}, "
            f"at most {printing.counted(sessions, 'session')}"
        )
        serve(served, ListenAddress(host, port), printing.note)
