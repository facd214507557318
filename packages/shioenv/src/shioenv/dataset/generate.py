"""Generate datasets: many processes execute one stream of samples, in a fixed order.

Sampling is cheap and happens in this process, so the stream is the same for any number of workers.
A record's number is its sample's index in the stream. The draws of a record's score depend only on
the seed and on that number. The executors' job turns a sample into its record's line. `add_scores`
executes the inputs of a dataset again, to score them.
"""

from __future__ import annotations

import hashlib
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, Unpack

from shioenv.dataset.manifest import (
    COMPRESSIONS,
    MANIFEST,
    Manifest,
    Plan,
    finished_manifest,
    read_manifest,
    scoring_there,
)
from shioenv.dataset.record_reader import read_records
from shioenv.dataset.record_tasks import KeptDrawing, RecordTask, in_sessions, missing, recording
from shioenv.dataset.store import Store
from shioenv.domain.context import Context
from shioenv.domain.inputs import Input
from shioenv.domain.record import SCHEMA_VERSION as RECORD_SCHEMA_VERSION
from shioenv.errors import DatasetMismatchError, UnknownDatasetError, UsageError, did_you_mean
from shioenv.execution.job import Executor
from shioenv.execution.local import LocalExecutor
from shioenv.grammar.library import own_grammars
from shioenv.grammar.symbols import Grammar
from shioenv.guests import package_version
from shioenv.irreducibility.scoring import USUAL, Scoring
from shioenv.recording.effort import Effort, Line
from shioenv.sandbox.backends import kernel_of
from shioenv.sandbox.base import LIMITS, Limits
from shioenv.synthesis.drawing import Drawing, DrawingSettings
from shioenv.synthesis.groups import GroupedSamples
from shioenv.synthesis.policy import policy_label
from shioenv.synthesis.sample import check_names, grammars_for, notes_on, numbers_of, sample
from shioenv.synthesis.traces import Sample
from shioenv.system.catalogue import catalogue
from shioenv.system.store import System, find_system
from shioenv.text import html_table, short_repr


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a run; reported at its start, after each record, and with every note."""

    done: int
    """Finished records, including those of earlier runs."""
    count: int
    """Number of requested records."""
    kept: int
    """Number of existing records when the run started."""
    executions: int
    """Number of executions for the scores of this run's records."""
    volatile: int
    """Volatile records among those of this run."""
    seconds: float
    """Seconds since the run started."""
    note: str | None = None
    """A note for a person, reported once; else None."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The result of a run of `generate` or of an import."""

    directory: Path
    manifest: Manifest
    new: int
    """Records that this run made."""
    executions: int
    """Number of executions for the scores of the new records."""
    retried: int
    """Records that were restarted because a sandbox broke or a worker died."""
    restarts: int
    """Workers that were replaced."""
    seconds: float
    """Duration of the run in seconds."""
    effort: Effort
    """Times and counts of the executions for the new records."""

    def __repr__(self) -> str:
        records, count = self.manifest.records, self.manifest.count
        facts = {"directory": str(self.directory), "records": records, "count": count}
        return short_repr(self, {**facts, "new": self.new, "seconds": round(self.seconds, 3)})

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        plan, drawing = self.manifest.plan, self.manifest.plan.drawing
        return html_table(
            {
                "dataset": str(self.directory),
                "records": f"{self.manifest.records:,} of {self.manifest.count:,}",
                "new": f"{self.new:,} in {self.seconds:.1f} s",
                "volatile": f"{self.manifest.volatile:,}",
                "system": plan.system,
                "drawing": repr(drawing),
            }
        )

    def to_json(self) -> dict[str, Any]:
        """Return the summary as JSON for programs."""
        manifest, plan = self.manifest, self.manifest.plan
        of_all = ("count", "records", "volatile", "mean_executions")
        of_run = ("new", "executions", "retried", "restarts")
        return {
            "directory": str(self.directory),
            **{name: getattr(manifest, name) for name in of_all},
            **{name: getattr(self, name) for name in of_run},
            "seconds": round(self.seconds, 3),
            "records_per_second": round(self.new / self.seconds, 2) if self.seconds else None,
            **self.effort.to_json(self.seconds),
            "system": {"name": plan.system, "digest": plan.system_digest},
            "shards": len(manifest.shards),
        }


