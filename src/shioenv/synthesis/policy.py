"""How one of the permitted productions is chosen: a protocol, and the policies shipped with it."""

from __future__ import annotations

import hashlib
import json
import math
from bisect import bisect
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Protocol

from shioenv.errors import UsageError, did_you_mean
from shioenv.grammar.symbols import Nonterminal, Production

STOP_PROBABILITY = 0.25
"""Probability that a repetition ends before each further item (ours: the paper names none)."""

LENGTHS = range(13)
"""The numbers of arguments that a length-targeted policy fills (the paper's figures: 0 to 12)."""


class Choices:
    """The productions a policy chooses from at one nonterminal.

    `cumulative` are the running sums of their weights and `total` the last of them. `stop` is the
    index of the production that ends a repetition, None where `nonterminal` is none or nothing but
    one production is possible. `adds_arguments` says of a repetition that going on makes at least
    one more argument (and does not just lengthen a word).
    """

    __slots__ = ("adds_arguments", "cumulative", "nonterminal", "productions", "stop", "total")

    def __init__(self, nonterminal: Nonterminal, productions: Sequence[Production]) -> None:
        self.nonterminal = nonterminal
        self.productions = tuple(productions)
        self.cumulative = tuple(accumulate(production.weight for production in productions))
        self.total = self.cumulative[-1]
        stops = [index for index, production in enumerate(self.productions) if production.stops]
        self.stop = stops[0] if len(stops) == 1 and len(self.productions) == 2 else None
        self.adds_arguments = False


class Progress(Protocol):
    """What a policy may know about the input it is building."""

    @property
    def n_arguments(self) -> int:
        """Arguments finished so far, the command not counted."""
        ...

    @property
    def room(self) -> int:
        """Arguments that may still be added to those the input will have at least."""
        ...

    @property
    def more_repetitions(self) -> bool:
        """Whether a repetition may still follow, elsewhere in the input."""
        ...


class Policy(Protocol):
    """Chooses a production.

    Deterministic in its arguments and `random`; it draws from nothing else.
    """

    def choose(self, progress: Progress, choices: Choices, random: Random) -> int:
        """The index of one of `choices.productions`."""
        ...


class WeightedPolicy:
    """Productions as often as their weights say; repetitions stop with a fixed probability.

    `weights` overrides the grammars' own, by the text of a production as `shioenv grammar show
    --productions` prints it, for example from a file of counts; what it does not name keeps its
    weight, and so does a nonterminal all of whose counts are 0.
    """

    def __init__(
        self,
        stop_probability: float = STOP_PROBABILITY,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        if not 0 < stop_probability <= 1:
            raise ValueError(f"stop_probability {stop_probability} is not in (0, 1]")
        self.stop_probability = stop_probability
        self._weights = weights
        self._cumulative: dict[int, tuple[Choices, tuple[float, ...]]] = {}

    def choose(self, progress: Progress, choices: Choices, random: Random) -> int:
        """By weight; at a repetition, stop with the stop probability."""
        if choices.stop is not None:
            return choices.stop if random.random() < self.stop_probability else 1 - choices.stop
        if len(choices.cumulative) == 1:
            return 0
        if self._weights is None:
            return bisect(choices.cumulative, random.random() * choices.total)
        cumulative = self._overridden(choices, self._weights)
        return bisect(cumulative, random.random() * cumulative[-1])

    def _overridden(self, choices: Choices, weights: Mapping[str, float]) -> tuple[float, ...]:
        known = self._cumulative.get(id(choices))
        if known is None:
            productions = choices.productions
            own = (weights.get(str(production), production.weight) for production in productions)
            cumulative = tuple(accumulate(own))
            known = (choices, cumulative if cumulative[-1] > 0 else choices.cumulative)
            self._cumulative[id(choices)] = known
        return known[1]


class LengthPolicy:
    """Every number of arguments equally often, as far as there are different inputs of it.

    Who samples chooses `lengths` in turn and asks for inputs of just that length. Choices are those
    of `base`, so that inputs of one length are distributed as the base policy distributes them;
    where it does not come by the length itself, `steering` decides about repetitions.
    """

    def __init__(self, lengths: Sequence[int] = LENGTHS, base: Policy | None = None) -> None:
        if not lengths or min(lengths) < 0:
            raise UsageError(f"{list(lengths)} are no lengths of inputs")
        self.lengths = tuple(dict.fromkeys(lengths))
        self.base = base or WeightedPolicy()
        self.steering = SteeredPolicy(self.base)

    def choose(self, progress: Progress, choices: Choices, random: Random) -> int:
        """As the base policy does."""
        return self.base.choose(progress, choices, random)


class SteeredPolicy:
    """Choices of a base policy, but repetitions go on until the input has no more room.

    Where another repetition may follow it gets a share: the room that is left is divided uniformly.
    """

    def __init__(self, base: Policy) -> None:
        self.base = base

    def choose(self, progress: Progress, choices: Choices, random: Random) -> int:
        """At a repetition of arguments by the room that is left, else as the base policy does."""
        if choices.stop is None or not choices.adds_arguments:
            return self.base.choose(progress, choices, random)
        room = progress.room
        if room > 0 and not (progress.more_repetitions and random.random() * (room + 1) < 1):
            return 1 - choices.stop
        return choices.stop


class UniformPolicy:
    """Every permitted production equally likely, whatever the grammars' weights say.

    Repetitions stop with probability 0.25.
    """

    def choose(self, progress: Progress, choices: Choices, random: Random) -> int:
        """Uniformly; at a repetition, stop with the stop probability."""
        if choices.stop is not None:
            return choices.stop if random.random() < STOP_PROBABILITY else 1 - choices.stop
        return int(random.random() * len(choices.productions))


POLICIES: Mapping[str, str] = {
    "weighted": "productions by the grammars' weights; each repetition stops with probability 0.25",
    "uniform": "every production equally likely; each repetition stops with probability 0.25",
    "lengths": "every length from 0 to 12 equally often",
}
"""The policies that have a name; the first is the default."""


def policy_named(name: str) -> Policy:
    """The policy of this name, or weighted by the counts in the JSON file of this name.

    Such a file maps productions, as `shioenv grammar show --productions` prints them, to counts.
    Errors: UsageError.
    """
    if name.endswith(".json"):
        return WeightedPolicy(weights=_counts(Path(name)))
    made: dict[str, Callable[[], Policy]] = {
        "weighted": WeightedPolicy,
        "uniform": UniformPolicy,
        "lengths": LengthPolicy,
    }
    if name not in made:
        raise UsageError(
            f"no policy is called {name!r}",
            hint=did_you_mean(name, made) or "a file of counts ends with .json",
        )
    return made[name]()


def policy_label(name: str) -> str:
    """What a dataset keeps of a policy: its name, or `counts:` and the SHA-256 of a file's counts.

    The file's name and layout take no part. Errors: UsageError as by `policy_named`.
    """
    policy_named(name)
    if not name.endswith(".json"):
        return name
    content = json.dumps({key: float(n) for key, n in _counts(Path(name)).items()}, sort_keys=True)
    return f"counts:{hashlib.sha256(content.encode()).hexdigest()}"


def _counts(path: Path) -> dict[str, float]:
    """The counts of a file. Errors: UsageError with what is wrong in it."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path} is no JSON: {error}") from error
    if not isinstance(document, dict):
        raise UsageError(f"{path} holds no object of productions and counts")
    for production, count in document.items():
        number = isinstance(count, int | float) and not isinstance(count, bool)
        if not number or not 0 <= count < math.inf:
            raise UsageError(f"{path}: the count of {production!r} is {count!r}, no number from 0")
    return document
