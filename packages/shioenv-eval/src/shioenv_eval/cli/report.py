"""Report commands: `dataset report`, `dataset leakage`, `grammar report`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shioenv.cli import printing, shared, stdin
from shioenv.cli.progress import counting
from shioenv.text import share

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from shioenv_eval.leakage import Leakage
    from shioenv_eval.report.grammar_report import GrammarReport

of_dataset, of_grammars = typer.Typer(), typer.Typer()
"""The commands of the group `dataset`, and the command of the group `grammar`."""

SHOWN = 10
"""Maximum number of leaks that are printed; `--json` has all of them."""


@shared.command(of_dataset, "shioenv dataset report ./dataset --out report.html", "report")
def report_dataset(
    directory: shared.Directory,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="File to write (default: report.html in DIR)."),
    ] = None,
    json: shared.Json = False,
) -> shared.Printout:
    """Write a report on a dataset as one HTML page.

    It has charts, statistics, and samples to search and browse, and needs no network and no other
    file. With --json the statistics are printed, and the page is written only if --out is given.
    """
    from shioenv.dataset.manifest import read_manifest
    from shioenv_eval.report.dataset_page import collect_page_data, write_report
    from shioenv_eval.report.template import FILE

    printing.note_unfinished(directory, read_manifest(directory))
    path = directory / FILE if out is None else out
    with counting("records") as progress:
        if json and out is None:
            statistics = collect_page_data(directory, report=progress)[1]
            return shared.Printout(statistics.to_json(), indent=2)
        statistics = write_report(directory, out, report=progress)
    size = path.stat().st_size / 1e6
    line = f"{path}: {printing.counted(statistics.records, 'record')}, {size:.1f} MB"
    return shared.Printout(statistics.to_json(), [line], indent=2)


@shared.command(
    of_grammars,
    "shioenv grammar report --count 1000 --ucs-count 500 --round-trip 5000",
    "report",
)
def report_grammars(
    count: Annotated[
        int, typer.Option(min=1, metavar="N", help="Inputs of gcs to execute.")
    ] = 20_000,
    ucs_count: Annotated[
        int, typer.Option(min=1, metavar="N", help="Inputs of ucs to execute.")
    ] = 5_000,
    round_trip: Annotated[
        int, typer.Option(min=1, metavar="N", help="Inputs of gcs to parse back.")
    ] = 100_000,
    seed: shared.Seed = 0,
    workers: Annotated[int, typer.Option(min=1, metavar="W", help="Worker processes.")] = 2,
    system: shared.SystemName = None,
    against: Annotated[
        Path | None,
        typer.Option(
            "--compare-with",
            metavar="INPUTS",
            help="Instead, compare the policies with the inputs in this file, one a line (- is "
            "stdin).",
        ),
    ] = None,
    draws: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="Inputs of each policy, for --compare-with."),
    ] = 5000,
    markdown: Annotated[
        bool,
        typer.Option(
            "--markdown",
            help="Print as Markdown, as in docs/grammars.md.",
        ),
    ] = False,
) -> shared.Printout:
    """Measure grammars: size, coverage, misuse, exit codes, speed.

    Single commands are sampled and executed once each, which takes a few minutes. Misuse is a
    failure that the program attributes to the command line. The exit status is 1 if a goal is
    missed.

    With --compare-with, nothing is executed. The report counts the given inputs that the grammars
    derive on the system. It compares the inputs drawn by the policies mixed, people and paper with
    the given ones, and with a table of usage.
    """
    if against is not None:
        return _against(against, draws, seed, system, markdown=markdown)
    from shioenv.execution.local import LocalExecutor
    from shioenv_eval.report.grammar_report import grammar_report, grammars_page

    made = grammar_report(
        inputs=count,
        ucs_inputs=ucs_count,
        round_trip=round_trip,
        seed=seed,
        system=system,
        executor=LocalExecutor(workers),
        tell=printing.note,
    )
    parts = [grammars_page(made).encode()] if markdown else _goals(made)
    return shared.Printout(made.to_json(), parts, indent=2, status=0 if made.reached else 1)


def _against(
    file: Path, draws: int, seed: int, system: str | None, *, markdown: bool
) -> shared.Printout:
    from shioenv_eval.report.likeness import compare_with_people

    texts = stdin.given_lines(file)
    made = compare_with_people(texts, draws=draws, seed=seed, system=system)
    if markdown:
        made_by = f"`shioenv grammar report --compare-with INPUTS --draws {draws} --seed {seed}`"
        source = f"Made by {made_by}, from {len(texts):,} inputs written by people."
        return shared.Printout(made.to_json(), [made.markdown(source).encode()], indent=2)
    table = printing.table(("", *made.policies))
    for label, cells in made.rows():
        table.add_row(label, *cells)
    lines = [
        f"{label:10} {share.part:6} of {share.whole:6} derived  {share.share:.1%}"
        for label, share in made.shares()
    ]
    return shared.Printout(made.to_json(), [*lines, table], indent=2)


def _goals(made: GrammarReport) -> Iterator[str]:
    for what, must, measured, reached in made.goals():
        yield f"{'  ' if reached else '! '}{what.replace('`', '')}: {measured} ({must})"
    for name, outcome in (("gcs", made.gcs), ("ucs", made.ucs)):
        worst = (f"{command} {of.misuse_share:.1%}" for command, of in outcome.worst())
        yield f"most misuse, {name}: {', '.join(worst)}"


@shared.command(of_dataset, "shioenv dataset leakage ./train ./test --threshold 0.9")
def leakage(
    train: Annotated[
        Path,
        typer.Argument(
            metavar="TRAIN",
            help="Training set: a dataset, or a file with an input or record on each line (- is "
            "stdin).",
        ),
    ],
    test: Annotated[
        Path,
        typer.Argument(
            metavar="TEST",
            help="Test set: a dataset, or a file with an input or record on each line.",
        ),
    ],
    threshold: Annotated[
        float,
        typer.Option(min=0.01, max=1, metavar="X", help="Minimum similarity of near duplicates."),
    ] = 0.9,
) -> shared.Printout:
    """Count test inputs that also occur in a training set.

    There are four levels. exact: the same line and the same start directory, if both are known.
    reordered: the same arguments in another order, or another directory. near: the same commands
    and a similar line. form: the same except for numbers and names. Each test input counts once, at
    the strictest level. The exit status is 1 if there is an exact one.
    """
    from shioenv.errors import UsageError
    from shioenv_eval.leakage import find_leaks as find_leakage

    if str(train) == str(test) == "-":
        raise UsageError(
            "standard input (-) is given for both sets", hint="use a file for one of them"
        )
    train, test = stdin.given(train), stdin.given(test)
    with counting("training inputs") as report:
        leaking = find_leakage(train, test, threshold=threshold, report=report)
    status = 0 if leaking.ok else 1
    return shared.Printout(leaking.to_json(), _leaking(leaking), indent=2, status=status)


def _leaking(leaking: Leakage) -> Iterator[Text | Table]:
    from rich.text import Text

    from shioenv_eval.leakage import LeakLevel

    table = printing.table(("test inputs", "count", "share"), min_width=24)
    rows = {level.value: leaking.count(level) for level in LeakLevel}
    rows[f"near ({leaking.threshold:g} and above)"] = rows.pop("near")
    rows["no leak"] = leaking.test - len(leaking.leaks)
    rows["all"] = leaking.test
    for name, count in rows.items():
        table.add_row(name, f"{count:,}", share(count, leaking.test))
    yield table
    known = share(leaking.known_commands, leaking.test)
    yield Text(
        f"{leaking.train:,} training inputs, which have the commands of {known} of the test inputs"
    )
    order = list(LeakLevel)
    worst = sorted(leaking.leaks, key=lambda leak: (order.index(leak.level), -leak.similarity))
    for leak in worst[:SHOWN]:
        yield Text(
            f"{leak.level.value:9} {leak.similarity:.2f}  {printing.printable(leak.test_input)}"
        )
        if leak.level is not LeakLevel.EXACT:
            yield Text(f"{'':16}{printing.printable(leak.train_input)}", style="dim")
    if len(worst) > SHOWN:
        yield Text(f"and {len(worst) - SHOWN} more (--json)", style="dim")
