"""`shioenv dataset`: verify, describe and show datasets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shioenv.cli import dataset_tools, shared
from shioenv.cli.progress import counting
from shioenv.cli.run import describe
from shioenv.report.text import fixed, share

if TYPE_CHECKING:
    from shioenv.domain.record import Record
    from shioenv.report.stats import Statistics

app = typer.Typer(no_args_is_help=True, help="Datasets: records kept in a directory.")

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="The dataset's directory.")]

SHOWN_LINES = 12
"""Lines of output shown of one record."""

SHOWN_GROUPS = 20
"""Rows of a table of statistics; `--json` has all of them."""


@shared.command(app, "shioenv dataset verify ./dataset --replay 20")
def verify(
    directory: Directory,
    replay: Annotated[
        int, typer.Option(min=0, metavar="N", help="Also execute N records again and compare.")
    ] = 0,
    seed: Annotated[int, typer.Option(help="Draws the records that are executed again.")] = 0,
    system: shared.SystemName = None,
    json: shared.Json = False,
) -> None:
    """Check a dataset: files against the manifest, every record against the rules.

    The exit status is 0 where nothing is wrong, else 1. Volatile records may come out otherwise.
    """
    from shioenv.dataset.verify import replay as replay_records
    from shioenv.dataset.verify import verify as verify_dataset

    with counting("records") as tell:
        report = verify_dataset(directory, report=tell)
    again = None
    if replay and report.ok:
        with counting("executed again") as tell:
            again = replay_records(directory, replay, seed=seed, system=system, report=tell)
    elif replay:
        shared.note("nothing was executed again, because of the problems that were found")
    ok = report.ok and (again is None or again.ok)
    if json:
        document = {**report.to_json(), "ok": ok, "replay": again.to_json() if again else None}
        shared.print_json(document, indent=2)
    else:
        for problem in report.problems:
            print(problem)
        if again is not None:
            for record in again.differing:
                fields = ", ".join(record.fields)
                print(f"record {record.session_id}: executed again, {fields} differ")
            print(f"{again.replayed} executed again, {again.volatile} of them volatile")
        if report.damaged:
            named = ", ".join(report.damaged[:SHOWN_GROUPS])
            print(f"damaged: {named}; next: shioenv dataset repair {directory}")
        verdict = "nothing is wrong" if ok else "not as it should be"
        print(f"{report.records} records in {report.shards} shards: {verdict}")
    if not ok:
        raise typer.Exit(1)


@shared.command(app, "shioenv dataset stats ./dataset")
def stats(directory: Directory, json: shared.Json = False) -> None:
    """Describe a dataset: scores, exit codes, commands, composition."""
    from shioenv.dataset.manifest import read_manifest
    from shioenv.report.stats import statistics

    shared.note_unfinished(directory, read_manifest(directory))
    found = statistics(directory)
    if json:
        shared.print_json(found.to_json(), indent=2)
    else:
        _print_statistics(found)


def _print_statistics(found: Statistics) -> None:
    from itertools import islice

    from rich.table import Table

    console = shared.console()
    scores = found.irreducibility
    total = found.records
    rows = {
        "records": f"{total}, {found.sampler}"
        + (f" with seed {found.seed} on {found.system}" if found.system else ", not executed here"),
        "irreducibility": f"{fixed(scores.mean)} mean, {fixed(scores.sd)} standard deviation "
        f"({fixed(scores.mean_strict)} mean of strict)",
        "exact scores": f"{scores.exact} of {scores.scored}, the others with a standard error of "
        f"{fixed(scores.mean_standard_error)} in the mean",
        "irreducible": f"{scores.one} at 1, {scores.zero} at 0",
        "failed": f"{found.failed} ({share(found.failed, total)})",
        "changed something": f"{found.changed} ({share(found.changed, total)})",
        "volatile": f"{found.volatile} ({share(found.volatile, total)})",
        "timed out": f"{found.timed_out} ({share(found.timed_out, total)})",
        "limits reached": ", ".join(f"{name} {n}" for name, n in found.limits_hit.items())
        or "none",
        "per record": f"{fixed(found.mean_executions, 1)} executions, "
        f"{fixed(found.mean_arguments, 1)} arguments, "
        f"{fixed(found.mean_output_bytes, 0)} bytes of output",
    }
    for key, value in rows.items():
        console.print(f"{key:19}{value}", soft_wrap=True)
    for heading, groups in (
        ("command", found.by_command),
        ("arguments", found.by_arguments),
        ("composition", found.by_composition),
    ):
        table = Table(box=None, pad_edge=False, header_style="dim")
        table.add_column(heading, min_width=12)
        for title in ("records", "failed", "irreducibility", "arguments"):
            table.add_column(title, justify="right")
        for name, group in islice(groups.items(), SHOWN_GROUPS):
            table.add_row(
                shared.printable(str(name)),
                str(group.records),
                share(group.failed, group.records),
                fixed(group.mean_irreducibility),
                fixed(group.mean_arguments, 1),
            )
        console.print()
        console.print(table)
        if len(groups) > SHOWN_GROUPS:
            console.print(f"and {len(groups) - SHOWN_GROUPS} more (--json)", style="dim")


@shared.command(app, "shioenv dataset show ./dataset --count 5")
def show(
    directory: Directory,
    count: Annotated[int, typer.Option(min=1, metavar="N", help="How many records.")] = 5,
    number: Annotated[
        int | None, typer.Option("--id", min=0, metavar="N", help="Only the record of this number.")
    ] = None,
    json: shared.Json = False,
) -> None:
    """Show records as people read them, spread over the dataset."""
    from itertools import islice

    from shioenv.dataset.manifest import read_manifest
    from shioenv.dataset.read import read_records
    from shioenv.domain.record import encode
    from shioenv.errors import UsageError

    manifest = read_manifest(directory)
    shared.note_unfinished(directory, manifest)
    if number is not None:
        chosen = [one for one in read_records(directory) if one.session_id == number]
        if not chosen:
            parent = " and keeps its parent's numbers" if manifest.plan.kind == "filter" else ""
            raise UsageError(
                f"{directory} has no record {number}",
                hint=f"it has {manifest.records}, counted from 0{parent}",
            )
    else:
        step = max(1, manifest.records // count)
        chosen = list(islice(read_records(directory), 0, step * count, step))
    for record in chosen:
        if json:
            shared.write(encode(record))
        else:
            _print(record)


def _print(record: Record) -> None:
    from rich.text import Text

    from shioenv.domain.patch import ContextPatch

    console = shared.console()
    console.print(Text(f"record {record.session_id}", style="bold"))
    rows = [
        ("input", record.input),
        ("arguments", ", ".join(record.input_args[1:]) or "none"),
        ("exit code", str(record.exit_code)),
    ]
    if record.irreducibility is None:
        score = "unknown" if record.n_arguments else "undefined: there is no argument to remove"
    else:
        how = "exact" if record.exact else "estimate"
        runs = f"{how}, {record.n_executions} executions"
        score = f"{record.irreducibility:.3f} ({runs if record.n_executions else 'as published'})"
    rows.append(("irreducible", score))
    flags = ("timed_out", "output_truncated", "patch_truncated", "volatile")
    said = [name.replace("_", " ") for name in flags if getattr(record, name)]
    if said:
        rows.append(("flags", ", ".join(said)))
    if record.limits_hit:
        rows.append(("limits", f"reached {', '.join(record.limits_hit)}"))
    for key, value in rows:
        console.print(Text(f"  {key:12}{shared.printable(value)}"), soft_wrap=True)
    lines = record.output.removesuffix("\n").split("\n") if record.output else []
    for index, line in enumerate(lines[:SHOWN_LINES]):
        label = "" if index else "output"
        console.print(Text(f"  {label:12}{shared.printable(line)}"), soft_wrap=True)
    if len(lines) > SHOWN_LINES:
        console.print(Text(f"  {'':12}and {len(lines) - SHOWN_LINES} more lines", style="dim"))
    operations = ContextPatch.from_json(record.context_patch).operations
    for index, operation in enumerate(operations[:SHOWN_LINES]):
        label = "" if index else "changes"
        console.print(Text(f"  {label:12}{describe(operation)}"), soft_wrap=True)
    if len(operations) > SHOWN_LINES:
        console.print(Text(f"  {'':12}and {len(operations) - SHOWN_LINES} more", style="dim"))
    console.print()


shared.command(
    app, "shioenv dataset filter ./gcs ./gcs-high --min-irreducibility 0.5", name="filter"
)(dataset_tools.filter_)
shared.command(app, "shioenv dataset export ./dataset ./published --format hf")(
    dataset_tools.export
)
shared.command(
    app, "shioenv dataset import nl2cmd.txt ./nl2cmd --placeholders bind --seed 7", name="import"
)(dataset_tools.import_)
shared.command(app, "shioenv dataset repair ./dataset")(dataset_tools.repair)
shared.command(app, "shioenv dataset leakage ./train ./test --threshold 0.9")(dataset_tools.leakage)
