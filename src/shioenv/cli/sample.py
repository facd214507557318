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
    from shioenv.synthesis.policy import policy_named
    from shioenv.synthesis.sample import sample as samples
    from shioenv.system.catalogue import catalogue
    from shioenv.system.store import find_system

    share = shared.share_of_composites(composites, composite_share)
    found = find_system(system)
    stream = samples(
        sampler,
        seed=seed,
        count=count,
        catalogue=lambda directory: catalogue(found, directory),
        start_directories=found.declaration.session.start_directories,
        commands=command or None,
        versions=found.packages,
        horizon=horizon,
        composite_share=share,
        policy=policy_named(policy),
    )
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
