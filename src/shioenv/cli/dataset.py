"""`shioenv dataset`: verify, describe and show datasets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shioenv.cli import shared
from shioenv.cli.run import describe

if TYPE_CHECKING:
    from shioenv.domain.record import Record

app = typer.Typer(no_args_is_help=True, help="Datasets: records kept in a directory.")

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="The dataset's directory.")]

SHOWN_LINES = 12
"""Lines of output shown of one record."""


@app.command(epilog="Example: shioenv dataset show ./dataset --count 5")
def show(
    directory: Directory,
    count: Annotated[int, typer.Option(min=1, metavar="N", help="How many records.")] = 5,
    number: Annotated[
        int | None, typer.Option("--id", min=0, metavar="N", help="Only the record of this number.")
    ] = None,
    json: shared.Json = False,
) -> None:
    """Show records as people read them, spread over the dataset."""
    from itertools import islice

    from shioenv.dataset.manifest import read_manifest
    from shioenv.dataset.read import read_records
    from shioenv.domain.record import encode
    from shioenv.errors import UsageError

    total = read_manifest(directory).records
    if number is not None:
        chosen = list(islice(read_records(directory), number, number + 1))
        if not chosen:
            raise UsageError(
                f"{directory} has no record {number}", hint=f"it has {total}, counted from 0"
            )
    else:
        step = max(1, total // count)
        chosen = list(islice(read_records(directory), 0, step * count, step))
    for record in chosen:
        if json:
            shared.write(encode(record))
        else:
            _print(record)


def _print(record: Record) -> None:
    from rich.text import Text

    from shioenv.domain.patch import ContextPatch

    console = shared.console()
    console.print(Text(f"record {record.session_id}", style="bold"))
    rows = [
        ("input", record.input),
        ("arguments", ", ".join(record.input_args[1:]) or "none"),
        ("exit code", str(record.exit_code)),
    ]
    score = "undefined" if record.irreducibility is None else f"{record.irreducibility:.3f}"
    how = "exact" if record.exact else "estimate"
    rows.append(("irreducible", f"{score} ({how}, {record.n_executions} executions)"))
    flags = ("timed_out", "output_truncated", "patch_truncated", "volatile")
    said = [name.replace("_", " ") for name in flags if getattr(record, name)]
    if said:
        rows.append(("flags", ", ".join(said)))
    for key, value in rows:
        console.print(Text(f"  {key:12}{value}"), soft_wrap=True)
    lines = record.output.splitlines()
    for index, line in enumerate(lines[:SHOWN_LINES]):
        console.print(Text(f"  {'output' if not index else '':12}{line}"), soft_wrap=True)
    if len(lines) > SHOWN_LINES:
        console.print(Text(f"  {'':12}and {len(lines) - SHOWN_LINES} more lines", style="dim"))
    operations = ContextPatch.from_json(record.context_patch).operations
    for index, operation in enumerate(operations[:SHOWN_LINES]):
        console.print(
            Text(f"  {'changes' if not index else '':12}{describe(operation)}"), soft_wrap=True
        )
    if len(operations) > SHOWN_LINES:
        console.print(Text(f"  {'':12}and {len(operations) - SHOWN_LINES} more", style="dim"))
    console.print()
