"""`shioenv score`: the irreducibility of an input, argument by argument."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from shioenv.cli import printing, shared

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from shioenv.domain.inputs import Input
    from shioenv.irreducibility.score import Score, SegmentScore
    from shioenv.recording.text_score import Reading

app = typer.Typer()

SHOWN = 12
"""Maximum lines about sub-inputs per command, including the heading; `--json` has all."""


@shared.command(app, "shioenv score 'ls -laT 32'", cls=shared.InputCommand)
def score(
    shell_input: Annotated[str, typer.Argument(metavar="INPUT", help="The text of the input.")],
    *,
    cwd: shared.StartDirectory = None,
    system: shared.SystemName = None,
    scoring: shared.ScoringSettings,
    seed: Annotated[int, typer.Option(help="Random seed for the choice of sub-inputs.")] = 0,
    limits: shared.LimitsOptions,
    grammars: shared.GrammarDirectory = None,
) -> shared.Printout:
    """Score an input: its irreducibility, and the effect of each argument.

    The input is divided into arguments by the command's grammar; without a grammar, each word is
    one. The score is exact if the budget covers all 2^n - 1 sub-inputs. Otherwise it is an estimate
    with a standard error.
    """
    from shioenv.behavior.observe import open_sandbox
    from shioenv.grammar.library import own_grammars
    from shioenv.irreducibility.scoring import Scoring
    from shioenv.recording.text_score import read_arguments
    from shioenv.recording.text_score import score as score_input

    own, settings = own_grammars(grammars), scoring.applied_to(Scoring())
    with open_sandbox(system, limits.limits()) as sandbox:
        reading = read_arguments(shell_input, sandbox.system, own)
        scored = score_input(reading.input, cwd=cwd, scoring=settings, seed=seed, runner=sandbox)
        start = cwd or sandbox.system.declaration.start_directory
        name = sandbox.system.name
    document = {
        "input": shell_input,
        "input_args": reading.input.input_args,
        "cwd": start,
        "system": name,
        "reading": reading.notes,
        "exit_code": scored.behavior.exit_code,
        **scored.to_json(contrasts=True),
    }
    return shared.Printout(document, _parts(reading, scored))


def _parts(reading: Reading, scored: Score) -> Iterator[Text | Table]:
    from rich.text import Text

    yield _marked(reading.input, scored)
    for note in reading.notes:
        yield Text(f"note           {printing.printable(note)}")
    yield Text()
    value = _number(scored.irreducibility)
    if scored.irreducibility is None:
        yield Text("irreducibility  undefined: no argument can be removed")
    elif scored.exact:
        yield Text(f"irreducibility  {value} (exact)")
    else:
        low, high = scored.interval or (0.0, 1.0)
        yield Text(f"irreducibility  {value} (estimate, 95% within {low:.3f} to {high:.3f})")
    yield Text(f"strict          {_number(scored.irreducibility_strict)} (byte-equal outputs)")
    if scored.necessary is not None:
        needed = round(scored.necessary * scored.n_arguments)
        one = f"{needed} of {scored.n_arguments} arguments, each removed alone"
        yield Text(f"necessary       {_number(scored.necessary)} ({one})")
    why = "it times out" if scored.behavior.timed_out else "its runs differ"
    yield Text(
        f"executions      {scored.n_executions}, noise threshold {scored.noise_threshold:.2f}"
        + (f", volatile: {why}" if scored.volatile else "")
    )
    for segment in scored.segments:
        if segment.arguments:
            yield Text()
            yield _table(segment)
            lines = _mattered(segment)
            yield from map(Text, lines[:SHOWN])
            if len(lines) > SHOWN:
                yield Text(f"  and {len(lines) - SHOWN} more (--json)", style="dim")


def _marked(parsed: Input, scored: Score) -> Text:
    """Format the input; arguments are dimmed if removing them alone changes nothing."""
    from rich.text import Text

    from shioenv.domain.inputs import Role

    effects = iter([argument for segment in scored.segments for argument in segment.arguments])
    line = Text()
    written, joined = "", True
    for token in parsed.tokens:
        style = "bold"
        if token.role is Role.ARGUMENT:
            effect = next(effects, None)
            style = "dim" if effect is not None and effect.leave_one_out is False else "green"
        if written and not (joined and token.argument.joins_left):
            line.append(" ")
        line.append(printing.printable(token.argument.text), style=style)
        written, joined = token.argument.text, token.argument.joins_right
    return line


def _table(segment: SegmentScore) -> Table:
    from rich.text import Text

    command = printing.printable(segment.command)
    named = f"argument of {command}" if command else "argument"
    table = printing.table((named, "removed alone", "contribution"), left=2)
    for argument in segment.arguments:
        redundant = argument.leave_one_out is False
        if argument.leave_one_out is None:
            effect = "not run"
        else:
            effect = "nothing changes" if redundant else f"{argument.channel} differs"
        contribution = "-" if argument.contribution is None else f"{argument.contribution:+.2f}"
        text = Text(printing.printable(argument.text.replace("<ns>", "")))
        table.add_row(text, effect, contribution, style="dim" if redundant else "")
    return table


def _mattered(segment: SegmentScore) -> list[str]:
    """List the sub-inputs that behave differently, those with most arguments first."""
    differing = sorted(segment.mattered, key=lambda contrast: (-len(contrast.kept), contrast.kept))
    if not differing:
        return ["all sub-inputs have the same effects"]
    lines = [f"{len(differing)} of {len(segment.contrasts)} sub-inputs have other effects:"]
    for contrast in differing:
        assert contrast.difference is not None
        lines.append(f"  {printing.printable(contrast.text)}    ({contrast.difference.channel})")
    return lines


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
