"""The job of datasets: samples become the lines of their records."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from msgspec import MsgspecError, msgpack

from shioenv.dataset.manifest import SHARD_RECORDS, Plan
from shioenv.domain.context import Context
from shioenv.domain.inputs import Input, Session, session_text
from shioenv.domain.record import encode
from shioenv.domain.runner import Executing
from shioenv.errors import DatasetStorageError, UsageError
from shioenv.execution.job import NumberedJob
from shioenv.execution.lanes import LANES, Lane
from shioenv.files.durable import atomic_write, cache_directory
from shioenv.files.unfinished import plan_digest
from shioenv.irreducibility.scoring import Scoring
from shioenv.recording.effort import Effort, Line
from shioenv.recording.execution_cache import sources_digest
from shioenv.recording.passes import SessionPasses
from shioenv.recording.session import SessionRecorder
from shioenv.sandbox.base import LIMITS
from shioenv.seeding import generator
from shioenv.synthesis.traces import Sample

if TYPE_CHECKING:  # workers need neither
    from shioenv.dataset.store import Store
    from shioenv.synthesis.groups import GroupedSamples


class Wanted(NamedTuple):
    """A sample as sent to an executor: only the parts that determine its record, in few bytes."""

    input_args: list[str]
    cwd: str
    volatile: bool
    mistake: str | None = None
    history: tuple[str, ...] = ()

    @classmethod
    def of(cls, sample: Sample) -> Wanted:
        """Return the part of a sample that executors need, without the details of drawing."""
        return cls(
            sample.input.input_args, sample.cwd, sample.volatile, sample.mistake, sample.history
        )

    @property
    def session(self) -> Session:
        """Return the sample as a session of one row."""
        return Session(self.cwd, (Input.from_marked(self.input_args),), self.history)

    def __str__(self) -> str:
        return self.session.body


class WantedSession(NamedTuple):
    """Samples of one session, to be run one after the other in resident shells."""

    rows: list[tuple[int, Wanted]]
    """Each sample with its number. The history of each contains the samples before it."""

    @property
    def texts(self) -> list[str]:
        """Every row of the session's shell, including rows that need not be recorded."""
        last = self.rows[-1][1]
        return [*last.history, last.session.body]

    def __str__(self) -> str:
        return "\n".join(self.texts)


RecordTask: TypeAlias = Wanted | WantedSession | str
"""One or several samples to record, or a start directory whose context is needed."""

RecordAnswer: TypeAlias = list[Line] | Context


def in_sessions(tasks: Iterable[tuple[int, Wanted]]) -> Iterator[tuple[int, RecordTask]]:
    """Join consecutive samples of one session to one task, numbered like the first of them."""
    rows: list[tuple[int, Wanted]] = []
    for number, wanted in tasks:
        if rows and not _continues(rows[-1][1], wanted):
            yield rows[0][0], _joined(rows)
            rows = []
        rows.append((number, wanted))
    if rows:
        yield rows[0][0], _joined(rows)


def _continues(before: Wanted, wanted: Wanted) -> bool:
    above = (*before.history, before.session.body)
    return wanted.cwd == before.cwd and wanted.history[: len(above)] == above


def _joined(rows: list[tuple[int, Wanted]]) -> Wanted | WantedSession:
    return rows[0][1] if len(rows) == 1 else WantedSession(rows)


