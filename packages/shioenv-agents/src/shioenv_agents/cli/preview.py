"""`shioenv preview`: show a command's changes to the user's own files, without making them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from shioenv.cli import printing, shared

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shioenv_agents.preview.layered_run import Preview

app = typer.Typer()

FAILED = 125
"""The exit status if the preview itself failed, as in `timeout` and `docker run`."""


class PreviewCommand(TyperCommand):
    """A subcommand whose own errors have an exit status that few commands have."""

    allow_interspersed_args = False
    """Options after the command's name belong to the command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse as usual; usage errors exit with `FAILED`."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if hasattr(error, "exit_code") and not isinstance(error, typer.Exit):
                error.exit_code = FAILED
            raise

    def invoke(self, ctx: Any) -> Any:
        """Run the preview; an error of the preview itself exits with `FAILED`."""
        from shioenv.errors import ShioenvError

        try:
            return super().invoke(ctx)
        except ShioenvError as error:
            error.exit_status = FAILED
            raise


@shared.command(app, "shioenv preview -- touch new", cls=PreviewCommand)
def preview(
    command: Annotated[
        list[str], typer.Argument(metavar="CMD...", help="The command and its arguments.")
    ],
    root: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="The directory to cover if the whole root cannot be covered (default: the working "
            "directory).",
        ),
    ] = None,
    hide: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="Hide a path from the command. May be repeated."),
    ] = None,
    show: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH", help="Show a path that is hidden by default. May be repeated."
        ),
    ] = None,
    network: Annotated[
        bool, typer.Option("--network", help="Let the command use the host's network.")
    ] = False,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Maximum wall time (default: 600).")
    ] = None,
    apply: Annotated[
        bool,
        typer.Option(
            "--apply",
            help="Make the changes for real if the command succeeds; on a terminal, ask first.",
        ),
    ] = False,
    json: shared.Json = False,
) -> shared.Printout:
    """Run a command on layers in memory and show what it would change.

    The command has your programs, files and permissions, but nothing that it writes reaches the
    host. Its input and output are those of the terminal; its changes and a diff of contents follow
    on standard error. With --json, everything is one document.

    The exit status is the command's own. 124 means that the time ran out, 125 that the preview
    itself failed, 126 and 127 that the command could not be executed. A preview is a convenience
    and not a security boundary: docs/threat-model.md lists what a hostile command can read and do.

    With --apply, the shown changes are made in the working directory (or --root DIR), all or none.
    Nothing is changed if a file beneath them has changed since, or if another directory would
    change. Old versions are kept in DIR/.shioenv-undo.
    """
    from dataclasses import replace

    from shioenv_agents.preview.layered_run import USUAL_LIMITS
    from shioenv_agents.preview.layered_run import preview as make_preview

    shown = False

    def agreed(made: Preview) -> bool:
        nonlocal shown
        if made.behavior.exit_code != 0:
            return False
        if not json:
            shown = True
            _report(made)
        return json or not sys.stdin.isatty() or typer.confirm("apply these changes?", err=True)

    limits = USUAL_LIMITS if timeout is None else replace(USUAL_LIMITS, wall_seconds=timeout)
    made = make_preview(
        command,
        root=root,
        hide=hide or (),
        show=show or (),
        network=network,
        limits=limits,
        capture=json,
        apply=agreed if apply else None,
    )
    if "background_seconds" in made.behavior.limits_hit:
        printing.remark(_CUT_OFF, dim=False)
    found = document(command, made)
    if apply:
        found["undo"] = made.undo
        if made.undo:
            printing.remark(
                f"applied; the old versions are saved in {printing.printable(made.undo)}"
            )
    parts = [b""] if shown else _parts(made)
    return shared.Printout(found, parts, status=made.behavior.exit_code)


def document(command: list[str], made: Preview) -> dict[str, Any]:
    """Return the document that `shioenv preview --json` prints."""
    return {
        "command": command,
        "cwd": made.start,
        **made.behavior.to_json(),
        "diff": made.diff,
        "diff_truncated": made.diff_truncated,
        "whole_root": made.whole,
        "layers": list(made.layers),
        "read_only": list(made.read_only),
        "hidden": list(made.hidden),
        "reachable": list(made.reachable),
    }


_CUT_OFF = (
    "background processes of the command were killed; "
    "outside a preview they may make further changes"
)


def _parts(made: Preview) -> Iterator[bytes]:
    """Print the report on standard error, and yield nothing for standard output."""
    _report(made)
    yield b""


def _report(made: Preview) -> None:
    from shioenv.domain.readable import changes, outcome

    told = [outcome(made.behavior)]
    told += [f"  {change}" for change in changes(made.behavior.patch.operations, made.start)]
    if not made.whole:
        told.append(f"covered: {', '.join(made.layers)}; everything else was read-only")
    elif made.read_only:
        told.append(f"read-only: {', '.join(made.read_only)}")
    if made.hidden:
        told.append(f"hidden: {', '.join(made.hidden)}")
    for line in told:
        printing.remark(line)
    if made.reachable:
        printing.remark(f"reachable: {', '.join(made.reachable)}")
    _print_diff(made.diff)


_DIFF_COLORS = {"+": "green", "-": "red", "@": "cyan"}
"""Colors of the lines of a diff, by their first character."""


def _print_diff(text: str) -> None:
    """Print a diff on standard error: escaped and colored on a terminal, else unchanged."""
    if sys.stderr.isatty():
        for line in text.split("\n")[:-1]:
            printing.remark(line, dim=False, color=_DIFF_COLORS.get(line[:1]))
    else:
        sys.stderr.flush()
        sys.stderr.buffer.write(text.encode())
        sys.stderr.buffer.flush()
