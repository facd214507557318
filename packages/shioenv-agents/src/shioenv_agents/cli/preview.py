"""`shioenv preview`: show a command's changes to the user's own files, without making them."""

from __future__ import annotations

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
            help="The directory to cover where the whole root cannot be (default: the working "
            "directory).",
        ),
    ] = None,
    hide: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="Hide a path from the command. May be given again."),
    ] = None,
    show: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH", help="Show a path that is hidden by default. May be given again."
        ),
    ] = None,
    network: Annotated[
        bool, typer.Option("--network", help="Let the command use the host's network.")
    ] = False,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Wall time (default: 600).")
    ] = None,
    json: shared.Json = False,
) -> shared.Printout:
    """Run a command of this host on layers in memory, and tell what it would have changed.

    The command has the user's own programs, files and rights. Nothing that the command writes
    reaches the host. The command's input and output are those of the terminal; the patch and a
    diff of contents follow on standard error. With --json all of that is one document.

    The exit status is the command's own. 124 says that the time ran out, 125 that the preview
    itself failed, 126 and 127 that the command could not be executed. A preview is a convenience
    and no wall: docs/threat-model.md says what a hostile command can read and do.
    """
    from dataclasses import replace

    from shioenv_agents.preview.layered_run import USUAL_LIMITS
    from shioenv_agents.preview.layered_run import preview as make_preview

    limits = USUAL_LIMITS if timeout is None else replace(USUAL_LIMITS, wall_seconds=timeout)
    made = make_preview(
        command,
        root=root,
        hide=hide or (),
        show=show or (),
        network=network,
        limits=limits,
        capture=json,
    )
    if "background_seconds" in made.behavior.limits_hit:
        printing.remark(_CUT_OFF, dim=False)
    return shared.Printout(document(command, made), _parts(made), status=made.behavior.exit_code)


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
    "processes that the command left in the background were killed: "
    "without a preview they may change more than is shown here"
)


def _parts(made: Preview) -> Iterator[bytes]:
    """Print the report on standard error, and yield nothing for standard output."""
    from shioenv.domain.readable import changes, outcome

    told = [outcome(made.behavior)]
    told += [f"  {change}" for change in changes(made.behavior.patch.operations, made.start)]
    if not made.whole:
        told.append(f"covered: {', '.join(made.layers)}; the rest was read-only")
    elif made.read_only:
        told.append(f"read-only: {', '.join(made.read_only)}")
    if made.hidden:
        told.append(f"hidden: {', '.join(made.hidden)}")
    for line in told:
        printing.remark(line)
    if made.reachable:
        printing.remark(f"reachable: {', '.join(made.reachable)}")
    printing.diff(made.diff)
    yield b""
