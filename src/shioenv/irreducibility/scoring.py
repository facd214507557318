"""How scores are made: the one set of settings that everything which scores passes on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from shioenv.errors import UsageError
from shioenv.irreducibility.estimators import DRAWS, Estimator, estimator_named

FIRST_BATCH = 16
"""Draws before a target error is asked about; then as many again, and so on (ours)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """How many executions a score may take, and which. Errors: UsageError for what cannot be meant.

    The names are those of the command line and of manifests.
    """

    budget: int = 32
    """Sub-inputs per input at most (the paper's M). 0: none, and inputs are not scored."""
    noise_runs: int = 3
    """Runs of each scored input that give its noise threshold (the paper's N); at least 1."""
    estimator: str = "balanced"
    """How sub-inputs are chosen where the budget does not cover all of them: one of `ESTIMATORS`.
    """
    target_se: float | None = None
    """Standard error, above 0 and at most 1, at which no more sub-inputs are run; None where the
    budget alone decides."""

    def __post_init__(self) -> None:
        for name, least in (("budget", 0), ("noise_runs", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise UsageError(
                    f"{name} is {value!r}", hint=f"it is a whole number from {least} up"
                )
        if self.target_se is not None:
            if not 0 < self.target_se <= 1:
                raise UsageError(
                    f"the standard error cannot be {self.target_se}", hint="above 0, at most 1"
                )
            object.__setattr__(self, "target_se", float(self.target_se))
        estimator_named(self.estimator)

    @property
    def estimate(self) -> Estimator:
        """The estimator itself."""
        return estimator_named(self.estimator)

    def batches(self, n: int, share: int) -> Iterator[int | None]:
        """The sizes of the samples of n arguments taken one after the other, `share` sub-inputs at
        most; None for every sub-input.

        The first reaches all that the estimator looks at before it draws. Later ones draw as many
        as there have been draws. None is too small to draw from.
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


UNSCORED = Scoring(budget=0, noise_runs=2)
"""Inputs are executed alone, twice, so that it shows where they are volatile."""

THE_PAPERS = Scoring(budget=64, estimator="paper")
"""What the paper scores with; everything that is compared with its numbers does."""
