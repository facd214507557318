"""Estimators of irreducibility, which choose sub-inputs and their weights.

A sub-input is given by the indices of the kept arguments. A *leave-one-out* lacks one argument. All
estimators except the paper's are unbiased for every budget (`docs/design/estimators.md`).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from shioenv.errors import UsageError, did_you_mean

OUTSIDE = 3
"""Minimum number of draws by `balanced` among sub-inputs that lack a needed argument (see there).

The number is small (our choice), because nearly all of these sub-inputs behave differently.
"""

LEFT_FOR_BALANCE = 8 + OUTSIDE
"""Minimum budget beyond leave-one-out with which `balanced` runs every leave-one-out.

It is enough for an array of 8 rows and `OUTSIDE` draws. With a smaller budget, `balanced` omits
leave-one-out.
"""

LEFT_LATER = 4 + OUTSIDE
"""`LEFT_FOR_BALANCE` if every leave-one-out was run before: enough for an array of 4 rows."""


class Look(Protocol):
    """Runs sub-inputs."""

    def __call__(self, kept: Kept) -> bool:
        """Whether the sub-input behaves differently from the full input."""
        ...

    def known(self, kept: Kept) -> bool:
        """Whether the sub-input was run already, so that its result is known."""
        ...


@dataclass(frozen=True, slots=True)
class SamplePart:
    """Sub-inputs drawn by one method from one population."""

    drawn: Sequence[Weighted]
    """The drawn sub-inputs, one for each draw. The weights add up to the population's weight in the
    score."""
    whole: bool = False
    """Whether the complete population was taken, without draws."""
    balanced: tuple[int, ...] = ()
    """Balanced arguments: half of the draws keep each of them, and a quarter keep any two. So the
    effects of single balanced arguments do not contribute to the error."""


Estimator: TypeAlias = Callable[[int, int, random.Random, Look], Sequence[SamplePart]]
"""Chooses the sub-inputs of an estimate, in parts.

