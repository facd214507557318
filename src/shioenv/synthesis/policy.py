"""How one of the permitted productions is chosen: a protocol, and the policies shipped with it."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Mapping, Sequence
from itertools import accumulate
from random import Random
from typing import Protocol

from shioenv.grammar.symbols import Nonterminal, Production

STOP_PROBABILITY = 0.25
"""Probability that a repetition ends before each further item (ours: the paper names none)."""


class Choices:
    """The productions a policy chooses from at one nonterminal.

    `cumulative` are the running sums of their weights and `total` the last of them. `stop` is the
    index of the production that ends a repetition, None where `nonterminal` is none or nothing but
    one production is possible.
    """

    __slots__ = ("cumulative", "nonterminal", "productions", "stop", "total")

    def __init__(self, nonterminal: Nonterminal, productions: Sequence[Production]) -> None:
        self.nonterminal = nonterminal
        self.productions = tuple(productions)
        self.cumulative = tuple(accumulate(one.weight for one in self.productions))
        self.total = self.cumulative[-1]
        stops = [index for index, one in enumerate(self.productions) if one.stops]
        self.stop = stops[0] if len(stops) == 1 and len(self.productions) == 2 else None


class Progress(Protocol):
    """What a policy may know about the input it is building."""

    @property
    def n_arguments(self) -> int:
        """Arguments finished so far, the command not counted."""
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

    `weights` overrides the grammars' own by (head, text of the production), for example from a file
    of counts; what it does not name keeps its weight.
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
            stops = random.random() < self.stop_probability
            return choices.stop if stops else 1 - choices.stop
        if len(choices.cumulative) == 1:
            return 0
        if self._weights is None:
            return bisect(choices.cumulative, random.random() * choices.total)
        cumulative = self._overridden(choices, self._weights)
        return bisect(cumulative, random.random() * cumulative[-1])

    def _overridden(self, choices: Choices, weights: Mapping[str, float]) -> tuple[float, ...]:
        known = self._cumulative.get(id(choices))
        if known is None:
            own = (weights.get(str(one), one.weight) for one in choices.productions)
            known = self._cumulative[id(choices)] = (choices, tuple(accumulate(own)))
        return known[1]


class UniformPolicy:
    """Every permitted production equally likely, whatever the grammars' weights say.

    Repetitions stop with a fixed probability; with `stop_probability=None` stopping is one
    production among the others.
    """

    def __init__(self, stop_probability: float | None = STOP_PROBABILITY) -> None:
        if stop_probability is not None and not 0 < stop_probability <= 1:
            raise ValueError(f"stop_probability {stop_probability} is not in (0, 1]")
        self.stop_probability = stop_probability

    def choose(self, progress: Progress, choices: Choices, random: Random) -> int:
        """Uniformly; at a repetition, stop with the stop probability."""
        if choices.stop is not None and self.stop_probability is not None:
            stops = random.random() < self.stop_probability
            return choices.stop if stops else 1 - choices.stop
        return int(random.random() * len(choices.productions))
