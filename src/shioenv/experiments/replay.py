"""Estimators replayed on inputs whose sub-inputs were all executed: nothing is executed again."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from shioenv.execution.job import Executor, Job
from shioenv.experiments.exact import Known, mask_of
from shioenv.experiments.setting import Report
from shioenv.irreducibility.estimators import ESTIMATORS, estimator_named
from shioenv.irreducibility.spread import together
from shioenv.irreducibility.subsets import Kept
from shioenv.report.means import Mean, bootstrapped
from shioenv.seeding import generator


@dataclass(frozen=True, slots=True)
class Outcome:
    """How far estimates of one input were from its score."""

    number: int
    """The input's."""
    n: int
    estimator: str
    budget: int
    absolute_error: float
    """Mean over the replays of |estimate - score|."""
    error: float
    """Mean over the replays of estimate - score."""
    executions: float
    """Sub-inputs executed, the mean over the replays; the runs of the whole are not among them."""


class Replay:
    """One input's known sub-inputs, looked at as if they had to be executed."""

    def __init__(self, known: Known) -> None:
        self._known = known
        masks: dict[str, int] = {}
        self._execution = [masks.setdefault(text, m) for m, text in enumerate(known.texts())]
        """The first mask of the same text: sub-inputs that read the same are executed once."""
        self._differs = [bool(known.differs >> mask & 1) for mask in range(len(self._execution))]

    def estimate(self, estimator: str, budget: int, rng: random.Random) -> tuple[float, int]:
        """What `estimate_irreducibility` would say, and from how many executed sub-inputs."""
        n = self._known.n
        if (1 << n) - 1 <= budget:
            weighing = self._execution[1:] if n > 1 else self._execution
            return self._known.irreducibility, len(set(weighing))
        look = _Look(self._execution, self._differs)
        parts = estimator_named(estimator)(n, budget, rng, look)
        drawn = together(item for part in parts for item in part.drawn)
        weights = [(weight, look(kept)) for kept, (weight, _) in drawn.items()]
        total = math.fsum(weight for weight, _ in weights)
        value = math.fsum(weight for weight, differs in weights if differs) / total
        return min(value, 1.0), len(look.seen)


class _Look:
    """Sub-inputs looked at so far."""

    def __init__(self, execution: Sequence[int], differs: Sequence[bool]) -> None:
        self._execution, self._differs = execution, differs
        self.seen: set[int] = set()

    def __call__(self, kept: Kept) -> bool:
        mask = mask_of(kept)
        self.seen.add(self._execution[mask])
        return self._differs[mask]

    def known(self, kept: Kept) -> bool:
        return self._execution[mask_of(kept)] in self.seen


def replayed(
    inputs: Sequence[Known],
    budgets: Sequence[int],
    *,
    replays: int,
    seed: int,
    executor: Executor,
    report: Report,
) -> list[Outcome]:
    """Every estimator at every budget on every input, `replays` times, in the order of the inputs.

    The same for every executor.
    """
    job = Job(partial(_outcomes, budgets=tuple(budgets), replays=replays, seed=seed), what="input")
    found: dict[int, list[Outcome]] = {}
    with executor:
        for number, some in executor.map(job, enumerate(inputs)):
            found[number] = some
            report("inputs replayed", len(found), len(inputs))
    return [one for _, some in sorted(found.items()) for one in some]


def _outcomes(
    lane: object, task: tuple[int, Known], budgets: tuple[int, ...], replays: int, seed: int
) -> list[Outcome]:
    return list(outcomes(task[1], budgets, replays, seed))


def outcomes(known: Known, budgets: Sequence[int], replays: int, seed: int) -> Iterator[Outcome]:
    """Those of one input."""
    replay, score = Replay(known), known.irreducibility
    for name in ESTIMATORS:
        for budget in budgets:
            every = (1 << known.n) - 1 <= budget
            estimates = [
                replay.estimate(
                    name, budget, generator(seed, "replay", known.number, name, budget, time)
                )
                for time in range(1 if every else replays)
            ]
            errors = [value - score for value, _ in estimates]
            yield Outcome(
                number=known.number,
                n=known.n,
                estimator=name,
                budget=budget,
                absolute_error=math.fsum(map(abs, errors)) / len(errors),
                error=math.fsum(errors) / len(errors),
                executions=math.fsum(looked for _, looked in estimates) / len(estimates),
            )


@dataclass(frozen=True, slots=True)
class Cell:
    """The errors of one estimator at one budget on inputs that have something in common."""

    estimator: str
    budget: int
    error: Mean
    """Mean absolute error; its interval is over the inputs."""
    bias: float
    """Mean of estimate - score."""
    executions: float
    """Sub-inputs executed, on average."""


def cells(found: Iterable[Outcome]) -> dict[tuple[str, int], Cell]:
    """The outcomes by estimator and budget."""
    groups: dict[tuple[str, int], list[Outcome]] = defaultdict(list)
    for one in found:
        groups[one.estimator, one.budget].append(one)
    return {
        key: Cell(
            *key,
            error=bootstrapped([one.absolute_error for one in group]),
            bias=sum(one.error for one in group) / len(group),
            executions=sum(one.executions for one in group) / len(group),
        )
        for key, group in groups.items()
    }
