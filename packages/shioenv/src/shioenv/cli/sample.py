"""`shioenv sample`: inputs written by a sampler, not executed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from shioenv.cli import printing, shared

app = typer.Typer()


@shared.command(app, "shioenv sample --count 5 --seed 7 --command df")
def sample(
    *,
    sampler: shared.SamplerName = "gcs",
    count: Annotated[int, typer.Option(min=1, metavar="N", help="Number of inputs.")] = 10,
    seed: shared.Seed = 0,
    options: shared.DrawingOptions,
    system: shared.SystemName = None,
) -> Iterator[shared.Printout]:
    """Sample inputs without executing them, one a line."""
    from shioenv.domain.inputs import Session
    from shioenv.synthesis.sample import check_names, notes_on, sample
    from shioenv.system.store import find_system

    drawing = options.drawing(sampler, seed)
    check_names(drawing)
    built = find_system(system)
    for note in notes_on(built, drawing):
        printing.note(note)
    for drawn in sample(drawing, system=built, count=count):
        text = Session(drawn.cwd, (drawn.input,)).text
        document = {
            "input": text,
            "input_args": drawn.input.input_args,
            "cwd": drawn.cwd,
            "n_arguments": drawn.input.n_arguments,
            "volatile": drawn.volatile,
            "mistake": drawn.mistake,
            "history": list(drawn.history),
            "sampler": sampler,
            "policy": drawing.chosen_policy,
            "system": built.name,
        }
        yield shared.Printout(document, [text.encode("utf-8", "surrogateescape") + b"\n"])
