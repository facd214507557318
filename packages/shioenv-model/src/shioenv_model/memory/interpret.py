"""Predict a command's behavior by composing the meanings of its options.

A language (`functions.language`) has candidate meanings of options. Records with an option are
explained by one of these. For a combination of options without any record, the meanings are
composed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from shioenv_model.bash.work import uncounted
from shioenv_model.memory.example_records import (
    ExampleRecords,
    Induced,
    Matching,
    Record,
    WithOption,
)
from shioenv_model.memory.functions.dates import DATES, TIMES
from shioenv_model.memory.functions.formats import FORMATTED, split_format
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

LANGUAGES: tuple[Language, ...] = (
    WALK, LISTING, IN_COLUMNS, IN_DETAIL, USAGE, DATES, TIMES,
)  # fmt: skip
"""The languages that are recognized from records without options."""

FORMATS = 8
"""Maximum number of records with formats used to infer a meaning."""

ENOUGH = 2
"""Number of examples that suffices for a meaning, or of files for a directive (our choice)."""

SPARED = 4
"""One in this many examples may remain unexplained (our choice)."""

MOST_OPTIONS = 12
"""Maximum number of options of an interpreted command (our choice)."""


@dataclass(frozen=True)
class _Meant:
    """The inferred meaning of an option."""

    meaning: OptionMeaning
    agreed: int
    """Number of examples that the meaning explains."""
    tied: tuple[OptionMeaning, ...]
    """Other meanings that explain equally many examples."""


class Interpreter:
    """Infers the meanings of options, with a cache."""

    def __init__(self, with_option: WithOption, matching: Matching) -> None:
        self._samples = ExampleRecords(with_option, matching)
        self._directives = Directives(self._samples, self._apart)
        self._alone = lru_cache(maxsize=3_000)(self._meant_alone)
        self._meant = lru_cache(maxsize=3_000)(self._found)
        self._bare = lru_cache(maxsize=2_000)(self._shown)

    def interpret(self, ours: Taken, without: int = -1) -> Induced | None:
        """Predict the queried command's behavior from the meanings of its options.

        Return None if records do not determine the meaning of an option. The record `without` is
        not used as an example.
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
        """Do the same as `interpret` with the meanings of one language.

        `shown` is the number of records without options that the language explains; None for the
        language of formats, which needs an option.
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
                    return Induced(ours, kept, name, 1, number)  # the behavior is ambiguous
        return Induced(ours, kept, name, min(agreed), number)

    def _run(
        self, language: Language, ours: Taken, meanings: Mapping[str, OptionMeaning], without: int
    ) -> tuple[Kept | None, str]:
        """Run a command with these meanings; return its behavior and the name of the result."""
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
        """Return `without` if the record with that number is among the examples, else -1."""
        return without if without >= 0 and self._samples.held(utility, name, without) else -1

    def _speaks(self, utility: str, name: str, without: int) -> int | None:
        """Return the number of a record that supports the meaning of an option."""
        if not name:
            found = self._samples.bare(utility, without)
        else:
            found = self._samples.alone(utility, name, without)
            found = found or self._samples.beside(utility, name, without)
        return found[0][0] if found else None

    def _apart(
        self, language: Language, utility: str, name: str, valued: bool
    ) -> OptionMeaning | None:
        """Return the meaning inferred from records with that option alone."""
        found = self._alone(language, utility, name, valued)
        return None if found is None else found.meaning

    def _shown(self, language: Language, utility: str, without: int) -> int:
        """Return how many records without options a language explains; 0 if these are too few."""
        items = self._samples.bare(utility, without)
        facts = self._samples.facts(language, utility) if items else {}
        score = _score(items, lambda theirs: Interpretation(language, (), facts=facts))
        if score is None or score[0] < max(ENOUGH, len(items) / SPARED):
            return 0
        return score[0]

    def _meant_alone(
        self, language: Language, utility: str, name: str, valued: bool, without: int = -1
    ) -> _Meant | None:
        """Infer the meaning of an option from records with that option alone."""
        items = _valued(self._samples.alone(utility, name, without), name, valued=valued)
        meanings = _possible(language, items, name, valued=valued)
        if meanings and meanings[0].format:
            items = [each for each in items if is_format(each, name)][:FORMATS]
        return self._best(language, items, name, meanings, {})

    def _found(
        self, language: Language, utility: str, name: str, valued: bool, without: int
    ) -> _Meant | None:
        """Infer the meaning of an option.

        If records with the option alone do not determine it, records with other options may: `-h`
        of `ls` has no effect without `-l`.
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
        """Return the meaning that explains most examples; the simplest one among ties."""
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
    """Select the records in which an option has a value, or those in which it has no value."""
    return [each for each in records if (dict(each[1].form.options)[name] is not None) == valued]


def _possible(
    language: Language, items: Sequence[Record], name: str, *, valued: bool
) -> list[OptionMeaning]:
    """Return candidate meanings of an option.

    These depend on whether the option has a value, and whether its values in the records are
    formats.
    """
    formats = any(each.format for each in language.meanings) and (
        sum(is_format(each, name) for each in items) * 2 > len(items)
    )
    return [each for each in language.meanings if (each.valued, each.format) == (valued, formats)]


def _score(
    items: Sequence[Record], interpretation: Callable[[Taken], Interpretation]
) -> tuple[int, int] | None:
    """Count explained and unexplained examples; None if too few are explained."""
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
"""One in this many files may differ from what a directive predicts (our choice)."""

_HOLE = "\ue000"
"""A private-use character as a placeholder for an unknown value."""

ShownValues = list[tuple[FormattedFile, str]]
"""Files, each with the text that a record has at a directive's position."""


class Directives:
    """Infers the meaning of format directives, with a cache.

    `meaning` returns the meaning of an option, by language, utility, name and whether it has a
    value.
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
        """Return the known directives of a command's formats, by letter."""
        found: dict[str, Directive] = {}
        for name, value in taken.form.options:
            if value and name in meanings and meanings[name].format:
                for _, _, letter in split_format(value):
                    utility = taken.form.utility
                    one = self._directive(language, utility, letter, without) if letter else None
                    if one is not None:
                        found[letter] = one
        return found

    def _found(
        self, language: Language, utility: str, letter: str, without: int
    ) -> Directive | None:
        """Infer a directive from records whose formats contain it."""
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
        """Return the text at a directive's position in the records, for each file."""
        found: ShownValues = []
        for each in records:
            _, theirs, kept = each
            options = dict(theirs.form.options)
            formats = [name for name in options if is_format(each, name)]
            if len(formats) != 1 or len(options) > 2:
                continue
            parts = [part for part in split_format(options[formats[0]] or "") if part[2]]
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
    """Return the directives in the formats of a record."""
    values = [value or "" for _, value in record[1].form.options]
    return {letter for value in values for _, _, letter in split_format(value) if letter}


def _hole(letter: str, holes: list[tuple[str, FormattedFile]]) -> Directive:
    """Return an unknown directive that prints a placeholder and records its file."""

    def hole(file: FormattedFile) -> str:
        holes.append((letter, file))
        return _HOLE

    return hole


def _in_holes(made: str, output: str) -> list[str] | None:
    """Return the texts at the placeholders, or None if the output differs elsewhere."""
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
    """Return the language's directives that explain nearly all observed values."""
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
    """Return a directive that replays the values recorded for each file.

    For other files the directive uses the rough directive (to the minute) that explains most
    values, or the value that all files share. Return None if neither exists.
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