@dataclass(frozen=True, slots=True)
class Recording:
    """Converts numbered samples into lines, and start directories into contexts."""

    sampler: str
    seed: int
    scoring: Scoring
    schema: int

    def __call__(self, lane: Lane, task: tuple[int, RecordTask]) -> RecordAnswer:
        """Return the lines of executed and scored samples, or a directory's context."""
        number, wanted = task
        if isinstance(wanted, str):
            return lane.context(wanted)
        if isinstance(wanted, Wanted):
            return [self._line(lane, number, wanted, lane)]
        if not lane.keeps_shells:
            return [self._line(lane, each, one, lane) for each, one in wanted.rows]
        open_session = partial(lane.open_session, cwd=wanted.rows[0][1].cwd)
        forks = bool(self.scoring.budget)
        passes = SessionPasses(lane, wanted.texts, open_session, forks=forks)
        try:
            return [self._line(lane, each, one, passes) for each, one in wanted.rows]
        finally:
            passes.close()

    def _line(self, lane: Lane, number: int, wanted: Wanted, runner: Executing) -> Line:
        """Execute a sample with this runner, and return its record's line."""
        cache = lane.cache
        lane.effort = effort = Effort()
        if cache is not None:
            cache.use = effort
        began = time.perf_counter()
        recorder = SessionRecorder(
            scoring=self.scoring,
            cache=None if cache is None or wanted.history else cache.of(wanted.cwd),
            alone=lane.alone,
        )
        rng = generator(self.seed, "score", number)
        recorded = recorder.record(wanted.session, runner, rng, volatile=wanted.volatile)
        made = recorded.record(
            number,
            system=lane.system.name,
            sampler=self.sampler,
            schema=self.schema,
            mistake=wanted.mistake,
        )
        effort.lane_seconds += time.perf_counter() - began
        effort.trouble = None if cache is None else cache.trouble
        if isinstance(runner, SessionPasses):
            why = runner.repeated.get(len(wanted.history))
            effort.repeated.update([] if why is None else [why])
        return Line(number, encode(made), made.volatile, made.n_executions, effort)


def missing(
    store: Store,
    samples: Iterable[Sample],
    numbers: Sequence[int],
    kept: KeptDrawing | None = None,
) -> Iterator[tuple[int, Wanted]]:
    """Yield the samples not recorded yet under these numbers. UsageError if there are too few."""
    stream = iter(samples)
    for place in range(kept.resume() if kept else 0, len(numbers)):
        number = numbers[place]
        if kept:
            kept.note(number)
        drawn = next(stream, None)
        if drawn is None:
            raise UsageError(f"only {place} samples exist, but {len(numbers)} are required")
        wanted = Wanted.of(drawn)
        if store.accept(number, session_text(drawn.cwd, drawn.input), wanted.input_args):
            yield number, wanted


_KEPT_EACH = 8
"""Number of shards after which the state of drawing is kept (our choice)."""


class KeptDrawing:
    """The state of drawing after finished shards, in the cache directory.

    A run that continues a dataset does not draw again what these shards have. The state belongs to
    the inputs of these shards, and to the code that drew them.
    """

    def __init__(self, store: Store, samples: GroupedSamples) -> None:
        self._store, self._samples = store, samples
        plan = store.manifest.plan
        code = sources_digest("shioenv.synthesis")
        about = [asdict(plan.drawing), plan.system_digest, plan.grammar_digest, plan.version, code]
        self._file = cache_directory() / "drawn" / f"{plan_digest(about)[:24]}.msgpack"
        self._newest, self._waiting = -1, (0, b"")

    def resume(self) -> int:
        """Continue from the state that is kept; return how many samples precede it, 0 for none."""
        with suppress(OSError, MsgspecError):
            content = self._file.read_bytes()
            number, inputs, state = msgpack.decode(content, type=tuple[int, str, bytes])
            if self._store.inputs_before(number) == inputs:
                self._samples.restore(state)
                return self._store.skip(number)
        return 0

    def note(self, number: int) -> None:
        """Keep the state before the sample of this number, if it is the first of some shards."""
        shards = number // (_KEPT_EACH * SHARD_RECORDS)
        if shards > self._newest:
            self.keep()
            self._newest = shards
            self._waiting = shards * _KEPT_EACH, self._samples.state()

    def keep(self) -> None:
        """Write the newest state, if all shards before it are finished."""
        number, state = self._waiting
        inputs = self._store.inputs_before(number)
        if number and inputs is not None:
            with suppress(OSError, DatasetStorageError):
                self._file.parent.mkdir(parents=True, exist_ok=True)
                atomic_write(self._file, msgpack.encode((number, inputs, state)))
                self._waiting = 0, b""


def recording(plan: Plan, system: str) -> NumberedJob[RecordTask, RecordAnswer]:
    """Return the job that makes a plan's records and contexts. `system` is a name or file."""
    return NumberedJob(
        Recording(
            plan.drawing.sampler,
            plan.drawing.seed,
            plan.scoring or Scoring(),
            plan.record_schema,
        ),
        system=system,
        limits=plan.limits or LIMITS,
        digest=plan.system_digest,
        lanes=LANES,
        what="record",
    )
