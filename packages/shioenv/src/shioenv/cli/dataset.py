"""`shioenv dataset`: verify, show and edit datasets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from shioenv.cli import dataset_tools, printing, shared
from shioenv.cli.progress import counting

if TYPE_CHECKING:
    from rich.text import Text

    from shioenv.domain.record import Record, ScoredSegment

app = typer.Typer(
    name="dataset",
    no_args_is_help=True,
    help="Inspect, select, export, import and repair datasets.",
)

SHOWN_LINES = 12
"""Maximum lines of output, and of changes, shown for one record."""

SHOWN_GROUPS = 20
"""Maximum number of damaged shards shown; `--json` has all of them."""

REMAINS = (
    "if the storage is `names over ...`, inputs see nothing of the host's file system; if it is "
    "`part over ...`, they see its properties in /usr; other differences come from the kernel, or "
    "from effects that differ in few runs"
)
"""Explains why the same record can differ on another host."""


@shared.command(app, "shioenv dataset verify ./dataset --replay 20")
def verify(
    directory: shared.Directory,
    replay: Annotated[
        int,
        typer.Option(
            min=0, metavar="N", help="Also execute N records again and compare the effects."
        ),
    ] = 0,
    seed: Annotated[int, typer.Option(help="Random seed for the choice of these records.")] = 0,
    system: shared.SystemName = None,
) -> shared.Printout:
    """Check the files and records of a dataset.

    Files are compared with the manifest, and each record with the schema. The exit status is 1 if
    there is a fault. A volatile record whose replay differs is not a fault.
    """
    from shioenv.dataset.verify import replay as replay_records
    from shioenv.dataset.verify import verify as verify_dataset

    with counting("records") as tell:
        report = verify_dataset(directory, report=tell)
    again = None
    if replay and report.ok:
        with counting("replayed") as tell:
            again = replay_records(directory, replay, seed=seed, system=system, report=tell)
    elif replay:
        printing.note("nothing was replayed, because the dataset has problems")
    ok = report.ok and (again is None or again.ok)
    document = {**report.to_json(), "ok": ok, "replay": again.to_json() if again else None}
    lines = [str(problem) for problem in report.problems]
    if again is not None:
        for record in again.differing:
            fields = ", ".join(record.fields)
            lines.append(f"record {record.session_id}: {fields} differ in the replay")
        if again.differing:
            lines.append(f"recorded on {again.made_on}, replayed on {again.here}: {REMAINS}")
        replayed = printing.counted(again.replayed, "record")
        lines.append(f"{replayed} replayed, {again.volatile} of them volatile")
    if report.damaged:
        named = ", ".join(report.damaged[:SHOWN_GROUPS])
        lines.append(f"damaged: {named}; to repair: shioenv dataset repair {directory}")
    verdict = "no problems" if ok else "problems found"
    records = printing.counted(report.records, "record")
    lines.append(f"{records} in {printing.counted(report.shards, 'shard')}: {verdict}")
    return shared.Printout(document, lines, indent=2, status=0 if ok else 1)


@shared.command(app, "shioenv dataset show ./dataset --count 5")
def show(
    directory: shared.Directory,
    count: Annotated[int, typer.Option(min=1, metavar="N", help="Number of records.")] = 5,
    number: Annotated[
        int | None,
        typer.Option("--id", min=0, metavar="N", help="Only the record with this number."),
    ] = None,
) -> Iterator[shared.Printout]:
    """Show records in a readable form, spread over the dataset."""
    from itertools import islice

    from shioenv.dataset.manifest import read_manifest
    from shioenv.dataset.record_reader import read_records
    from shioenv.domain.record import encode
    from shioenv.errors import UsageError

    manifest = read_manifest(directory)
    held = printing.note_unfinished(directory, manifest)
    records = read_records(directory, unfinished=True)
    if number is not None:
        chosen = [record for record in records if record.session_id == number]
        if not chosen:
            parent = (
                "with the numbers of their source"
                if manifest.plan.kind in ("filter", "records")
                else "numbered from 0"
            )
            raise UsageError(
                f"{directory} has no record {number}",
                hint=f"it has {held} records, {parent}",
            )
    else:
        step = max(1, held // count)
        chosen = list(islice(records, 0, step * count, step))
    for record in chosen:
        yield shared.Printout(encode(record), _record(record))


def _arguments(record: Record) -> Iterator[tuple[ScoredSegment, Sequence[str]]]:
    """Yield each segment of a record with the texts of its arguments."""
    words, place = record.input_args, 0
    for segment in record.segments:
        try:
            place = words.index(segment.command, place) + 1
        except ValueError:  # the segments of a published record may lack their words
            return
        end = place + segment.n_arguments
        yield segment, words[place:end]
        place = end


def _by_command(record: Record) -> Iterator[str]:
    """Yield each command's removable arguments; with its name if there are several commands."""
    found = list(_arguments(record))
    if not found:
        yield from filter(None, [", ".join(record.input_args[1:])])
    for segment, texts in found:
        if texts:
            yield (f"{segment.command}: " if len(found) > 1 else "") + ", ".join(texts)


