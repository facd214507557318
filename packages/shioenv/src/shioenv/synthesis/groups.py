"""A stream of samples in groups of commands; each group is drawn independently of the others.

A *skeleton* is everything that is drawn before a command is written. One generator draws the
skeletons of the whole stream. The directory and the first command of a skeleton determine its
group. Each group writes its commands with a separate generator, and decides alone which inputs are
new, since inputs of two groups begin with different words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from random import Random
from typing import NamedTuple, TypeAlias, TypeVar

from msgspec import msgpack

from shioenv.errors import SamplesExhaustedError, UsageError
from shioenv.grammar.symbols import Grammar
from shioenv.seeding import generator
from shioenv.synthesis.stream import USED_UP, DigestSet, SampleStream
from shioenv.synthesis.traces import Sample

GROUPS = 16
"""Number of groups (our choice). A stream with fewer than three commands per group has one group.
If a command has no new inputs left, its draws go to the other commands of its group. With more
groups, fewer commands would share them."""

WEIGHED = 10_000
"""Number of skeletons by which groups and parts are balanced (our choice)."""

FEW_OPTIONS = 4
"""Commands with fewer options have few inputs. No group consists of them alone. A frequent one,
with more than a quarter of a group's draws, is joined with a rare command with many options."""

IN_TURN, MOST_IN_TURN = 300, 0.6
"""A single command with k options must have a given one with probability k/300, at most 0.6. Its
options take turns."""

Item = TypeVar("Item", bound=Hashable)


class Skeleton(NamedTuple):
    """The choices of a draw before any command is written."""

    directory: str
    parts: tuple[str, ...]
    """The grammar of the first command; of a `usual` input, all grammars and operators."""
    usual: bool
    """Whether the usage table determines the input."""
    composite: bool


@dataclass(slots=True)
class _Group:
    """The state of one group."""

    random: Random
    seen: DigestSet = field(default_factory=DigestSet)
    misses: Counter[Skeleton] = field(default_factory=Counter)
    """Consecutive draws without a new input, by skeleton of a first command."""
    turns: Counter[str] = field(default_factory=Counter)
    """The number of draws with a given option, by grammar."""


class GroupedStream:
    """The endless stream of one seed, in groups."""

    def __init__(self, stream: SampleStream, seed: int) -> None:
        self._stream, self.seed = stream, seed
        self._in_turn: dict[tuple[str, str], Sequence[str]] = {}

    def samples(
        self, groups: Collection[int] | None = None, count: int | None = None
    ) -> GroupedSamples:
        """Return the stream, or samples of these groups. Errors: SamplesExhaustedError."""
        return GroupedSamples(self, groups, count)

    def numbers(self, groups: Collection[int]) -> Iterator[int]:
        """Yield the numbers, from 0, that the samples of these groups have in the stream."""
        skeletons = self.skeletons(generator(self.seed, "sample", "skeletons"))
        return (number for number, one in enumerate(skeletons) if self.group_of(one) in groups)

    def part(self, number: int, parts: int) -> Collection[int]:
        """Return the groups of the part `number`, from 1; all parts are about equal.

        Errors: UsageError if there are fewer groups than parts.
        """
        skeletons = islice(self.skeletons(generator(0, "parts")), WEIGHED)
        loads = Counter(map(self.group_of, skeletons))
        if parts > len(loads):
            raise UsageError(
                f"{parts} parts are too many",
                hint=f"these commands and this policy can be drawn in up to {len(loads)} parts",
            )
        groups = _balanced(loads, parts, sorted(loads))
        return frozenset(group for group, its in groups.items() if its == number - 1)

    def new(self, state: _Group, group: int, skeleton: Skeleton) -> Sample:
        """Return a new input of a group: with this skeleton, else with others of the group."""
        others = (one for one in self.skeletons(state.random) if self.group_of(one) == group)
        for _ in range(USED_UP * len(self._stream.names)):
            kind = skeleton._replace(parts=skeleton.parts[:1])
            if state.misses[kind] < USED_UP:
                drawn = self._write(state, skeleton)
                if (
                    drawn is not None
                    and self._group(drawn.cwd, drawn.trace[0].grammar) == group
                    and state.seen.add(drawn.cwd, self._text(drawn))
                ):
                    state.misses[kind] = 0
                    return drawn
                state.misses[kind] += 1
            skeleton = next(others)
        raise SamplesExhaustedError(
            f"only {len(state.seen)} different inputs of a group of commands exist",
            hint="allow more commands, start directories or composites",
        )

    def _text(self, drawn: Sample) -> str:
        """Return a text that is the same for inputs that count as duplicates."""
        return self._stream.places[drawn.cwd].spelt_alike(drawn.input)

    def _write(self, state: _Group, skeleton: Skeleton) -> Sample | None:
        random, (directory, parts, usual, composite) = state.random, skeleton
        if usual:
            return self._stream.usual(random, directory, parts, composite=composite)
        options = self._options(directory, parts[0])
        if not composite and random.random() < min(MOST_IN_TURN, len(options) / IN_TURN):
            turn, place = divmod(state.turns[parts[0]], len(options))
            state.turns[parts[0]] += 1
            return self._stream.with_option(
                random, directory, parts[0], options[place], alone=turn % 2 == 0
            )
        return self._stream.draw(random, directory, parts[0], composite=composite)

    def _options(self, directory: str, name: str) -> Sequence[str]:
        """Return a name of each option of a command, those that people use least first."""
        place = self._stream.places[directory]
        if (directory, name) not in self._in_turn:
            used = place.people.of(name).options if place.people else {}
            names = place.writer(name).options.lines() if name in place.grammars else ()
            self._in_turn[directory, name] = sorted(names, key=lambda one: used.get(one, 0.0))
        return self._in_turn[directory, name]

    def skeletons(self, random: Random) -> Iterator[Skeleton]:
        """Draw skeletons endlessly."""
        stream = self._stream
        while True:
            directory = stream.directories[int(random.random() * len(stream.directories))]
            usual = random.random() < stream.settings.usage_share
            composite = random.random() < stream.composites.share
            if usual:
                parts = stream.usual_parts(random, directory, composite=composite)
            else:
                parts = (stream.names[int(random.random() * len(stream.names))],)
            yield Skeleton(directory, parts, usual, composite)

    def group_of(self, skeleton: Skeleton) -> int:
        """Return the number of a skeleton's group."""
        return self._group(skeleton.directory, skeleton.parts[0])

    def _group(self, directory: str, name: str) -> int:
        return self._groups.get((directory, self._words[name]), 0)

    @cached_property
    def _grammars(self) -> Mapping[str, Grammar]:
        places = self._stream.places.values()
        return {name: grammar for place in places for name, grammar in place.grammars.items()}

    @cached_property
    def _words(self) -> Mapping[str, str]:
        """A name for each grammar, the same for grammars whose commands share a first word."""
        words: dict[str, str] = {}
        names = dict.fromkeys(self._stream.names, "")
        for name, grammar in sorted(self._grammars.items()):
            first = {token.split()[0] for token in grammar.command_tokens}
            names[name] = min(words.setdefault(word, name) for word in first)
        return names

    @cached_property
    def _groups(self) -> Mapping[tuple[str, str], int]:
        """The group by start directory and name from `_words`; 0 for all others."""
        if len(self._stream.names) < 3 * GROUPS:
            return {}
        skeletons = islice(self.skeletons(generator(0, "groups")), WEIGHED)
        weights = Counter((one.directory, self._words[one.parts[0]]) for one in skeletons)
        options = Counter[str]()
        for name, grammar in self._grammars.items():
            options[self._words[name]] += len(grammar.options)
        few = sorted(unit for unit in weights if options[unit[1]] < FEW_OPTIONS)
        many = sorted(weights.keys() - set(few), key=lambda unit: (weights[unit], unit))
        heavy = [unit for unit in few if weights[unit] > weights.total() / (4 * GROUPS)]
        joined = dict(zip(heavy, many, strict=False))
        weights.update({unit: weights[other] for unit, other in joined.items()})
        light = [unit for unit in few if unit not in heavy]
        groups = _balanced(weights, GROUPS, [*many[len(joined) :], *heavy], light)
        return groups | {other: groups[unit] for unit, other in joined.items()}


