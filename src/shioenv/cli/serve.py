"""`shioenv serve`: tasks for agents that come by the network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shioenv.cli import printing, shared

app = typer.Typer(no_args_is_help=True, help="Tasks for agents that come by the network.")

Tasks = Annotated[
    Path, typer.Argument(metavar="FILE", help="The tasks, as shioenv tasks make writes them.")
]


@shared.command(app, "shioenv serve openenv ./tasks.jsonl --port 8000")
def openenv(
    file: Tasks,
    *,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Where to listen; 0.0.0.0 is everywhere.")
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            min=0, max=65535, metavar="N", help="The port to listen on; 0 is any free one."
        ),
    ] = 8000,
    max_turns: Annotated[
        int, typer.Option(min=1, metavar="N", help="Lines an agent may type at most.")
    ] = 20,
    sessions: Annotated[
        int, typer.Option(min=1, metavar="N", help="Agents at once, each with its own sandbox.")
    ] = 16,
    limits: shared.LimitsOptions,
) -> None:
    """Serve tasks by OpenEnv's protocol, over HTTP and WebSocket, until Ctrl-C.

    Whoever reaches the port can run anything in the sandboxes, and nothing outside of them. The
    extra shioenv[openenv] is needed.
    """
    from shioenv.errors import MissingExtraError
    from shioenv.tasks.task import read_tasks

    tasks = read_tasks(file)
    try:
        import uvicorn

        from shioenv.fronts.openenv import application
    except ImportError:
        raise MissingExtraError("shioenv serve openenv", "openenv", "openenv") from None
    served = application(tasks, max_turns=max_turns, sessions=sessions, limits=limits)
    printing.note(f"{len(tasks)} tasks, {sessions} sessions at most")
    uvicorn.run(served, host=host, port=port, log_level="info", ws_ping_timeout=None)
