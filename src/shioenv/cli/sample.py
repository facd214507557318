"""`shioenv sample`: inputs written by a sampler, not executed."""

from __future__ import annotations

from typing import Annotated

import typer

from shioenv.cli import shared


def sample(
    sampler: shared.SamplerName = "gcs",
    count: Annotated[int, typer.Option(min=1, metavar="N", help="How many.")] = 10,
    seed: Annotated[int, typer.Option(help="The same seed gives the same inputs.")] = 0,
    command: shared.CommandNames = None,
    horizon: shared.Horizon = 12,
    composite_share: shared.CompositeShare = 0.25,
    composites: shared.Composites = None,
    policy: shared.PolicyName = "weighted",
    system: shared.SystemName = None,
    json: shared.Json = False,
) -> None:
    """Write inputs with a sampler, without executing them; one a line."""
    from shioenv.domain.inputs import Session
    from shioenv.synthesis.drawing import Drawing
    from shioenv.synthesis.sample import sample_on
    from shioenv.system.store import find_system

    share = shared.share_of_composites(composites, composite_share)
    found = find_system(system)
    drawing = Drawing(
        sampler=sampler,
        policy=policy,
        seed=seed,
        commands=tuple(command or ()),
        horizon=horizon,
        composite_share=share,
    )
    stream = sample_on(found, drawing, count)
    for one in stream:
        text = Session(one.cwd, (one.input,)).text
        if json:
            shared.print_json(
                {
                    "input": text,
                    "input_args": one.input.input_args,
                    "cwd": one.cwd,
                    "n_arguments": one.input.n_arguments,
                    "volatile": one.volatile,
                    "sampler": sampler,
                    "policy": policy,
                    "system": found.name,
                }
            )
        else:
            shared.write(text.encode("utf-8", "surrogateescape") + b"\n")
