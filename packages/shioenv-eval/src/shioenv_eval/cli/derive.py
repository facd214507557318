"""`shioenv system derive`: draw a new system from a declared one, for testing models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shioenv.cli import printing, shared

app = typer.Typer()


@shared.command(app, "shioenv system derive another --seed 7 --out ./another")
def derive(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the new system is called.")],
    *,
    seed: Annotated[int, typer.Option(help="The same seed gives the same system.")] = 0,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Made where it is missing.")],
    base: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            autocompletion=shared.complete_systems,
            help="The declared system that the new one is drawn from (default: debian-12).",
        ),
    ] = None,
) -> shared.Printout:
    """Write another system, drawn from a declared one: other users, another tree, other names.

    The programs stay the same, so that a model can be asked about a machine that it never saw.
    `shioenv system build DIR/NAME.toml` builds the new system.
    """
    from shioenv.system.declare import load_declaration
    from shioenv_eval.derived_system import derive_system as draw

    file = draw(base, name, seed, out)
    declaration = load_declaration(str(file))
    document = {
        "file": str(file),
        "name": name,
        "users": [user.name for user in declaration.users],
        "hostname": declaration.machine.hostname,
        "start_directory": declaration.start_directory,
        "instant": declaration.instant.isoformat(),
    }
    lines = printing.rows(
        {
            "system": f"{file}; next: shioenv system build {file}",
            "users": ", ".join(document["users"]),
            "host": f"{document['hostname']}, in {document['start_directory']}",
            "instant": document["instant"],
        }
    )
    return shared.Printout(document, lines)
