"""What a command prints, put together of what each of its options means.

What an option means is nowhere written. Records with the option are examples: the meaning is the one
of a language (`functions.language`) that explains them, with the meanings of the other options. A
command whose options nobody saw together is answered by the meanings of each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from shioenv.domain.context import FileEntry
from shioenv.domain.work import uncounted
from shioenv.model.memory.functions.dates import DATES, TIMES
from shioenv.model.memory.functions.formats import FORMATTED, parts_of
from shioenv.model.memory.functions.language import (
    Directive,
    Interpretation,
    Language,
    Listed,
    Meaning,
    Refusal,
)
from shioenv.model.memory.functions.listing import LISTING
from shioenv.model.memory.functions.usage import USAGE
from shioenv.model.memory.functions.walk import WALK
from shioenv.model.memory.rewrite import Kept, Taken

LANGUAGES: tuple[Language, ...] = (WALK, LISTING, USAGE, DATES, TIMES, FORMATTED)
"""Every language."""

EXAMPLES = 48
"""Most records with an option in which the option's meaning is looked for."""

REFUSED = 200
"""Most records in which it is looked for what is said of a missing file."""

SHOWN = 64
"""Most records in which it is looked for what a directive stands for."""

FORMATS = 8
"""Most records with formats in which a meaning is looked for."""

ENOUGH = 2
"""Explained examples that are enough for a meaning (ours)."""

UNUSUAL = 20
"""One of so many files need not be shown by a directive as others are (ours)."""

SPARED = 4
"""One of so many examples need not be explained (ours)."""

_WALKED = 700
"""Most files of a tree in which a meaning is looked for: larger trees take long."""

Record: TypeAlias = tuple[int, Taken, Kept]
"""The number of a record, its command, and what that did."""

Records: TypeAlias = Callable[[str, str, str, int], Sequence[Record]]


@dataclass(frozen=True)
class Interpreted:
    """What a command does by what its options mean, and what speaks for that."""

    kept: Kept
    name: str
    agreed: int
    """How many examples speak for the option for which the fewest speak."""
    number: int
    """A record that speaks for it."""


