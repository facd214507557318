"""`shioenv dataset`: filter, split, merge, export, import, score and repair."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shioenv.cli import printing, shared, stdin
from shioenv.cli.progress import Meter, counting
from shioenv.text import share

if TYPE_CHECKING:
    from shioenv.dataset.external import ImportSummary
    from shioenv.dataset.importers import Imported
    from shioenv.dataset.input_lines import Rejection
    from shioenv.dataset.manifest import Manifest
    from shioenv.dataset.repair import Repaired

SHOWN = 10
"""Maximum examples and lines printed; `--json`, or the named file, has all of them."""

Source = Annotated[Path, typer.Argument(metavar="SRC", help="The dataset to read.")]

_condition = partial(typer.Option, rich_help_panel="Conditions")


def filter_(
    source: Source,
    destination: Annotated[
        Path, typer.Option("--out", metavar="NEW", help="The new dataset; must not exist.")
    ],
    min_irreducibility: Annotated[
        float | None, _condition(min=0, max=1, metavar="X", help="Minimum irreducibility.")
    ] = None,
    max_irreducibility: Annotated[
        float | None, _condition(min=0, max=1, metavar="X", help="Maximum irreducibility.")
    ] = None,
    strict: Annotated[
        bool,
        _condition("--strict", help="Apply these two bounds to irreducibility_strict instead."),
    ] = False,
    min_necessary: Annotated[
        float | None,
        _condition(min=0, max=1, metavar="X", help="Minimum share of necessary arguments."),
    ] = None,
    max_necessary: Annotated[
        float | None,
        _condition(min=0, max=1, metavar="X", help="Maximum share of necessary arguments."),
    ] = None,
    command: Annotated[
        list[str] | None,
        _condition(
            "--command",
            metavar="COMMAND",
            autocompletion=shared.completing("shioenv.grammar.library:names_of_grammars"),
            help="Only inputs whose commands are all among these. Repeatable.",
        ),
    ] = None,
    exclude_volatile: Annotated[
        bool,
        _condition(
            "--exclude-volatile", help="Omit records whose effects may differ between runs."
        ),
    ] = False,
    exit_code: Annotated[
        list[int] | None,
        _condition(
            min=0, max=255, metavar="N", help="Only records with this exit code. Repeatable."
        ),
    ] = None,
    min_arguments: Annotated[
        int | None, _condition(min=0, metavar="N", help="Minimum number of arguments.")
    ] = None,
    max_arguments: Annotated[
        int | None, _condition(min=0, metavar="N", help="Maximum number of arguments.")
    ] = None,
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

    selection = Selection(
        min_irreducibility=min_irreducibility,
        max_irreducibility=max_irreducibility,
        strict=strict,
        min_necessary=min_necessary,
        max_necessary=max_necessary,
        commands=tuple(command or ()),
        exclude_volatile=exclude_volatile,
        exit_codes=tuple(exit_code or ()),
        min_arguments=min_arguments,
        max_arguments=max_arguments,
        count=count,
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


def split(
    source: Source,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Holds the parts; must not exist.")
    ],
    test: Annotated[
        float, typer.Option(min=0, max=1, metavar="SHARE", help="Share of the test set.")
    ] = 0.1,
    validation: Annotated[
        float, typer.Option(min=0, max=1, metavar="SHARE", help="Share of a validation set.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="Draws which groups are in which part.")] = 0,
) -> shared.Printout:
    """Split a dataset into DIR/train, DIR/test and perhaps DIR/validation.

    Inputs that differ in numbers, names, bundles and the order of words alone are in one part, and
    so are those of one session. Each part is a dataset, with records as they were. Shares hold for
    groups of such inputs, and for records about.
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


def merge(
    sources: Annotated[
        list[Path], typer.Argument(metavar="SRC...", help="The datasets to read, two at least.")
    ],
    destination: Annotated[
        Path, typer.Option("--out", metavar="NEW", help="The new dataset; must not exist.")
    ],
) -> shared.Printout:
    """Put datasets of one system together.

    System, limits, scoring, sampler and release have to be the same. Records get new numbers. Of
    equal inputs the first is kept.
    """
    from shioenv.dataset.merge import merge as merge_datasets

    with counting("records") as report:
        merged = merge_datasets(sources, destination, report=report)
    document = {
        "sources": [str(source) for source in sources],
        "directory": str(destination),
        "records": merged.manifest.records,
        "equal": merged.equal,
    }
    records = printing.counted(merged.manifest.records, "record")
    line = f"{records} in {destination}; {merged.equal:,} equal ones out"
    return shared.Printout(document, [line])


