"""`shioenv compare`: report whether two inputs do the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from shioenv.cli import printing, shared

if TYPE_CHECKING:
    from shioenv_eval.same_effects import EffectsComparison

app = typer.Typer()

LINES = 40
"""Maximum number of printed lines of a difference."""


@shared.command(app, "shioenv compare 'wc -l documents/notes.txt' 'wc -l < documents/notes.txt'")
def compare(
    first: Annotated[str, typer.Argument(metavar="A", help="A shell input.")],
    second: Annotated[str, typer.Argument(metavar="B", help="Another shell input.")],
    history: Annotated[
        list[str] | None,
        typer.Option(
            "--after", metavar="INPUT", help="An earlier input of the same shell. Repeatable."
        ),
    ] = None,
    runs: Annotated[int, typer.Option(min=1, metavar="N", help="Runs of each input.")] = 3,
    cwd: shared.StartDirectory = None,
    system: shared.SystemName = None,
) -> shared.Printout:
    """Compare the effects of two inputs.

    Each is run several times from the same state. Output, exit code, context patch and contents of
    files are compared, apart from what varies between the runs of either. The exit status is 1 if
    they differ.
    """
    from shioenv.behavior.observe import open_sandbox
    from shioenv_eval.same_effects import compare_effects

    with open_sandbox(system) as sandbox:
        state = sandbox.state(cwd)
        for text in history or ():
            state = state.after(text, sandbox.run(text, state))
        done = compare_effects(sandbox, (first, second), state, runs)
    document = {"inputs": [first, second], "cwd": state.cwd, "history": list(state.history)}
    status = 1 if done.differs else 0
    return shared.Printout(
        document | done.to_json(), _parts(done, state.cwd), indent=2, status=status
    )


def _parts(done: EffectsComparison, start: str) -> Iterator[str]:
    from difflib import unified_diff

    from shioenv.domain.readable import changes
    from shioenv_eval.mask import output_text_of
    from shioenv_eval.same_effects import CHANNELS

    if not done.differs:
        yield "the inputs do the same"
    for name in CHANNELS:
        if name in done.differs:
            yield f"{name.replace('_', ' ')} differs"
    for letter, mask in zip("AB", done.masks, strict=True):
        if mask.volatile:
            yield f"varies between the runs of {letter}: {', '.join(mask.channels)}"
    shown = []
    for run in (done.first[0], done.second[0]):
        listed = [f"  {change}" for change in changes(run.patch.operations, start)]
        told = [f"exit code {run.exit_code}", *listed]
        shown.append([*output_text_of(run.output).splitlines(), *told])
    if done.differs:
        lines = list(unified_diff(shown[0], shown[1], "A", "B", lineterm="", n=1))
        yield from map(printing.printable, lines[:LINES])
        if len(lines) > LINES:
            yield f"and {len(lines) - LINES} more lines"
