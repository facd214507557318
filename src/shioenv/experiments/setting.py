"""What every experiment is told: where, on what system, from which seed, by how many processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from shioenv.dataset.generate import plan_of
from shioenv.execution.job import Executor, NumberedJob
from shioenv.execution.local import LocalExecutor
from shioenv.grammar.library import load_grammars
from shioenv.recording.bounds import LIMITS
from shioenv.sandbox.base import Limits
from shioenv.synthesis.drawing import Drawing
from shioenv.synthesis.sample import sample_on
from shioenv.synthesis.traces import Sample
from shioenv.system.store import System, find_system

Reporter: TypeAlias = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, and of how much."""

Payload = TypeVar("Payload")
Answer = TypeVar("Answer")


def silent(what: str, done: int, total: int) -> None:
    """Tells nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentSetting:
    """The part of a call that all experiments share."""

    out: Path
    """Directory of results; what several experiments need lies in its `data`, once."""
    system_name: str | None = None
    """A built system, or the TOML file it was built from; None for the default one."""
    seed: int = 0
    """Of everything drawn."""
    limits: Limits = LIMITS
    """Bounds of every execution."""
    executor: Executor = field(default_factory=LocalExecutor)
    """What executes. What it finds does not depend on how many processes it has."""
    command: str = ""
    """The command line, as it was typed."""
    report: Reporter = silent

    @property
    def system(self) -> System:
        """Where inputs are executed. Errors: those of `find_system`."""
        return find_system(self.system_name)

    @property
    def data(self) -> Path:
        """The directory of what took executions, which another call goes on with."""
        return self.out / "data"

    @property
    def origin(self) -> dict[str, Any]:
        """What decides what inputs do, besides the origin of their stream."""
        return {"without shell state": True} if self.limits.without_shell_state else {}

    def job(self, do: Callable[[Any, tuple[int, Payload]], Answer]) -> NumberedJob[Payload, Answer]:
        """What is to be done with inputs in a sandbox of the setting's system."""
        system = self.system_name or self.system.name
        return NumberedJob(do, system=system, limits=self.limits, what="input")

    def check(self, directory: Path, executor: Executor) -> None:
        """Raises what keeps an executor's sandboxes from opening, where results are to be begun in
        a directory that is not there yet.
        """
        if not directory.exists():
            with executor:
                executor.check(self.job(_nothing))


def _nothing(lane: object, task: tuple[int, object]) -> None:
    """Done with no task."""


def answers(
    executor: Executor,
    job: NumberedJob[Payload, Answer],
    tasks: Iterable[tuple[int, Payload]],
    report: Callable[[int], None],
    done: int = 0,
) -> Iterator[tuple[int, Answer]]:
    """The answers with their tasks' numbers, as they are finished; `report` is told how many there
    are, `done` that were there before among them. Errors: those of the executor.
    """
    with executor:
        for number, answer in enumerate(executor.map(job, tasks), done + 1):
            yield answer
            report(number)


@dataclass(frozen=True, slots=True)
class Stream:
    """Samples, and what decides which they are."""

    samples: Iterator[Sample]
    origin: dict[str, Any]
    """Seed, system, grammars and version: where one differs, so may the samples or what they do."""


def stream_of(system: System, drawing: Drawing, count: int) -> Stream:
    """The first samples that a dataset of this drawing would have."""
    grammars = load_grammars(versions=system.versions)
    plan = plan_of(system, grammars, drawing)
    origin = {
        "seed": drawing.seed,
        "system": plan.system,
        "system digest": plan.system_digest,
        "grammar digest": plan.grammar_digest,
        "version": plan.version,
    }
    return Stream(sample_on(system, drawing, count, grammars=grammars), origin)