def export(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="The dataset's directory. For hf also a directory of datasets, as split makes it: "
            "each is a split.",
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
            help="parquet (one file), hf (a directory for datasets.load_dataset), jsonl (one file; "
            "compressed where OUT ends in .gz or .zst), chat. A chat is a file of conversations "
            "as JSON Lines (default: the format that OUT ends in; hf for an OUT without ending).",
        ),
    ] = None,
    licence: Annotated[
        str,
        typer.Option(
            "--license", metavar="ID", help="Licence that the card of hf names, such as cc-by-4.0."
        ),
    ] = "unknown",
) -> shared.Printout:
    """Write a dataset in a format that other tools open.

    Parquet needs the extra shioenv[export]. No file is overwritten, and no unfinished file is left
    behind.
    """
    from shioenv.dataset.export import export as export_dataset

    with counting("records") as report:
        done = export_dataset(source, output, format=format_, licence=licence, report=report)
    records = printing.counted(done.records, "record")
    files = printing.counted(done.files, "file")
    line = f"{records}, {files} of records, {done.bytes:,} bytes: {output}"
    return shared.Printout(done.to_json(), [line])


def import_(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SRC",
            help="A file with an input on each line, as text or as JSON (input, cwd), or - for "
            "stdin. It may be an export of a dataset, or released records, compressed by gzip or "
            "Zstandard.",
        ),
    ],
    directory: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="DIR",
            help="The dataset to make. With commands, the same command goes on with it.",
        ),
    ],
    *,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            autocompletion=shared.completing("commands", "records", "released", "sessions"),
            help="commands: inputs, executed and scored here. sessions: the log of shioenv serve "
            "or of Cowrie, each line after those before it. records: an export of a dataset, kept "
            "as it is. released: records as the paper's authors published them (default: what SRC "
            "holds: commands, records or sessions).",
        ),
    ] = None,
    sampler: Annotated[
        str | None,
        typer.Option(
            "--sampler-label",
            metavar="NAME",
            help="The sampler that records name (default: the format's name). Records of an "
            "export keep theirs.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Draws start directories and sub-inputs.")] = 0,
    scoring: shared.ScoringSettings,
    workers: shared.Workers = None,
    cwd: shared.StartDirectory = None,
    limits: shared.RecordLimits,
    system: shared.SystemName = None,
) -> shared.Printout:
    """Make a dataset of inputs, of a honeypot's log, of an export, or of released records.

    Inputs are executed, scored and recorded as generate does it; the same list gives the same
    bytes. Inputs are taken as they are: `shioenv suite adapt` rewrites other people's inputs to
    the system first. Sessions start in the system's first start directory. Lines that cannot be
    recorded are printed, counted, and kept in DIR/rejected.ndjson. Records are not executed, so
    seed, budget, workers and system have no part. What released records do not say stays empty.
    Records of an export stay as they are. An export in the Hugging Face layout gives the exported
    dataset, byte for byte; one with several splits gives a dataset of each, in DIR.
    """
    from shioenv.dataset.importers import find_importer
    from shioenv.dataset.records import has_parts, import_parts, import_records, kind_of
    from shioenv.errors import UsageError

    source = stdin.given(source)
    if format_ is None:
        format_ = kind_of(source)
    if format_ == "records":
        if sampler is not None:
            raise UsageError(
                "records of an export keep their samplers", hint="omit --sampler-label"
            )
        with counting("records") as report:
            if has_parts(source):
                return _kept_parts(import_parts(source, directory, report=report), directory)
            kept = import_records(source, directory, report=report)
        return _kept(kept, directory)
    if format_ in {"commands", "sessions"}:
        from shioenv.dataset.external import CommandList, import_commands, read_list
        from shioenv.dataset.manifest import scoring_there
        from shioenv.dataset.sessions import read_sessions
        from shioenv.execution.local import LocalExecutor

        commands = CommandList(
            source,
            sampler=sampler or format_,
            seed=seed,
            start_directories=() if cwd is None else (cwd,),
        )
        stopped = f"stopped; what is finished is kept in {directory}: run this again"
        with Meter("records", lasting=True, stopped=stopped) as meter:
            summary = import_commands(
                commands,
                directory,
                read=read_list if format_ == "commands" else read_sessions,
                scoring=scoring.applied_to(scoring_there(directory)),
                system=system,
                limits=limits.limits(),
                executor=LocalExecutor(workers),
                report=meter.report,
            )
        return shared.Printout(summary.to_json(), _imported_lines(summary, directory))
    importer = find_importer(format_)
    with counting("lines") as report:
        imported = importer(source, directory, sampler=sampler or format_, report=report)
    return shared.Printout(imported.to_json(), _other_lines(imported, directory))


