"""Different inputs as one deterministic stream."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from random import Random
from typing import Unpack

from shioenv.bash.builtins import BUILTINS, KEYWORDS
from shioenv.domain.inputs import REDIRECTIONS, SEPARATORS, Input, Role, Token
from shioenv.errors import SamplesExhaustedError, UnboundTokenError, UsageError
from shioenv.grammar.bind import bind, values_of, with_vocabulary
from shioenv.grammar.library import (
    OwnGrammars,
    chosen_grammars,
    load_grammars,
    names_of_grammars,
    own_grammars,
)
from shioenv.grammar.parse import InputParser
from shioenv.grammar.spelling import spelt
from shioenv.grammar.symbols import Grammar, Nonterminal
from shioenv.seeding import generator
from shioenv.synthesis.compose import Composites, command_tokens, compose, token
from shioenv.synthesis.digest_set import DigestSet
from shioenv.synthesis.drawing import Drawing, DrawingSettings
from shioenv.synthesis.mistakes import mistaken
from shioenv.synthesis.people import LONGEST_SHAPE, People, is_operator
from shioenv.synthesis.plans import PlanMaker, plans_kept
from shioenv.synthesis.policy import LengthPolicy, Policy, PolicySettings, settings_named
from shioenv.synthesis.rows import TypedSoFar
from shioenv.synthesis.samplers import Sampler, check_sampler
from shioenv.synthesis.traces import Catalogue, DrawingPlace, Sample, SegmentTrace
from shioenv.system.catalogue import catalogue as system_catalogue
from shioenv.system.store import System, find_system

USED_UP = 200
"""Draws of one command in a row that gave nothing new, after which it leaves the draw."""

USED_UP_LENGTH = 40
"""The same for one command at one length, where lengths are filled equally."""

LONGEST_HISTORY = 32
"""Inputs in a row at most (ours): each is run after all inputs before it."""

WAITING = 200
"""Samples that wait until they fit into a row, at most; the oldest of more are left out."""

RARE = 1e-6
"""A production of at most this weight is only there for what people write: its options, shapes."""

COMPOSITES = "composites"
USUAL = "usual"


FREE_ATTEMPTS = 8
"""Attempts to write a command with each option once, before this draw gives it up."""


class _NothingWrittenError(Exception):
    """Every attempt to write a command led nowhere."""


class _NoSuchLengthError(Exception):
    """No input of a command was found that has the length asked for."""


def grammars_on(system: System, own: OwnGrammars | None = None) -> tuple[Grammar, ...]:
    """The shipped and own grammars, bound to a built system's names in its first start directory.

    A grammar by which no input can be written there stays as it is in its file.
    """
    values = system_catalogue(system, system.declaration.session.start_directories[0])
    loaded = load_grammars(versions=system.versions, own=own)
    grammars = {grammar.name: grammar for grammar in loaded}
    for name, grammar in grammars.items():
        with suppress(UnboundTokenError):
            grammars[name] = bind(grammar, values)
    return tuple(grammars.values())


def lacking(system: System, grammars: Iterable[Grammar]) -> tuple[str, ...]:
    """The names of grammars whose command is no program and no builtin on the system, in order."""
    there = system.programs | BUILTINS | KEYWORDS
    return tuple(
        grammar.name
        for grammar in grammars
        if all(token.split()[0] not in there for token in grammar.command_tokens)
    )


def grammars_for(system: System, drawing: Drawing) -> tuple[Grammar, ...]:
    """The grammars that the drawing names, for a built system.

    Those of a set, and where it names none, are left out where the system lacks their commands.
    Errors: UsageError where a command named by itself is not on the system, or none is. Those of
    `chosen_grammars`, `load_grammars` and `own_grammars`.
    """
    own = own_grammars(drawing.own_grammars) if drawing.own_grammars else None
    names = chosen_grammars(drawing.commands, own)
    grammars = load_grammars(names, versions=system.versions, own=own)
    missing = lacking(system, grammars)
    named = set(missing).intersection(drawing.commands)
    if named or (missing and len(missing) == len(grammars)):
        raise UsageError(
            f"the system {system.name} has no {' and no '.join((sorted(named) or missing)[:8])}",
            hint="`shioenv system show` names the commands that a system lacks",
        )
    return tuple(grammar for grammar in grammars if grammar.name not in missing)


def notes_on(system: System, drawing: Drawing) -> Iterator[str]:
    """What a person should know of the grammars that are drawn from, a line each.

    Commands of a set are left out where the system lacks them. An own grammar may stand in the
    place of a shipped one. Errors: those of `grammars_for`.
    """
    own = own_grammars(drawing.own_grammars) if drawing.own_grammars else None
    names = [*{*chosen_grammars(drawing.commands, own)}.difference(drawing.commands)]
    missing = lacking(system, load_grammars(sorted(names), versions=system.versions, own=own))
    if missing:
        yield f"left out, because {system.name} lacks them: {', '.join(missing)}"
    replaced = set(own.names).intersection(names_of_grammars()) if own else ()
    if own and replaced:
        yield f"in place of shipped grammars, from {own.directory}: {', '.join(sorted(replaced))}"


def sample(
    drawing: Drawing = Drawing(),
    *,
    count: int | None = None,
    system: str | System | None = None,
    grammars: Sequence[Grammar] | None = None,
    **settings: Unpack[DrawingSettings],
) -> Iterator[Sample]:
    """`count` different inputs drawn from grammars for a system; none of them is executed.

    The system's names, package versions and start directories are used, which `system` names as
    `open_sandbox` takes it. Start directories that the drawing names are used instead. `settings`
    are those of the drawing that differ: `seed`, `commands`, `policy` and the others. `grammars`
    replaces those that `grammars_for` gives. `draw_samples` says how they are drawn. Errors: those
    of `draw_samples`, `find_system` and `grammars_for`.
    """
    drawing = drawing.but(**settings)
    built = system if isinstance(system, System) else find_system(system)
    directories = drawing.start_directories or built.declaration.session.start_directories
    return draw_samples(
        replace(drawing, start_directories=directories),
        count=count,
        catalogue=lambda directory: system_catalogue(built, directory),
        versions=built.versions,
        grammars=grammars_for(built, drawing) if grammars is None else grammars,
    )


def draw_samples(
    drawing: Drawing,
    *,
    count: int | None = None,
    catalogue: Catalogue | Callable[[str], Catalogue],
    versions: Mapping[str, str] | None = None,
    grammars: Sequence[Grammar] | None = None,
    policy: Policy | None = None,
) -> Iterator[Sample]:
    """`count` samples (None: without end), all different, the same for the same arguments.

    Two samples differ in their start directory, their text or their history. A longer stream begins
    with the shorter one.

    `catalogue` holds the system's values for tokens, or gives them for a start directory, since
    paths are relative to it. `versions` are the target system's packages. `grammars` replaces those
    that the drawing names, `policy` the policy that the drawing names.

    - Each draw takes a start directory and a command, both uniformly. A command that gave nothing
      new 200 times in a row is used up: from then on it occurs in composite inputs only. A share of
      0 for composites gives single commands only.
    - A policy's `usage_share` of the draws follows its table of usage instead, until nothing new
      comes of these.
    - With a `LengthPolicy` every number of arguments gets its turn equally often; in composite
      inputs it is that of the first command. The command is drawn among those that have inputs of
      that length.
    - A share of the inputs, `drawing.mistakes`, gets a mistake. The others are those of the stream
      without mistakes.
    - Where a session has several inputs (`drawing.session_length`), those before an input are its
      history. Samples that do not fit into sessions are left out (`synthesis/rows.py`).

    Errors: UnknownSamplerError, UnknownGrammarError, UnboundTokenError, UsageError, all before the
    first sample; SamplesExhaustedError.
    """
    start_directories, horizon = drawing.start_directories, drawing.horizon
    check_sampler(drawing.sampler)
    settings, chooser = PolicySettings(), policy
    if chooser is None:
        settings = settings_named(drawing.chosen_policy)
        chooser = settings.chooser
    if settings.free and drawing.sampler != "gcs":
        raise UsageError(
            f"the policy {drawing.chosen_policy} is for gcs, not for {drawing.sampler}",
            hint="--policy paper",
        )
    if not start_directories:
        raise UsageError("sampling needs at least one start directory")
    composites = Composites(drawing.composite_share, drawing.max_segments)
    if grammars is None:
        grammars = load_grammars(chosen_grammars(drawing.commands), versions=versions)
    if not grammars:
        raise UsageError("sampling needs at least one command")
    sampler = partial(Sampler, drawing.sampler, policy=chooser, horizon=horizon)
    place = partial(
        place_of, sampler, grammars, InputParser(grammars), settings, plans=plans_kept()
    )
    if callable(catalogue):
        places = {directory: place(catalogue(directory)) for directory in start_directories}
    else:
        places = dict.fromkeys(start_directories, place(catalogue))
    lengths: Sequence[int] = ()
    if isinstance(chooser, LengthPolicy):
        lengths = [length for length in chooser.lengths if length <= horizon]
    names = [grammar.name for grammar in grammars]
    stream = _Stream(composites, settings, places, start_directories, names, lengths)
    if not 0 <= drawing.mistakes <= 1:
        raise UsageError(f"{drawing.mistakes} is no share of mistakes", hint="0 to 1")
    if not 1 <= drawing.session_length <= LONGEST_HISTORY:
        raise UsageError(
            f"{drawing.session_length} inputs in a row", hint=f"1 (no history) to {LONGEST_HISTORY}"
        )
    if not drawing.mistakes and drawing.session_length == 1:
        return stream.samples(drawing.seed, count)
    samples = stream.samples(drawing.seed, None)
    if drawing.mistakes:
        random = generator(drawing.seed, "mistakes")
        samples = _with_mistakes(samples, places, drawing.mistakes, random)
    if drawing.session_length > 1:
        random = generator(drawing.seed, "history")
        samples = _in_a_row(samples, places, drawing.session_length, random)
    return islice(samples, count)


def _with_mistakes(
    samples: Iterator[Sample], places: Mapping[str, DrawingPlace], share: float, random: Random
) -> Iterator[Sample]:
    """The samples, a share of them with a mistake; still all different."""
    made = DigestSet()
    for one in samples:
        if random.random() < share:
            place = places[one.cwd]
            by_word = {
                word: place.grammars[trace.grammar]
                for trace in one.trace
                for word in place.grammars[trace.grammar].command_tokens
            }
            wrong = mistaken(one.input, by_word, place.values, random)
            if wrong is not None and made.add(one.cwd, wrong[0].text):
                yield replace(one, input=wrong[0], mistake=wrong[1])
                continue
        if made.add(one.cwd, one.input.text):
            yield one


def _in_a_row(
    samples: Iterator[Sample], places: Mapping[str, DrawingPlace], length: int, random: Random
) -> Iterator[Sample]:
    """The samples in rows of `length`; all different. Samples that fit into no row are left out.

    No two rows of a start directory have the same first input, so all histories differ.
    """
    waiting = deque[Sample](maxlen=WAITING)

    def fitting(row: TypedSoFar, wanted: str) -> Sample:
        """A sample that does what is wanted next, or any sample of the row's start directory."""
        for place, one in enumerate(waiting):
            if one.cwd == row.start and row.fits(one.input, wanted):
                del waiting[place]
                return one
        for one in islice(samples, WAITING):
            if one.cwd == row.start and row.fits(one.input, wanted):
                return one
            waiting.append(one)
        return next(one for one in samples if one.cwd == row.start)

    firsts = DigestSet()
    while True:
        first = next(samples)
        waiting.append(first)
        history: tuple[str, ...] = ()
        volatile = False
        place = places[first.cwd]
        row = TypedSoFar(first.cwd, place.values, place.traits)
        while len(history) < length:
            one = fitting(row, row.wanted(random))
            shell_input = one.input if one.mistake else row.threaded(one.input, random)
            volatile = volatile or one.volatile
            if not history and not firsts.add(one.cwd, shell_input.text):
                continue
            yield replace(one, input=shell_input, history=history, volatile=volatile)
            row.typed(shell_input)
            history = (*history, shell_input.text)


