"""`shioenv serve openenv`: tasks for agents over the network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shioenv.cli import printing, shared
from shioenv.cli.interrupts import stoppable

app = typer.Typer()

Tasks = Annotated[
    Path, typer.Argument(metavar="FILE", help="The tasks, as shioenv tasks make writes them.")
]


@shared.command(app, "shioenv serve openenv ./tasks.jsonl --port 8000")
def openenv(
    file: Tasks,
    *,
    host: shared.Host = "127.0.0.1",
    port: shared.Port = 8000,
    max_turns: Annotated[
        int, typer.Option(min=1, metavar="N", help="Lines an agent may type at most.")
    ] = 20,
    sessions: Annotated[
        int, typer.Option(min=1, metavar="N", help="Agents at once, each with its own sandbox.")
    ] = 16,
    idle: Annotated[
        float,
        typer.Option(
            min=1,
            max=86_400,
            metavar="SECONDS",
            help="How long a session waits for its client's next message.",
        ),
    ] = 1800.0,
    limits: shared.LimitsOptions,
) -> None:
    """Serve tasks by OpenEnv's protocol, over HTTP and WebSocket, until Ctrl-C.

    Whoever reaches the port can run anything in the sandboxes, and nothing outside of them. The
    extra shioenv[openenv] is needed.
    """
    from shioenv.errors import MissingExtraError
    from shioenv_agents.tasks.task import read_tasks

    tasks = read_tasks(file)
    try:
        from shioenv_agents.fronts.openenv import application
        from shioenv_serve.listener import Door
        from shioenv_serve.serving import serve
    except ImportError:
        raise MissingExtraError("shioenv serve openenv", "openenv", "openenv") from None
    with stoppable():
        served = application(
            tasks, max_turns=max_turns, sessions=sessions, idle_seconds=idle, limits=limits.limits()
        )
        printing.note(f"{len(tasks)} tasks, {sessions} sessions at most")
        serve(served, Door(host, port), printing.note)