def score(
    source: Source,
    out: Annotated[
        Path,
        typer.Option(
            "--out", metavar="NEW", help="The new dataset. The same command goes on with it."
        ),
    ],
    *,
    scoring: shared.ScoringSettings,
    workers: shared.Workers = None,
    system: shared.SystemName = None,
) -> shared.Printout:
    """Score the records of a dataset that was made without scores, into a new one.

    Inputs are executed again. The records are those that `shioenv generate` would have made with
    scores, volatile records apart.
    """
    from shioenv.cli.generate import made
    from shioenv.dataset.generate import add_scores
    from shioenv.dataset.manifest import scoring_there
    from shioenv.execution.local import LocalExecutor

    stopped = f"stopped; what is finished is kept in {out}: run this again"
    with Meter("records", lasting=True, stopped=stopped) as meter:
        summary = add_scores(
            source,
            out,
            scoring=scoring.applied_to(scoring_there(out)),
            system=system,
            executor=LocalExecutor(workers),
            report=meter.report,
        )
    return made(summary)


def repair(
    directory: shared.Directory,
    workers: shared.Workers = None,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy-file", metavar="FILE", help="The policy's file if one drew the inputs."
        ),
    ] = None,
    grammars: shared.GrammarDirectory = None,
    system: shared.SystemName = None,
) -> shared.Printout:
    """Make damaged or missing shards of a generated dataset again.

    The manifest says how the inputs were drawn. Its hashes prove that the new shards are those
    that were there. Volatile records that came out otherwise are printed, and noted in the
    manifest. Other damage is named by verify.
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
        lines or ["every shard is what the manifest says: nothing to repair"],
        indent=2,
    )


def _rejected_lines(rejected: tuple[Rejection, ...], directory: Path) -> Iterator[str]:
    from shioenv.dataset.input_lines import REJECTED, reasons

    for line in rejected[:SHOWN]:
        place = f"{line.file}:{line.line}" if line.file else f"line {line.line}"
        text = printing.printable(line.text if len(line.text) <= 80 else f"{line.text[:79]}…")
        printing.note(f"{place} left out, {line.reason}: {text}")
    if len(rejected) > SHOWN:
        printing.note(f"and {len(rejected) - SHOWN} more in {directory / REJECTED}")
    for reason, count in reasons(rejected).items():
        yield f"{'left out':11} {count:,}: {reason}"


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


def _kept_parts(made: Mapping[str, Manifest], directory: Path) -> shared.Printout:
    counts = {name: manifest.records for name, manifest in made.items()}
    rows = {
        "datasets": str(directory),
        **{name: f"{count:,} records, as they were exported" for name, count in counts.items()},
    }
    return shared.Printout({"directory": str(directory), "parts": counts}, printing.rows(rows))


def _kept(manifest: Manifest, directory: Path) -> shared.Printout:
    plan = manifest.plan
    document = {
        "records": manifest.records,
        "directory": str(directory),
        "kind": plan.kind,
        "system": {"name": plan.system, "digest": plan.system_digest or None},
        "volatile": manifest.volatile,
    }
    rows = {
        "dataset": str(directory),
        "records": f"{manifest.records:,}, as they were exported; nothing was executed",
        "system": f"{plan.system}, digest {plan.system_digest[:12] or 'unknown'}",
        "volatile": f"{manifest.volatile} ({share(manifest.volatile, manifest.records)})",
    }
    return shared.Printout(document, printing.rows(rows))


def _other_lines(done: Imported, directory: Path) -> Iterator[str]:
    yield from _rejected_lines(done.rejected, directory)
    yield from printing.rows({"dataset": str(directory), **done.rows()})


def _repaired_lines(shard: Repaired) -> Iterator[str]:
    kept = f", {shard.salvaged} volatile records as they still stood there"
    kept = kept if shard.salvaged else ""
    if shard.identical:
        yield f"{shard.file} was {shard.was}: the same bytes again{kept}"
    else:
        yield (
            f"{shard.file} was {shard.was}: made again with other bytes, because {shard.volatile} "
            f"of its records are volatile{kept}; ids, inputs and arguments are the same, the "
            "manifest notes it"
        )
    for number, fields in list(shard.differing.items())[:SHOWN]:
        yield f"  record {number} was otherwise in {', '.join(fields)}"
    if len(shard.differing) > SHOWN:
        yield f"  and {len(shard.differing) - SHOWN} more (--json)"
