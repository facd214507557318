"""The stream of samples of one drawing: start directories, commands and their composition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from random import Random

from shioenv.domain.inputs import REDIRECTIONS, SEPARATORS, Input, Role, Token
from shioenv.errors import SamplesExhaustedError
from shioenv.grammar.spelling import spelt
from shioenv.grammar.symbols import Nonterminal
from shioenv.seeding import generator
from shioenv.synthesis.compose import (
    PIPE,
    Composites,
    command_tokens,
    compose_input,
    is_text_name,
    token,
)
from shioenv.synthesis.derivation import Drawn
from shioenv.synthesis.policy import PolicySettings
from shioenv.synthesis.traces import DrawingPlace, Sample, SegmentTrace
from shioenv.synthesis.usage_sampler import LONGEST_SHAPE, is_shape_operator
from shioenv.synthesis.usage_tables import ABOUT_ITSELF

USED_UP = 200
"""Consecutive draws of a command without a new input, after which it is used up."""

USED_UP_LENGTH = 40
"""The limit for one command at one length, for policies that fill lengths equally."""

COMPOSITES = "composites"

USUAL = "usual"

FED = 0.98
"""Share of commands that get an operand or a file as standard input if they would read nothing (our
choice)."""

JOINED = 0.8
"""Share of commands after `&&`, `||` and `;` that name a thing of an earlier command, if one fits
(our choice)."""

SUITED_ATTEMPTS = 4
"""Attempts to write a command that finds something or names a file, or that can be made to fail."""

NAMED_ATTEMPTS = 3
"""Attempts to draw a file for printed text with a name of such a file."""

FREE_ATTEMPTS = 8
"""Attempts per draw to write a command with each option once."""


class _NothingWrittenError(Exception):
    """All attempts to write a command failed."""


class _NoSuchLengthError(Exception):
    """No input of the requested length was found for a command."""


@dataclass(frozen=True, slots=True)
class SampleStream:
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
                composite = random.random() < share
                parts = self.usual_parts(random, directory, composite=composite)
                drawn = self.usual(random, directory, parts, composite=composite)
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
                    f"{', '.join(self.names)}: only {len(seen)} different inputs exist",
                    hint="allow more commands, start directories or composites",
                )
            name = _pick(random, names)
            drawn = self.draw(random, directory, name, composite=composite)
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

        A round visits all lengths in random order, and stays at each until there is a new input. If
        a command cannot have a length, or gives nothing new at it, the command is no longer tried
        for that length. A length without commands is dropped.
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
                    f"{', '.join(self.names)}: only {len(seen)} different inputs exist "
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
                drawn = self.draw(random, directory, name, composite=composite, length=length)
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

    def draw(
        self,
        random: Random,
        directory: str,
        name: str,
        *,
        composite: bool,
        length: int | None = None,
    ) -> Sample | None:
        """Draw a sample that begins with this command.

        `length` is the required number of arguments of this first command. Returns None if the
        directory has no values for the command, or if a command of the input could not be written.
        _NoSuchLengthError if no input of the length was found.
        """
        place = self.places[directory]
        if name not in place.grammars:
            return None
        traces: list[SegmentTrace] = []
        before: Sequence[str] = ()
        n_segments = 0
        chain = place.chain() if composite and self.settings.groups else None

        def draw(name: str, *, piped: bool) -> Sequence[str]:
            nonlocal before
            grammar = place.grammars[name]
            start = grammar.pipe if piped and grammar.pipe is not None else grammar.start
            if self.settings.free:
                source = before if piped else None
                before = self._free(random, place, name, start, source=source, traces=traces)
                return before
            if length is None or traces:
                drawn = place.sampler.draw(start, random)
            elif (of_length := place.sampler.draw_length(start, random, length)) is not None:
                drawn = of_length
            else:
                raise _NoSuchLengthError
            traces.append(SegmentTrace(name, piped, drawn.trace, drawn.volatile))
            before = drawn.words
            return before

        def draw_next(piped: bool) -> Sequence[str]:
            nonlocal before
            if chain is None or piped:
                return draw(_pick(random, place.pipes if piped else place.names), piped=piped)
            names, others = place.taking(chain.kinds)
            if random.random() >= JOINED:
                return draw(_pick(random, others), piped=False)
            for _ in range(SUITED_ATTEMPTS if chain.things else 1):
                del traces[n_segments:]
                words = draw(_pick(random, names), piped=False)
                if (joined := place.joined(chain, words, random)) is not None:
                    before = joined
                    break
            return before

        def suited(words: Sequence[str], operator: str) -> str:
            nonlocal n_segments
            assert chain is not None
            n_segments = len(traces)
            chain.ran(words, failed=operator == "||")
            if place.is_silent(words):
                return "&&" if operator == PIPE else operator
            if operator in {"&&", ";"} and not chain.things and random.random() < JOINED:
                others = [PIPE] * bool(place.pipes) + [">"] * bool(place.targets)
                known = [one for one in others if one in self.composites.operators]
                return _pick(random, [operator, *known, *known])
            return operator

        try:
            first = draw(name, piped=False)
        except _NothingWrittenError:
            return None
        shell_input = Input(command_tokens(first))
        if composite:
            try:
                shell_input = compose_input(
                    random,
                    self.composites,
                    first,
                    draw_next,
                    place.targets if chain is None else place.text_targets,
                    pipes=bool(place.pipes),
                    fail=partial(place.failing, random) if self.settings.free else None,
                    suited=None if chain is None else suited,
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
        source: Sequence[str] | None,
        traces: list[SegmentTrace],
        option: str = "",
        alone: bool = False,
    ) -> Sequence[str]:
        """Draw the words of a command by weights, with each option at most once.

        `source`: the words of the command before the pipe, if there is one. `option`: an option
        that the command must have; with `alone`, it has no others if the grammar permits that.
        """
        writer = place.writer(name)
        plan = writer.options.plan(start, frozenset((option,))) if alone else None
        plan = plan or writer.options.plan(start, None)
        needed = writer.options.bits[option] if option else 0

        def write() -> Drawn | None:
            assert plan is not None
            horizon = place.sampler.horizon
            return writer.write(
                start, plan, random, horizon=horizon, spelling=None, needed=needed, sparse=alone
            )

        for _ in range(FREE_ATTEMPTS if plan is not None else 0):
            drawn = write()
            if drawn is not None and (option not in ABOUT_ITSELF or len(drawn.words) == 2):
                drawn, words = _suited(place, drawn, write, random, source)
                piped = source is not None
                traces.append(SegmentTrace(name, piped, drawn.trace, drawn.volatile))
                return words
        raise _NothingWrittenError

    def with_option(
        self, random: Random, directory: str, name: str, option: str, *, alone: bool
    ) -> Sample | None:
        """Draw a single command with an option, `alone` or with others; None if that fails."""
        traces: list[SegmentTrace] = []
        place = self.places[directory]
        start = place.grammars[name].start
        alone = alone or option in ABOUT_ITSELF
        try:
            words = self._free(
                random, place, name, start, source=None, traces=traces, option=option, alone=alone
            )
        except _NothingWrittenError:
            return None
        return _sample(place, directory, Input(command_tokens(words)), traces)

    def usual_parts(self, random: Random, directory: str, *, composite: bool) -> tuple[str, ...]:
        """Draw grammars and operators of an input by the usage table."""
        place = self.places[directory]
        people = place.people
        assert people is not None
        most = self.composites.max_segments
        if composite:
            return people.shape(random, LONGEST_SHAPE if most >= 3 else most)
        name = people.command(random)
        if most > 1 and place.reads_only_input(name) and random.random() < FED:
            reader = people.source(name, random)
            return (name,) if reader is None else (reader, "|", name)
        return (name,)

    def usual(
        self, random: Random, directory: str, parts: Sequence[str], *, composite: bool
    ) -> Sample | None:
        """Draw a sample of these grammars and operators by the usage table; None if that fails."""
        place = self.places[directory]
        people = place.people
        assert people is not None
        tokens: list[Token] = []
        traces: list[SegmentTrace] = []
        source: Sequence[str] | None = None
        before = ""
        chain = place.chain() if self.settings.groups and len(parts) > 1 else None
        for number, part in enumerate(parts):
            if chain is not None and part == PIPE and source and place.is_silent(source):
                part = "&&"
            if is_shape_operator(part):
                tokens.append(token(part, Role.OPERATOR))
                if part in REDIRECTIONS:
                    target = people.target(part, random, place.values)
                    attempts = NAMED_ATTEMPTS if self.settings.groups and ">" in part else 0
                    for _ in range(attempts):
                        if target != "/dev/null" and is_text_name(target):
                            break
                        target = people.target(part, random, place.values)
                    tokens.append(token(spelt(target), Role.TARGET))
                    if chain is not None:
                        chain.ran(("", target))
                before = part if part in SEPARATORS else before
                continue
            grammar = place.grammars[part]
            piped = before == "|"
            starts = [grammar.start]
            if grammar.pipe is not None:
                starts.insert(0 if piped else 1, grammar.pipe)
            if piped and chain is not None:
                starts = starts[:1]  # the other form names files, and ignores the pipe
            write = partial(
                people.write,
                place.writer(part),
                starts,
                random,
                horizon=place.sampler.horizon,
                piped=piped,
            )
            words: Sequence[str] | None = None
            meant: Sequence[str] = ()
            drawn: Drawn | None = None
            joins = chain is not None and not piped and part in place.taking(chain.kinds)[0]
            fails = [*parts[number + 1 : number + 2]] == ["||"]
            for attempt in range(SUITED_ATTEMPTS):
                drawn = write()
                if drawn is None:
                    return None
                meant = drawn.words
                if not fails:
                    source = source if piped else None
                    drawn, meant = _suited(place, drawn, write, random, source)
                if joins and chain is not None and random.random() < JOINED:
                    named = place.joined(chain, meant, random)
                    if named is None and attempt < SUITED_ATTEMPTS - 1:
                        continue
                    meant = named or meant
                words = place.failing(random, meant) if fails else meant
                if words is not None:
                    break
            if drawn is None or words is None:
                return None
            if chain is not None and number < len(parts) - 1:
                chain.ran(meant, failed=fails)
            if not composite and not ABOUT_ITSELF.isdisjoint(words):
                if number < len(parts) - 1:
                    return None
                tokens, traces = [], []  # `--help` reads nothing: drop the commands before it
            traces.append(SegmentTrace(part, piped, drawn.trace, drawn.volatile))
            source = words
            tokens += command_tokens(words)
        return _sample(place, directory, Input(tuple(tokens)), traces)


def _suited(
    place: DrawingPlace,
    drawn: Drawn,
    write: Callable[[], Drawn | None],
    random: Random,
    source: Sequence[str] | None,
) -> tuple[Drawn, Sequence[str]]:
    """Draw a command again by `write` if it would find or read nothing.

    `source`: the words of the command before the pipe, if there is one. A command that would read
    an empty standard input gets `< FILE` if it still names no file.
    """
    for _ in range(SUITED_ATTEMPTS):
        if not place.does_nothing(drawn.words, source or ()) or random.random() >= FED:
            break
        drawn = write() or drawn
    else:
        if place.settings.groups and place.finds_nothing(drawn.words, source or ()):
            return drawn, place.finding(drawn.words, source or (), random) or drawn.words
    if source is not None:
        return drawn, drawn.words
    if not place.reads_nothing(drawn.words) or random.random() >= FED:
        return drawn, drawn.words
    for _ in range(SUITED_ATTEMPTS):
        another = write()
        if another is not None and place.reads_file(another.words):
            return another, another.words
    return drawn, place.fed(drawn.words, random)


def _sample(
    place: DrawingPlace, directory: str, shell_input: Input, traces: Sequence[SegmentTrace]
) -> Sample:
    volatile = any(
        trace.volatile or place.grammars[trace.grammar].header.volatile for trace in traces
    )
    return Sample(shell_input, directory, volatile, tuple(traces))


def _pick(random: Random, items: Sequence[str]) -> str:
    return items[int(random.random() * len(items))]


_SIZE = 16
"""Bytes of a digest. Among a billion texts, two are confused with a probability of 1 in 10^21."""

_FULL = 64
"""Maximum average number of digests per bucket."""


class DigestSet:
    """A set of texts, stored as digests.

    A Python set of as many `bytes` takes six times the memory. This is a linear hash table with a
    row of digests per bucket. Buckets are split one by one as the set grows, so that no insertion
    copies the whole set.
    """

    __slots__ = ("_buckets", "_count", "_round")

    def __init__(self, buckets: Sequence[bytes] = (b"",)) -> None:
        """`buckets` are those of another set, whose texts are in the new one."""
        self._buckets = [*map(bytearray, buckets)]
        self._count = sum(map(len, buckets)) // _SIZE
        self._round = 1 << (len(self._buckets).bit_length() - 1)
        """The number of buckets at the start of this round of splits; a power of 2."""

    @property
    def buckets(self) -> list[bytes]:
        """A copy of the digests of the set, by bucket."""
        return [*map(bytes, self._buckets)]

    def __len__(self) -> int:
        return self._count

    def add(self, *texts: str) -> bool:
        """Add a sequence of texts without NUL; return whether it was new."""
        return self.add_content("\0".join(texts).encode("utf-8", "surrogatepass"))

    def add_content(self, content: bytes) -> bool:
        """Add a text as bytes; return whether it was new."""
        digest = blake2b(content, digest_size=_SIZE).digest()
        bucket = self._buckets[self._place(digest)]
        at = bucket.find(digest)
        while at > 0 and at % _SIZE:  # the match crosses the border of two digests
            at = bucket.find(digest, at + 1)
        if at >= 0:
            return False
        bucket += digest
        self._count += 1
        if self._count > _FULL * len(self._buckets):
            self._split()
        return True

    def _place(self, digest: bytes | bytearray) -> int:
        number = int.from_bytes(digest[:8], "little")
        place = number & (2 * self._round - 1)
        return place if place < len(self._buckets) else place & (self._round - 1)

    def _split(self) -> None:
        """Split the next bucket."""
        old = len(self._buckets) - self._round
        digests, self._buckets[old] = self._buckets[old], bytearray()
        self._buckets.append(bytearray())
        for start in range(0, len(digests), _SIZE):
            digest = digests[start : start + _SIZE]
            self._buckets[self._place(digest)] += digest
        if len(self._buckets) == 2 * self._round:
            self._round *= 2
