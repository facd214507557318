"""What a command does, put together of what each of its options means.

What an option means is nowhere written. Records with the option are examples: the meaning is the
one of a language (`functions.language`) that explains them. A command whose options nobody saw
together is answered by the meanings of each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from shioenv.domain.work import uncounted
from shioenv_model.memory.directives import Directives, is_format
from shioenv_model.memory.functions.dates import DATES, TIMES
from shioenv_model.memory.functions.formats import FORMATTED
from shioenv_model.memory.functions.language import Interpretation, Language, OptionMeaning
from shioenv_model.memory.functions.listing import IN_COLUMNS, IN_DETAIL, LISTING
from shioenv_model.memory.functions.usage import USAGE
from shioenv_model.memory.functions.walk import WALK
from shioenv_model.memory.rewrite import Kept, Taken
from shioenv_model.memory.samples import ExampleRecords, Matching, Record, WithOption

LANGUAGES: tuple[Language, ...] = (
    WALK, LISTING, IN_COLUMNS, IN_DETAIL, USAGE, DATES, TIMES,
)  # fmt: skip
"""The languages that records without options show."""

FORMATS = 8
"""Most records with formats in which a meaning is looked for."""

ENOUGH = 2
"""Explained examples that are enough for a meaning (ours)."""

SPARED = 4
"""One of so many examples need not be explained (ours)."""

MOST_OPTIONS = 12
"""Most options of a command that is interpreted (ours)."""


@dataclass(frozen=True)
class Interpreted:
    """What a command does by what its options mean, and what speaks for that."""

    kept: Kept
    name: str
    agreed: int
    """How many examples speak for the option for which the fewest speak."""
    number: int
    """A record that speaks for it."""


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

    def interpret(self, ours: Taken, without: int = -1) -> Interpreted | None:
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
    ) -> Interpreted | None:
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
                    return Interpreted(kept, name, 1, number)  # it may as well be another thing
        return Interpreted(kept, name, min(agreed), number)

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
