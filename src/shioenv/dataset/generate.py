"""Datasets made: one stream of samples, executed by many processes, kept in order.

Sampling is cheap and happens here, so the stream is the same for any number of workers; a record's
number is its place in it. What a record's score draws depends on the seed and that number alone.
"""

from __future__ import annotations

import hashlib
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shioenv.behavior.observe import open_sandbox
from shioenv.dataset.manifest import Manifest, Plan
from shioenv.dataset.store import Store
from shioenv.domain.inputs import Session
from shioenv.domain.runner import Installed
from shioenv.errors import UsageError, did_you_mean
from shioenv.execution.pool import Pool, Task
from shioenv.execution.worker import Setup, named
from shioenv.grammar.library import load_grammars
from shioenv.grammar.symbols import Grammar
from shioenv.irreducibility.scoring import Scoring
from shioenv.recording.bounds import LIMITS
from shioenv.recording.effort import Effort
from shioenv.recording.line import Line
from shioenv.sandbox.base import Limits
from shioenv.synthesis.drawing import Drawing
from shioenv.synthesis.policy import policy_label
from shioenv.synthesis.sample import Sample, sample_on
from shioenv.system.catalogue import catalogue
from shioenv.system.store import System, find_system
from shioenv.version import package_version

if TYPE_CHECKING:
    from shioenv.execution.ray_engine import RayPool

ENGINES = ("local", "ray")
"""What executes the samples: processes of this machine, or of the nodes of a Ray cluster."""

Opener = Callable[[str, Limits], Installed]
"""Called in each worker, by its importable name."""


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
        plan = self.manifest.plan
        return {
            "directory": str(self.directory),
            "count": self.manifest.count,
            "records": self.manifest.records,
            "new": self.new,
            "volatile": self.manifest.volatile,
            "mean_executions": self.manifest.mean_executions,
            "executions": self.executions,
            "retried": self.retried,
            "restarts": self.restarts,
            "seconds": round(self.seconds, 3),
            "records_per_second": round(self.new / self.seconds, 2) if self.seconds else None,
            **self.effort.to_json(self.seconds),
            "system": {"name": plan.system, "digest": plan.system_digest},
            "shards": len(self.manifest.shards),
        }


def _silent(progress: Progress) -> None:
    """Report to nobody."""


def generate(
    directory: str | Path,
    *,
    count: int,
    drawing: Drawing = Drawing(),
    scoring: Scoring = Scoring(),
    workers: int | None = None,
    system: str | None = None,
    limits: Limits | None = None,
    engine: str = "local",
    address: str | None = None,
    report: Callable[[Progress], None] = _silent,
    opener: Opener = open_sandbox,
    cache_bytes: int = 0,
) -> Summary:
    """A dataset of `count` executed and scored inputs in `directory`; run again to go on.

    The same bytes for the same arguments and system, whatever `workers` (None: one a processor) is
    and however often the run was killed; of volatile records the same number, input and arguments.
    A larger `count` makes a dataset longer. `system` is a name or file as `open_sandbox` takes it,
    `limits` bounds each execution (None: `LIMITS`, 2 seconds of wall time), `engine` is one of
    `ENGINES`, `address` where the Ray cluster is (None: `RAY_ADDRESS`, else one of this machine
    alone), `report` is told of progress. Executions of sub-inputs are shared between records,
    workers and runs through a file of at most about `cache_bytes` in the user's cache directory (0:
    through none), which does not change what is recorded: see `docs/design/execution-cache.md`.

    KeyboardInterrupt passes through when everything finished is on the disk. Errors: UsageError,
    the errors of `find_system`, `sample` and `open_sandbox`, before anything is written; then
    DatasetBusyError, DatasetMismatchError (naming what differs), DatasetCorruptError,
    DatasetStorageError, GenerationError. After any of them the same call goes on.
    """
    built = find_system(system)
    grammars = load_grammars(drawing.commands or None, versions=built.packages)
    plan = plan_of(built, grammars, drawing, scoring, limits)
    samples = sample_on(
        built, replace(plan.drawing, policy=drawing.policy), count, grammars=grammars
    )
    return run(
        directory,
        plan,
        samples,
        count=count,
        workers=workers,
        system=system or built.name,
        engine=engine,
        address=address,
        report=report,
        opener=opener,
        cache_bytes=cache_bytes,
    )


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
    workers: int | None = None,
    system: str,
    engine: str = "local",
    address: str | None = None,
    report: Callable[[Progress], None] = _silent,
    opener: Opener = open_sandbox,
    cache_bytes: int = 0,
) -> Summary:
    """What `generate` does once plan and samples are known: the first `count` of them recorded.

    `opener` is called in every worker with `system` and the plan's limits and must be importable
    there; its system's digest must be the plan's. Another node of a Ray cluster finds a system of a
    file of one's own by its name.
    """
    if engine not in ENGINES:
        raise UsageError(f"no engine is called {engine!r}", hint=did_you_mean(engine, ENGINES))
    if address is not None and engine != "ray":
        raise UsageError("an address is a Ray cluster's", hint="--engine ray --address ADDRESS")
    if count < 1 or (workers is not None and workers < 1):
        raise UsageError(
            f"cannot generate {count} records with {workers} workers", hint="each is at least 1"
        )
    setup = setup_of(plan, system, opener, cache_bytes=cache_bytes)
    teller = Teller(count, report)
    pool: Pool | RayPool
    if engine == "ray":
        from shioenv.execution.ray_engine import RayPool

        pool = RayPool(
            setup if not system.endswith(".toml") else replace(setup, system=plan.system),
            workers,
            address=address,
            report=teller.tell,
            under=lambda kernel: store.made_under(kernel),
        )
    else:
        pool = Pool(setup, workers or len(os.sched_getaffinity(0)))
    with Store(directory, plan, count, kernel=platform.release(), report=teller.tell) as store:
        teller.kept = store.kept
        teller.tell()
        with pool:
            for line in pool.records(missing(store, samples, count)):
                store.append(line)
                teller.add(line)
        return Summary(
            directory=Path(directory),
            manifest=store.manifest,
            new=teller.new,
            executions=teller.executions,
            retried=pool.retried,
            restarts=pool.restarts,
            seconds=teller.seconds,
            effort=teller.effort,
        )


def setup_of(plan: Plan, system: str, opener: Opener, *, cache_bytes: int = 0) -> Setup:
    """What workers have to know of a plan. ValueError for an opener that they cannot find."""
    return Setup(
        opener=named(opener),
        system=system,
        digest=plan.system_digest,
        limits=plan.limits or LIMITS,
        sampler=plan.drawing.sampler,
        seed=plan.drawing.seed,
        scoring=plan.scoring or Scoring(),
        cache_bytes=cache_bytes,
    )


def missing(store: Store, samples: Iterable[Sample], count: int) -> Iterator[Task]:
    """The samples not recorded yet, with their numbers. UsageError where they end early."""
    stream = iter(samples)
    for number in range(count):
        drawn = next(stream, None)
        if drawn is None:
            raise UsageError(f"the stream ends after {number} samples, {count} are wanted")
        text = Session(drawn.cwd, (drawn.input,)).text
        if store.accept(number, text, drawn.input.input_args):
            yield number, drawn


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
