"""The settings for computing scores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from shioenv.errors import UsageError
from shioenv.irreducibility.estimators import DRAWS, Estimator, estimator_named
from shioenv.text import short_repr

LEAST_SUB_INPUTS = 4
"""Minimum number of sub-inputs under `Scoring.process_budget` (our choice)."""

FIRST_BATCH = 16
"""Draws of the first batch, after which the target error is checked (our choice).

Each later batch has as many draws as all batches before it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """Settings that limit and choose the executions for a score.

    The names are those of the command line and of manifests. Errors: UsageError for a value out of
    range, and for an unknown estimator.
    """

    budget: int = 32
    """Maximum number of sub-inputs run for an input (the paper's M). 0: inputs are not scored."""
    noise_runs: int = 3
    """Number of runs for the noise threshold of each scored input (the paper's N); at least 1."""
    estimator: str = "balanced"
    """The method of choosing sub-inputs if the budget does not cover all: one of `ESTIMATORS`."""
    target_se: float | None = None
    """Standard error at which sampling stops, above 0 and at most 1.

    None: the budget alone decides.
    """

    process_budget: int = 0
    """Maximum number of processes of all sub-inputs of an input together (our choice); 0: no limit.

    Each sub-input is assumed to start as many processes as the first run of the whole input. The
    sub-inputs' budget is halved until these fit, but not below `LEAST_SUB_INPUTS`. Inputs that
    start many processes are rare and expensive: `find -exec` over many files, `xargs -n 1`.
    """

    def __post_init__(self) -> None:
        for name, least in (("budget", 0), ("noise_runs", 1), ("process_budget", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise UsageError(
                    f"{name} is {value!r}", hint=f"give a whole number of at least {least}"
                )
        if self.target_se is not None:
            if not 0 < self.target_se <= 1:
                raise UsageError(
                    f"the target standard error {self.target_se} is out of range",
                    hint="give more than 0 and at most 1",
                )
            object.__setattr__(self, "target_se", float(self.target_se))
        estimator_named(self.estimator)

    def __repr__(self) -> str:
        return short_repr(self)

    def within(self, processes: int) -> Scoring:
        """Return these settings for an input whose first run started this number of processes."""
        budget = self.budget
        while self.process_budget and budget * processes > self.process_budget:
            if budget <= LEAST_SUB_INPUTS:
                break
            budget = max(budget // 2, LEAST_SUB_INPUTS)
        return replace(self, budget=budget) if budget != self.budget else self

    @property
    def estimate(self) -> Estimator:
        """The estimator that `estimator` names."""
        return estimator_named(self.estimator)

    def batches(self, n: int, share: int) -> Iterator[int | None]:
        """Yield the sizes of consecutive samples for n arguments.

        The samples have at most `share` sub-inputs together. A size of None means that every
        sub-input is taken. Without a `target_se` there is one sample.

        The first sample covers everything that the estimator runs before it draws. Each later
        sample draws as many sub-inputs as were drawn before. A remainder that is too small for a
        sample is added to the last one.
        """
        every, done = (1 << n) - 1, 0
        alone = n if self.estimator in DRAWS else 0
        first, least = DRAWS.get(self.estimator, _from_the_start)(n)
        while done < min(share, every):
            size = max(done - alone, least) if done else alone + first
            size = share if self.target_se is None else size
            left = share - done
            size = left if left < size + least else size
            done += size
            yield None if every <= done else size


def _from_the_start(n: int) -> tuple[int, int]:
    return FIRST_BATCH, 1


USUAL = Scoring(process_budget=320)
"""The default settings of datasets.

The limit is ten processes for each of 32 sub-inputs. In a sample of 3,000 inputs of the policy
`mixed`, 0.6% start more. Their first runs took 6% of the total time.
"""

UNSCORED = Scoring(budget=0, noise_runs=2)
"""Settings without scores. Each input is executed twice, to detect volatile ones."""

THE_PAPERS = Scoring(budget=64, estimator="paper")
"""The paper's settings, for all scores that are compared with the paper's numbers."""
