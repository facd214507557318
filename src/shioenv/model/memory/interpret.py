"""What a command prints, put together of what each of its options means.

What an option means is nowhere written. Records with the option are examples: the meaning is the one
of a language (`functions.language`) that explains them, with the meanings of the other options. A
command whose options nobody saw together is answered by the meanings of each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

from shioenv.domain.work import uncounted
from shioenv.model.memory.functions.formats import FORMATTED, parts_of
from shioenv.model.memory.functions.language import (
    Directive,
    Interpretation,
    Language,
    Meaning,
)
from shioenv.model.memory.functions.walk import WALK
from shioenv.model.memory.rewrite import Kept, Taken

LANGUAGES: tuple[Language, ...] = (WALK, FORMATTED)
"""Every language."""

EXAMPLES = 48
"""Most records with an option in which the option's meaning is looked for."""

FORMATS = 8
"""Most records with formats in which a meaning is looked for."""

ENOUGH = 2
"""Explained examples that are enough for a meaning (ours)."""

SPARED = 4
"""One of so many examples need not be explained (ours)."""

_WALKED = 700
"""Most files of a tree in which a meaning is looked for: larger trees take long."""

Record: TypeAlias = tuple[int, Taken, Kept]
"""The number of a record, its command, and what that did."""

Records: TypeAlias = Callable[[str, str, str, int], Sequence[Record]]


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
        self._directive_alone = lru_cache(maxsize=5_000)(self._alone_directive)
        self._shown = lru_cache(maxsize=1_000)(self._bare)

    def interpret(self, ours: Taken, without: int = -1) -> tuple[Interpretation, str, int, int] | None:
        """What our command means, what it prints, how many examples say so, and one of these.

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
            directives: dict[str, Directive] = {}
            for name, meaning in found:
                if meaning.format and (value := valued[name]):
                    for _, _, letter in parts_of(value):
                        if letter:
                            directive = self._directive(language.name, utility, name, letter, without)
                            if directive is not None:
                                directives[letter] = directive
            made = Interpretation(language, tuple(found), directives)
            output = made(ours)
            if output is not None:
                example = self._examples(utility, options[0] if options else "")
                number = next((each for each, _, _ in example if each != without), -1)
                if number >= 0:
                    return made, output, min(agreed), number
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
            for number, theirs, kept in self._records(utility, name, letter, EXAMPLES):
                if kept.patch != "[]" or kept.is_error or kept.channels is not None or kept.volatile:
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
        score = self._score(items, lambda theirs, number: Interpretation(language, ()))
        return 0 if score is None else score[0]

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
        formats = valued and sum(_is_format(each, name) for each in items) * 2 > len(items)
        if formats:
            apart = [each for each in apart if _is_format(each, name)][:FORMATS]
        meanings = [
            each
            for each in language.meanings
            if each.valued == valued and each.format == formats
        ]
        best = self._best(language, apart, name, meanings, {}, alone=alone)
        if alone or (len(best) == 1 and best[0][1] >= ENOUGH):
            return best[0][:2] if best else None
        # options alone do not tell: `-h` of `ls` means nothing without `-l`
        others: dict[str, Meaning] = {}
        beside = list(apart)
        for each in items:
            options = {option: value for option, value in each[1].form.options if option != name}
            if not options or any(_is_format(each, option) for option in options):
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
        best = self._best(language, beside, name, meanings, others, alone=False) or best
        return best[0][:2] if best else None

    def _best(
        self,
        language: Language,
        items: Sequence[Record],
        name: str,
        meanings: Sequence[Meaning],
        others: Mapping[str, Meaning],
        *,
        alone: bool,
    ) -> list[tuple[Meaning, int, int]]:
        """The meanings of an option that explain most examples, simple meanings first.

        With each stands how many examples it explains, and how many it does not explain.
        """
        best: list[tuple[Meaning, int, int]] = []
        for meaning in meanings:

            def made(theirs: Taken, number: int, meaning: Meaning = meaning) -> Interpretation:
                said = {**others, name: meaning}
                directives = self._directives(language, theirs, said, alone=alone)
                return Interpretation(language, tuple(said.items()), directives)

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
                output = interpretation(theirs, number)(theirs)
                if output is None:
                    continue
                if output == kept.output and kept.exit_code == 0:
                    agreed += 1
                    told += bool(output)
                else:
                    failed += 1
                    if failed > max(1, len(items) // SPARED) or (failed > 1 and not agreed):
                        return None
        if not told or failed * SPARED > agreed + failed:
            return None
        return agreed, failed

    def _directives(
        self, language: Language, theirs: Taken, meanings: Mapping[str, Meaning], *, alone: bool
    ) -> dict[str, Directive]:
        """What the directives in a command's formats stand for."""
        found: dict[str, Directive] = {}
        for name, value in theirs.form.options:
            if value and name in meanings and meanings[name].format:
                for _, _, letter in parts_of(value):
                    if letter and letter not in found:
                        of = language.name, theirs.form.utility, name, letter
                        one = self._directive_alone(*of) if alone else self._directive(*of, -1)
                        if one is not None:
                            found[letter] = one
        return found

    def _directive_of(
        self, language: str, utility: str, name: str, letter: str, without: int
    ) -> Directive | None:
        """What a directive stands for, from records with that option whose format has it."""
        alone = self._directive_alone(language, utility, name, letter)
        if alone is not None:
            return alone
        of = _named(language), utility, name, letter, without
        return self._directive_found(*of, alone=False)

    def _directive_found(
        self, language: Language, utility: str, name: str, letter: str, without: int, *, alone: bool
    ) -> Directive | None:
        format_ = next(each for each in language.meanings if each.format)
        items: list[Record] = []
        plans: dict[int, tuple[tuple[tuple[str, Meaning], ...], dict[str, Directive]]] = {}
        for each in self._examples(utility, name, letter):
            number, theirs, _ = each
            options = dict(theirs.form.options)
            others = {one for _, _, one in parts_of(options[name] or "") if one not in ("", letter)}
            if number == without or (alone and (others or len(options) > 1)):
                continue
            meanings, directives = {name: format_}, {}
            for option, value in options.items():
                if option != name and not _is_format(each, option):
                    known = self._alone(language.name, utility, option, value is not None, -1)
                    if known is not None:
                        meanings[option] = known[0]
            for other in others:
                directive = self._directive_alone(language.name, utility, name, other)
                if directive is not None:
                    directives[other] = directive
            if options.keys() <= meanings.keys() and others <= directives.keys():
                items.append(each)
                plans[number] = tuple(meanings.items()), directives
            if len(items) == FORMATS:
                break
        best: tuple[Directive, int] | None = None
        for tried in language.directives.values():

            def made(
                theirs: Taken, number: int, tried: Directive = tried
            ) -> Interpretation:
                said, known = plans[number]
                return Interpretation(language, said, {**known, letter: tried})

            score = self._score(items, made)
            if score is not None and (best is None or score[0] - score[1] > best[1]):
                best = tried, score[0] - score[1]
                if score[0] == len(items):
                    break
        return best and best[0]

    def _alone_directive(
        self, language: str, utility: str, name: str, letter: str
    ) -> Directive | None:
        """What a directive stands for, from records whose formats have no other."""
        return self._directive_found(_named(language), utility, name, letter, -1, alone=True)


_MOST_OPTIONS = 12
"""Most options of a command that is interpreted (ours)."""


def _named(name: str) -> Language:
    return next(each for each in LANGUAGES if each.name == name)


def _is_format(record: Record, name: str) -> bool:
    """Whether a record gives an option a value with directives."""
    return "%" in (dict(record[1].form.options)[name] or "")
