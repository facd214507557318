"""The job of executors for a dataset: turn a sample into the line that holds its record."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NamedTuple

from shioenv.dataset.manifest import Plan
from shioenv.domain.context import Context
from shioenv.domain.inputs import Input, Session
from shioenv.domain.record import encode
from shioenv.execution.job import NumberedJob
from shioenv.execution.lanes import LANES, Lane
from shioenv.irreducibility.scoring import Scoring
from shioenv.recording.bounds import LIMITS
from shioenv.recording.effort import Effort
from shioenv.recording.line import Line
from shioenv.recording.session import SessionRecorder
from shioenv.seeding import generator
from shioenv.synthesis.traces import Sample


class Wanted(NamedTuple):
    """A sample on its way to an executor: only what decides its record, in few bytes."""

    input_args: list[str]
    cwd: str
    volatile: bool
    mistake: str | None = None
    history: tuple[str, ...] = ()

    @classmethod
    def of(cls, sample: Sample) -> Wanted:
        """The part of a sample that travels; how it was drawn stays behind."""
        return cls(
            sample.input.input_args, sample.cwd, sample.volatile, sample.mistake, sample.history
        )

    @property
    def session(self) -> Session:
        """The sample as a session of one row."""
        return Session(self.cwd, (Input.from_marked(self.input_args),), self.history)

    def __str__(self) -> str:
        return self.session.body


@dataclass(frozen=True, slots=True)
class Recording:
    """Makes lines of numbered samples, and contexts of start directories."""

    sampler: str
    seed: int
    scoring: Scoring
    schema: int

    def __call__(self, lane: Lane, task: tuple[int, Wanted | str]) -> Line | Context:
        """The line of an executed and scored sample with its effort, or a directory's context."""
        number, wanted = task
        if isinstance(wanted, str):
            return lane.context(wanted)
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
        recorded = recorder.record(wanted.session, lane, rng, volatile=wanted.volatile)
        made = recorded.record(
            number,
            system=lane.system.name,
            sampler=self.sampler,
            schema=self.schema,
            mistake=wanted.mistake,
        )
        effort.lane_seconds += time.perf_counter() - began
        effort.trouble = None if cache is None else cache.trouble
        return Line(number, encode(made), made.volatile, made.n_executions, effort)


def recording(plan: Plan, system: str) -> NumberedJob[Wanted | str, Line | Context]:
    """The job that makes records and contexts of a plan; `system` is its system's name or file."""
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