_RandomState: TypeAlias = tuple[int, tuple[int, ...], float | None]
_Kept: TypeAlias = tuple[list[bytes], list[tuple[Skeleton, int]], dict[str, int], _RandomState]
"""The state of a group."""


class GroupedSamples(Iterator[Sample]):
    """Samples of a stream, whose state can be kept, so that a later call continues there."""

    def __init__(
        self, stream: GroupedStream, groups: Collection[int] | None, count: int | None
    ) -> None:
        self._stream, self._chosen, self._count = stream, groups, count
        self._random = generator(stream.seed, "sample", "skeletons")
        self._groups: dict[int, _Group] = {}
        self.drawn = 0
        """Number of samples so far."""

    def __next__(self) -> Sample:
        if self.drawn == self._count:
            raise StopIteration
        stream = self._stream
        named = ((stream.group_of(one), one) for one in stream.skeletons(self._random))
        group, skeleton = next(
            (group, one) for group, one in named if self._chosen is None or group in self._chosen
        )
        if group not in self._groups:
            self._groups[group] = _Group(generator(stream.seed, "sample", "group", group))
        self.drawn += 1
        return stream.new(self._groups[group], group, skeleton)

    def state(self) -> bytes:
        """Return the state after the samples so far."""
        groups = {
            number: (one.seen.buckets, [*one.misses.items()], one.turns, one.random.getstate())
            for number, one in self._groups.items()
        }
        return msgpack.encode((self.drawn, self._random.getstate(), groups))

    def restore(self, state: bytes) -> None:
        """Continue from the state of other samples of this stream. Errors: MsgspecError."""
        kept = msgpack.decode(state, type=tuple[int, _RandomState, dict[int, _Kept]])
        self.drawn, skeletons, groups = kept
        self._random.setstate(skeletons)
        for number, (seen, misses, turns, random) in groups.items():
            group = _Group(Random(), DigestSet(seen), Counter(dict(misses)), Counter(turns))
            group.random.setstate(random)
            self._groups[number] = group


def _balanced(weights: Mapping[Item, int], bins: int, *items: Sequence[Item]) -> dict[Item, int]:
    """Distribute one sequence of items after the other over bins of about equal weight."""
    loads = [0] * bins
    places = {}
    for several in items:
        for item in sorted(several, key=weights.__getitem__, reverse=True):
            places[item] = loads.index(min(loads))
            loads[places[item]] += weights[item]
    return places
