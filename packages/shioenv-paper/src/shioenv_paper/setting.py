"""Common settings of experiments: results' directory, system, seed, limits and executor."""

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
"""Callback with the current activity, the amount done and the total."""

Payload = TypeVar("Payload")
Answer = TypeVar("Answer")


def report_nothing(what: str, done: int, total: int) -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentSetting:
    """The common part of all experiments' settings."""

    out: Path
    """Directory of results. Its `data` holds data shared by several experiments."""
    system_name: str | None = None
    """A built system, or the TOML file it was built from; None for the default system."""
    seed: int = 0
    """Seed of everything drawn."""
    limits: Limits = LIMITS
    """Limits of every execution."""
    executor: Executor = field(default_factory=LocalExecutor)
    """The executor of inputs. Results do not depend on its number of processes."""
    command: str = ""
    """The command line, as typed."""
    report: Reporter = report_nothing

    @property
    def system(self) -> System:
        """The system that executes inputs. Errors: those of `find_system`."""
        return find_system(self.system_name)

    @property
    def data(self) -> Path:
        """The directory of execution results, which later calls reuse."""
        return self.out / "data"

    @property
    def origin(self) -> dict[str, Any]:
        """The facts that, with the stream's origin, determine the behavior of inputs."""
        return {"without shell state": True} if self.limits.without_shell_state else {}

    def job(self, do: Callable[[Any, tuple[int, Payload]], Answer]) -> NumberedJob[Payload, Answer]:
        """Return the job that applies `do` to each input, in a sandbox of the setting's system."""
        system = self.system_name or self.system.name
        return NumberedJob(do, system=system, limits=self.limits, what="input")

    def check(self, directory: Path, executor: Executor) -> None:
        """Open a sandbox of the executor before `directory` is created; do nothing if it exists.

        Errors: those of opening the executor's sandboxes.
        """
        if not directory.exists():
            with executor:
                executor.check(self.job(_nothing))


def _nothing(lane: object, task: tuple[int, object]) -> None:
    """Do nothing: used for a job that only opens its sandbox."""


def answers(
    executor: Executor,
    job: NumberedJob[Payload, Answer],
    tasks: Iterable[tuple[int, Payload]],
    report: Callable[[int], None],
    done: int = 0,
) -> Iterator[tuple[int, Answer]]:
    """Yield the answers with their tasks' numbers, in order of completion.

    After each answer, `report` gets the number of answers, counted on from `done`. Errors: those
    of the executor.
    """
    with executor:
        for number, answer in enumerate(executor.map(job, tasks), done + 1):
            yield answer
            report(number)


@dataclass(frozen=True, slots=True)
class Stream:
    """Samples, with the facts that determine them."""

    samples: Iterator[Sample]
    origin: dict[str, Any]
    """Seed, system, grammars and version.

    If one differs, samples or their behavior may differ too.
    """


def stream_of(system: System, drawing: Drawing, count: int) -> Stream:
    """Return the first `count` samples of a dataset with this drawing."""
    grammars = load_grammars(chosen_grammars(drawing.commands), host_clock=system.host_clock)
    plan = plan_of(system, grammars, drawing)
    origin = {
        "seed": drawing.seed,
        "system": plan.system,
        "system digest": plan.system_digest,
        "grammar digest": plan.grammar_digest,
        "version": plan.version,
    }
    return Stream(sample(drawing, system=system, count=count, grammars=grammars), origin)
