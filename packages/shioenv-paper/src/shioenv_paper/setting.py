"""What every experiment is told: results' directory, system, seed, limits and executor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from shioenv.dataset.generate import plan_of
from shioenv.execution.job import Executor, NumberedJob
from shioenv.execution.local import LocalExecutor
from shioenv.grammar.library import chosen_grammars, load_grammars
from shioenv.sandbox.base import LIMITS, Limits
from shioenv.synthesis.drawing import Drawing
from shioenv.synthesis.sample import sample
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
    """Directory of results. Its `data` holds, once, what several experiments need."""
    system_name: str | None = None
    """A built system, or the TOML file it was built from; None for the default system."""
    seed: int = 0
    """Seed of everything drawn."""
    limits: Limits = LIMITS
    """Bounds of every execution."""
    executor: Executor = field(default_factory=LocalExecutor)
    """What executes inputs. Results do not depend on how many processes the executor has."""
    command: str = ""
    """The command line, as it was typed."""
    report: Reporter = silent

    @property
    def system(self) -> System:
        """Where inputs are executed. Errors: those of `find_system`."""
        return find_system(self.system_name)

    @property
    def data(self) -> Path:
        """The directory of what took executions; another call goes on from there."""
        return self.out / "data"

    @property
    def origin(self) -> dict[str, Any]:
        """What decides the behavior of inputs, besides the origin of their stream."""
        return {"without shell state": True} if self.limits.without_shell_state else {}

    def job(self, do: Callable[[Any, tuple[int, Payload]], Answer]) -> NumberedJob[Payload, Answer]:
        """The job that does `do` with each input, in a sandbox of the setting's system."""
        system = self.system_name or self.system.name
        return NumberedJob(do, system=system, limits=self.limits, what="input")

    def check(self, directory: Path, executor: Executor) -> None:
        """Opens a sandbox of the executor before `directory` is made; nothing where it is there.

        Errors: whatever keeps the executor's sandboxes from opening.
        """
        if not directory.exists():
            with executor:
                executor.check(self.job(_nothing))


def _nothing(lane: object, task: tuple[int, object]) -> None:
    """A job without a task: only its sandbox is opened."""


def answers(
    executor: Executor,
    job: NumberedJob[Payload, Answer],
    tasks: Iterable[tuple[int, Payload]],
    report: Callable[[int], None],
    done: int = 0,
) -> Iterator[tuple[int, Answer]]:
    """The answers with their tasks' numbers, as they are finished.

    `report` is told after each answer how many there are, counting the `done` from before. Errors:
    those of the executor.
    """
    with executor:
        for number, answer in enumerate(executor.map(job, tasks), done + 1):
            yield answer
            report(number)


@dataclass(frozen=True, slots=True)
class Stream:
    """Samples, and what decides which samples they are."""

    samples: Iterator[Sample]
    origin: dict[str, Any]
    """Seed, system, grammars and version. Where one differs, samples or their behavior may too."""


def stream_of(system: System, drawing: Drawing, count: int) -> Stream:
    """The first `count` samples that a dataset of this drawing would have."""
    grammars = load_grammars(chosen_grammars(drawing.commands), versions=system.versions)
    plan = plan_of(system, grammars, drawing)
    origin = {
        "seed": drawing.seed,
        "system": plan.system,
        "system digest": plan.system_digest,
        "grammar digest": plan.grammar_digest,
        "version": plan.version,
    }
    return Stream(sample(drawing, system=system, count=count, grammars=grammars), origin)
