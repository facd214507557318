"""A deterministic stream of distinct inputs."""

from __future__ import annotations

import posixpath
import stat
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import islice, takewhile
from random import Random
from typing import Unpack

from shioenv.bash.builtins import BUILTINS, KEYWORDS
from shioenv.errors import UnboundTokenError, UsageError
from shioenv.grammar.bind import bind, values_of, with_vocabulary
from shioenv.grammar.library import (
    check_known,
    chosen_grammars,
    load_grammars,
    names_of_grammars,
    own_grammars,
)
from shioenv.grammar.parse import InputParser
from shioenv.grammar.symbols import Grammar, Nonterminal
from shioenv.seeding import generator
from shioenv.synthesis.compose import (
    FREE_WEIGHTS,
    OPERATOR_WEIGHTS,
    Composites,
)
from shioenv.synthesis.drawing import Drawing, DrawingSettings
from shioenv.synthesis.groups import GroupedStream
from shioenv.synthesis.mistakes import mistaken
from shioenv.synthesis.plans import PlanMaker, plans_kept
from shioenv.synthesis.policy import LengthPolicy, Policy, PolicySettings, settings_named
from shioenv.synthesis.row_sessions import TypedSoFar
from shioenv.synthesis.samplers import Sampler, check_sampler
from shioenv.synthesis.stream import DigestSet, SampleStream
from shioenv.synthesis.traces import Catalogue, DrawingPlace, Sample
from shioenv.synthesis.usage_sampler import People
from shioenv.system.catalogue import catalogue as system_catalogue
from shioenv.system.store import System, find_system

LONGEST_HISTORY = 32
"""Maximum number of inputs in a session (our choice): each is run after all previous ones."""

WAITING = 200
"""Maximum number of samples that wait to fit into a session; then the oldest are dropped."""

LONGEST_TEXT = 65_536
"""Maximum number of bytes of a file that are searched for a pattern (our choice)."""

