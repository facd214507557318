"""What a command does, put together of what each of its options means.

What an option means is nowhere written. Records with the option are examples: the meaning is the
one of a language (`functions.language`) that explains them. A command whose options nobody saw
together is answered by the meanings of each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from shioenv_model.bash.work import uncounted
from shioenv_model.memory.functions.dates import DATES, TIMES
from shioenv_model.memory.functions.formats import FORMATTED, parts_of
from shioenv_model.memory.functions.language import (
    Directive,
    FormattedFile,
    Interpretation,
    Language,
    OptionMeaning,
)
from shioenv_model.memory.functions.listing import IN_COLUMNS, IN_DETAIL, LISTING
from shioenv_model.memory.functions.usage import USAGE
from shioenv_model.memory.functions.walk import WALK
from shioenv_model.memory.rewrite import Kept, Taken
from shioenv_model.memory.samples import ExampleRecords, Induced, Matching, Record, WithOption

LANGUAGES: tuple[Language, ...] = (
    WALK, LISTING, IN_COLUMNS, IN_DETAIL, USAGE, DATES, TIMES,
)  # fmt: skip
"""The languages that records without options show."""

FORMATS = 8
"""Most records with formats in which a meaning is looked for."""

ENOUGH = 2
"""Examples that are enough for a meaning, or files for a directive (ours)."""

SPARED = 4
"""One of so many examples need not be explained (ours)."""

MOST_OPTIONS = 12
"""Most options of a command that is interpreted (ours)."""


@dataclass(frozen=True)
class _Meant:
    """What an option means."""

    meaning: OptionMeaning
    agreed: int
    """How many examples the meaning explains."""
    tied: tuple[OptionMeaning, ...]
    """Other meanings that explain as much."""


class Interpreter:
    """Finds what options mean, and remembers it."""

    def __init__(self, with_option: WithOption, matching: Matching) -> None:
        self._samples = ExampleRecords(with_option, matching)
        self._directives = Directives(self._samples, self._apart)
        self._alone = lru_cache(maxsize=3_000)(self._meant_alone)
        self._meant = lru_cache(maxsize=3_000)(self._found)
        self._bare = lru_cache(maxsize=2_000)(self._shown)

    def interpret(self, ours: Taken, without: int = -1) -> Induced | None:
        """What our command does by what its options mean.

        None where an option has no meaning that records show. The record `without` is no example.
        """
        form = ours.form
        if form.filters or form.guessed or any(each.kind == "x" for each in ours.operands):
            return None
        if len(dict(form.options)) > MOST_OPTIONS:
            return None
        left_out = self._held(form.utility, "", without)
        shown = [(self._bare(each, form.utility, left_out), each) for each in LANGUAGES]
        most = max(count for count, _ in shown)
        spoken = next(each for count, each in shown if count == most)
        found = self._in(spoken, ours, most, without) if most else None
        return found or self._in(FORMATTED, ours, None, without)

    def _in(
        self, language: Language, ours: Taken, shown: int | None, without: int
    ) -> Induced | None:
        """See `interpret`; by the meanings of one language.

        `shown` is how many records without options show the language; None: none can.
        """
        utility, options = ours.form.utility, dict(ours.form.options)
        if shown is None and not any("%" in (value or "") for value in options.values()):
            return None
        agreed = [] if shown is None else [shown]
        meant: dict[str, _Meant] = {}
        for name, value in options.items():
            left_out = self._held(utility, name, without)
            one = self._meant(language, utility, name, value is not None, left_out)
            if one is None:
                return None
            meant[name] = one
            agreed.append(one.agreed)
        meanings = {name: one.meaning for name, one in meant.items()}
        kept, name = self._run(language, ours, meanings, without)
        number = self._speaks(utility, next(iter(options), ""), without)
        if kept is None or number is None:
            return None
        for option, one in meant.items():
            for other in one.tied:
                if self._run(language, ours, {**meanings, option: other}, without)[0] != kept:
                    return Induced(ours, kept, name, 1, number)  # it may as well be another thing
        return Induced(ours, kept, name, min(agreed), number)

    def _run(
        self, language: Language, ours: Taken, meanings: Mapping[str, OptionMeaning], without: int
    ) -> tuple[Kept | None, str]:
        """What a command does by these meanings, and what the interpretation is called."""
        utility = ours.form.utility
        missing = any(each.kind in "mM" for each in ours.operands)
        made = Interpretation(
            language,
            tuple(meanings.items()),
            self._directives.of(language, ours, meanings, without),
            self._samples.refusal(utility) if missing else None,
            self._samples.facts(language, utility),
        )
        return made(ours), made.name

    def _held(self, utility: str, name: str, without: int) -> int:
        """The record to leave out, where it is among the examples; -1 else."""
        return without if without >= 0 and self._samples.held(utility, name, without) else -1

    def _speaks(self, utility: str, name: str, without: int) -> int | None:
        """A record that speaks for the meaning of an option."""
        if not name:
            found = self._samples.bare(utility, without)
        else:
            found = self._samples.alone(utility, name, without)
            found = found or self._samples.beside(utility, name, without)
        return found[0][0] if found else None

    def _apart(
        self, language: Language, utility: str, name: str, valued: bool
    ) -> OptionMeaning | None:
        """The meaning of an option as it stands alone."""
        found = self._alone(language, utility, name, valued)
        return None if found is None else found.meaning

    def _shown(self, language: Language, utility: str, without: int) -> int:
        """How many records without options a language explains; 0 for too few."""
        items = self._samples.bare(utility, without)
        facts = self._samples.facts(language, utility) if items else {}
        score = _score(items, lambda theirs: Interpretation(language, (), facts=facts))
        if score is None or score[0] < max(ENOUGH, len(items) / SPARED):
            return 0
        return score[0]

    def _meant_alone(
        self, language: Language, utility: str, name: str, valued: bool, without: int = -1
    ) -> _Meant | None:
        """What an option means, from records with that option alone."""
        items = _valued(self._samples.alone(utility, name, without), name, valued=valued)
        meanings = _possible(language, items, name, valued=valued)
        if meanings and meanings[0].format:
            items = [each for each in items if is_format(each, name)][:FORMATS]
        return self._best(language, items, name, meanings, {})

    def _found(
        self, language: Language, utility: str, name: str, valued: bool, without: int
    ) -> _Meant | None:
        """What an option means.

        Where records with the option alone do not tell, records with others do: `-h` of `ls` means
        nothing without `-l`.
        """
        best = self._meant_alone(language, utility, name, valued, without)
        if best is not None and best.agreed >= ENOUGH and not best.tied:
            return best
        others: dict[str, OptionMeaning] = {}
        alone = _valued(self._samples.alone(utility, name, without), name, valued=valued)
        items = list(alone)
        for each in _valued(self._samples.beside(utility, name, without), name, valued=valued):
            options = {one: value for one, value in each[1].form.options if one != name}
            if language is not FORMATTED and any(is_format(each, one) for one in options):
                continue
            for option, value in options.items():
                known = others.get(option) or self._apart(
                    language, utility, option, value is not None
                )
                if known is not None:
                    others[option] = known
            if options.keys() <= others.keys():
                items.append(each)
        meanings = _possible(language, items, name, valued=valued)
        if best is not None:
            meanings = [best.meaning, *best.tied]
        return self._best(language, items, name, meanings, others) or best

    def _best(
        self,
        language: Language,
        items: Sequence[Record],
        name: str,
        meanings: Sequence[OptionMeaning],
        others: Mapping[str, OptionMeaning],
    ) -> _Meant | None:
        """The meaning of an option that explains most examples; of several the simplest."""
        if not items:
            return None
        best: list[OptionMeaning] = []
        agreed = most = 0
        facts = self._samples.facts(language, items[0][1].form.utility)
        for meaning in meanings:

            def made(theirs: Taken, meaning: OptionMeaning = meaning) -> Interpretation:
                said = {**others, name: meaning}
                directives = self._directives.of(language, theirs, said)
                return Interpretation(language, tuple(said.items()), directives, facts=facts)

            score = _score(items, made)
            if score is None:
                continue
            if not best or score[0] - score[1] > most:
                best, agreed, most = [], score[0], score[0] - score[1]
            if score[0] - score[1] == most:
                best.append(meaning)
        return _Meant(best[0], agreed, tuple(best[1:])) if best else None


def _valued(records: Sequence[Record], name: str, *, valued: bool) -> list[Record]:
    """The records that give an option a value, or those that give it none."""
    return [each for each in records if (dict(each[1].form.options)[name] is not None) == valued]


def _possible(
    language: Language, items: Sequence[Record], name: str, *, valued: bool
) -> list[OptionMeaning]:
    """The meanings that an option may have, by whether it has values and these are formats."""
    formats = any(each.format for each in language.meanings) and (
        sum(is_format(each, name) for each in items) * 2 > len(items)
    )
    return [each for each in language.meanings if (each.valued, each.format) == (valued, formats)]


def _score(
    items: Sequence[Record], interpretation: Callable[[Taken], Interpretation]
) -> tuple[int, int] | None:
    """How many examples are explained, and how many are not; None where too few are."""
    agreed = failed = told = 0
    with uncounted():
        for _, theirs, kept in items:
            made = interpretation(theirs)(theirs)
            if made is None:
                continue
            if made.key == kept.key:
                agreed += 1
                told += bool(made.output) or made.patch != "[]"
                continue
            failed += 1
            if failed > max(1, len(items) // SPARED) or (failed > 1 and not agreed):
                return None
    if not told or failed * SPARED > agreed + failed:
        return None
    return agreed, failed


UNUSUAL = 20
"""One of so many files need not be shown by a directive as others are (ours)."""

_HOLE = "\ue000"
"""A character of private use that stands for a value that is not known."""

ShownValues = list[tuple[FormattedFile, str]]
"""Files, each with what a record shows of it in the place of a directive."""


class Directives:
    """Finds what directives stand for, and remembers it.

    `meaning` gives the meaning of an option, by language, utility, name and whether it has a value.
    """

    def __init__(
        self,
        samples: ExampleRecords,
        meaning: Callable[[Language, str, str, bool], OptionMeaning | None],
    ) -> None:
        self._samples, self._meaning = samples, meaning
        self._directive = lru_cache(maxsize=2_000)(self._found)

    def of(
        self,
        language: Language,
        taken: Taken,
        meanings: Mapping[str, OptionMeaning],
        without: int = -1,
    ) -> dict[str, Directive]:
        """What the directives in a command's formats stand for, as far as records show it."""
        found: dict[str, Directive] = {}
        for name, value in taken.form.options:
            if value and name in meanings and meanings[name].format:
                for _, _, letter in parts_of(value):
                    utility = taken.form.utility
                    one = self._directive(language, utility, letter, without) if letter else None
                    if one is not None:
                        found[letter] = one
        return found

    def _found(
        self, language: Language, utility: str, letter: str, without: int
    ) -> Directive | None:
        """What a directive stands for, from records whose formats have it."""
        records = self._samples.with_directive(utility, letter, without)
        alone = [each for each in records if _letters(each) == {letter}]
        shown = self._shown_by(language, alone, letter)
        found = _explained(language, shown)
        if len(found) == 1:
            return found[0]
        beside = self._shown_by(language, [one for one in records if one not in alone], letter)
        found = _explained(language, [*shown, *beside]) or found
        if found:
            return found[0]
        return _remembered(language, shown) or _remembered(language, beside)

    def _shown_by(self, language: Language, records: Sequence[Record], letter: str) -> ShownValues:
        """What records show where a directive stands, for each file."""
        found: ShownValues = []
        for each in records:
            _, theirs, kept = each
            options = dict(theirs.form.options)
            formats = [name for name in options if is_format(each, name)]
            if len(formats) != 1 or len(options) > 2:
                continue
            parts = [part for part in parts_of(options[formats[0]] or "") if part[2]]
            if any(flags for _, flags, _ in parts) or len({one for *_, one in parts}) < len(parts):
                continue
            beside: list[tuple[str, OptionMeaning]] = []
            for option, value in options.items():
                if option not in formats:
                    utility = theirs.form.utility
                    known = self._meaning(language, utility, option, value is not None)
                    beside += [(option, known)] if known else []
            if len(beside) + 1 < len(options):
                continue
            for meaning in language.meanings:
                if not meaning.format:
                    continue
                holes: list[tuple[str, FormattedFile]] = []
                directives = {one: _hole(one, holes) for _, _, one in parts}
                said = ((formats[0], meaning), *beside)
                made = Interpretation(language, said, directives)(theirs)
                values = None if made is None else _in_holes(made.output, kept.output)
                if values is not None and len(values) == len(holes):
                    together = zip(holes, values, strict=True)
                    found += [(file, value) for (one, file), value in together if one == letter]
                    break
        return found