@dataclass(frozen=True, slots=True)
class Destination:
    """The directory and format of a dataset. Errors: UsageError for an unknown compression."""

    directory: str | Path
    compression: str | None = None
    """The compression of the shards, one of `COMPRESSIONS`. None: an existing dataset keeps its
    compression, a new one is not compressed."""

    def __post_init__(self) -> None:
        if self.compression not in (None, *COMPRESSIONS):
            raise UsageError(
                f"unknown compression {self.compression!r}",
                hint=did_you_mean(self.compression or "", COMPRESSIONS),
            )


def _silent(progress: Progress) -> None:
    """Report nothing."""


def progress_line() -> Callable[[Progress], None]:
    """Return a function that shows progress on one line, on a terminal or in a notebook.

    On a terminal, the line is on standard error. Without a terminal or notebook nothing is shown.
    """
    if _is_notebook():
        rewrite = _notebook_line()
    elif sys.stderr is not None and sys.stderr.isatty():
        rewrite = _terminal_line()
    else:
        return _silent
    last = -math.inf

    def show(progress: Progress) -> None:
        nonlocal last
        ended, now = progress.done >= progress.count, time.monotonic()
        if progress.note is not None:
            rewrite(progress.note, True)
        elif ended or now - last >= _SHOWN_EACH:
            last = now
            new = progress.done - progress.kept
            speed = f", {new / progress.seconds:.1f}/s" if new and progress.seconds else ""
            rewrite(f"{progress.done}/{progress.count} records{speed}", ended)

    return show


def _is_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    shown = sys.modules.get("IPython")
    return shown is not None and hasattr(shown.get_ipython(), "kernel")


def _terminal_line() -> Callable[[str, bool], None]:
    """Return a function that rewrites a terminal's line; with True, the line is finished."""
    longest = 0

    def rewrite(line: str, finished: bool) -> None:
        nonlocal longest
        end = "\n" if finished else ""
        print("\r" + line.ljust(longest), end=end, file=sys.stderr, flush=True)
        longest = 0 if finished else len(line)

    return rewrite


def _notebook_line() -> Callable[[str, bool], None]:
    """Return a function that rewrites an output of the current cell, as `_terminal_line` does."""
    display = import_module("IPython.display").display  # part of every kernel
    shown: Any = None

    def rewrite(line: str, finished: bool) -> None:
        nonlocal shown
        data = {"text/plain": line}
        if shown is None:
            shown = display(data, raw=True, display_id=True)
        else:
            shown.update(data, raw=True)
        shown = None if finished else shown

    return rewrite


_SHOWN_EACH = 0.2
"""Minimum number of seconds between two updates of progress."""


def generate(
    directory: str | Path | Destination,
    *,
    count: int,
    system: str | None = None,
    drawing: Drawing = Drawing(),
    scoring: Scoring | None = None,
    limits: Limits | None = None,
    executor: Executor | None = None,
    report: Callable[[Progress], None] | None = None,
    **settings: Unpack[DrawingSettings],
) -> Summary:
    """Make a dataset of `count` executed and scored inputs in `directory`.

    A `Destination` as `directory` also sets the compression of the shards. Repeat an interrupted
    call to resume it. A larger `count` extends a dataset.

    The same arguments and system give the same bytes, with any `executor` and any number of
    restarts. In volatile records, only number, input and arguments are the same. Without an
    `executor` processes of this machine do the work, one per processor.

    `settings` override those of the `drawing`: `seed`, `commands`, `policy` and the others. With a
    `part`, only its share of `count` is made; `dataset merge` joins all parts. `system` is a
    name or file as in `open_sandbox`. `limits` apply to each execution (None: `LIMITS`, 2 seconds
    of wall time). `scoring` has the settings of scores. By default they are those of an existing
    dataset, and `USUAL` in a new dataset. `report` is called with the progress. By default it is
    shown on a terminal (on standard error) or in a notebook.

    Errors before anything is written: UsageError, and those of `find_system`, `sample` and
    `open_sandbox`. Later errors: DatasetBusyError, DatasetMismatchError (which names the
    differences), DatasetCorruptError, DatasetStorageError, GenerationError. After any of them the
    same call resumes. KeyboardInterrupt is raised again once all finished records are on the disk.
    """
    place = directory if isinstance(directory, Destination) else Destination(directory)
    drawing = drawing.but(**settings)
    check_names(drawing)
    built = find_system(system)
    grammars = grammars_for(built, drawing)
    scoring = scoring or scoring_there(place.directory)
    plan = plan_of(built, grammars, drawing, scoring, limits)
    policy = replace(plan.drawing, policy=drawing.policy)
    numbers = numbers_of(policy, count, system=built, grammars=grammars)
    return run(
        place.directory,
        replace(plan, compression=place.compression),
        sample(policy, system=built, count=len(numbers), grammars=grammars),
        count=numbers,
        system=system or built.name,
        executor=executor,
        report=report or progress_line(),
        notes=tuple(notes_on(built, drawing)),
    )


