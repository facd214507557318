"""Policies, which choose one of the permitted productions, and their settings."""

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
from shioenv.synthesis.usage_tables import Usage, counts_from, shipped_usage, usage_from

STOP_PROBABILITY = 0.25
"""Probability that a repetition ends before each further item (our choice: the paper gives
none)."""

LENGTHS = range(13)
"""Target numbers of arguments of a length-targeted policy (from the paper: 0 to 12)."""


class Choices:
    """The productions among which a policy chooses at one nonterminal.

    `cumulative` are the running sums of their weights and `total` the last of these. `stop` is the
    index of the production that ends a repetition. It is None if `nonterminal` is no repetition, or
    only one production is possible. `adds_arguments`: whether continuing the repetition adds at
    least one argument, rather than only lengthening a word.
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
    """The progress of an input, as seen by a policy."""

    @property
    def n_arguments(self) -> int:
        """The number of complete arguments, without the command."""
        ...

    @property
    def room(self) -> int:
        """The number of arguments that can be added to the mandatory ones; none if negative."""
        ...

    @property
    def more_repetitions(self) -> bool:
        """Whether the input may have another repetition after this one."""
        ...


class Policy(Protocol):
    """Chooses a production.

    The choice depends only on the parameters of `choose`; `random` is its only source of
    randomness.
    """

    def choose(self, progress: DrawnSoFar, choices: Choices, random: Random) -> int:
        """Return the index of one of `choices.productions`."""
        ...


class WeightedPolicy:
    """Chooses productions by weight; repetitions stop with a fixed probability.

    `weights` overrides the grammars' own, for example from a file of counts. Its keys are
    productions as printed by `shioenv grammar show --productions`. Productions without a key keep
    their weights. A nonterminal whose weights would all be 0 keeps its original ones. Errors:
    ValueError if `stop_probability` is not in (0, 1].
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
        """Choose by weight; end a repetition with the stop probability."""
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
    """Draws all numbers of arguments equally often, as far as there are distinct inputs.

    The caller cycles through `lengths` and requests inputs of exactly one of them. Choices are
    those of `base`, so that inputs of one length have the distribution of the base policy. If
    `base` does not reach the length, `steering` decides when repetitions end. Errors: UsageError if
    there are no lengths or one is negative.
    """

    def __init__(self, lengths: Sequence[int] = LENGTHS, base: Policy | None = None) -> None:
        if not lengths or min(lengths) < 0:
            raise UsageError(f"invalid lengths of inputs: {list(lengths)}")
        self.lengths = tuple(dict.fromkeys(lengths))
        self.base = base or WeightedPolicy()
        self.steering = SteeredPolicy(self.base)

    def choose(self, progress: DrawnSoFar, choices: Choices, random: Random) -> int:
        """Choose like the base policy."""
        return self.base.choose(progress, choices, random)


class SteeredPolicy:
    """Chooses like a base policy, but continues repetitions until the input has no room.

    If another repetition may follow, this one may end sooner. The remaining arguments are then
    divided between them, and each division is equally likely.
    """

    def __init__(self, base: Policy) -> None:
        self.base = base

    def choose(self, progress: DrawnSoFar, choices: Choices, random: Random) -> int:
        """Continue or end a repetition of arguments by the remaining room; else use `base`."""
        if choices.stop is None or not choices.adds_arguments:
            return self.base.choose(progress, choices, random)
        room = progress.room
        if room > 0 and not (progress.more_repetitions and random.random() * (room + 1) < 1):
            return 1 - choices.stop
        return choices.stop


