"""Datasets made: one stream of samples, executed by many processes, kept in order.

Sampling is cheap and happens here, so the stream is the same for any number of workers; a record's
number is its place in it. What a record's score draws depends on the seed and that number alone.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from shioenv.dataset.job import Wanted, recording
from shioenv.dataset.manifest import (
    COMPRESSIONS,
    MANIFEST,
    Manifest,
    Plan,
    read_manifest,
    scoring_there,
)
from shioenv.dataset.store import Store
from shioenv.domain.inputs import session_text
from shioenv.errors import UnknownDatasetError, UsageError, did_you_mean
from shioenv.execution.job import Executor
from shioenv.execution.local import LocalExecutor
from shioenv.grammar.library import load_grammars
from shioenv.grammar.symbols import Grammar
from shioenv.irreducibility.scoring import Scoring
from shioenv.recording.bounds import LIMITS
from shioenv.recording.effort import Effort
from shioenv.recording.line import Line
from shioenv.sandbox.base import Limits
from shioenv.sandbox.default import kernel_of
from shioenv.synthesis.drawing import Drawing
from shioenv.synthesis.policy import policy_label
from shioenv.synthesis.sample import sample_on
from shioenv.synthesis.traces import Sample
from shioenv.system.catalogue import catalogue
from shioenv.system.store import System, find_system
from shioenv.version import package_version


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run has come; reported at its start, after each record, and with every note."""

    done: int
    """Records that are finished, those of earlier runs included."""
    count: int
    """Records wanted."""
    kept: int
    """Records that were there when the run started."""
    executions: int
    """Executions behind the records of this run."""
    volatile: int
    """Volatile ones among the records of this run."""
    seconds: float
    """Since the run started."""
    note: str | None = None
    """Something a person wants to know, once."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run did."""

    directory: Path
    manifest: Manifest
    new: int
    """Records that this run made."""
    executions: int
    """Executions that the scores of the new records took."""
    retried: int
    """Records begun again because a sandbox broke or a worker died."""
    restarts: int
    """Workers that were replaced."""
    seconds: float
    effort: Effort
    """What the new records took."""

    def to_json(self) -> dict[str, Any]:
        """The summary for programs."""
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
    """Where a dataset is kept, and how. Errors: UsageError for an unknown compression."""

    directory: str | Path
    compression: str | None = None
    """Of its shards, one of `COMPRESSIONS`; None: as it is there, none where it is new."""

    def __post_init__(self) -> None:
        if self.compression not in (None, *COMPRESSIONS):
            raise UsageError(
                f"no compression is called {self.compression!r}",
                hint=did_you_mean(self.compression or "", COMPRESSIONS),
            )


def _silent(progress: Progress) -> None:
    """Report to nobody."""


def generate(
    directory: str | Path | Destination,
    *,
    count: int,
    drawing: Drawing = Drawing(),
    scoring: Scoring | None = None,
    system: str | None = None,
    limits: Limits | None = None,
    executor: Executor | None = None,
    report: Callable[[Progress], None] = _silent,
) -> Summary:
    """A dataset of `count` executed and scored inputs in `directory`; run again to go on.

    A `Destination` also says how its shards are compressed.

    The same arguments and system give the same bytes, whatever the `executor` is and however often
    the run was killed. `executor` None is processes of this machine, one a processor. Of volatile
    records number, input and arguments are the same. A larger `count` makes a dataset longer.
    `system` is a name or file as `open_sandbox` takes it. `limits` bounds each execution (None:
    `LIMITS`, 2 seconds of wall time). `scoring` is how inputs are scored (None: as the records that
    are there, of a new dataset `Scoring()`). `report` is told of progress.

    KeyboardInterrupt passes through when everything finished is on the disk. Errors: UsageError,
    the errors of `find_system`, `sample` and `open_sandbox`, before anything is written; then
    DatasetBusyError, DatasetMismatchError (naming what differs), DatasetCorruptError,
    DatasetStorageError, GenerationError. After any of them the same call goes on.
    """
    place = directory if isinstance(directory, Destination) else Destination(directory)
    built = find_system(system)
    grammars = load_grammars(drawing.commands or None, versions=built.versions)
    scoring = scoring or scoring_there(place.directory)
    plan = plan_of(built, grammars, drawing, scoring, limits)
    samples = sample_on(
        built, replace(plan.drawing, policy=drawing.policy), count, grammars=grammars
    )
    return run(
        place.directory,
        replace(plan, compression=place.compression),
        samples,
        count=count,
        system=system or built.name,
        executor=executor,
        report=report,
    )


