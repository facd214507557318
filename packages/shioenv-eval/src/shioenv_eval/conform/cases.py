"""Test cases for an implementation: inputs that cover every option of the grammars.

A stream of cases is systematic, while plain samples are random. It contains each option of each
grammar alone, then pairs of options. In between it contains operands without options, mistakes,
composites, and lines that follow other lines in the same shell. Productions that a grammar declares
volatile are used only for options that have no others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import combinations, cycle, islice
from random import Random

from shioenv.bash.words import quoted
from shioenv.dataset.questions import Question
from shioenv.domain.inputs import Argument, Input, Role
from shioenv.errors import SamplesExhaustedError
from shioenv.grammar.library import chosen_grammars, load_grammars
from shioenv.grammar.parse import InputParser
from shioenv.grammar.symbols import Nonterminal
from shioenv.seeding import generator
from shioenv.synthesis.compose import PIPE, command_tokens, token
from shioenv.synthesis.drawing import Drawing
from shioenv.synthesis.policy import settings_named
from shioenv.synthesis.sample import prepare_drawing, sample
from shioenv.synthesis.samplers import HORIZON, Sampler
from shioenv.synthesis.traces import DrawingPlace
from shioenv.synthesis.usage_tables import shipped_usage
from shioenv.system.catalogue import catalogue
from shioenv.system.store import System
from shioenv_eval.places import utilities

OPTION, PAIR, OPERANDS, MISTAKE, COMPOSITE, LINES = (
    "option", "pair", "operands", "mistake", "composite", "lines",
)  # fmt: skip
KINDS = (OPTION, PAIR, OPERANDS, MISTAKE, COMPOSITE, LINES)
"""The kinds of a case.

They are one option, two options, operands without options, a mistake, several commands in one
input, and several lines in one shell.
"""

TURNS = (
    OPTION, PAIR, OPTION, OPERANDS, OPTION, MISTAKE, OPTION, COMPOSITE, PAIR, LINES,
)  # fmt: skip
"""The kinds of ten consecutive cases (our choice). An exhausted kind is replaced by another."""

ATTEMPTS = 24
"""Maximum number of attempts to write a case with certain options (our choice)."""

MOST_BESIDE = 3
"""Maximum number of options added to one that cannot be used alone (our choice)."""

FREE_DRAWS = 20_000
"""Number of random draws of a command that are searched for its remaining options (our choice)."""

MOST_FRUITLESS = 2_000
"""Number of consecutive duplicates after which the stream ends (our choice)."""

SESSION_LENGTH = 4
"""Lines of one shell: a case of the kind `lines` has one to three lines before it (our choice)."""


GIVEN = "given"
"""The kind of a case that was not drawn."""


@dataclass(frozen=True, slots=True)
class DrawnCase:
    """An input to test, with the features that it covers."""

    kind: str
    """One of `KINDS`, or `GIVEN`."""
    command: str
    """The grammar of the input's first command."""
    input: Input
    cwd: str
    options: tuple[str, ...] = ()
    """The options that the case covers: two for a pair; none for the last four kinds."""
    history: tuple[str, ...] = ()
    """The lines before the input in the same shell, oldest first."""
    volatile: bool = False
    """Whether its grammar declares that repeated runs may differ."""

    @property
    def key(self) -> tuple[str, tuple[str, ...], str]:
        """The case's identity: start directory, history, text."""
        return self.cwd, self.history, self.input.text

    def has(self, option: str) -> bool:
        """Whether an argument is the option, with or without a value.

        A value attached to a short option is not recognised if it begins with a letter.
        """
        return any(
            _is(option, token.argument)
            for token in self.input.tokens
            if token.role is Role.ARGUMENT
        )


def _is(option: str, argument: Argument) -> bool:
    text = argument.text
    if argument.joins_left and not text.startswith("-"):
        text = f"-{text}"
    rest = text.removeprefix(option)
    if rest == text:
        return False
    letter = len(option) == 2
    return not rest or (not rest[0].isalpha() if letter else rest[0] in " =")