def is_format(record: Record, name: str) -> bool:
    """Whether a record gives an option a value with directives."""
    return "%" in (dict(record[1].form.options)[name] or "")


def _letters(record: Record) -> set[str]:
    """The directives in the formats of a record."""
    values = [value or "" for _, value in record[1].form.options]
    return {letter for value in values for _, _, letter in parts_of(value) if letter}


def _hole(letter: str, holes: list[tuple[str, FormattedFile]]) -> Directive:
    """A directive of which nothing is known: it leaves a hole for a value, and notes whose."""

    def hole(file: FormattedFile) -> str:
        holes.append((letter, file))
        return _HOLE

    return hole


def _in_holes(made: str, output: str) -> list[str] | None:
    """What stands in an output where a text has holes; None where the texts differ otherwise."""
    begin, *pieces = made.split(_HOLE)
    if not output.startswith(begin):
        return None
    place, values = len(begin), []
    for number, piece in enumerate(pieces):
        last = number == len(pieces) - 1
        end = output.find(piece, place) if piece or not last else len(output)
        if end < 0 or (last and end + len(piece) != len(output)):
            return None
        values.append(output[place:end])
        place = end + len(piece)
    return values


def _explained(language: Language, shown: ShownValues) -> list[Directive]:
    """What a directive may stand for: all that explains nearly all that records show."""
    found: list[Directive] = []
    for directive in language.directives.values():
        failed = 0
        for file, value in shown:
            failed += directive(file) != value
            if failed * UNUSUAL > len(shown):
                break
        else:
            if len(shown) >= ENOUGH:
                found.append(directive)
    return found


def _remembered(language: Language, shown: ShownValues) -> Directive | None:
    """What records show of each file, as a directive.

    Of other files it is what explains most of what records show, to the minute, or what all files
    have. None where there is no such thing.
    """
    known = {(file.place, file.entry): value for file, value in shown}
    if len(known) < ENOUGH:
        return None
    values = set(known.values())
    if len(values) == 1:
        (only,) = values
        return lambda file: only
    best: Directive | None = None
    most = len(shown) // 2
    for directive in language.rough.values():
        agreed = sum(directive(file) == value for file, value in shown)
        if agreed > most:
            best, most = directive, agreed
    if best is None:
        return None
    rough = best
    return lambda file: known.get((file.place, file.entry)) or rough(file)