class UniformPolicy:
    """Chooses uniformly among the permitted productions and ignores their weights.

    Repetitions stop with probability 0.25.
    """

    def choose(self, progress: DrawnSoFar, choices: Choices, random: Random) -> int:
        """Choose uniformly; end a repetition with the stop probability."""
        if choices.stop is not None:
            return choices.stop if random.random() < STOP_PROBABILITY else 1 - choices.stop
        return int(random.random() * len(choices.productions))


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySettings:
    """The settings of a policy. A file sets any of them by name; all other settings have defaults.

    Errors: UsageError for a probability or share out of its range.
    """

    stop: float = STOP_PROBABILITY
    """Probability that a repetition ends before each further item, more than 0 and at most 1."""
    once: bool = False
    """Whether an option is drawn at most once, unless its program accepts repeats (`%repeats`)."""
    values: float = 0.0
    """Share of values that are generated instead of taken from the grammar, 0 to 1. Only values
    whose kind is declared can be generated."""
    weights: Mapping[str, float] | None = None
    """Weights that override those of the grammars, by production as printed by `shioenv grammar
    show --productions`. Productions that are not listed keep their weights."""
    uniform: bool = False
    """Whether all productions are equally likely, regardless of their weights."""
    lengths: bool = False
    """Whether all lengths from 0 to 12 are drawn equally often. Has no effect with `uniform`. With
    `once`, `values` or `usage_share`, lengths are not guaranteed."""
    usage: Usage | None = None
    """The usage table; None for the one in the package."""
    usage_share: float = 0.0
    """Share of inputs whose shape, commands, options, operands and spelling follow `usage`, 0 to
    1."""
    utility_share: float = 0.5
    """Among inputs that follow `usage`: share in which the command is drawn by its counts, 0 to 1.
    In the others, the command is drawn uniformly."""
    new_sets: float = 0.0
    """Share of the commands sampled by `usage` whose options are combined anew, 0 to 1.

    They are drawn one by one, or as a set from `usage` with one more. They also are if the drawn
    set is `*`, which stands for all rare sets."""

    def __post_init__(self) -> None:
        if not 0 < self.stop <= 1:
            raise UsageError(f"stop is {self.stop}, not a probability in (0, 1]")
        for name in ("values", "usage_share", "utility_share", "new_sets"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"{name} is {getattr(self, name)}, not a share from 0 to 1")

    groups: bool = False
    """Whether groups of commands are drawn independently, so that a part of the stream is drawn
    without the others (`shioenv.synthesis.groups`)."""

    @property
    def people(self) -> Usage | None:
        """The usage table that inputs follow; None if their share is 0."""
        return (self.usage or shipped_usage()) if self.usage_share else None

    @property
    def free(self) -> bool:
        """Whether choices follow `once`, `values` or `usage`, and not only productions' weights."""
        return self.once or self.values > 0 or self.usage_share > 0

    @property
    def chooser(self) -> Policy:
        """The policy with these settings."""
        if self.uniform:
            return UniformPolicy()
        if self.lengths:
            return LengthPolicy()
        return WeightedPolicy(self.stop, self.weights)

    def to_json(self) -> dict[str, object]:
        """Return the settings that differ from their defaults, as JSON values."""
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
    "mixed": PolicySettings(
        stop=0.6, once=True, values=0.5, usage_share=0.5, new_sets=0.35, groups=True
    ),
    "people": PolicySettings(stop=0.6, once=True, values=0.5, usage_share=1.0),
    "paper": PolicySettings(),
    "uniform": PolicySettings(uniform=True),
    "lengths": PolicySettings(lengths=True),
}
"""The named policies; the first is the default of `gcs`."""


def settings_named(name: str) -> PolicySettings:
    """Return the settings of a named policy, or those in a JSON file.

    A file sets any field of `PolicySettings` by name. Errors: UsageError.
    """
    if name.endswith(".json"):
        return _settings(Path(name))
    if name not in NAMED:
        raise UsageError(
            f"unknown policy {name!r}",
            hint=did_you_mean(name, NAMED) or "the name of a file of settings ends in .json",
        )
    return NAMED[name]


def policy_label(name: str) -> str:
    """Return a policy's label in a dataset: its name, or `file:` and a SHA-256 of its settings.

    The file's name and layout do not matter. Errors: UsageError as for `settings_named`.
    """
    settings = settings_named(name)
    if not name.endswith(".json"):
        return name
    content = json.dumps(settings.to_json(), sort_keys=True)
    return f"file:{hashlib.sha256(content.encode()).hexdigest()}"


def _settings(path: Path) -> PolicySettings:
    """Read the settings in a file. Errors: UsageError with the file's mistake."""
    try:
        document = parse_json(read_regular(path))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path} is not JSON: {error}") from error
    known = {each.name: type(each.default) for each in fields(PolicySettings)}
    if not isinstance(document, dict):
        raise UsageError(f"{path} is not a JSON object with settings")
    for name, value in document.items():
        if name not in known:
            hint = did_you_mean(name, known) or f"known: {', '.join(known)}"
            raise UsageError(f"{path}: unknown setting {name!r}", hint=hint)
        if known[name] is bool and not isinstance(value, bool):
            raise UsageError(f"{path}: {name} is {value!r}, not true or false")
        if known[name] is float and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise UsageError(f"{path}: {name} is {value!r}, not a number")
    if "weights" in document:
        document["weights"] = counts_from(document["weights"], str(path))
    if "usage" in document:
        document["usage"] = usage_from(document["usage"], str(path))
    return PolicySettings(**document)
