"""Policies: their settings, and what chooses one of the permitted productions."""

from __future__ import annotations

import hashlib
import json
from bisect import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Protocol

from shioenv.errors import UsageError, did_you_mean
from shioenv.files.documents import parse_json
from shioenv.files.regular import read_regular
from shioenv.grammar.symbols import Nonterminal, Production
from shioenv.synthesis.usage import Usage, counts_from, shipped_usage, usage_from

STOP_PROBABILITY = 0.25
"""Probability that a repetition ends before each further item (ours: the paper names none)."""

LENGTHS = range(13)
"""The numbers of arguments that a length-targeted policy fills (the paper's figures: 0 to 12)."""


class Choices:
    """The productions a policy chooses from at one nonterminal.

    `cumulative` are the running sums of their weights and `total` the last of these. `stop` is the
    index of the production that ends a repetition. It is None where `nonterminal` is no repetition,
    or only one production is possible. `adds_arguments` says of a repetition that going on makes at
    least one more argument (and does not just lengthen a word).
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


class DrawnSoFar(Protocol):
    """What a policy may know about the input it is building."""

    @property
    def n_arguments(self) -> int:
        """Arguments finished so far, the command not counted."""
        ...

    @property
    def room(self) -> int:
        """Arguments that may be added to those the input will have at least; none where below 0."""
        ...

    @property
    def more_repetitions(self) -> bool:
        """Whether a repetition may still follow, elsewhere in the input."""
        ...


class Policy(Protocol):
    """Chooses a production.

    The choice is decided by its arguments alone; `random` is its only source of chance.
    """

    def choose(self, progress: DrawnSoFar, choices: Choices, random: Random) -> int:
        """The index of one of `choices.productions`."""
        ...


class WeightedPolicy:
    """Productions as often as their weights say; repetitions stop with a fixed probability.

    `weights` overrides the grammars' own, for example from a file of counts. Its keys are
    productions as `shioenv grammar show --productions` prints them. A production that is not named
    keeps its weight. A nonterminal all of whose weights would be 0 keeps its productions' weights.
    Errors: ValueError where `stop_probability` is not in (0, 1].
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

    def choose(self, progress: DrawnSoFar, choices: Choices, random: Random) -> int:
        """By weight; at a repetition, it stops with the stop probability."""
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

    Whoever samples takes `lengths` in turn and asks for inputs of just that length. Choices are
    those of `base`, so that inputs of one length are distributed as the base policy distributes
    them. Where the base policy does not come by the length itself, `steering` decides about
    repetitions. Errors: UsageError where there are no lengths, or one is below 0.
    """

    def __init__(self, lengths: Sequence[int] = LENGTHS, base: Policy | None = None) -> None:
        if not lengths or min(lengths) < 0:
            raise UsageError(f"{list(lengths)} are no lengths of inputs")
        self.lengths = tuple(dict.fromkeys(lengths))
        self.base = base or WeightedPolicy()
        self.steering = SteeredPolicy(self.base)

    def choose(self, progress: DrawnSoFar, choices: Choices, random: Random) -> int:
        """As the base policy chooses."""
        return self.base.choose(progress, choices, random)


class SteeredPolicy:
    """Choices of a base policy, but repetitions go on until the input has no more room.

    Where another repetition may follow, this one may stop sooner: the room that is left is divided
    uniformly among them.
    """

    def __init__(self, base: Policy) -> None:
        self.base = base

    def choose(self, progress: DrawnSoFar, choices: Choices, random: Random) -> int:
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

    def choose(self, progress: DrawnSoFar, choices: Choices, random: Random) -> int:
        """Uniformly; at a repetition, it stops with the stop probability."""
        if choices.stop is not None:
            return choices.stop if random.random() < STOP_PROBABILITY else 1 - choices.stop
        return int(random.random() * len(choices.productions))


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySettings:
    """The settings of a policy. A file sets any of them by name; the others keep their defaults.

    Errors: UsageError for a probability or share out of its range.
    """

    stop: float = STOP_PROBABILITY
    """Probability that a repetition ends before each further item, more than 0 and at most 1."""
    once: bool = False
    """Whether an option is drawn once at most, unless its program takes it again (`%repeats`)."""
    values: float = 0.0
    """Share of values of a kind that are drawn anew, not from the grammar's own list; 0 to 1."""
    weights: Mapping[str, float] | None = None
    """Weights in place of the grammars', by production as `shioenv grammar show --productions`
    prints it. A production that is not named keeps its own weight."""
    uniform: bool = False
    """Whether every production is equally likely, whatever its weight."""
    lengths: bool = False
    """Whether every length from 0 to 12 is drawn equally often.

    Not so where `uniform` is set, nor where `once`, `values` or `usage_share` make more free."""
    usage: Usage | None = None
    """How people use commands; None: the table that the package ships."""
    usage_share: float = 0.0
    """Share of inputs whose shape, commands, options, operands and spelling follow `usage`, 0 to 1.
    """
    utility_share: float = 0.5
    """Of these inputs, share whose command is drawn as often as `usage` says, 0 to 1; the command
    of the others is drawn uniformly."""
    new_sets: float = 0.0
    """Of the commands of these inputs, share whose options are drawn anew, 0 to 1.

    Such options are drawn one by one, or one is added to a set that `usage` names. Commands whose
    options are in no set that `usage` names, by its own counts, come on top."""

    def __post_init__(self) -> None:
        if not 0 < self.stop <= 1:
            raise UsageError(f"a stop probability of {self.stop} is not in (0, 1]")
        for name in ("values", "usage_share", "utility_share", "new_sets"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"{name} of {getattr(self, name)} is no share")

    @property
    def people(self) -> Usage | None:
        """The table of usage that inputs are drawn by; None where no share of them is."""
        return (self.usage or shipped_usage()) if self.usage_share else None

    @property
    def free(self) -> bool:
        """Whether more is free than the choice of productions: which options, values, or usage."""
        return self.once or self.values > 0 or self.usage_share > 0

    @property
    def chooser(self) -> Policy:
        """What chooses productions."""
        if self.uniform:
            return UniformPolicy()
        if self.lengths:
            return LengthPolicy()
        return WeightedPolicy(self.stop, self.weights)

    def to_json(self) -> dict[str, object]:
        """The settings that differ from their defaults, as JSON values."""
        document = {
            each.name: getattr(self, each.name)
            for each in fields(self)
            if getattr(self, each.name) != each.default
        }
        if self.usage is not None:
            document["usage"] = self.usage.to_json()
        if self.weights is not None:
            document["weights"] = {name: float(n) for name, n in self.weights.items()}
        return document


