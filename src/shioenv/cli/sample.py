"""`shioenv sample`: inputs written by a sampler, not executed."""

from __future__ import annotations

from typing import Annotated

import typer

from shioenv.cli import shared


def _complete_policies(incomplete: str) -> list[str]:
    """Names of policies that begin with what was typed."""
    from shioenv.synthesis.policy import POLICIES

    return [name for name in POLICIES if name.startswith(incomplete)]


def sample(
    sampler: shared.SamplerName = "gcs",
    count: Annotated[int, typer.Option(min=1, metavar="N", help="How many.")] = 10,
    seed: Annotated[int, typer.Option(help="The same seed gives the same inputs.")] = 0,
    command: shared.CommandNames = None,
    horizon: Annotated[
        int, typer.Option(min=1, metavar="N", help="Arguments of one command at most.")
    ] = 12,
    composite_share: Annotated[
        float,
        typer.Option(min=0, max=1, metavar="SHARE", help="Share of inputs of several commands."),
    ] = 0.25,
    composites: Annotated[
        str | None,
        typer.Option(metavar="off|on", help="off: single commands only.", show_default=False),
    ] = None,
    policy: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            autocompletion=_complete_policies,
            help="weighted (as the grammars say), uniform, lengths (0 to 12 arguments equally "
            "often), or a FILE.json of counts by production.",
        ),
    ] = "weighted",
    system: shared.SystemName = None,
    json: shared.Json = False,
) -> None:
    """Write inputs with a sampler, without executing them; one a line."""
    from shioenv.domain.inputs import Session
    from shioenv.errors import UsageError
    from shioenv.synthesis.policy import policy_named
    from shioenv.synthesis.sample import sample as samples
    from shioenv.system.catalogue import catalogue
    from shioenv.system.store import find_system

    if composites not in {None, "off", "on"}:
        raise UsageError(f"--composites is off or on, not {composites!r}")
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
        composite_share=0.0 if composites == "off" else composite_share,
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
