"""What directives of formats stand for, found from what records show in their places."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from shioenv_model.memory.functions.formats import parts_of
from shioenv_model.memory.functions.language import (
    Directive,
    FormattedFile,
    Interpretation,
    Language,
    OptionMeaning,
)
from shioenv_model.memory.rewrite import Taken
from shioenv_model.memory.samples import ExampleRecords, Record

ENOUGH = 2
"""Files that a directive must show to be known (ours)."""

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