def enlarged(count: int, found: int, wanted: int) -> int:
    """How many records to generate, more than `count`. `found` of these are of a kind of which
    `wanted` are needed. The number is what their share says, and 5% of what is missing beside.
    """
    return count + math.ceil(1.05 * (wanted - found) * count / max(found, 1))


def plan_of(
    system: System,
    grammars: Sequence[Grammar],
    drawing: Drawing = Drawing(),
    scoring: Scoring = Scoring(),
    limits: Limits | None = None,
) -> Plan:
    """What decides the bytes of a dataset of this system and these grammars.

    Errors: StartDirectoryError, and UsageError for a policy that is none.
    """
    directories = drawing.start_directories or system.declaration.session.start_directories
    tokens = {directory: catalogue(system, directory) for directory in directories}
    return Plan(
        drawing=replace(
            drawing,
            policy=policy_label(drawing.policy),
            commands=tuple(grammar.name for grammar in grammars),
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


def grammar_digest(
    grammars: Iterable[Grammar], tokens: Mapping[str, Mapping[str, Sequence[str]]]
) -> str:
    """SHA-256 over everything that inputs are drawn from: productions, weights and system tokens.

    Comments and the layout of the files take no part.
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
    count: int,
    system: str,
    executor: Executor | None = None,
    report: Callable[[Progress], None] = _silent,
) -> Summary:
    """What `generate` does once plan and samples are known: the first `count` of them recorded.

    `system` is where the plan's system is found, whose digest it must have.
    """
    if count < 1:
        raise UsageError(f"cannot generate {count} records", hint="at least 1")
    executor = executor or LocalExecutor()
    with suppress(UnknownDatasetError):  # a dataset goes on in the layout that it has
        there = read_manifest(directory).plan
        compression = plan.compression or there.compression
        plan = replace(plan, record_schema=there.record_schema, compression=compression)
    job = recording(plan, system)
    retried, restarts = executor.retried, executor.restarts
    teller = Teller(count, report)
    with ExitStack() as stack:
        stack.enter_context(executor)
        if not (Path(directory) / MANIFEST).exists():
            executor.check(job)
        kernel = kernel_of(system, job.limits)
        store = stack.enter_context(
            Store(directory, plan, count, kernel=kernel, report=teller.tell)
        )
        teller.kept = store.kept
        teller.tell()
        contexts: Iterable[tuple[int, Wanted | str]] = store.missing_contexts()
        tasks = chain(contexts, missing(store, teller.drawn(samples), count))
        for number, answer in executor.map(job, tasks, teller.tell):
            for kernel in executor.kernels:
                store.made_under(kernel)
            for layer in executor.layers:
                store.made_over(layer)
            if isinstance(answer, Line):
                store.append(answer)
                teller.add(answer)
            else:
                store.keep_context(number, answer)
        return Summary(
            directory=Path(directory),
            manifest=store.manifest,
            new=teller.new,
            executions=teller.executions,
            retried=executor.retried - retried,
            restarts=executor.restarts - restarts,
            seconds=teller.seconds,
            effort=teller.effort,
        )


def missing(store: Store, samples: Iterable[Sample], count: int) -> Iterator[tuple[int, Wanted]]:
    """The samples not recorded yet, with their numbers. UsageError where they end early."""
    stream = iter(samples)
    for number in range(count):
        drawn = next(stream, None)
        if drawn is None:
            raise UsageError(f"the stream ends after {number} samples, {count} are wanted")
        wanted = Wanted.of(drawn)
        if store.accept(number, session_text(drawn.cwd, drawn.input), wanted.input_args):
            yield number, wanted


class Teller:
    """Counts what a run has done and tells it; `count` records are wanted in all."""

    def __init__(self, count: int, report: Callable[[Progress], None]) -> None:
        self.kept = self.new = self.executions = self.volatile = 0
        self.effort = Effort()
        self._count, self._report = count, report
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        """Since the run started."""
        return time.monotonic() - self._started

    def drawn(self, samples: Iterable[Sample]) -> Iterator[Sample]:
        """The samples; counts how long it takes to draw them."""
        stream = iter(samples)
        while True:
            began = time.thread_time()
            sample = next(stream, None)
            self.effort.drawing_seconds += time.thread_time() - began
            if sample is None:
                return
            yield sample

    def add(self, line: Line) -> None:
        """Counts a new record in."""
        self.new += 1
        self.volatile += line.volatile
        self.executions += line.executions
        if line.effort.trouble and not self.effort.trouble:
            self.tell(line.effort.trouble)
        self.effort.add(line.effort)
        self.tell()

    def tell(self, note: str | None = None) -> None:
        """Tells how far the run has come, and what a person wants to know."""
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