def _necessary(record: Record) -> Iterator[str]:
    """Yield the arguments whose omission alone changes the behavior."""
    for segment, texts in _arguments(record):
        for text, effect in zip(texts, segment.arguments or (), strict=False):
            if effect.leave_one_out:
                yield text


def _record(record: Record) -> Iterator[Text]:
    from rich.text import Text

    from shioenv.domain.patch import ContextPatch
    from shioenv.domain.readable import changes

    yield Text(f"record {record.session_id}", style="bold")
    rows = [
        ("input", record.input),
        ("arguments", "; ".join(_by_command(record)) or "none"),
        ("exit code", str(record.exit_code)),
    ]
    if record.irreducibility is None:
        score = "unknown" if record.n_arguments else "undefined: no argument can be removed"
    else:
        how = "exact" if record.exact else "estimate"
        runs = f"{how}, {record.n_executions} executions"
        score = f"{record.irreducibility:.3f} ({runs if record.n_executions else 'as published'})"
    rows.append(("irreducible", score))
    if record.necessary is not None:
        needed = round(record.necessary * record.n_arguments)
        names = "".join(f", {text}" for text in _necessary(record))
        share = f"{record.necessary:.3f} ({needed} of {record.n_arguments})"
        rows.append(("necessary", f"{share}:{names[1:]}" if names else share))
    flags = ("timed_out", "output_truncated", "patch_truncated", "volatile")
    said = [name.replace("_", " ") for name in flags if getattr(record, name)]
    if said:
        rows.append(("flags", ", ".join(said)))
    if record.mistake is not None:
        rows.append(("mistake", record.mistake))
    rows += [("after" if place == 0 else "", typed) for place, typed in enumerate(record.history)]
    if record.limits_hit:
        rows.append(("limits", f"reached {', '.join(record.limits_hit)}"))
    for name, value in rows:
        yield Text(f"  {name:12}{printing.printable(value)}")
    lines = record.output.removesuffix("\n").split("\n") if record.output else []
    operations = ContextPatch.from_json(record.context_patch).operations
    for label, parts, more in (
        ("output", list(map(printing.printable, lines)), "more lines"),
        ("changes", list(map(str, changes(operations, record.cwd))), "more"),
    ):
        for place, part in enumerate(parts[:SHOWN_LINES]):
            yield Text(f"  {'' if place else label:12}{part}")
        if len(parts) > SHOWN_LINES:
            yield Text(f"  {'':12}and {len(parts) - SHOWN_LINES} {more}", style="dim")
    yield Text()


shared.command(app, "shioenv dataset filter ./gcs --out ./high --min-irreducibility 0.5", "filter")(
    dataset_tools.filter_
)
shared.command(app, "shioenv dataset split ./dataset --out ./parts --test 0.1")(dataset_tools.split)
shared.command(app, "shioenv dataset import inputs.txt --out ./mine --seed 7", "import")(
    dataset_tools.import_
)
shared.command(app, "shioenv dataset score ./executed --out ./scored")(dataset_tools.score)
shared.command(app, "shioenv dataset repair ./dataset")(dataset_tools.repair)
