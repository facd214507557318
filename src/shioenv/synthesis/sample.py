"""Unique inputs as one deterministic stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

from shioenv.domain.inputs import Input
from shioenv.errors import SamplesExhaustedError, UnboundTokenError, UsageError
from shioenv.grammar.bind import bind, values_of
from shioenv.grammar.library import load_grammars
from shioenv.grammar.symbols import Grammar, Nonterminal
from shioenv.seeding import generator
from shioenv.synthesis.compose import Composition, command_tokens, compose
from shioenv.synthesis.policy import Policy
from shioenv.synthesis.samplers import HORIZON, Drawn, Sampler

Catalogue: TypeAlias = Mapping[str, Sequence[str]]

USED_UP = 200
"""Draws of one command in a row that gave nothing new, after which it leaves the draw."""

COMPOSITES = "composites"


@dataclass(frozen=True, slots=True)
class SegmentTrace:
    """How one command of a sample came about: `Sampler.replay` writes it again from this."""

    grammar: str
    piped: bool
    choices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """An input to be executed in `cwd`.

    `volatile` says that a grammar in it declares that two runs may differ; `trace` holds the
    choices of each command in order.
    """

    input: Input
    cwd: str
    volatile: bool
    trace: tuple[SegmentTrace, ...]


@dataclass(frozen=True, slots=True)
class _Place:
    """What can be drawn in one start directory."""

    sampler: Sampler
    grammars: Mapping[str, Grammar]
    names: tuple[str, ...]
    pipes: tuple[str, ...]
    targets: tuple[str, ...]


def sample(
    sampler: str,
    *,
    seed: int,
    count: int | None = None,
    catalogue: Catalogue | Callable[[str], Catalogue],
    start_directories: Sequence[str],
    commands: Sequence[str] | None = None,
    versions: Mapping[str, str] | None = None,
    grammars: Sequence[Grammar] | None = None,
    policy: Policy | None = None,
    horizon: int = HORIZON,
    composite_share: float = 0.25,
    max_segments: int = 3,
) -> Iterator[Sample]:
    """`count` samples (None: without end), all different, the same for the same arguments.

    Two samples differ in their start directory or their text. Each draw takes a start directory
    and a command, both uniformly; a command that gave nothing new 200 times in a row is used up and
    only occurs in composite inputs from then on. `catalogue` holds the system's values for tokens,
    or gives them for a start directory, since paths are relative to it. `commands` limits the draw
    to these grammars (default: all shipped), `versions` are the target system's packages,
    `grammars` replaces the shipped ones. A share of 0 for composites gives single commands only.

    A longer stream begins with the shorter one. Errors: UnknownSamplerError, UnknownGrammarError,
    UnboundTokenError, UsageError, all before the first sample; SamplesExhaustedError.
    """
    if not start_directories:
        raise UsageError("sampling needs at least one start directory")
    composition = Composition(composite_share, max_segments)
    loaded = grammars if grammars is not None else load_grammars(commands, versions=versions)
    if not loaded:
        raise UsageError("sampling needs at least one command")
    if callable(catalogue):
        places = {
            directory: _place(sampler, loaded, catalogue(directory), policy, horizon)
            for directory in start_directories
        }
    else:
        places = dict.fromkeys(
            start_directories, _place(sampler, loaded, catalogue, policy, horizon)
        )
    stream = _Stream(composition, places, tuple(start_directories), [one.name for one in loaded])
    return stream.samples(seed, count)


def _place(
    sampler: str,
    grammars: Sequence[Grammar],
    catalogue: Catalogue,
    policy: Policy | None,
    horizon: int,
) -> _Place:
    bound: dict[str, Grammar] = {}
    for grammar in grammars:
        try:
            bound[grammar.name] = bind(grammar, catalogue)
        except UnboundTokenError:
            if len(grammars) == 1:
                raise
    new = values_of(Nonterminal("NewFile"), catalogue)
    existing = values_of(Nonterminal("TextFile"), catalogue)
    return _Place(
        sampler=Sampler(sampler, tuple(bound.values()), policy=policy, horizon=horizon),
        grammars=bound,
        names=tuple(bound),
        pipes=tuple(name for name, grammar in bound.items() if grammar.pipe is not None),
        targets=(*new, *existing[: max(1, len(new) // 2)]),
    )


class _Stream:
    """The draw itself: places, commands, and what has been drawn already."""

    def __init__(
        self,
        composition: Composition,
        places: Mapping[str, _Place],
        directories: Sequence[str],
        names: Sequence[str],
    ) -> None:
        self.composition = composition
        self.places = places
        self.directories = directories
        self.names = names

    def samples(self, seed: int, count: int | None) -> Iterator[Sample]:
        """The stream of one seed."""
        random = generator(seed, "sample")
        share = self.composition.share
        seen: set[tuple[str, str]] = set()
        fresh = list(self.names)
        misses: Counter[str] = Counter()
        while count is None or len(seen) < count:
            directory = _pick(random, self.directories)
            place = self.places[directory]
            composite = random.random() < share or (not fresh and share > 0)
            names = self.names if composite else fresh
            if not names:
                raise SamplesExhaustedError(
                    f"{', '.join(self.names)}: no more than {len(seen)} different inputs",
                    hint="allow more commands, start directories or composites",
                )
            name = _pick(random, names)
            drawn = self._input(random, place, name, composite=composite)
            if drawn is not None and (directory, drawn[0].text) not in seen:
                seen.add((directory, drawn[0].text))
                misses[COMPOSITES if composite else name] = 0
                yield _sample(directory, place, *drawn)
                continue
            misses[COMPOSITES if composite else name] += 1
            if composite:
                if misses[COMPOSITES] >= USED_UP * len(self.names):
                    share = 0.0
            elif misses[name] >= USED_UP:
                fresh.remove(name)

    def _input(
        self, random: Random, place: _Place, name: str, *, composite: bool
    ) -> tuple[Input, tuple[SegmentTrace, ...]] | None:
        """An input that begins with this command; None where the directory has no values for it."""
        if name not in place.grammars:
            return None
        traces: list[SegmentTrace] = []

        def draw(name: str, *, piped: bool) -> Drawn:
            grammar = place.grammars[name]
            start = grammar.pipe if piped and grammar.pipe is not None else grammar.start
            drawn = place.sampler.draw(start, random)
            traces.append(SegmentTrace(name, piped, drawn.trace))
            return drawn

        def draw_next(piped: bool) -> Drawn:
            return draw(_pick(random, place.pipes if piped else place.names), piped=piped)

        first = draw(name, piped=False)
        if not composite:
            return Input(command_tokens(first)), tuple(traces)
        shell_input = compose(
            random, self.composition, first, draw_next, place.targets, pipes=bool(place.pipes)
        )
        return shell_input, tuple(traces)


def _pick(random: Random, items: Sequence[str]) -> str:
    return items[int(random.random() * len(items))]


def _sample(
    directory: str, place: _Place, shell_input: Input, traces: tuple[SegmentTrace, ...]
) -> Sample:
    volatile = any(place.grammars[trace.grammar].header.volatile for trace in traces)
    return Sample(shell_input, directory, volatile, traces)
