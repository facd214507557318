"""`shioenv dataset`: verify, show, filter, split, import, score and repair datasets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shioenv.cli import printing, shared, stdin
from shioenv.cli.progress import Meter, counting
from shioenv.text import share

if TYPE_CHECKING:
    from rich.text import Text

    from shioenv.dataset.external import ImportSummary
    from shioenv.dataset.importers import Imported
    from shioenv.dataset.input_lines import Rejection
    from shioenv.dataset.repair import Repaired
    from shioenv.domain.record import Record, ScoredSegment

app = typer.Typer(
    name="dataset",
    no_args_is_help=True,
    help="Inspect, select, export, import and repair datasets.",
)

SHOWN = 10
"""Maximum examples and lines printed; `--json`, or the named file, has all of them."""

Source = Annotated[Path, typer.Argument(metavar="SRC", help="The dataset to read.")]

_condition = partial(typer.Option, rich_help_panel="Conditions")

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


@dataclass(frozen=True, slots=True)
class Conditions:
    """Options of `dataset filter`; records that are kept meet all of them."""

    min_irreducibility: Annotated[
        float | None, _condition(min=0, max=1, metavar="X", help="Minimum irreducibility.")
    ] = None
    max_irreducibility: Annotated[
        float | None, _condition(min=0, max=1, metavar="X", help="Maximum irreducibility.")
    ] = None
    strict: Annotated[
        bool,
        _condition("--strict", help="Apply these two bounds to irreducibility_strict instead."),
    ] = False
    min_necessary: Annotated[
        float | None,
        _condition(min=0, max=1, metavar="X", help="Minimum share of necessary arguments."),
    ] = None
    max_necessary: Annotated[
        float | None,
        _condition(min=0, max=1, metavar="X", help="Maximum share of necessary arguments."),
    ] = None
    command: Annotated[
        list[str] | None,
        _condition(
            "--command",
            metavar="COMMAND",
            autocompletion=shared.completing("shioenv.grammar.library:names_of_grammars"),
            help="Only inputs whose commands are all among these. Repeatable.",
        ),
    ] = None
    exclude_volatile: Annotated[
        bool,
        _condition(
            "--exclude-volatile", help="Omit records whose effects may differ between runs."
        ),
    ] = False
    exit_code: Annotated[
        list[int] | None,
        _condition(
            min=0, max=255, metavar="N", help="Only records with this exit code. Repeatable."
        ),
    ] = None
    min_arguments: Annotated[
        int | None, _condition(min=0, metavar="N", help="Minimum number of arguments.")
    ] = None
    max_arguments: Annotated[
        int | None, _condition(min=0, metavar="N", help="Maximum number of arguments.")
    ] = None


@shared.command(app, "shioenv dataset filter ./gcs --out ./high --min-irreducibility 0.5", "filter")
def filter_(
    source: Source,
    destination: Annotated[
        Path, typer.Option("--out", metavar="NEW", help="The new dataset; must not exist.")
    ],
    *,
    conditions: Conditions,
    count: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Keep the first N matching records."),
    ] = None,
) -> shared.Printout:
    """Select records of a dataset into a new one.

    A record must meet all conditions; bounds are inclusive. A record without a score meets no bound
    on the score. An argument is necessary if the behavior changes when only it is omitted. A record
    meets a bound on necessary arguments only if this is known for all its arguments. Records keep
    their numbers. The manifest describes the selection and its source. The same selection gives the
    same bytes.
    """
    from shioenv.dataset.select import Selection, select

    bounds = asdict(conditions)
    commands, codes = bounds.pop("command"), bounds.pop("exit_code")
    selection = Selection(
        **bounds, commands=tuple(commands or ()), exit_codes=tuple(codes or ()), count=count
    )
    with counting("records") as report:
        manifest = select(source, destination, selection, report=report)
    parent = manifest.plan.origin["parent"]["records"] if manifest.plan.origin else 0
    part = share(manifest.records, parent)
    document = {
        "source": str(source),
        "directory": str(destination),
        "records": manifest.records,
        "of": parent,
        "shards": len(manifest.shards),
        "selection": selection.to_json(),
    }
    line = f"{manifest.records:,} of {parent:,} records ({part}) in {destination}"
    return shared.Printout(document, [line])


@shared.command(app, "shioenv dataset split ./dataset --out ./parts --test 0.1")
def split(
    source: Source,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Directory for the parts; must not exist.")
    ],
    test: Annotated[
        float, typer.Option(min=0, max=1, metavar="SHARE", help="Share of records in the test set.")
    ] = 0.1,
    validation: Annotated[
        float,
        typer.Option(min=0, max=1, metavar="SHARE", help="Share of records in a validation set."),
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="Random seed for the assignment.")] = 0,
) -> shared.Printout:
    """Split a dataset into training, test and validation sets.

    They are written to DIR/train, DIR/test and, with --validation, DIR/validation. Inputs that
    differ only in numbers, names, bundled options or word order are in the same part, and so are
    those of a session. Shares are exact for groups of such inputs, and approximate for records.
    """
    from shioenv.dataset.split import Shares
    from shioenv.dataset.split import split as split_dataset

    shares = Shares(test=test, validation=validation)
    with counting("records") as report:
        parts = split_dataset(source, out, shares, seed=seed, report=report)
    total = sum(manifest.records for manifest in parts.values())
    document = {
        "source": str(source),
        "directory": str(out),
        "parts": {name: manifest.records for name, manifest in parts.items()},
    }
    rows = {
        name: f"{printing.counted(manifest.records, 'record')} "
        f"({share(manifest.records, total)}) in {out / name}"
        for name, manifest in parts.items()
    }
    return shared.Printout(document, printing.rows(rows))


@shared.command(app, "shioenv dataset import inputs.txt --out ./mine --seed 7", "import")
def import_(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SRC",
            help="A file with an input on each line, as text or JSON (- is stdin); an exported "
            "dataset; or released records. gzip and Zstandard are supported.",
        ),
    ],
    directory: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="DIR",
            help="The new dataset. If inputs are executed, the same command resumes it.",
        ),
    ],
    *,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            autocompletion=shared.completing("commands", "records", "released", "sessions"),
            help="commands: inputs, executed and scored here. sessions: a log of shioenv serve or "
            "of Cowrie, executed with the earlier lines of the session. records: an exported "
            "dataset. released: the records published with the paper. Default: detected, except "
            "released.",
        ),
    ] = None,
    sampler: Annotated[
        str | None,
        typer.Option(
            "--sampler-label",
            metavar="NAME",
            help="Value of the field sampler in the records (default: the format). Not for "
            "records.",
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Random seed for start directories and sub-inputs.")
    ] = 0,
    scoring: shared.ScoringSettings,
    workers: shared.Workers = None,
    cwd: shared.StartDirectory = None,
    limits: shared.RecordLimits,
    system: shared.SystemName = None,
) -> shared.Printout:
    """Make a dataset from inputs, a honeypot's log, or an export.

    Inputs are executed, scored and recorded as by generate, without changes; `shioenv suite adapt`
    can adapt them to the system first. The same list gives the same bytes. Sessions start in
    the user's home directory, or in --cwd. Rejected lines are written to DIR/rejected.ndjson.

    Exported and released records are not executed, so --seed, --budget, --workers and --system have
    no effect. Fields that released records lack are empty. An export in the Hugging Face layout
    restores the dataset byte for byte; one with several splits becomes several datasets in DIR.
    """
    from shioenv.dataset.importers import find_importer, find_reader, kind_of

    source = stdin.given(source)
    format_ = format_ or kind_of(source)
    reader = find_reader(format_)
    if reader is None:
        importer = find_importer(format_)
        with counting("records" if format_ == "records" else "lines") as report:
            imported = importer(source, directory, sampler=sampler, report=report)
        return shared.Printout(imported.to_json(), _other_lines(imported, directory))
    from shioenv.dataset.external import CommandList, import_commands
    from shioenv.dataset.manifest import scoring_there
    from shioenv.execution.local import LocalExecutor

    commands = CommandList(
        source,
        sampler=sampler or format_,
        seed=seed,
        start_directories=() if cwd is None else (cwd,),
    )
    stopped = f"stopped; finished records are kept in {directory}; the same command resumes"
    with Meter("records", lasting=True, stopped=stopped) as meter:
        summary = import_commands(
            commands,
            directory,
            read=reader,
            scoring=scoring.applied_to(scoring_there(directory)),
            system=system,
            limits=limits.limits(),
            executor=LocalExecutor(workers),
            report=meter.report,
        )
    return shared.Printout(summary.to_json(), _imported_lines(summary, directory))


@shared.command(app, "shioenv dataset score ./executed --out ./scored")
def score(
    source: Source,
    out: Annotated[
        Path,
        typer.Option("--out", metavar="NEW", help="The new dataset. The same command resumes it."),
    ],
    *,
    scoring: shared.ScoringSettings,
    workers: shared.Workers = None,
    system: shared.SystemName = None,
) -> shared.Printout:
    """Add scores to a dataset that was generated without them.

    Inputs are executed again. Except for volatile records, the result is the dataset that `shioenv
    generate` makes with scores.
    """
    from shioenv.cli.generate import summarize
    from shioenv.dataset.generate import add_scores
    from shioenv.dataset.manifest import scoring_there
    from shioenv.execution.local import LocalExecutor

    stopped = f"stopped; finished records are kept in {out}; the same command resumes"
    with Meter("records", lasting=True, stopped=stopped) as meter:
        summary = add_scores(
            source,
            out,
            scoring=scoring.applied_to(scoring_there(out)),
            system=system,
            executor=LocalExecutor(workers),
            report=meter.report,
        )
    return summarize(summary)


@shared.command(app, "shioenv dataset repair ./dataset")
def repair(
    directory: shared.Directory,
    workers: shared.Workers = None,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy-file", metavar="FILE", help="The policy of the dataset if it is a file."
        ),
    ] = None,
    grammars: shared.GrammarDirectory = None,
    system: shared.SystemName = None,
) -> shared.Printout:
    """Regenerate damaged or missing shards of a dataset.

    The manifest has the settings for this, and hashes for checking the result. Volatile records
    that differ are printed, and noted in the manifest. Use verify to find other damage.
    """
    from shioenv.dataset.repair import repair as repair_shards
    from shioenv.execution.local import LocalExecutor

    with Meter("records", lasting=True) as meter:
        repaired = repair_shards(
            directory,
            system=system,
            policy=policy,
            own_grammars=None if grammars is None else str(grammars),
            executor=LocalExecutor(workers),
            report=meter.report,
        )
    lines = [line for shard in repaired for line in _repaired_lines(shard)]
    return shared.Printout(
        {"repaired": [shard.to_json() for shard in repaired]},
        lines or ["all shards match the manifest: nothing to repair"],
        indent=2,
    )


def _rejected_lines(rejected: tuple[Rejection, ...], directory: Path) -> Iterator[str]:
    from shioenv.dataset.input_lines import REJECTED, reasons

    for line in rejected[:SHOWN]:
        place = f"{line.file}:{line.line}" if line.file else f"line {line.line}"
        text = printing.printable(line.text if len(line.text) <= 80 else f"{line.text[:79]}…")
        printing.note(f"{place} skipped, {line.reason}: {text}")
    if len(rejected) > SHOWN:
        printing.note(f"and {len(rejected) - SHOWN} more in {directory / REJECTED}")
    for reason, count in reasons(rejected).items():
        yield f"{'skipped':11} {count:,}: {reason}"


def _imported_lines(done: ImportSummary, directory: Path) -> Iterator[str]:
    manifest = done.summary.manifest
    yield from _rejected_lines(done.rejected, directory)
    mean = manifest.mean_executions
    rows = {
        "dataset": str(directory),
        "lines": f"{done.lines:,}",
        "records": f"{manifest.records:,}, {done.summary.new:,} of them new",
        "executions": f"{mean:.1f} per record" if mean is not None else "-",
        "volatile": f"{manifest.volatile} ({share(manifest.volatile, manifest.records)})",
    }
    yield from printing.rows(rows)


def _other_lines(done: Imported, directory: Path) -> Iterator[str]:
    yield from _rejected_lines(done.rejected, directory)
    yield from printing.rows(done.rows())


def _repaired_lines(shard: Repaired) -> Iterator[str]:
    kept = f", {shard.salvaged} volatile records kept from the damaged file"
    kept = kept if shard.salvaged else ""
    if shard.identical:
        yield f"{shard.file} was {shard.was}: restored with the same bytes{kept}"
    else:
        yield (
            f"{shard.file} was {shard.was}: generated again{kept}; its bytes differ, because "
            f"{shard.volatile} of its records are volatile; ids, inputs and arguments are the same "
            "and the manifest notes the change"
        )
    for number, fields in list(shard.differing.items())[:SHOWN]:
        yield f"  record {number} differs in {', '.join(fields)}"
    if len(shard.differing) > SHOWN:
        yield f"  and {len(shard.differing) - SHOWN} more (--json)"