Its parameters are the number n of arguments, a budget below 2^n - 1, a generator, and a callable
that runs sub-inputs. The estimate is the weighted mean of Delta over the parts. At most `budget`
new sub-inputs are chosen.
"""


def estimator_named(name: str) -> Estimator:
    """Return the estimator of this name. Errors: UsageError."""
    if name not in ESTIMATORS:
        raise UsageError(f"unknown estimator {name!r}", hint=did_you_mean(name, ESTIMATORS))
    return ESTIMATORS[name]


def _paper(n: int, budget: int, rng: random.Random, look: Look) -> list[SamplePart]:
    return [SamplePart(paper(n, budget, rng))]


def pps(n: int, budget: int, rng: random.Random, look: Look) -> list[SamplePart]:
    """Draw sub-inputs independently, with probabilities proportional to their argument counts.

    The estimate is a plain mean.
    """
    return [SamplePart([Weighted(_proportional(n, rng), 1.0) for _ in range(budget)])]


def stratified(n: int, budget: int, rng: random.Random, look: Look) -> list[SamplePart]:
    """Take every leave-one-out, then sub-inputs of each size without replacement (D-13).

    Each size gets at least one draw, and more in proportion to its weight. A budget below 2 n is
    too small for this; then the sample is that of `pps`.
    """
    alone = [leave_out(n, index) for index in range(n)]
    left = budget - sum(not look.known(kept) for kept in alone)
    sizes = range(1, n - 1)
    if budget < 2 * n or left < len(sizes):
        return pps(n, budget, rng, look)
    parts = [SamplePart([Weighted(kept, float(n - 1)) for kept in alone], whole=True)]
    counts = [math.comb(n, size) for size in sizes]
    weights = [size * count for size, count in zip(sizes, counts, strict=True)]
    drawn: list[Weighted] = []
    for size, count, weight, draws in zip(
        sizes, counts, weights, _allotted(weights, counts, left), strict=True
    ):
        sets: set[Kept] = set()
        while len(sets) < draws:
            sets.add(tuple(sorted(rng.sample(range(n), size))))
        each = weight / draws
        if draws == count:
            parts.append(SamplePart([Weighted(kept, each) for kept in sorted(sets)], whole=True))
        else:
            drawn.extend(Weighted(kept, each) for kept in sorted(sets))
    return [*parts, SamplePart(drawn)] if drawn else parts


def _allotted(weights: Sequence[float], caps: Sequence[int], draws: int) -> list[int]:
    """Return the number of draws of each population, at most its cap.

    The draws are assigned one by one, each to the population in which it lowers the variance most.
    """
    given = [1] * len(caps)
    for _ in range(draws - len(caps)):
        gain, index = max(
            (weight**2 / (has * (has + 1)) if has < cap else 0.0, index)
            for index, (weight, has, cap) in enumerate(zip(weights, given, caps, strict=True))
        )
        if not gain:
            break
        given[index] += 1
    return given


def balanced(n: int, budget: int, rng: random.Random, look: Look) -> list[SamplePart]:
    """Take every leave-one-out, then balanced samples of the remaining sub-inputs (our choice).

    An argument is needed if leaving out this argument alone changes the behavior. Sub-inputs
    without a needed argument mostly behave differently, whatever else they lack. So the sub-inputs
    beyond leave-one-out are divided into two populations:

    - The sub-inputs that keep all needed arguments. If they are few, all are taken, otherwise the
      rows of orthogonal arrays. In an array the effects of single arguments cancel. In arrays of at
      least 16 rows, the effects of pairs and triples mostly cancel too.
    - The sub-inputs that lack a needed argument. They get the rest of the budget, drawn as by
      `pps`.

    If the leave-one-outs would use nearly the whole budget, they are omitted, and arrays over all
    sub-inputs are used.
    """
    alone = [leave_out(n, index) for index in range(n)]
    new = sum(not look.known(kept) for kept in alone)
    left = budget - new
    if left < (LEFT_FOR_BALANCE if new else LEFT_LATER):
        return _arrays(n, tuple(range(n)), (), budget, rng, float(total_weight(n)))
    needed = tuple(index for index, kept in enumerate(alone) if look(kept))
    free = tuple(index for index in range(n) if index not in needed)
    k, f = len(needed), len(free)
    inside = (k << f) + (f << f >> 1) - n
    outside = total_weight(n) - inside - k * (n - 1)
    parts = [SamplePart([Weighted(alone[index], float(n - 1)) for index in needed], whole=True)]
    reserve = OUTSIDE if outside else 0
    few = list(_supersets(needed, free)) if 1 << f <= left + n else None
    unseen = 0 if few is None else sum(not look.known(kept) for kept in few)
    if few is not None and unseen <= left - reserve:
        parts.append(SamplePart([Weighted(kept, float(len(kept))) for kept in few], whole=True))
        left -= unseen
    else:
        rows = 1 << ((left - OUTSIDE).bit_length() - 1) if outside else left
        arrays = _arrays(n, free, needed, rows, rng, float(inside))
        parts.extend(arrays)
        looked = {item.kept for part in arrays for item in part.drawn if item.weight}
        left -= sum(not look.known(kept) for kept in looked)
    if outside:
        drawn: list[Weighted] = []
        while len(drawn) < left:
            kept = _proportional(n, rng)
            if len(kept) < n - 1 and not set(needed) <= set(kept):
                drawn.append(Weighted(kept, outside / left))
        parts.append(SamplePart(drawn))
    return [part for part in parts if part.drawn]


def _arrays(
    n: int,
    free: Sequence[int],
    needed: Sequence[int],
    budget: int,
    rng: random.Random,
    weight: float,
) -> list[SamplePart]:
    """Spend the budget on arrays of 2^m rows, the largest array first.

    No array has less than a quarter of the rows of the largest. The weight of an array is
    proportional to the square of its number of rows, because smaller arrays balance less.
    """
    rows = [1 << bit for bit in range(len(free)) if budget >> bit & 1 and budget < 8 << bit]
    rows.sort(reverse=True)
    shares = [weight * size**2 / sum(other**2 for other in rows) for size in rows]
    return [
        _array(n, free, needed, size.bit_length() - 1, rng, share)
        for size, share in zip(rows, shares, strict=True)
    ]


def _array(
    n: int, free: Sequence[int], needed: Sequence[int], bits: int, rng: random.Random, weight: float
) -> SamplePart:
    """Draw an orthogonal array of 2^bits rows, which keep the `needed` and some `free` arguments.

    The rows are a coset of a random linear code. The probability of a coset is proportional to the
    total number of arguments that its rows keep, without the row of the full input. So the mean
    over the rows, weighted by the number of arguments kept, is unbiased, and always between 0 and
    1.

    There is a column for each free argument:

    - No column is zero, so half of the rows keep a given argument.
    - If there are enough different columns, a quarter of the rows keep a given pair of arguments.
    - If all columns are odd, an eighth of the rows keep a given triple of arguments.
    """
    base = sum(1 << index for index in needed)
    most = (len(needed) + len(free) / (2 if bits else 1)) * (1 << bits)
    full = (1 << n) - 1
    while True:
        columns = _columns(len(free), bits, rng)
        rows = [base | sum(1 << index for index in free if rng.getrandbits(1))]
        for bit in range(bits):
            flip = sum(
                1 << index for index, column in zip(free, columns, strict=True) if column >> bit & 1
            )
            rows += [row ^ flip for row in rows]
        kept = [kept_of(row) for row in rows if row != full]
        total = sum(map(len, kept))
        if rng.random() * most < total:
            break
    drawn = [Weighted(row, weight * len(row) / total) for row in kept]
    distinct = bits > 1 and len(free) < 1 << bits
    return SamplePart(drawn, balanced=tuple(free) if distinct else ())


def _columns(n: int, bits: int, rng: random.Random) -> list[int]:
    """Draw columns of `bits` bits for n arguments.

    None is zero, and if possible they are odd and different. With 0 bits every column is 0.
    """
    if not bits:
        return [0] * n
    odd, every = range(1, 1 << bits, 2), range(1, 1 << bits)
    if n <= len(odd):
        return rng.sample(odd, n)
    columns: list[int] = []
    while len(columns) < n:
        columns += rng.sample(every, min(n - len(columns), len(every)))
    return columns


def _supersets(needed: Sequence[int], free: Sequence[int]) -> Iterator[Kept]:
    """Yield the proper subsets that have all `needed` indices, without the empty subset."""
    for mask in range((1 << len(free)) - 1):
        more = (index for place, index in enumerate(free) if mask >> place & 1)
        kept = tuple(sorted((*needed, *more)))
        if kept:
            yield kept


def _proportional(n: int, rng: random.Random) -> Kept:
    """Draw a proper subset with a probability proportional to its size.

    One argument is drawn and kept, then each of the others is kept with probability one half. So a
    set can result from any of its members as the first one.
    """
    while True:
        mask = rng.getrandbits(n) | 1 << rng.randrange(n)
        if mask != (1 << n) - 1:
            return kept_of(mask)


ESTIMATORS: Mapping[str, Estimator] = {
    "paper": _paper,
    "pps": pps,
    "stratified": stratified,
    "balanced": balanced,
}
"""The estimators by name, the paper's first."""

