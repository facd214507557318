"""`shioenv run`: inputs on the pristine system."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shioenv.cli import printing, shared, stdin

if TYPE_CHECKING:
    from shioenv.behavior.observe import SandboxRunner
    from shioenv.domain.behavior import Behavior
    from shioenv.sandbox.base import Limits

app = typer.Typer()


@shared.command(
    app, "shioenv run 'sort -u documents/names.txt > sorted.txt'", cls=shared.InputCommand
)
def run(
    shell_input: shared.InputArgument,
    cwd: shared.StartDirectory = None,
    system: shared.SystemName = None,
    timeout: shared.Timeout = None,
    sandbox: shared.SandboxName = "namespaces",
    revert: shared.Revert = "input",
    tty: Annotated[
        bool, typer.Option("--tty", help="Run on a pseudo-terminal of 80 columns.")
    ] = False,
) -> shared.Printout:
    """Run an input on the pristine system and print its effects.

    The output goes to standard output; exit code and context patch go to standard error. The exit
    status is 0 when the input was run: the input's own exit code is part of the result. If the
    shell's state cannot be read, a warning is printed, and the patch lacks the changes to it.

    With `-`, each line of standard input is an input, as text or as JSON: {"input": "pwd", "cwd":
    "/tmp", "history": ["x=1"]}. The history is run first in the same shell. For each input, a
    line of JSON is printed at once and in order. A line that cannot be run gets an object with
    `error`; later lines are still run, and the exit status is 1.
    """
    limits = shared.LimitsOptions(timeout, False, sandbox, revert).limits()
    with _opened(system, limits) as opened:

        def answer(line: stdin.GivenInput) -> dict[str, Any]:
            state = replace(opened.state(line.cwd or cwd), history=line.history)
            behavior = opened.execute(line.input, state, tty=tty)
            return document(line.input, state.cwd, opened.system.name, behavior)

        if shell_input == "-":
            return stdin.answer_lines(answer)
        state = opened.state(cwd)
        behavior = opened.execute(shell_input, state, tty=tty)
    found = document(shell_input, state.cwd, opened.system.name, behavior)
    return shared.Printout(found, _parts(behavior, state.cwd))


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
