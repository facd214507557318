"""`shioenv score`: how much of an input matters, argument by argument."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from shioenv.cli import shared

if TYPE_CHECKING:
    from rich.console import Console

    from shioenv.domain.inputs import Input
    from shioenv.irreducibility.score import Score, SegmentScore
    from shioenv.recording.text import Reading

SHOWN = 12
"""Sub-inputs shown per command; `--json` has all of them."""


def score(
    shell_input: Annotated[str, typer.Argument(metavar="INPUT", help="What bash is given.")],
    cwd: shared.StartDirectory = None,
    system: shared.SystemName = None,
    budget: shared.Budget = 64,
    noise_runs: shared.NoiseRuns = 3,
    estimator: shared.EstimatorName = "paper",
    target_se: shared.TargetError = None,
    seed: Annotated[int, typer.Option(help="Draws the sub-inputs where not all are run.")] = 0,
    timeout: shared.Timeout = None,
    json: shared.Json = False,
) -> None:
    """Score an input: its irreducibility, and what each argument does to its behavior.

    Arguments are found by the command's grammar where there is one, by shell words otherwise. Exact
    where the budget covers all 2^n - 1 sub-inputs, else an estimate with its standard error.
    """
    from shioenv.behavior.observe import open_sandbox
    from shioenv.irreducibility.scoring import Scoring
    from shioenv.recording.text import read_arguments
    from shioenv.recording.text import score as score_input

    with open_sandbox(system, shared.limits_of(timeout)) as sandbox:
        reading = read_arguments(shell_input, sandbox.system)
        parsed = reading.input
        found = score_input(
            parsed,
            cwd=cwd,
            scoring=Scoring(
                budget=budget,
                noise_runs=noise_runs,
                estimator=estimator,
                target_se=target_se,
            ),
            seed=seed,
            runner=sandbox,
        )
        start = cwd or sandbox.system.declaration.start_directory
        name = sandbox.system.name
    if json:
        shared.print_json(
            {
                "input": shell_input,
                "input_args": parsed.input_args,
                "cwd": start,
                "system": name,
                "reading": reading.notes,
                "exit_code": found.behavior.exit_code,
                **found.to_json(contrasts=True),
            }
        )
        return
    _print(shared.console(), reading, found)


def _print(console: Console, reading: Reading, found: Score) -> None:
    from rich.text import Text

    console.print(_marked(reading.input, found), soft_wrap=True)
    for note in reading.notes:
        console.print(Text(f"read as        {shared.printable(note)}"), soft_wrap=True)
    console.print()
    value = _number(found.irreducibility)
    if found.irreducibility is None:
        console.print("irreducibility  undefined: there is no argument to remove")
    elif found.exact:
        console.print(f"irreducibility  {value} (exact)")
    else:
        low, high = found.interval or (0.0, 1.0)
        console.print(f"irreducibility  {value} (estimate, 95% within {low:.3f} to {high:.3f})")
    console.print(f"strict          {_number(found.irreducibility_strict)} (byte-equal outputs)")
    why = "it runs out of time" if found.behavior.timed_out else "its runs differ"
    console.print(
        f"executions      {found.n_executions}, noise threshold {found.noise_threshold:.2f}"
        + (f", volatile: {why}" if found.volatile else "")
    )
    for segment in found.segments:
        if segment.arguments:
            console.print()
            console.print(_table(segment))
            lines = _mattered(segment)
            for line in lines[:SHOWN]:
                console.print(Text(line), soft_wrap=True)
            if len(lines) > SHOWN:
                console.print(Text(f"  and {len(lines) - SHOWN} more (--json)", style="dim"))


def _marked(parsed: Input, found: Score) -> object:
    """The input with the arguments dimmed that change nothing when left out alone."""
    from rich.text import Text

    from shioenv.domain.inputs import Role

    effects = iter([argument for segment in found.segments for argument in segment.arguments])
    line = Text()
    written, joined = "", True
    for token in parsed.tokens:
        style = "bold"
        if token.role is Role.ARGUMENT:
            effect = next(effects, None)
            style = "dim" if effect is not None and effect.leave_one_out is False else "green"
        if written and not (joined and token.argument.joins_left):
            line.append(" ")
        line.append(shared.printable(token.argument.text), style=style)
        written, joined = token.argument.text, token.argument.joins_right
    return line


def _table(segment: SegmentScore) -> object:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    command = shared.printable(segment.command)
    table.add_column(f"argument of {command}" if command else "argument")
    table.add_column("left out alone")
    table.add_column("contribution", justify="right")
    for argument in segment.arguments:
        redundant = argument.leave_one_out is False
        if argument.leave_one_out is None:
            effect = "not run"
        else:
            effect = "nothing changes" if redundant else f"{argument.channel} differs"
        contribution = "-" if argument.contribution is None else f"{argument.contribution:+.2f}"
        style = "dim" if redundant else ""
        table.add_row(
            Text(shared.printable(argument.text.replace("<ns>", ""))),
            effect,
            contribution,
            style=style,
        )
    return table


def _mattered(segment: SegmentScore) -> list[str]:
    """The sub-inputs that did something else, those that keep most first."""
    differing = sorted(segment.mattered, key=lambda contrast: (-len(contrast.kept), contrast.kept))
    if not differing:
        return ["every sub-input does the same"]
    lines = [f"{len(differing)} of {len(segment.contrasts)} sub-inputs do something else:"]
    for contrast in differing:
        assert contrast.difference is not None
        lines.append(f"  {shared.printable(contrast.text)}    ({contrast.difference.channel})")
    return lines


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