RARE = 1e-6
"""Maximum weight of a production that serves only inputs drawn by a usage table."""


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
    UsageError if the system lacks a command named individually, or all commands. The errors of
    `chosen_grammars`, `load_grammars` and `own_grammars` are raised too.
    """
    own = own_grammars(drawing.own_grammars) if drawing.own_grammars else None
    names = chosen_grammars(drawing.commands, own)
    grammars = load_grammars(names, host_clock=system.host_clock, own=own)
    missing = lacking(system, grammars)
    named = set(missing).intersection(drawing.commands)
    if named or (missing and len(missing) == len(grammars)):
        raise UsageError(
            f"the system {system.name} lacks {', '.join((sorted(named) or missing)[:8])}",
            hint="list missing commands: shioenv system show",
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
            f"the policy {drawing.chosen_policy} supports gcs, not {drawing.sampler}",
            hint="use --policy paper",
        )
    return settings


def notes_on(system: System, drawing: Drawing) -> Iterator[str]:
    """Yield notes for the user on the grammars of a drawing, one line each.

    The notes list commands of a set that the system lacks, and shipped grammars that user-supplied
    ones replace. Errors: those of `grammars_for`.
    """
    own = own_grammars(drawing.own_grammars) if drawing.own_grammars else None
    names = [*{*chosen_grammars(drawing.commands, own)}.difference(drawing.commands)]
    missing = lacking(system, load_grammars(sorted(names), host_clock=system.host_clock, own=own))
    if missing:
        yield f"note: skipping commands that {system.name} lacks: {', '.join(missing)}"
    replaced = set(own.names).intersection(names_of_grammars()) if own else ()
    if own and replaced:
        yield f"note: {own.directory} replaces shipped grammars: {', '.join(sorted(replaced))}"


def sample(
    drawing: Drawing = Drawing(),
    *,
    count: int | None = None,
    system: str | System | None = None,
    grammars: Sequence[Grammar] | None = None,
    **settings: Unpack[DrawingSettings],
) -> Iterator[Sample]:
    """Draw `count` distinct inputs from grammars for a system, without executing them.

    The inputs use the system's names and start directories, unless the drawing
    specifies start directories. `system` is as for `open_sandbox`. `settings` override those of the
    drawing: `seed`, `commands`, `policy` and the others. `grammars` replaces the result of
    `grammars_for`. See `draw_samples` for the method. Errors: those of `draw_samples`,
    `find_system` and `grammars_for`.
    """
    drawing = drawing.but(**settings)
    if grammars is None:
        check_names(drawing)
    built = system if isinstance(system, System) else find_system(system)
    return draw_samples(
        _placed(drawing, built),
        count=count,
        catalogue=partial(system_catalogue, built),
        grammars=grammars_for(built, drawing) if grammars is None else grammars,
        text=partial(_text, built),
    )


def numbers_of(
    drawing: Drawing, count: int, *, system: System, grammars: Sequence[Grammar]
) -> Sequence[int]:
    """Return the numbers below `count` that the samples of a drawing have in its whole stream.

    Errors: UsageError for an unknown or too small part.
    """
    part, parts = drawing.numbered_part
    if parts == 1:
        return range(count)
    if not drawing.plain or not _policy_settings(drawing).groups:
        return [n for n in range(count) if n // drawing.session_length % parts == part - 1]
    places = partial(system_catalogue, system)
    stream = _stream(_placed(drawing, system), places, grammars, _policy_settings(drawing))
    grouped = GroupedStream(stream, drawing.seed)
    return array("Q", takewhile(count.__gt__, grouped.numbers(grouped.part(part, parts))))


def _placed(drawing: Drawing, system: System) -> Drawing:
    directories = drawing.start_directories or system.declaration.session.start_directories
    return replace(drawing, start_directories=tuple(directories))


def draw_samples(
    drawing: Drawing,
    *,
    count: int | None = None,
    catalogue: Catalogue | Callable[[str], Catalogue],
    grammars: Sequence[Grammar] | None = None,
    policy: Policy | None = None,
    text: Callable[[str], str | None] = lambda path: None,
) -> Iterator[Sample]:
    """Draw `count` distinct samples (None: an endless stream), determined by the arguments.

    Two samples differ in their start directory, their text or their history. A shorter stream is a
    prefix of a longer one.

    `catalogue` maps tokens to the system's values, or returns such a mapping for a start directory,
    since paths are relative to it. `grammars` and `policy` replace those named by the drawing.
    `text` returns the text of a file of the system by its absolute path, or None if it is unknown.

    - Each draw takes a start directory and a command, both uniformly. A command that gave no new
      input in 200 consecutive draws is used in composite inputs only. With a composite share of 0,
      all inputs are single commands.
    - A share `usage_share` of the draws follows the policy's usage table instead, until it gives no
      new inputs.
    - With the setting `groups`, groups of commands are drawn independently, and a part of the
      stream (`drawing.part`) consists of groups. Otherwise a part has every Nth session, and the
      whole stream is drawn.
    - With a `LengthPolicy` all numbers of arguments take equal turns; in composite inputs this
      refers to the first command. The command is drawn among those with inputs of that length.
    - A share `drawing.mistakes` of the inputs gets a mistake. The others equal those of the stream
      without mistakes.
    - With sessions of several inputs (`drawing.session_length`), the earlier inputs are the history
      of a later one. Samples that do not fit into sessions are dropped (see
      `synthesis/row_sessions.py`).

    Errors: UnknownSamplerError, UnknownGrammarError, UnboundTokenError, UsageError, all before the
    first sample; SamplesExhaustedError.
    """
    check_sampler(drawing.sampler)
    settings = PolicySettings() if policy is not None else _policy_settings(drawing)
    if grammars is None:
        grammars = load_grammars(chosen_grammars(drawing.commands))
    stream = _stream(drawing, catalogue, grammars, settings, policy, text)
    if not 0 <= drawing.mistakes <= 1:
        raise UsageError(
            f"a share of mistakes of {drawing.mistakes} is out of range", hint="give 0 to 1"
        )
    if not 1 <= drawing.session_length <= LONGEST_HISTORY:
        raise UsageError(
            f"a session length of {drawing.session_length} is out of range",
            hint=f"give 1 (no history) to {LONGEST_HISTORY}",
        )
    part, parts = drawing.numbered_part
    samples = stream.samples(drawing.seed, None)
    if settings.groups:
        grouped = GroupedStream(stream, drawing.seed)
        if drawing.plain:
            return grouped.samples(grouped.part(part, parts) if parts > 1 else None, count)
        samples = grouped.samples()
    if drawing.mistakes:
        random = generator(drawing.seed, "mistakes")
        samples = _with_mistakes(samples, stream.places, drawing.mistakes, random)
    if drawing.session_length > 1:
        random = generator(drawing.seed, "history")
        samples = _in_a_row(samples, stream.places, drawing.session_length, random)
    if parts > 1:
        rows = drawing.session_length
        samples = (one for n, one in enumerate(samples) if n // rows % parts == part - 1)
    return islice(samples, count)


def _stream(
    drawing: Drawing,
    catalogue: Catalogue | Callable[[str], Catalogue],
    grammars: Sequence[Grammar],
    settings: PolicySettings,
    policy: Policy | None = None,
    text: Callable[[str], str | None] = lambda path: None,
) -> SampleStream:
    """Prepare the stream of a drawing. Errors: those of `draw_samples`."""
    chooser, horizon = policy or settings.chooser, drawing.horizon
    if not drawing.start_directories:
        raise UsageError("sampling needs at least one start directory")
    operators = FREE_WEIGHTS if settings.free else OPERATOR_WEIGHTS
    composites = Composites(drawing.composite_share, drawing.max_segments, operators)
    if not grammars:
        raise UsageError("sampling needs at least one command")
    sampler = partial(Sampler, drawing.sampler, policy=chooser, horizon=horizon)
    place = partial(
        prepare_drawing, sampler, grammars, InputParser(grammars), settings, plans=plans_kept()
    )
    if callable(catalogue):
        places = {
            directory: place(catalogue(directory), start=directory, text=_text_in(directory, text))
            for directory in drawing.start_directories
        }
    else:
        places = dict.fromkeys(drawing.start_directories, place(catalogue))
    lengths: Sequence[int] = ()
    if isinstance(chooser, LengthPolicy):
        lengths = [length for length in chooser.lengths if length <= horizon]
    names = [grammar.name for grammar in grammars]
    return SampleStream(composites, settings, places, drawing.start_directories, names, lengths)


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
        """Return a sample with the required action, or any sample of the session's directory."""
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