def plan_of(
    system: System,
    grammars: Sequence[Grammar],
    drawing: Drawing = Drawing(),
    scoring: Scoring = USUAL,
    limits: Limits | None = None,
) -> Plan:
    """Return the plan of a dataset drawn from these grammars on this system.

    Errors: StartDirectoryError, UsageError for an unknown or faulty policy, and those of
    `own_grammars`.
    """
    directories = drawing.start_directories or system.declaration.session.start_directories
    tokens = {directory: catalogue(system, directory) for directory in directories}
    return Plan(
        drawing=replace(
            drawing,
            policy=policy_label(drawing.chosen_policy),
            commands=tuple(grammar.name for grammar in grammars),
            own_grammars=_label(drawing.own_grammars),
            start_directories=tuple(directories),
        ),
        scoring=scoring,
        system=system.name,
        system_digest=system.digest,
        packages=system.packages,
        grammar_digest=grammar_digest(grammars, tokens),
        limits=limits or LIMITS,
        version=package_version(),
    )


_OWN = "sha256:"


def _label(directory: str) -> str:
    """Return the label of a directory of own grammars: the digest of its grammars."""
    if not directory or directory.startswith(_OWN):
        return directory
    own = own_grammars(directory)
    return f"{_OWN}{own.sha256}" if own else ""


def grammar_digest(
    grammars: Iterable[Grammar], tokens: Mapping[str, Mapping[str, Sequence[str]]]
) -> str:
    """Return the SHA-256 of everything from which inputs are drawn.

    That is productions, weights and system tokens, but not comments and the layout of the files.
    `tokens` has the values of system tokens by start directory.
    """
    digest = hashlib.sha256()

    def add(*parts: object) -> None:
        digest.update(repr(parts).encode("utf-8", "surrogateescape") + b"\n")

    for grammar in grammars:
        add(grammar.name, grammar.header.volatile, str(grammar.start), str(grammar.pipe))
        add(sorted(str(slot) for slot in grammar.option_slots))
        for productions in grammar.productions.values():
            for production in productions:
                add(str(production), production.weight, production.stops)
    for directory, values in tokens.items():
        add(directory, sorted((name, list(texts)) for name, texts in values.items()))
    return digest.hexdigest()


def run(
    directory: str | Path,
    plan: Plan,
    samples: Iterable[Sample],
    *,
    count: int | Sequence[int],
    system: str,
    executor: Executor | None = None,
    report: Callable[[Progress], None] = _silent,
    notes: Sequence[str] = (),
) -> Summary:
    """Do the work of `generate` with a given plan: record the first `count` samples.

    `count` may also be the numbers of the records, ascending. `system` is the name or file of the
    plan's system, which must have the plan's digest. `notes` for the user are reported first.
    Errors: those of `generate`, and UsageError if there are fewer samples.
    """
    numbers = range(count) if isinstance(count, int) else count
    count = len(numbers)
    if count < 1:
        raise UsageError(f"cannot generate {count} records", hint="give a count of at least 1")
    executor = executor or LocalExecutor()
    with suppress(UnknownDatasetError):  # the store refuses to extend older records
        there = read_manifest(directory).plan
        compression = plan.compression or there.compression
        plan = replace(plan, record_schema=there.record_schema, compression=compression)
    job = recording(plan, system)
    retried, restarts = executor.retried, executor.restarts
    counter = ProgressCounter(count, report)
    with ExitStack() as stack:
        stack.enter_context(executor)
        if not (Path(directory) / MANIFEST).exists():
            executor.check(job)
        kernel = kernel_of(system, job.limits)
        store = stack.enter_context(
            Store(directory, plan, count, numbers=numbers, kernel=kernel, report=counter.report)
        )
        counter.kept = store.kept
        for note in notes or (None,):
            counter.report(note)
        contexts: Iterable[tuple[int, RecordTask]] = store.missing_contexts()
        kept = KeptDrawing(store, samples) if isinstance(samples, GroupedSamples) else None
        if kept:
            stack.callback(kept.keep)
        wanted = missing(store, counter.time_drawing(samples), numbers, kept)
        scored = plan.scoring is None or plan.scoring.budget
        tasks = chain(contexts, wanted if scored else in_sessions(wanted))
        for number, answer in executor.map(job, tasks, counter.report):
            for kernel in executor.kernels:
                store.made_under(kernel)
            for layer in executor.layers:
                store.made_over(layer)
            if isinstance(answer, Context):
                store.keep_context(number, answer)
                continue
            for line in answer:
                store.append(line)
                counter.add(line)
        return Summary(
            directory=Path(directory),
            manifest=store.manifest,
            new=counter.new,
            executions=counter.executions,
            retried=executor.retried - retried,
            restarts=executor.restarts - restarts,
            seconds=counter.seconds,
            effort=counter.effort,
        )


