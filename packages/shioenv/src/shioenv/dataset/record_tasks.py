"""The job of datasets: samples become the lines of their records."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

from shioenv.dataset.manifest import Plan
from shioenv.domain.context import Context
from shioenv.domain.inputs import Input, Session
from shioenv.domain.record import encode
from shioenv.domain.runner import Executing
from shioenv.execution.job import NumberedJob
from shioenv.execution.lanes import LANES, Lane
from shioenv.irreducibility.scoring import Scoring
from shioenv.recording.effort import Effort, Line
from shioenv.recording.passes import SessionPasses
from shioenv.recording.session import SessionRecorder
from shioenv.sandbox.base import LIMITS
from shioenv.seeding import generator
from shioenv.synthesis.traces import Sample


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
