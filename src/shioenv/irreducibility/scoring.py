"""How scores are made: the one set of settings that everything which scores passes on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from shioenv.errors import UsageError
from shioenv.irreducibility.estimators import Estimator, estimator_named

FIRST_BATCH = 16
"""Sub-inputs looked at before a target error is asked about; then as many again, and so on (ours).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """How many executions a score may take, and which. Errors: UsageError for what cannot be meant.

    The names are those of the command line and of manifests.
    """

    budget: int = 64
    """Sub-inputs per input at most (the paper's M); at least 1."""
    noise_runs: int = 3
    """Runs of each scored input that give its noise threshold (the paper's N); at least 1."""
    estimator: str = "paper"
    """How sub-inputs are chosen where the budget does not cover all of them: one of `ESTIMATORS`.
    """
    target_se: float | None = None
    """Standard error, above 0 and at most 1, at which no more sub-inputs are run; None where the
    budget alone decides."""

    def __post_init__(self) -> None:
        for name in ("budget", "noise_runs"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UsageError(f"{name} is {value!r}", hint="it is a whole number from 1 up")
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
        """
        every, done = (1 << n) - 1, 0
        while done < min(share, every):
            size = share if self.target_se is None else max(FIRST_BATCH, done)
            size = min(size, share - done)
            done += size
            yield None if every <= done else size