def place_of(
    sampler: Callable[[Sequence[Grammar]], Sampler],
    grammars: Sequence[Grammar],
    parser: InputParser,
    settings: PolicySettings,
    catalogue: Catalogue,
    *,
    plans: PlanMaker | None = None,
) -> DrawingPlace:
    """What can be drawn with a catalogue's values by settings.

    Places that share `plans` keep a bounded number of them together. A grammar by which no input
    can be written there is left out. Errors: UnboundTokenError where it is the only one.
    """
    bound: dict[str, Grammar] = {}
    for grammar in grammars:
        try:
            bound[grammar.name] = bind(grammar, catalogue)
        except UnboundTokenError:
            if len(grammars) == 1:
                raise
    new = values_of(Nonterminal("NewFile"), catalogue)
    existing = values_of(Nonterminal("TextFile"), catalogue)
    people = None
    if settings.people is not None:
        people = People(settings.people, tuple(bound), settings.utility_share, settings.new_sets)
    return DrawingPlace(
        sampler=sampler(tuple(bound.values())),
        grammars=bound,
        parser=parser,
        names=tuple(bound),
        pipes=tuple(name for name, grammar in bound.items() if _is_piped(grammar)),
        targets=(*new, *existing[: max(1, len(new) // 2)]),
        values=with_vocabulary(catalogue),
        people=people,
        settings=settings,
        plans=plans or plans_kept(),
    )


def _is_piped(grammar: Grammar) -> bool:
    """Whether a command may stand to the right of a pipe, by its grammar's own weights."""
    productions = grammar.productions.get(grammar.pipe, ()) if grammar.pipe else ()
    return any(production.weight > RARE for production in productions)


@dataclass(frozen=True, slots=True)
class _Stream:
    """The draw itself, from start directories and commands."""

    composites: Composites
    settings: PolicySettings
    places: Mapping[str, DrawingPlace]
    directories: Sequence[str]
    names: Sequence[str]
    lengths: Sequence[int]

    def samples(self, seed: int, count: int | None) -> Iterator[Sample]:
        """The stream of one seed."""
        if self.lengths:
            yield from self.by_length(seed, count, self.lengths)
            return
        random = generator(seed, "sample")
        share = self.composites.share
        seen = DigestSet()
        fresh = list(self.names)
        misses: Counter[str] = Counter()
        people = self.settings.usage_share > 0
        while count is None or len(seen) < count:
            directory = _pick(random, self.directories)
            if people and random.random() < self.settings.usage_share:
                drawn = self._usual(random, directory, composite=random.random() < share)
                if drawn is not None and seen.add(drawn.cwd, drawn.input.text):
                    misses[USUAL] = 0
                    yield drawn
                    continue
                misses[USUAL] += 1
                people = misses[USUAL] < USED_UP * len(self.names)
                continue
            composite = random.random() < share or (not fresh and share > 0)
            names = self.names if composite else fresh
            if not names:
                raise SamplesExhaustedError(
                    f"{', '.join(self.names)}: no more than {len(seen)} different inputs",
                    hint="allow more commands, start directories or composites",
                )
            name = _pick(random, names)
            drawn = self._draw(random, directory, name, composite=composite)
            if drawn is not None and seen.add(drawn.cwd, drawn.input.text):
                misses[COMPOSITES if composite else name] = 0
                yield drawn
                continue
            misses[COMPOSITES if composite else name] += 1
            if composite:
                if misses[COMPOSITES] >= USED_UP * len(self.names):
                    share = 0.0
            elif misses[name] >= USED_UP:
                fresh.remove(name)

    def by_length(self, seed: int, count: int | None, lengths: Sequence[int]) -> Iterator[Sample]:
        """The stream of one seed that fills every length equally.

        A round goes through all lengths in random order, and stays at a length until it has a new
        input. A command leaves the draw for a length that it cannot make, or at which it gives
        nothing new. A length for which no command is left leaves the rounds.
        """
        random = generator(seed, "sample", "lengths")
        seen = DigestSet()
        fresh = {length: list(self.names) for length in lengths}
        misses: Counter[tuple[str, int]] = Counter()
        turns: list[int] = []
        while count is None or len(seen) < count:
            fresh = {length: names for length, names in fresh.items() if names}
            if not fresh:
                raise SamplesExhaustedError(
                    f"{', '.join(self.names)}: no more than {len(seen)} different inputs "
                    f"of {min(lengths)} to {max(lengths)} arguments",
                    hint="allow more commands, start directories or lengths",
                )
            turns = [length for length in turns if length in fresh]
            if not turns:
                turns = list(fresh)
                random.shuffle(turns)
            length = turns[-1]
            directory = _pick(random, self.directories)
            name = _pick(random, fresh[length])
            composite = random.random() < self.composites.share
            try:
                drawn = self._draw(random, directory, name, composite=composite, length=length)
            except _NoSuchLengthError:
                drawn = None
                misses[name, length] += USED_UP_LENGTH // 4
            if drawn is not None and seen.add(drawn.cwd, drawn.input.text):
                misses[name, length] = 0
                turns.pop()
                yield drawn
                continue
            misses[name, length] += 1
            if misses[name, length] >= USED_UP_LENGTH:
                fresh[length].remove(name)

    def _draw(
        self,
        random: Random,
        directory: str,
        name: str,
        *,
        composite: bool,
        length: int | None = None,
    ) -> Sample | None:
        """A sample that begins with this command.

        `length` is the number of arguments that this first command shall have. None where the
        directory has no values for the command, or a command came to nothing. _NoSuchLengthError
        where no input of the length was found.
        """
        place = self.places[directory]
        if name not in place.grammars:
            return None
        traces: list[SegmentTrace] = []

        def draw(name: str, *, piped: bool) -> Sequence[str]:
            grammar = place.grammars[name]
            start = grammar.pipe if piped and grammar.pipe is not None else grammar.start
            if self.settings.free:
                return self._free(random, place, name, start, piped=piped, traces=traces)
            if length is None or traces:
                drawn = place.sampler.draw(start, random)
            elif (of_length := place.sampler.draw_length(start, random, length)) is not None:
                drawn = of_length
            else:
                raise _NoSuchLengthError
            traces.append(SegmentTrace(name, piped, drawn.trace, drawn.volatile))
            return drawn.words

        def draw_next(piped: bool) -> Sequence[str]:
            return draw(_pick(random, place.pipes if piped else place.names), piped=piped)

        try:
            first = draw(name, piped=False)
        except _NothingWrittenError:
            return None
        shell_input = Input(command_tokens(first))
        if composite:
            try:
                shell_input = compose(
                    random,
                    self.composites,
                    first,
                    draw_next,
                    place.targets,
                    pipes=bool(place.pipes),
                )
            except _NothingWrittenError:
                return None
        return _sample(place, directory, shell_input, traces)

    def _free(
        self,
        random: Random,
        place: DrawingPlace,
        name: str,
        start: Nonterminal,
        *,
        piped: bool,
        traces: list[SegmentTrace],
    ) -> Sequence[str]:
        """The words of a command written freely by weights, each option once."""
        writer = place.writer(name)
        plan = writer.options.plan(start, None)
        for _ in range(FREE_ATTEMPTS if plan is not None else 0):
            assert plan is not None
            drawn = writer.write(start, plan, random, horizon=place.sampler.horizon, spelling=None)
            if drawn is not None:
                traces.append(SegmentTrace(name, piped, drawn.trace, drawn.volatile))
                return drawn.words
        raise _NothingWrittenError

    def _usual(self, random: Random, directory: str, *, composite: bool) -> Sample | None:
        """A sample written as people write; None where nothing came of it."""
        place = self.places[directory]
        people = place.people
        assert people is not None
        most = self.composites.max_segments
        parts: Sequence[str] = (people.command(random),)
        if composite:
            parts = people.shape(random, LONGEST_SHAPE if most >= 3 else most)
        tokens: list[Token] = []
        traces: list[SegmentTrace] = []
        before = ""
        for part in parts:
            if is_operator(part):
                tokens.append(token(part, Role.OPERATOR))
                if part in REDIRECTIONS:
                    target = people.target(part, random, place.values)
                    tokens.append(token(spelt(target), Role.TARGET))
                before = part if part in SEPARATORS else before
                continue
            grammar = place.grammars[part]
            piped = before == "|"
            starts = [grammar.start]
            if grammar.pipe is not None:
                starts.insert(0 if piped else 1, grammar.pipe)
            drawn = people.write(
                place.writer(part), starts, random, horizon=place.sampler.horizon, piped=piped
            )
            if drawn is None:
                return None
            traces.append(SegmentTrace(part, piped, drawn.trace, drawn.volatile))
            tokens += command_tokens(drawn.words)
        return _sample(place, directory, Input(tuple(tokens)), traces)


def _sample(
    place: DrawingPlace, directory: str, shell_input: Input, traces: Sequence[SegmentTrace]
) -> Sample:
    volatile = any(
        trace.volatile or place.grammars[trace.grammar].header.volatile for trace in traces
    )
    return Sample(shell_input, directory, volatile, tuple(traces))


def _pick(random: Random, items: Sequence[str]) -> str:
    return items[int(random.random() * len(items))]