def given_cases(system: System, questions: Sequence[Question]) -> list[DrawnCase]:
    """Return distinct questions as cases.

    An input whose tokens do not give back its text becomes one token, so it keeps its arguments.
    """
    parser = InputParser(load_grammars(host_clock=system.host_clock))
    found: dict[tuple[str, tuple[str, ...], str], DrawnCase] = {}
    for question in questions:
        parsed = parser.parse(question.input)
        if parsed.text != question.input:
            parsed = Input.single(question.input or " ")
        called = next(iter(utilities(question.input)), "(none)")
        cwd = question.cwd or system.declaration.start_directory
        case = DrawnCase(GIVEN, called, parsed, cwd, history=question.history)
        found.setdefault(case.key, case)
    return list(found.values())


class CaseStream:
    """A stream of distinct cases on a system; equal arguments give equal streams.

    `commands` names grammars and sets of grammars; if empty, `paper`. A longer stream begins with
    the shorter one. Errors: UnknownGrammarError; UnboundTokenError if there is only one grammar,
    and the system lacks values for it.
    """

    def __init__(self, system: System, commands: Sequence[str] = (), seed: int = 0) -> None:
        self._system, self._seed = system, seed
        self._cwd = system.declaration.session.start_directories[0]
        self._grammars = load_grammars(chosen_grammars(commands), host_clock=system.host_clock)
        settings = replace(settings_named("mixed"), usage_share=0.0, stop=0.8, groups=False)
        sampler = partial(Sampler, "gcs", policy=settings.chooser, horizon=HORIZON)
        values = catalogue(system, self._cwd)
        self._place: DrawingPlace = prepare_drawing(
            sampler, self._grammars, InputParser(self._grammars), settings, values
        )

    @cached_property
    def options(self) -> Mapping[str, tuple[str, ...]]:
        """All spellings of the options that the grammars declare, by grammar."""
        return {
            name: tuple(sorted({one for spec in grammar.options for one in spec.names}))
            for name, grammar in self._place.grammars.items()
        }

    def __iter__(self) -> Iterator[DrawnCase]:
        """Yield the cases from the beginning, until no new ones can be drawn."""
        streams = {kind: self._stream(kind) for kind in KINDS}
        seen: set[tuple[str, tuple[str, ...], str]] = set()
        fruitless = 0
        for kind in cycle(TURNS):
            case = next((case for one in (kind, *KINDS) for case in islice(streams[one], 1)), None)
            if case is None or fruitless > MOST_FRUITLESS:
                return
            fruitless += 1
            if case.key not in seen:
                seen.add(case.key)
                fruitless = 0
                yield case

    def _stream(self, kind: str) -> Iterator[DrawnCase]:
        if kind in (OPTION, PAIR):
            return self._by_options(kind)
        return self._operands() if kind == OPERANDS else self._drawn(kind)

    def _by_options(self, kind: str) -> Iterator[DrawnCase]:
        """Yield cases of each command in turn."""
        own = self._options_of if kind == OPTION else self._pairs_of
        turns = [own(name) for name in self._place.names]
        while turns:
            drawn = [(turn, next(turn, None)) for turn in turns]
            turns = [turn for turn, case in drawn if case is not None]
            yield from (case for _, case in drawn if case is not None)

    def _options_of(self, name: str) -> Iterator[DrawnCase]:
        """Yield a case for each option of a command, with as few other options as possible.

        If an option cannot be used alone, options that people combine with it are added (`tar -c
        -f`). This is also done if the option alone is volatile (`curl -s`). If that fails, a random
        draw that contains the option is used.
        """
        random = generator(self._seed, "cases", OPTION, name)
        names = list(self.options[name])
        random.shuffle(names)
        usage = shipped_usage().by_command.get(name)
        sets = sorted(usage.option_sets.items(), key=lambda one: -one[1]) if usage else []
        beside = [set(names.split()) for names, _ in sets if 0 < len(names.split()) <= MOST_BESIDE]
        left = []
        for option in names:
            volatile = None
            for others in (set[str](), *beside):
                case = self._with(name, OPTION, (option,), random, others - {option})
                if case is not None and not case.volatile:
                    yield case
                    break
                volatile = volatile or case
            else:
                if volatile is None:
                    left.append(option)
                else:
                    yield volatile
        for _ in range(FREE_DRAWS):
            if not left:
                return
            case = self._free(name, random)
            found = [one for one in left if case is not None and case.has(one)]
            if case is not None and found:
                left = [one for one in left if one not in found]
                yield replace(case, options=tuple(found))

    def _pairs_of(self, name: str) -> Iterator[DrawnCase]:
        """Yield a case for each pair of a command's options that can be used together."""
        random = generator(self._seed, "cases", PAIR, name)
        table = self._place.writer(name).options
        lines: dict[int, list[str]] = {}
        for option in self.options[name]:
            lines.setdefault(table.line(option), []).append(option)
        pairs = list(combinations(lines.values(), 2))
        random.shuffle(pairs)
        for first, second in pairs:
            case = self._with(name, PAIR, (random.choice(first), random.choice(second)), random)
            if case is not None:
                yield case

    def _with(
        self,
        name: str,
        kind: str,
        options: tuple[str, ...],
        random: Random,
        others: Set[str] = frozenset(),
    ) -> DrawnCase | None:
        """Return a case whose options are `options` and `others`; None if none was found."""
        writer = self._place.writer(name)
        if writer.grammar.header.volatile and kind != OPTION:
            return None
        found = None
        for start in writer.grammar.starts:
            plan = writer.options.plan(start, frozenset({*options, *others}))
            for _ in range(ATTEMPTS if plan is not None else 0):
                assert plan is not None
                written = writer.write(start, plan, random, horizon=HORIZON, spelling=None)
                if written is None or (written.volatile and kind != OPTION):
                    continue
                found = self._case(kind, name, start, written.words, random, options)
                if not written.volatile:
                    return found
                found = replace(found, volatile=True)
        return found

    def _free(self, name: str, random: Random) -> DrawnCase | None:
        """Return a random case in which all options are equally likely."""
        writer = self._place.writer(name)
        start = random.choice(writer.grammar.starts)
        plan = writer.options.plan(start, None)
        if plan is None or random.random() < 0.5:
            words: Sequence[str] = self._place.sampler.draw(start, random).words
        else:
            evenly = random.random() < 0.5
            written = writer.write(
                start, plan, random, horizon=HORIZON, spelling=None, evenly=evenly
            )
            if written is None:
                return None
            words = written.words
        return self._case(OPTION, name, start, words, random, ())

    def _case(
        self,
        kind: str,
        name: str,
        start: Nonterminal,
        words: Sequence[str],
        random: Random,
        options: tuple[str, ...],
    ) -> DrawnCase:
        """Return the case for written words.

        If the words read a pipe, `cat` of a file is put before them.
        """
        tokens = command_tokens(words)
        if start != self._place.grammars[name].start:
            file = random.choice(self._place.values["TextFile"])
            before = Input.from_marked(("cat", quoted(file))).tokens
            tokens = (*before, token(PIPE, Role.OPERATOR), *tokens)
        return DrawnCase(kind, name, Input(tokens), self._cwd, options)

    def _operands(self) -> Iterator[DrawnCase]:
        """Yield cases without options, one for each command in turn."""
        random = generator(self._seed, "cases", OPERANDS)
        while True:
            cases = [self._with(name, OPERANDS, (), random) for name in self._place.names]
            found = [case for case in cases if case is not None]
            if not found:
                return
            yield from found

    def _drawn(self, kind: str) -> Iterator[DrawnCase]:
        """Yield cases of a kind from plain samples."""
        usual = Drawing(
            seed=generator(self._seed, "cases", kind).getrandbits(32),
            commands=tuple(self._place.names),
            composite_share=0.0,
            start_directories=(self._cwd,),
        )
        drawing = {
            MISTAKE: replace(usual, mistakes=1.0),
            COMPOSITE: replace(usual, composite_share=1.0),
            LINES: replace(usual, composite_share=0.1, session_length=SESSION_LENGTH),
        }[kind]
        try:
            for one in sample(drawing, system=self._system, grammars=self._grammars):
                about = {MISTAKE: one.mistake, COMPOSITE: one.input.operators, LINES: one.history}
                if about[kind] and not one.volatile:
                    command = one.trace[0].grammar
                    yield DrawnCase(kind, command, one.input, one.cwd, (), one.history)
        except SamplesExhaustedError:
            return
