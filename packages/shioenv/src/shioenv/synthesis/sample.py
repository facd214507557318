"""A deterministic stream of distinct inputs."""

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
    check_known,
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
"""Consecutive draws of a command without a new input, after which it is used up."""

USED_UP_LENGTH = 40
"""The same limit for one command at one length, for policies that fill lengths equally."""

LONGEST_HISTORY = 32
"""Maximum number of inputs in a session (our choice): each is run after all previous ones."""

WAITING = 200
"""Maximum number of samples waiting to fit into a session; beyond it the oldest are dropped."""

RARE = 1e-6
"""Maximum weight of a production that serves only inputs drawn by a usage table."""

COMPOSITES = "composites"
USUAL = "usual"


FREE_ATTEMPTS = 8
"""Attempts per draw to write a command with each option once."""


class _NothingWrittenError(Exception):
    """All attempts to write a command failed."""


class _NoSuchLengthError(Exception):
    """No input of the requested length was found for a command."""


def grammars_on(system: System, own: OwnGrammars | None = None) -> tuple[Grammar, ...]:
    """Load shipped and user-supplied grammars and bind them in the system's start directory.

    The first start directory of the built system is used. A grammar that allows no input there
    stays unbound.
    """
    values = system_catalogue(system, system.declaration.session.start_directories[0])
    loaded = load_grammars(versions=system.versions, own=own)
    grammars = {grammar.name: grammar for grammar in loaded}
    for name, grammar in grammars.items():
        with suppress(UnboundTokenError):
            grammars[name] = bind(grammar, values)
    return tuple(grammars.values())


def lacking(system: System, grammars: Iterable[Grammar]) -> tuple[str, ...]:
    """Return the names of grammars whose commands the system lacks, in order."""
    there = system.programs | BUILTINS | KEYWORDS
    return tuple(
        grammar.name
        for grammar in grammars
        if all(token.split()[0] not in there for token in grammar.command_tokens)
    )


def grammars_for(system: System, drawing: Drawing) -> tuple[Grammar, ...]:
    """Load the grammars named by the drawing, for a built system.

    Grammars of a set or of the default are omitted if the system lacks their commands. Errors:
    UsageError if a command named individually is not on the system, or if none is. Those of
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
            hint="`shioenv system show` lists the commands that a system lacks",
        )
    return tuple(grammar for grammar in grammars if grammar.name not in missing)


def check_names(drawing: Drawing) -> None:
    """Check the names in a drawing, which needs no system.

    Errors: UnknownSamplerError, UnknownGrammarError, UsageError for an unknown policy or one that
    the sampler does not support.
    """
    check_sampler(drawing.sampler)
    _policy_settings(drawing)
    own = own_grammars(drawing.own_grammars) if drawing.own_grammars else None
    check_known(chosen_grammars(drawing.commands, own), own=own)


def _policy_settings(drawing: Drawing) -> PolicySettings:
    settings = settings_named(drawing.chosen_policy)
    if settings.free and drawing.sampler != "gcs":
        raise UsageError(
            f"the policy {drawing.chosen_policy} works with gcs, not with {drawing.sampler}",
            hint="--policy paper",
        )
    return settings


def notes_on(system: System, drawing: Drawing) -> Iterator[str]:
    """Yield notes for the user on the grammars of a drawing, one line each.

    The notes list commands of a set that the system lacks, and shipped grammars that user-supplied
    ones replace. Errors: those of `grammars_for`.
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
    """Draw `count` distinct inputs from grammars for a system, without executing them.

    The inputs use the system's names, package versions and start directories, unless the drawing
    specifies start directories. `system` is as for `open_sandbox`. `settings` override those of the
    drawing: `seed`, `commands`, `policy` and the others. `grammars` replaces the result of
    `grammars_for`. See `draw_samples` for the method. Errors: those of `draw_samples`,
    `find_system` and `grammars_for`.
    """
    drawing = drawing.but(**settings)
    check_names(drawing)
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
    """Draw `count` distinct samples (None: an endless stream), determined by the arguments.

    Two samples differ in their start directory, their text or their history. A shorter stream is a
    prefix of a longer one.

    `catalogue` maps tokens to the system's values, or returns such a mapping for a start directory,
    since paths are relative to it. `versions` are the target system's packages. `grammars` and
    `policy` replace those named by the drawing.

    - Each draw takes a start directory and a command, both uniformly. After 200 consecutive draws
      without a new input, a command occurs in composite inputs only. With a composite share of 0,
      all inputs are single commands.
    - A share `usage_share` of the draws follows the policy's usage table instead, until it gives no
      new inputs.
    - With a `LengthPolicy` all numbers of arguments take equal turns; in composite inputs this
      refers to the first command. The command is drawn among those with inputs of that length.
    - A share `drawing.mistakes` of the inputs gets a mistake. The others equal those of the stream
      without mistakes.
    - With sessions of several inputs (`drawing.session_length`), the earlier inputs are the history
      of a later one. Samples that do not fit into sessions are dropped (`synthesis/rows.py`).

    Errors: UnknownSamplerError, UnknownGrammarError, UnboundTokenError, UsageError, all before the
    first sample; SamplesExhaustedError.
    """
    start_directories, horizon = drawing.start_directories, drawing.horizon
    check_sampler(drawing.sampler)
    settings, chooser = PolicySettings(), policy
    if chooser is None:
        settings = _policy_settings(drawing)
        chooser = settings.chooser
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
        raise UsageError(
            f"a share of mistakes of {drawing.mistakes} is out of range", hint="give 0 to 1"
        )
    if not 1 <= drawing.session_length <= LONGEST_HISTORY:
        raise UsageError(
            f"a session length of {drawing.session_length} is out of range",
            hint=f"give 1 (no history) to {LONGEST_HISTORY}",
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
    """Yield the samples, a share of them with a mistake, without duplicates."""
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
    """Yield the samples in sessions of `length`, without duplicates; drop those that do not fit.

    No two sessions of a start directory have the same first input, so all histories differ.
    """
    waiting = deque[Sample](maxlen=WAITING)

    def fitting(row: TypedSoFar, wanted: str) -> Sample:
        """Return a sample with the wanted action, or any sample of the session's directory."""
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
    """Prepare drawing with a catalogue's values and a policy's settings.

    Places that share `plans` share a bounded cache of them. A grammar that allows no input there is
    omitted. Errors: UnboundTokenError if it is the only one.
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
    """Whether a command may follow a pipe, by its grammar's own weights."""
    productions = grammar.productions.get(grammar.pipe, ()) if grammar.pipe else ()
    return any(production.weight > RARE for production in productions)


@dataclass(frozen=True, slots=True)
class _Stream:
    """The sampling loop over start directories and commands."""

    composites: Composites
    settings: PolicySettings
    places: Mapping[str, DrawingPlace]
    directories: Sequence[str]
    names: Sequence[str]
    lengths: Sequence[int]

    def samples(self, seed: int, count: int | None) -> Iterator[Sample]:
        """Yield the stream of one seed."""
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
        """Yield the stream of one seed with all lengths equally often.

        A round visits all lengths in random order, and stays at each until there is a new input. A
        command is dropped for a length that it cannot have, or at which it gives nothing new. A
        length without commands is dropped.
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
        """Draw a sample that begins with this command.

        `length` is the required number of arguments of this first command. None if the directory
        has no values for the command, or a command could not be written. _NoSuchLengthError if no
        input of the length was found.
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
        """Draw the words of a command by weights, with each option at most once."""
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
        """Draw a sample by the usage table; None if that fails."""
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
