"""`shioenv system derive`: draw a new system from a declared one, for testing models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shioenv.cli import printing, shared

app = typer.Typer()


@shared.command(app, "shioenv system derive another --seed 7 --out ./another")
def derive(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new system.")],
    *,
    seed: Annotated[
        int, typer.Option(help="Random seed. The same seed gives the same system.")
    ] = 0,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Directory for its files, created if missing.")
    ],
    base: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            autocompletion=shared.complete_systems,
            help="Declared system to vary (default: debian-12).",
        ),
    ] = None,
) -> shared.Printout:
    """Write a variant of a system with other users, files and names.

    The programs are the same. Use it to test a model on a machine that is not in its training data.
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