class Interpreter:
    """Finds what options mean, and remembers it.

    `records` gives records of a utility with an option, as many as asked for: by the option's name,
    and the name of a directive that the option's value has (empty: any value). Those with that
    option alone come first. An empty name stands for records without options.
    """

    def __init__(self, records: Records) -> None:
        self._records = records
        self._examples = lru_cache(maxsize=2_000)(self._usable)
        self._alone = lru_cache(maxsize=5_000)(self._meaning_alone)
        self._meaning = lru_cache(maxsize=5_000)(self._meaning_of)
        self._directive = lru_cache(maxsize=5_000)(self._directive_of)
        self._shown = lru_cache(maxsize=1_000)(self._bare)
        self._facts = lru_cache(maxsize=1_000)(self._shown_facts)
        self._refusal = lru_cache(maxsize=1_000)(self._refused)

    def interpret(self, ours: Taken, without: int = -1) -> Interpreted | None:
        """What our command does by what its options mean.

        None where an option has no meaning that records show. The record `without` is no example.
        """
        if ours.form.filters or ours.form.guessed or any(each.kind == "x" for each in ours.operands):
            return None
        utility, options = ours.form.utility, tuple(dict.fromkeys(n for n, _ in ours.form.options))
        valued = dict(ours.form.options)
        if len(options) > _MOST_OPTIONS:
            return None
        for language in LANGUAGES:
            found: list[tuple[str, Meaning]] = []
            agreed: list[int] = []
            if language.bare:
                agreed.append(self._shown(language.name, utility, self._is_of(utility, "", without)))
            for name in options:
                if agreed and agreed[-1] < 1:
                    break
                one = self._meaning(
                    language.name, utility, name, valued[name] is not None,
                    self._is_of(utility, name, without),
                )  # fmt: skip
                if one is None:
                    break
                found.append((name, one[0]))
                agreed.append(one[1])
            if len(found) < len(options) or not agreed or min(agreed) < 1:
                continue
            directives = self._directives(language, ours, dict(found), without)
            refusal = None
            if any(each.kind in "mM" for each in ours.operands):
                refusal = self._refusal(utility)
            facts = self._facts(language.name, utility)
            made = Interpretation(language, tuple(found), directives, refusal, facts)
            kept = made(ours)
            if kept is not None:
                example = self._examples(utility, options[0] if options else "")
                number = next((each for each, _, _ in example if each != without), -1)
                if number >= 0:
                    return Interpreted(kept, made.name, min(agreed), number)
        return None

    def _is_of(self, utility: str, name: str, without: int) -> int:
        """The record to leave out, where it is among the examples; -1 else."""
        if without < 0:
            return -1
        return without if any(n == without for n, _, _ in self._examples(utility, name)) else -1

    def _usable(
        self, utility: str, name: str, letter: str = ""
    ) -> tuple[Record, ...]:
        """Records in which a meaning is looked for; with a letter, the meaning of a directive."""
        found = []
        with uncounted():
            for number, theirs, kept in self._records(utility, name, letter, SHOWN if letter else EXAMPLES):
                if kept.is_error or kept.channels is not None or kept.volatile:
                    continue
                if theirs.form.guessed or any(each.kind == "x" for each in theirs.operands):
                    continue
                trees = [each.tree for each in theirs.operands if each.tree] or [theirs.tree]
                if any(tree and len(tree.entries or ()) > _WALKED for tree in trees):
                    continue
                found.append((number, theirs, kept))
        # most meanings fail at the first example: it is short; silence says little, and stands last
        found.sort(key=lambda each: (not each[2].output, len(each[2].output)))
        return tuple(found)

    def _bare(self, language_name: str, utility: str, without: int) -> int:
        """How many records without options a language explains."""
        language = _named(language_name)
        items = [each for each in self._examples(utility, "") if each[0] != without]
        facts = self._facts(language_name, utility)
        score = self._score(items, lambda theirs, number: Interpretation(language, (), facts=facts))
        return 0 if score is None else score[0]

    def _shown_facts(
        self, language: str, utility: str
    ) -> dict[tuple[str, FileEntry], str]:
        """What records without options show of files that the tree does not tell."""
        facts = _named(language).facts
        if facts is None:
            return {}
        found: dict[tuple[str, FileEntry], str] = {}
        for _, theirs, kept in self._records(utility, "", "", REFUSED):
            if kept.patch == "[]" and not kept.is_error and kept.channels is None:
                found.update(((place, file), said) for place, file, said in facts(theirs, kept.output))
        return found

    def _refused(self, utility: str) -> Refusal | None:
        """What a command says of a file that is missing, as most records of one such file say."""
        said: Counter[Refusal] = Counter()
        for _, theirs, kept in self._records(utility, "", "", REFUSED):
            missing = [each.word for each in theirs.operands if each.kind in "mM"]
            if len(missing) != 1 or len(theirs.operands) != 1 or not kept.is_error:
                continue
            before, name, after = kept.output.partition(missing[0])
            if name and kept.patch == "[]" and missing[0] not in after:
                said[Refusal(before, after, kept.exit_code)] += 1
        if not said:
            return None
        refusal, count = said.most_common(1)[0]
        return refusal if count * 2 > said.total() else None

    def _meaning_alone(
        self, language: str, utility: str, name: str, valued: bool, without: int
    ) -> tuple[Meaning, int] | None:
        """The meaning of an option, from records with that option alone."""
        return self._found(_named(language), utility, name, valued, without, alone=True)

    def _meaning_of(
        self, language: str, utility: str, name: str, valued: bool, without: int
    ) -> tuple[Meaning, int] | None:
        """The meaning of an option, from records with it and with options known from alone."""
        return self._found(_named(language), utility, name, valued, without, alone=False)

    def _found(
        self, language: Language, utility: str, name: str, valued: bool, without: int, *, alone: bool
    ) -> tuple[Meaning, int] | None:
        items: list[Record] = []
        for each in self._examples(utility, name):
            if each[0] != without and (dict(each[1].form.options)[name] is not None) == valued:
                items.append(each)
        apart = [each for each in items if len(dict(each[1].form.options)) == 1]
        formats = any(each.format for each in language.meanings) and (
            valued and sum(_is_format(each, name) for each in items) * 2 > len(items)
        )
        if formats:
            apart = [each for each in apart if _is_format(each, name)][:FORMATS]
        meanings = [
            each
            for each in language.meanings
            if each.valued == valued and each.format == formats
        ]
        best = self._best(language, apart, name, meanings, {})
        if alone or (len(best) == 1 and best[0][1] >= ENOUGH):
            return best[0][:2] if best else None
        # options alone do not tell: `-h` of `ls` means nothing without `-l`
        others: dict[str, Meaning] = {}
        beside = list(apart)
        for each in items:
            options = {option: value for option, value in each[1].form.options if option != name}
            if not options or (language.bare and any(_is_format(each, one) for one in options)):
                continue
            for option, value in options.items():
                if option not in others:
                    known = self._alone(language.name, utility, option, value is not None, -1)
                    if known is not None:
                        others[option] = known[0]
            if options.keys() <= others.keys():
                beside.append(each)
        if best:
            meanings = [meaning for meaning, _, _ in best]
        best = self._best(language, beside, name, meanings, others) or best
        return best[0][:2] if best else None

    def _best(
        self,
        language: Language,
        items: Sequence[Record],
        name: str,
        meanings: Sequence[Meaning],
        others: Mapping[str, Meaning],
    ) -> list[tuple[Meaning, int, int]]:
        """The meanings of an option that explain most examples, simple meanings first.

        With each stands how many examples it explains, and how many it does not explain.
        """
        best: list[tuple[Meaning, int, int]] = []
        facts = self._facts(language.name, items[0][1].form.utility) if items else {}
        for meaning in meanings:

            def made(theirs: Taken, number: int, meaning: Meaning = meaning) -> Interpretation:
                said = {**others, name: meaning}
                directives = self._directives(language, theirs, said)
                return Interpretation(language, tuple(said.items()), directives, facts=facts)

            score = self._score(items, made)
            if score is None:
                continue
            if best and score[0] - score[1] > best[0][1] - best[0][2]:
                best = []
            if not best or score[0] - score[1] == best[0][1] - best[0][2]:
                best.append((meaning, *score))
        return best

    def _score(
        self,
        items: Sequence[Record],
        interpretation: Callable[[Taken, int], Interpretation],
    ) -> tuple[int, int] | None:
        """How many examples are explained, and how many are not; None where too few are."""
        agreed = failed = told = 0
        with uncounted():
            for number, theirs, kept in items:
                made = interpretation(theirs, number)(theirs)
                if made is None:
                    continue
                if made.key == kept.key:
                    agreed += 1
                    told += bool(made.output) or made.patch != "[]"
                else:
                    failed += 1
                    if failed > max(1, len(items) // SPARED) or (failed > 1 and not agreed):
                        return None
        if not told or failed * SPARED > agreed + failed:
            return None
        return agreed, failed

    def _directives(
        self, language: Language, theirs: Taken, meanings: Mapping[str, Meaning], without: int = -1
    ) -> dict[str, Directive]:
        """What the directives in a command's formats stand for, as far as records show it."""
        found: dict[str, Directive] = {}
        for name, value in theirs.form.options:
            if value and name in meanings and meanings[name].format:
                for _, _, letter in parts_of(value):
                    of = language.name, theirs.form.utility, letter
                    one = self._directive(*of, without) if letter else None
                    if one is not None:
                        found[letter] = one
        return found

    def _directive_of(
        self, language_name: str, utility: str, letter: str, without: int
    ) -> Directive | None:
        """What a directive stands for, from records whose formats have it."""
        language = _named(language_name)
        records = [each for each in self._examples(utility, "", letter) if each[0] != without]
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

    def _shown_by(
        self, language: Language, records: Sequence[Record], letter: str
    ) -> list[tuple[Listed, str]]:
        """What records show where a directive stands, for each file."""
        found: list[tuple[Listed, str]] = []
        for each in records:
            _, theirs, kept = each
            options = dict(theirs.form.options)
            formats = [name for name in options if _is_format(each, name)]
            if len(formats) != 1 or len(options) > 2:
                continue
            parts = [part for part in parts_of(options[formats[0]] or "") if part[2]]
            if any(flags for _, flags, _ in parts):
                continue
            meanings: dict[str, Meaning] = {}
            for option, value in options.items():
                if option not in formats:
                    known = self._alone(language.name, theirs.form.utility, option, value is not None, -1)
                    if known is not None:
                        meanings[option] = known[0]
            if not options.keys() <= {*meanings, *formats}:
                continue
            for meaning in language.meanings:
                if not meaning.format:
                    continue
                holes: list[tuple[str, Listed]] = []
                directives = {one: _hole(one, holes) for _, _, one in parts}
                said = ((formats[0], meaning), *meanings.items())
                made = Interpretation(language, said, directives)(theirs)
                values = None if made is None else _in_holes(made.output, kept.output)
                if values is not None and len(values) == len(holes):
                    found += [
                        (file, value)
                        for (one, file), value in zip(holes, values, strict=True)
                        if one == letter
                    ]
                    break
        return found


def _letters(record: Record) -> set[str]:
    """The directives in the formats of a record."""
    return {one for _, value in record[1].form.options for _, _, one in parts_of(value or "") if one}


def _hole(letter: str, holes: list[tuple[str, Listed]]) -> Directive:
    """A directive of which nothing is known: it leaves a hole for a value, and notes whose."""

    def hole(file: Listed) -> str:
        holes.append((letter, file))
        return _HOLE

    return hole


_HOLE = "\ue000"
"""A character of private use that stands for a value that is not known."""


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


def _explained(language: Language, shown: Sequence[tuple[Listed, str]]) -> list[Directive]:
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


def _remembered(language: Language, shown: Sequence[tuple[Listed, str]]) -> Directive | None:
    """What records show of each file, as a directive.

    Of other files it is what explains most of what records show, to the minute, or what all files
    have. None where there is no such thing.
    """
    known = {(file.place, file.entry): value for file, value in shown}
    if len(known) < ENOUGH:
        return None
    values = set(known.values())
    if len(values) == 1:
        return lambda file: next(iter(values))
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


_MOST_OPTIONS = 12
"""Most options of a command that is interpreted (ours)."""


def _named(name: str) -> Language:
    return next(each for each in LANGUAGES if each.name == name)


def _is_format(record: Record, name: str) -> bool:
    """Whether a record gives an option a value with directives."""
    return "%" in (dict(record[1].form.options)[name] or "")
