"""Which sub-inputs a score looks at: every kept-index set, or a sample of them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from shioenv.errors import UsageError

Kept: TypeAlias = tuple[int, ...]
"""The paper's O: the indices of the arguments that are kept, ascending."""


@dataclass(frozen=True, slots=True)
class Weighted:
    """A kept-index set and how much its contrast counts in the mean."""

    kept: Kept
    weight: float


def proper_subsets(n: int) -> Iterator[Kept]:
    """Every proper subset of n indices, by size, the empty subset first: 2^n - 1 of them."""
    masks = sorted(range((1 << n) - 1), key=int.bit_count) if n else []
    return (kept_of(mask) for mask in masks)


def total_weight(n: int) -> int:
    """The number of arguments kept, summed over all proper subsets: n 2^(n-1) - n."""
    return n * (1 << (n - 1)) - n if n else 0


def paper(n: int, budget: int, rng: random.Random) -> list[Weighted]:
    """`budget` proper subsets, drawn uniformly with replacement, weighed by size (Section 3.3).

    Where all drawn subsets are empty, the estimate would be 0/0, so all are drawn again. `n` is at
    least 2. Deterministic for a generator's state. Errors: UsageError for a budget below 1, and for
    fewer than 2 arguments.
    """
    if budget < 1 or n < 2:
        raise UsageError(f"cannot draw {budget} proper subsets of {n} arguments to weigh")
    while True:
        masks = [rng.randrange((1 << n) - 1) for _ in range(budget)]
        if any(masks):
            return [Weighted(kept_of(mask), float(mask.bit_count())) for mask in masks]


def exhaustive(n: int) -> list[Weighted]:
    """Every proper subset that weighs anything, weighed by size; for one argument the empty subset.

    With one argument the only proper sub-input is the command alone. Its weight is 0, and the score
    would be 0/0. This contrast alone says whether the argument matters, so it counts 1 (ours,
    because the paper is silent).
    """
    if n == 1:
        return [Weighted((), 1.0)]
    return [Weighted(kept, float(len(kept))) for kept in proper_subsets(n) if kept]


def water_fill(caps: Sequence[int], budget: int) -> list[int]:
    """The budget spread evenly, no share above its cap.

    What one share cannot use goes to the others. A remainder goes to the shares with the largest
    caps, and of equal caps to the earlier ones. Every share with a cap above 0 is at least 1, even
    where the budget does not reach.
    """
    shares = [0] * len(caps)
    left = budget
    order = sorted(range(len(caps)), key=lambda index: (caps[index], -index))
    for position, index in enumerate(order):
        shares[index] = min(caps[index], max(left // (len(order) - position), 1))
        left = max(left - shares[index], 0)
    return shares


def leave_out(n: int, index: int) -> Kept:
    """All of n indices but one."""
    return tuple(other for other in range(n) if other != index)


def kept_of(mask: int) -> Kept:
    """The indices of the bits that are set."""
    return tuple(index for index in range(mask.bit_length()) if mask >> index & 1)
