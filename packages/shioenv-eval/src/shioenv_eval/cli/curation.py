"""Commands of `shioenv dataset` that compare, report, merge, export."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shioenv.cli import printing, shared, stdin
from shioenv.cli.progress import counting
from shioenv.text import fixed, share

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from shioenv.dataset.manifest import Plan
    from shioenv_eval.leakage import Leakage
    from shioenv_eval.report.statistics import Statistics

app = typer.Typer()
"""The commands of the group `dataset`."""

SHOWN = 10
"""Maximum number of leaks that are printed; `--json` has all of them."""

SHOWN_GROUPS = 20
"""Maximum rows of a table of statistics; `--json` has all of them."""


@shared.command(app, "shioenv dataset stats ./dataset")
def stats(
    directory: shared.Directory,
    coverage: Annotated[
        bool,
        typer.Option(
            "--coverage",
            help="Print instead which options of the grammars were executed without a usage error.",
        ),
    ] = False,
) -> shared.Printout:
    """Print statistics: scores, exit codes, commands, composition."""
    from shioenv.dataset.manifest import read_manifest
    from shioenv_eval.report.statistics import statistics

    manifest = read_manifest(directory)
    printing.note_unfinished(directory, manifest)
    if coverage:
        from shioenv_eval.grammars.drawn_options import coverage_of_records

        found = coverage_of_records(directory)
        return shared.Printout(found.to_json(), found.lines(), indent=2)
    described = statistics(directory)
    return shared.Printout(described.to_json(), _described(described, manifest.plan), indent=2)


def _settings(plan: Plan) -> str:
    """Return the settings that make records differ although sampler and seed are equal."""
    known = [f"policy {plan.drawing.policy}"] if plan.drawing.policy else []
    if plan.scoring is not None:
        scores = f"estimator {plan.scoring.estimator}, budget {plan.scoring.budget}"
        known.append(scores if plan.scoring.budget else "no scores")
    return ", ".join(known) or "unknown"


def _described(described: Statistics, plan: Plan) -> Iterator[str | Text | Table]:
    from itertools import islice

    from rich.text import Text

    scores = described.irreducibility
    total = described.records
    rows = {
        "records": f"{total}, {described.sampler}"
        + (
            ", not executed here"
            if not described.system
            else f" on {described.system}"
            if described.seed is None
            else f" with seed {described.seed} on {described.system}"
        ),
        **({"settings": _settings(plan)} if described.system else {}),
        "irreducibility": f"mean {fixed(scores.mean)}, standard deviation {fixed(scores.sd)} "
        f"(mean of strict {fixed(scores.mean_strict)})",
        "necessary": f"mean {fixed(scores.mean_necessary)} of the arguments, known for "
        f"{scores.necessary_known} records",
        "exact scores": f"{scores.exact} of {scores.scored}; mean standard error of the others "
        f"{fixed(scores.mean_standard_error)}",
        "irreducible": f"{scores.one} at 1, {scores.zero} at 0",
        "failed": f"{described.failed} ({share(described.failed, total)})",
        "changed something": f"{described.changed} ({share(described.changed, total)})",
        "volatile": f"{described.volatile} ({share(described.volatile, total)})",
        "timed out": f"{described.timed_out} ({share(described.timed_out, total)})",
        "mistakes": ", ".join(f"{name} {n}" for name, n in described.mistakes.items()) or "none",
        "with history": ", ".join(
            f"{n} with {length}" for length, n in described.histories.items() if length
        )
        or "none",
        "limits reached": ", ".join(f"{name} {n}" for name, n in described.limits_hit.items())
        or "none",
        "per record": f"{fixed(described.mean_executions, 1)} executions, "
        f"{fixed(described.mean_arguments, 1)} arguments, "
        f"{fixed(described.mean_output_bytes, 0)} bytes of output",
    }
    yield from printing.rows(rows, 18)
    for heading, groups in (
        ("command", described.by_command),
        ("arguments", described.by_arguments),
        ("composition", described.by_composition),
    ):
        titles = (heading, "records", "failed", "irreducibility", "necessary", "arguments")
        table = printing.table(titles, min_width=12)
        for name, group in islice(groups.items(), SHOWN_GROUPS):
            table.add_row(
                printing.printable(str(name)),
                str(group.records),
                share(group.failed, group.records),
                fixed(group.mean_irreducibility),
                fixed(group.mean_necessary),
                fixed(group.mean_arguments, 1),
            )
        yield ""
        yield table
        if len(groups) > SHOWN_GROUPS:
            yield Text(f"and {len(groups) - SHOWN_GROUPS} more (--json)", style="dim")


@shared.command(app, "shioenv dataset report ./dataset --out report.html", "report")
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
    from shioenv_eval.report.markup import FILE

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


@shared.command(app, "shioenv dataset leakage ./train ./test --threshold 0.9")
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
        f"{leaking.train:,} training inputs; for {known} of the test inputs, at least one of them "
        "uses the same set of commands"
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


@shared.command(app, "shioenv dataset merge ./one ./two --out ./both")
def merge(
    sources: Annotated[list[Path], typer.Argument(metavar="SRC...", help="Two or more datasets.")],
    destination: Annotated[
        Path, typer.Option("--out", metavar="NEW", help="The new dataset; must not exist.")
    ],
) -> shared.Printout:
    """Merge datasets of the same system.

    System, limits, scoring, sampler and release must be the same. Records get new numbers. Of
    duplicate inputs, the first is kept. All parts of `generate --part` give the dataset of a single
    run; a missing part or record is an error.
    """
    from shioenv_eval.merge import merge as merge_datasets

    with counting("records") as report:
        merged = merge_datasets(sources, destination, report=report)
    document = {
        "sources": [str(source) for source in sources],
        "directory": str(destination),
        "records": merged.manifest.records,
        "equal": merged.equal,
    }
    records = printing.counted(merged.manifest.records, "record")
    line = f"{records} in {destination}; {merged.equal:,} duplicates omitted"
    return shared.Printout(document, [line])


@shared.command(app, "shioenv dataset push ./dataset somebody/shell-records --license cc-by-4.0")
def push(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="Directory of the dataset, or the output of `dataset split`: its parts become "
            "splits.",
        ),
    ],
    repository: shared.HubRepository,
    *,
    licence: shared.CardLicense,
    private: shared.PrivateRepository = False,
) -> shared.Printout:
    """Publish a dataset on a hub: its splits and a card, in one commit.

    The repository then has these files and no others. Needs the extras shioenv[export,hub], and a
    token in HF_TOKEN.
    """
    from tempfile import TemporaryDirectory

    from shioenv.endpoint import push_folder
    from shioenv_eval.export import export as export_dataset

    with TemporaryDirectory(prefix="shioenv-push-") as place, counting("records") as report:
        output = Path(place) / "dataset"
        done = export_dataset(source, output, format="hf", licence=licence, report=report)
        message = f"Publish {printing.counted(done.records, 'record')}"
        url = push_folder(output, repository, private=private, message=message)
    document = {"repository": repository, "url": url, "records": done.records}
    records = printing.counted(done.records, "record")
    return shared.Printout(document, [f"{records} of {source} are in {url}"])


@shared.command(app, "shioenv dataset export ./dataset --out ./published --format hf")
def export(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="Directory of the dataset. With --format hf, also the output of `dataset split`: "
            "its parts become splits.",
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("--out", metavar="OUT", help="File or directory to write; must not exist."),
    ],
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            autocompletion=shared.completing("parquet", "hf", "jsonl", "chat"),
            help="parquet, jsonl (compressed if OUT ends in .gz or .zst), chat (conversations as "
            "JSON Lines), or hf (a directory for datasets.load_dataset). Default: the extension "
            "of OUT; without one, hf.",
        ),
    ] = None,
    licence: Annotated[
        str,
        typer.Option(
            "--license", metavar="ID", help="License in the card of hf, such as cc-by-4.0."
        ),
    ] = "unknown",
) -> shared.Printout:
    """Export a dataset to a format of other tools.

    Parquet needs the extra shioenv[export]. No file is overwritten, and an interrupted export
    leaves no file.
    """
    from shioenv_eval.export import export as export_dataset

    with counting("records") as report:
        done = export_dataset(source, output, format=format_, licence=licence, report=report)
    records = printing.counted(done.records, "record")
    files = printing.counted(done.files, "file")
    line = f"{output}: {records} in {files}, {done.bytes:,} bytes"
    return shared.Printout(done.to_json(), [line])
