"""`shioenv run`: one input on the pristine system."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shioenv.cli import printing, shared

if TYPE_CHECKING:
    from shioenv.behavior.observe import SandboxRunner
    from shioenv.domain.behavior import Behavior
    from shioenv.sandbox.base import Limits

app = typer.Typer()


@shared.command(
    app, "shioenv run 'sort -u documents/names.txt > sorted.txt'", cls=shared.InputCommand
)
def run(
    shell_input: Annotated[str, typer.Argument(metavar="INPUT", help="What bash is given.")],
    cwd: shared.StartDirectory = None,
    system: shared.SystemName = None,
    timeout: shared.Timeout = None,
    sandbox: shared.SandboxName = "namespaces",
    revert: shared.Revert = "input",
    tty: Annotated[
        bool, typer.Option("--tty", help="Run on a pseudo-terminal of 80 columns: colours, CR LF.")
    ] = False,
) -> shared.Printout:
    """Run one input on the pristine system: its output, exit code and context patch.

    The output goes to standard output as it is; exit code and patch go to standard error. The exit
    status is 0 when the input was observed: the input's own exit code is part of the result. Where
    the shell's state cannot be read, standard error says so, and the patch holds the rest.
    """
    limits = shared.LimitsOptions(timeout, False, sandbox, revert).limits()
    with _opened(system, limits) as opened:
        behavior = opened.execute(shell_input, opened.state(cwd), tty=tty)
        start = cwd or opened.system.declaration.start_directory
        name = opened.system.name
    return shared.Printout(document(shell_input, start, name, behavior), _parts(behavior, start))


def _opened(system: str | None, limits: Limits) -> SandboxRunner:
    from shioenv.behavior.observe import open_sandbox
    from shioenv.errors import ShellStateError

    try:
        return open_sandbox(system, limits)
    except ShellStateError as error:
        printing.note(f"warning: {error.message}")
        return open_sandbox(system, replace(limits, without_shell_state=True))


def document(text: str, cwd: str, system: str, behavior: Behavior) -> dict[str, Any]:
    """Build the document that `shioenv run --json` prints."""
    return {"input": text, "cwd": cwd, "system": system, **behavior.to_json()}


def _parts(behavior: Behavior, start: str) -> Iterator[bytes]:
    """Yield the output; print exit code, flags and context patch on standard error."""
    from shioenv.domain.readable import changes, outcome

    yield behavior.output

    printing.end_line(behavior.output)
    told = outcome(behavior)
    if not behavior.shell_state_known:
        told += ", shell state unknown"
    printing.remark(told)
    for change in changes(behavior.patch.operations, start):
        printing.remark(f"  {change}")
