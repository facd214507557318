"""`shioenv conform` and `compare`: compare shells with the machine, and inputs with each other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shioenv.cli import printing, shared, stdin
from shioenv.cli.progress import Meter
from shioenv.text import fixed
from shioenv_eval.cli.evaluate import AnswerSeconds

if TYPE_CHECKING:
    from rich.table import Table

    from shioenv_eval.conform.verdicts import EffectsComparison

SHOWN = 10
"""Maximum number of findings that are printed."""

LINES = 16
"""Maximum number of printed lines of a diff."""


Count = Annotated[
    int,
    typer.Option("--count", min=1, metavar="N", help="Number of cases; 20,000 cover every option."),
]

app = typer.Typer(
    name="conform", help="Compare a shell, an emulator or another system with the machine."
)


@shared.group(app, "shioenv conform --against bashkit --command sort --out ./sort")
def conform(
    *,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="PREDICTOR|CMD",
            autocompletion=shared.completing("shioenv.domain.predictor:predictor_names"),
            help="A predictor as for `evaluate --predictor`, or a command that answers each line "
            "of JSON with a line of JSON.",
        ),
    ] = None,
    against_system: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            autocompletion=shared.complete_systems,
            help="Compare another built system instead.",
        ),
    ] = None,
    inputs: Annotated[
        Path | None,
        typer.Option(
            metavar="INPUTS",
            help="File of inputs to use instead of sampled cases, as for `suite record` (- is "
            "stdin).",
        ),
    ] = None,
    command: shared.CommandNames = None,
    cases: Count = 2000,
    seed: shared.Seed = 0,
    level: Annotated[
        str | None,
        typer.Option(
            metavar="output|files|full",
            autocompletion=shared.completing("output", "files", "full"),
            help="Compare output and exit code only, also the names of changed files, or the whole "
            "context patch (default: everything that the other side reports).",
        ),
    ] = None,
    at_least: Annotated[
        float,
        typer.Option(
            min=0, max=1, metavar="SHARE", help="Exit with status 1 if the accuracy is below this."
        ),
    ] = 0.0,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Directory for results.json, junit.xml, report.html and a script per finding.",
        ),
    ] = None,
    workers: shared.Workers = None,
    timeout: AnswerSeconds = 30.0,
    start_timeout: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            metavar="SECONDS",
            help="Time limit for the other side to start (default: 900).",
        ),
    ] = None,
    system: shared.SystemName = None,
) -> shared.Printout:
    """Compare a shell, emulator or other system with the machine.

    Cases come from the grammars: each option alone, pairs of options, operands, mistakes, several
    commands, sequences of lines. The machine executes each case once, for all comparisons. Each
    difference is minimized: arguments and files are removed while the two sides still differ. A
    finding consists of both answers as a diff, and a script. Late and missing answers count as
    differences.
    """
    from shioenv.bash.words import quoted
    from shioenv.domain.predictor import PatchLevel
    from shioenv.errors import UsageError
    from shioenv.files.durable import refuse_unwritable
    from shioenv_eval.conform.comparison import RESULTS, compare_with_machine, write_comparison
    from shioenv_eval.conform.truth import Choice
    from shioenv_eval.predictor_pool import Bounds
    from shioenv_eval.suite import suite_inputs

    if (against is None) == (against_system is None):
        raise UsageError(
            "expected either --against or --against-system",
            hint="--against bashkit, --against ./my-shell.py, or --against-system NAME",
        )
    if inputs is not None and command:
        raise UsageError("--inputs brings its own commands", hint="leave --command out")
    if level is not None and level not in list(PatchLevel):
        raise UsageError(
            f"--level {level!r}: unknown level", hint=f"choose from {', '.join(PatchLevel)}"
        )
    if out is not None:
        refuse_unwritable(out / RESULTS)
    given = () if inputs is None else tuple(suite_inputs(stdin.given(inputs)))
    with (
        Meter(
            lasting=True,
            stopped="stopped; finished executions are saved: run the same command to resume",
        ) as meter,
        compare_with_machine(
            against if against is not None else f"sandbox:{against_system}",
            system=system,
            choice=Choice(tuple(command or ()), cases, seed, given),
            level=None if level is None else PatchLevel(level),
            workers=workers,
            bounds=Bounds(timeout, start_timeout),
            progress=meter.update,
            tell=meter.print_note,
        ) as done,
    ):
        if out is not None:
            write_comparison(done, out)
    document = done.document
    parts = list(_parts(document))
    if out is not None:
        parts.append(f"written: {quoted(str(out))}")
    low = done.share < at_least
    if low:
        printing.note(f"error: the accuracy is {done.share:.4f}, below --at-least {at_least:g}")
    return shared.Printout(document, parts, indent=2, status=1 if low else 0)


def _parts(document: dict[str, Any]) -> Iterator[Table | str]:
    """Yield a table by kind of case, one by command, then the most frequent findings."""
    for what in ("kinds", "commands"):
        table = printing.table((what, "drawn", "steady", "right", "share", *document["differ"]))
        for name, row in {**document[what], "all": document}.items():
            numbers = [str(row[each]) for each in ("drawn", "steady", "right")]
            differ = [str(count or "") for count in row["differ"].values()]
            table.add_row(name, *numbers, fixed(row["share"]), *differ)
        yield table
        yield ""
    title = printing.printable(f"{document['against']} {document['version']}")
    yield (
        f"{title}: {fixed(document['share'])} of {document['steady']:,} steady cases are right at "
        f"the level {document['level']}; {document['drawn'] - document['steady']:,} other cases "
        "are not steady"
    )
    findings = document["findings"]
    for number, one in enumerate(findings[:SHOWN], 1):
        again = "" if one["recurs"] else ", did not recur"
        yield ""
        cases = printing.counted(one["count"], "case")
        yield f"finding {number}: {cases}, {', '.join(one['classes'])}{again}"
        for line in (*one["history"], one["input"]):
            yield printing.printable(f"  $ {line}")
        lines = one["difference"]
        yield from (printing.printable(f"  {line}") for line in lines[:LINES])
        if len(lines) > LINES:
            yield f"  and {len(lines) - LINES} more lines"
    if len(findings) > SHOWN:
        yield ""
        yield f"and {len(findings) - SHOWN:,} more findings; --out DIR writes all"


@shared.command(app, "shioenv conform export ./shell-truth --count 20000")
def export(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Directory to create.")],
    command: shared.CommandNames = None,
    cases: Count = 20_000,
    seed: shared.Seed = 0,
    licence: Annotated[
        str, typer.Option("--license", metavar="ID", help="License in the dataset card.")
    ] = "unknown",
    workers: shared.Workers = None,
    system: shared.SystemName = None,
) -> shared.Printout:
    """Export cases with ground truth, for use without ShIOEnv.

    The directory is a Hugging Face dataset with two splits and a checker in Python. Cases of the
    split `portable` need only the home tree. To find them, all cases are also executed on a machine
    that has nothing else.
    """
    from shioenv.bash.words import quoted
    from shioenv_eval.conform.data import export_truth
    from shioenv_eval.conform.truth import Choice

    with Meter(
        lasting=True,
        stopped="stopped; finished executions are saved: run the same command to resume",
    ) as meter:
        done = export_truth(
            directory,
            system=system,
            choice=Choice(tuple(command or ()), cases, seed),
            workers=workers,
            licence=licence,
            progress=meter.update,
        )
    document = done.to_json()
    splits = ", ".join(f"{count:,} {name}" for name, count in done.splits.items())
    parts = [
        f"{done.drawn:,} cases drawn: {splits}; {done.bytes:,} bytes",
        f"written: {quoted(str(directory))}",
    ]
    return shared.Printout(document, parts, indent=2)


pairs = typer.Typer()

_PAIR_LINES = 40
"""Maximum number of printed lines of a difference."""


@shared.command(pairs, "shioenv compare 'wc -l documents/notes.txt' 'wc -l < documents/notes.txt'")
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
    from shioenv_eval.conform.verdicts import compare_effects

    with open_sandbox(system) as sandbox:
        state = sandbox.state(cwd)
        for text in history or ():
            state = state.after(text, sandbox.run(text, state))
        done = compare_effects(sandbox, (first, second), state, runs)
    document = {"inputs": [first, second], "cwd": state.cwd, "history": list(state.history)}
    status = 1 if done.differs else 0
    return shared.Printout(
        document | done.to_json(), _pair_parts(done, state.cwd), indent=2, status=status
    )


def _pair_parts(done: EffectsComparison, start: str) -> Iterator[str]:
    from difflib import unified_diff

    from shioenv.domain.readable import changes
    from shioenv_eval.conform.verdicts import CHANNELS
    from shioenv_eval.mask import output_text_of

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
        yield from map(printing.printable, lines[:_PAIR_LINES])
        if len(lines) > _PAIR_LINES:
            yield f"and {len(lines) - _PAIR_LINES} more lines"