NAMED: Mapping[str, PolicySettings] = {
    "mixed": PolicySettings(stop=0.6, once=True, values=0.5, usage_share=0.5, new_sets=0.35),
    "people": PolicySettings(stop=0.6, once=True, values=0.5, usage_share=1.0),
    "paper": PolicySettings(),
    "uniform": PolicySettings(uniform=True),
    "lengths": PolicySettings(lengths=True),
}
"""The policies that have a name; the first is the default of `gcs`."""

POLICIES: Mapping[str, str] = {
    "mixed": "half as people write, half as the grammars say, each option once",
    "people": "shape, commands, options, operands and spelling as people write",
    "paper": "productions by the grammars' weights; each repetition stops with probability 0.25",
    "uniform": "every production equally likely; each repetition stops with probability 0.25",
    "lengths": "every length from 0 to 12 equally often",
}
"""What the policies do, as the command line's completion says it."""


def settings_named(name: str) -> PolicySettings:
    """The settings of the policy of this name, or those in the JSON file of this name.

    A file sets any field of `PolicySettings` by name. Errors: UsageError.
    """
    if name.endswith(".json"):
        return _settings(Path(name))
    if name not in NAMED:
        raise UsageError(
            f"no policy is called {name!r}",
            hint=did_you_mean(name, NAMED) or "a file of settings ends with .json",
        )
    return NAMED[name]


def policy_label(name: str) -> str:
    """What a dataset keeps of a policy: its name, or `file:` and the SHA-256 of a file's settings.

    The file's name and layout take no part. Errors: UsageError as by `settings_named`.
    """
    settings = settings_named(name)
    if not name.endswith(".json"):
        return name
    content = json.dumps(settings.to_json(), sort_keys=True)
    return f"file:{hashlib.sha256(content.encode()).hexdigest()}"


def _settings(path: Path) -> PolicySettings:
    """The settings in a file. Errors: UsageError with what is wrong in it."""
    try:
        document = parse_json(read_regular(path))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path} is no JSON: {error}") from error
    known = {each.name: type(each.default) for each in fields(PolicySettings)}
    if not isinstance(document, dict):
        raise UsageError(f"{path} holds no object of settings")
    for name, value in document.items():
        if name not in known:
            hint = did_you_mean(name, known) or f"settings are {', '.join(known)}"
            raise UsageError(f"{path}: no setting is called {name!r}", hint=hint)
        if known[name] is bool and not isinstance(value, bool):
            raise UsageError(f"{path}: {name} is {value!r}, not true or false")
        if known[name] is float and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise UsageError(f"{path}: {name} is {value!r}, no number")
    if "weights" in document:
        document["weights"] = counts_from(document["weights"], str(path))
    if "usage" in document:
        document["usage"] = usage_from(document["usage"], str(path))
    return PolicySettings(**document)