def prepare_drawing(
    sampler: Callable[[Sequence[Grammar]], Sampler],
    grammars: Sequence[Grammar],
    parser: InputParser,
    settings: PolicySettings,
    catalogue: Catalogue,
    *,
    plans: PlanMaker | None = None,
    start: str = "/",
    text: Callable[[str], str | None] = lambda name: None,
) -> DrawingPlace:
    """Prepare to draw with a catalogue's values and a policy's settings.

    `plans` makes and caches plans; several places may share it. A grammar that allows no input with
    these values is omitted. Errors: UnboundTokenError if it is the only one.
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
        start=start,
        text=text,
    )


def _text(system: System, path: str) -> str | None:
    """Return the beginning of a file that every user may read, else None."""
    entry = system.index.get(system.resolve(path) or "")
    if entry is None or not stat.S_ISREG(entry.mode) or not entry.mode & stat.S_IROTH:
        return None
    return system.read(entry.path)[:LONGEST_TEXT].decode(errors="replace")


def _text_in(directory: str, text: Callable[[str], str | None]) -> Callable[[str], str | None]:
    """Return a function from names in `directory` to texts, which reads each file once."""
    return cache(lambda name: text(posixpath.join(directory, name)))


def _is_piped(grammar: Grammar) -> bool:
    """Whether a command may follow a pipe, by its grammar's own weights."""
    productions = grammar.productions.get(grammar.pipe, ()) if grammar.pipe else ()
    return any(production.weight > RARE for production in productions)