DRAWS: Mapping[str, Callable[[int], tuple[int, int]]] = {
    "stratified": lambda n: (n, 2 * n),
    "balanced": lambda n: (LEFT_FOR_BALANCE, LEFT_LATER),
}
"""Two sample sizes for n arguments, by the name of an estimator that runs every leave-one-out.

The first number is the size of the first sample, without the leave-one-outs. The second is the size
of a later sample, when the results of leave-one-out are known.
"""


Kept: TypeAlias = tuple[int, ...]
"""The paper's O: the indices of the arguments that are kept, ascending."""


@dataclass(frozen=True, slots=True)
class Weighted:
    """A set of kept indices, and the weight of its difference (Delta) in the score."""

    kept: Kept
    weight: float


def proper_subsets(n: int) -> Iterator[Kept]:
    """Yield all 2^n - 1 proper subsets of n indices, by size, the empty subset first."""
    masks = sorted(range((1 << n) - 1), key=int.bit_count) if n else []
    return (kept_of(mask) for mask in masks)


def total_weight(n: int) -> int:
    """Return the number of arguments kept, summed over all proper subsets: n 2^(n-1) - n."""
    return n * (1 << (n - 1)) - n if n else 0


def paper(n: int, budget: int, rng: random.Random) -> list[Weighted]:
    """Draw `budget` proper subsets uniformly with replacement, weighed by size (Section 3.3).

    If all drawn subsets are empty, the estimate would be 0/0, so all are drawn again. The result
    depends only on the arguments and the generator's state. Errors: UsageError for a budget below
    1, and for fewer than 2 arguments.
    """
    if budget < 1 or n < 2:
        raise UsageError(f"cannot draw {budget} proper subsets of {n} arguments to weigh")
    while True:
        masks = [rng.randrange((1 << n) - 1) for _ in range(budget)]
        if any(masks):
            return [Weighted(kept_of(mask), float(mask.bit_count())) for mask in masks]


def exhaustive(n: int) -> list[Weighted]:
    """Return every proper subset of nonzero weight; for one argument the empty subset.

    Subsets are weighed by size. With one argument, the only proper sub-input is the command alone.
    By size its weight would be 0, and the score 0/0. Here the weight is 1 (our choice, because the
    paper does not define it): the argument matters if the command alone behaves differently.
    """
    if n == 1:
        return [Weighted((), 1.0)]
    return [Weighted(kept, float(len(kept))) for kept in proper_subsets(n) if kept]


def water_fill(caps: Sequence[int], budget: int) -> list[int]:
    """Spread the budget evenly, no share above its cap.

    The unused part of a share goes to the others. A remainder goes to the shares with the largest
    caps, and of equal caps to the earlier ones. Every share with a cap above 0 is at least 1, even
    if the budget is too small.
    """
    shares = [0] * len(caps)
    left = budget
    order = sorted(range(len(caps)), key=lambda index: (caps[index], -index))
    for position, index in enumerate(order):
        shares[index] = min(caps[index], max(left // (len(order) - position), 1))
        left = max(left - shares[index], 0)
    return shares


def leave_out(n: int, index: int) -> Kept:
    """Return all of n indices but one."""
    return tuple(other for other in range(n) if other != index)


def kept_of(mask: int) -> Kept:
    """Return the indices of the bits that are set."""
    return tuple(index for index in range(mask.bit_length()) if mask >> index & 1)
