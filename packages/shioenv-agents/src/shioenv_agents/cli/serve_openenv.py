"""`shioenv serve openenv`: tasks for agents over the network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shioenv.cli import printing, shared
from shioenv.cli.interrupts import stoppable

app = typer.Typer()

Tasks = Annotated[Path, typer.Argument(metavar="FILE", help="The file of tasks (JSON Lines).")]


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