class ProgressCounter:
    """Counts the results of a run and reports them; `count` is the number of requested records."""

    def __init__(self, count: int, report: Callable[[Progress], None]) -> None:
        self.kept = self.new = self.executions = self.volatile = 0
        self.effort = Effort()
        self._count, self._report = count, report
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since the run started."""
        return time.monotonic() - self._started

    def time_drawing(self, samples: Iterable[Sample]) -> Iterator[Sample]:
        """Yield the samples, and count the processor time of drawing them."""
        stream = iter(samples)
        while True:
            began = time.thread_time()
            sample = next(stream, None)
            self.effort.drawing_seconds += time.thread_time() - began
            if sample is None:
                return
            yield sample

    def add(self, line: Line) -> None:
        """Count a new record and report."""
        self.new += 1
        self.volatile += line.volatile
        self.executions += line.executions
        if line.effort.trouble and not self.effort.trouble:
            self.report(line.effort.trouble)
        self.effort.add(line.effort)
        self.report()

    def report(self, note: str | None = None) -> None:
        """Report the progress of the run, with a note for a person."""
        self._report(
            Progress(
                done=self.kept + self.new,
                count=self._count,
                kept=self.kept,
                executions=self.executions,
                volatile=self.volatile,
                seconds=self.seconds,
                note=note,
            )
        )


def add_scores(
    source: str | Path,
    directory: str | Path,
    *,
    scoring: Scoring = USUAL,
    system: str | None = None,
    executor: Executor | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
) -> Summary:
    """Make a scored dataset in `directory` of the inputs of `source`, which has no scores.

    The records equal those that `generate` or the import would have made with this scoring, byte
    for byte, except volatile ones. Every input is executed again. Repeat an interrupted call to
    resume it. `system` names the system if it was built from a file.

    Errors: UsageError if the source is not finished, has scores, or is a selection (whose record
    numbers have gaps). UsageError also for a `scoring` with a budget of 0. DatasetMismatchError if
    another release made the source. The errors of `generate` are raised too.
    """
    manifest = finished_manifest(source)
    plan = manifest.plan
    if plan.scoring is None or plan.scoring.budget:
        raise UsageError(
            f"{source} was not made with shioenv generate --without-scores",
            hint="only records without scores can be scored",
        )
    if not scoring.budget:
        raise UsageError("cannot score with a budget of 0", hint="give at least 1")
    if plan.kind == "filter":
        raise UsageError(
            f"{source} is a selection of records", hint="score its parent, then select again"
        )
    if plan.version != package_version():
        here = f"{plan.version!r} in the dataset, {package_version()!r} installed"
        raise DatasetMismatchError(str(source), [f"versions.shioenv: {here}"])
    return run(
        directory,
        replace(plan, scoring=scoring, record_schema=RECORD_SCHEMA_VERSION),
        _samples(source),
        count=[one.session_id for one in read_records(source)]
        if plan.drawing.part
        else manifest.records,
        system=system or plan.system,
        executor=executor,
        report=report,
    )


def _samples(source: str | Path) -> Iterator[Sample]:
    """Yield the samples of the records; the sample of a volatile record is declared volatile."""
    for record in read_records(source, check=True):
        yield Sample(
            Input.from_marked(record.input_args),
            record.cwd,
            record.volatile,
            (),
            record.mistake,
            tuple(record.history),
        )
