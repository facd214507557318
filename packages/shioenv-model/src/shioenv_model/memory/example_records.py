"""Example records from which the meanings of options and facts about files are inferred."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from shioenv.domain.behavior import Behavior
from shioenv.domain.context import FileEntry
from shioenv.domain.patch import ContextPatch
from shioenv.domain.runner import State
from shioenv_model.bash.work import uncounted
from shioenv_model.memory.functions.language import Language, Refusal
from shioenv_model.memory.rewrite import Kept, Taken

BARE = 16
"""Maximum number of records without options used to recognize a language (`functions.language`)."""

ALONE, BESIDE = 32, 32
"""Maximum numbers of records used to infer an option's meaning: with it alone, and with others."""

WITH_DIRECTIVE = 128
"""Maximum number of records used to infer a directive of formats."""

_PLAIN = 200
"""Maximum number of records without options that are read for facts about files."""

Record: TypeAlias = tuple[int, Taken, Kept]
"""The number of a record, its command, and its behavior."""

WithOption: TypeAlias = Callable[[str, str, int, bool], Sequence[Record]]
"""A function that returns records of a utility with an option: with only this one, or with others.

Its arguments are the utility, the option, a maximum number, and whether the option is alone. An
empty name selects records without options.
"""

Matching: TypeAlias = Callable[[str, str, str, int], Sequence[Record]]
"""A function that returns records of a utility whose texts match a pattern, short texts first. Its
arguments are the utility, a substring of every match, the pattern, and a maximum number."""


@dataclass(frozen=True, slots=True)
class Induced:
    """A command's behavior as predicted by a function that was induced from records."""

    asked: Taken
    """The command, or its first part if functions were combined."""
    kept: Kept
    name: str
    """The function's name in explanations."""
    agreed: int
    """Number of records that support the function; if several were combined, the one with least
    support."""
    number: int
    """One of these records."""


Facts: TypeAlias = Mapping[tuple[str, FileEntry], str]
"""Facts about files, taken from records: the printed text, by the file's path and entry."""


@dataclass(frozen=True)
class _Sample:
    records: tuple[Record, ...]
    numbers: frozenset[int]


class ExampleRecords:
    """Selects the records that can be examples, with a cache."""

    def __init__(self, with_option: WithOption, matching: Matching) -> None:
        self._with_option, self._matching = with_option, matching
        self._sample = lru_cache(maxsize=3_000)(self._usable)
        self._directive = lru_cache(maxsize=1_000)(self._with_directive)
        self.facts = lru_cache(maxsize=500)(self._facts)
        self.refusal = lru_cache(maxsize=500)(self._refusal)

    def bare(self, utility: str, without: int) -> list[Record]:
        """Return examples without options, except the record `without`."""
        return _left(self._sample(utility, "", BARE, True), without)

    def alone(self, utility: str, name: str, without: int) -> list[Record]:
        """Return examples with only this option."""
        return _left(self._sample(utility, name, ALONE, True), without)

    def beside(self, utility: str, name: str, without: int) -> list[Record]:
        """Return examples with this option and others."""
        return _left(self._sample(utility, name, BESIDE, False), without)

    def with_directive(self, utility: str, directive: str, without: int) -> list[Record]:
        """Return examples with a directive in a format."""
        return _left(self._directive(utility, directive), without)

    def held(self, utility: str, name: str, number: int) -> bool:
        """Whether a record is among the examples of an option, or among those without options."""
        if not name:
            return number in self._sample(utility, "", BARE, True).numbers
        alone = self._sample(utility, name, ALONE, True)
        beside = self._sample(utility, name, BESIDE, False)
        return number in alone.numbers or number in beside.numbers

    def _usable(self, utility: str, name: str, count: int, alone: bool) -> _Sample:
        with uncounted():
            found = [
                each for each in self._with_option(utility, name, count, alone) if _is_example(each)
            ]
        # short examples first, since most meanings fail at the first one; empty output last
        found.sort(key=lambda each: (not each[2].output, len(each[2].output)))
        return _Sample(tuple(found), frozenset(number for number, _, _ in found))

    def _with_directive(self, utility: str, directive: str) -> _Sample:
        with uncounted():
            pattern = rf"%[-#0+\d.]*{directive.replace('+', '[+]')}"
            found = self._matching(utility, directive, pattern, WITH_DIRECTIVE)
        kept = tuple(each for each in found if _is_example(each))
        return _Sample(kept, frozenset(number for number, _, _ in kept))

    def _facts(self, language: Language, utility: str) -> Facts:
        """Collect facts about files that the tree lacks, from records without options."""
        if language.facts is None:
            return {}
        found: dict[tuple[str, FileEntry], str] = {}
        with uncounted():
            for _, theirs, kept in self._with_option(utility, "", _PLAIN, True):
                if kept.patch == "[]" and not kept.is_error and kept.channels is None:
                    for place, entry, said in language.facts(theirs, kept.output):
                        found[place, entry] = said
        return found

    def _refusal(self, utility: str) -> Refusal | None:
        """Return the error that a command prints in most records with one missing file."""
        said: Counter[Refusal] = Counter()
        with uncounted():
            for _, theirs, kept in self._with_option(utility, "", _PLAIN, True):
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


def _left(sample: _Sample, without: int) -> list[Record]:
    return [each for each in sample.records if each[0] != without]


def _is_example(record: Record) -> bool:
    _, theirs, kept = record
    if kept.is_error or kept.channels is not None or kept.volatile or theirs.form.guessed:
        return False
    if any(each.kind == "x" for each in theirs.operands):
        return False
    trees = [each.tree for each in theirs.operands if each.tree]
    if not trees and theirs.tree is not None:
        trees = [theirs.tree]
    return not any(tree.is_large for tree in trees)


def recorded_behavior(kept: Kept, state: State, *, fits: bool = True) -> Behavior:
    """Convert a recorded behavior into a `Behavior`. Without `fits` the patch is left out."""
    output = kept.output.encode("utf-8", "surrogateescape")
    stdout, stderr = (b"", output) if kept.is_error else (output, b"")
    if kept.channels is not None:
        stdout, stderr = (each.encode("utf-8", "surrogateescape") for each in kept.channels)
    patch = ContextPatch.from_json(kept.patch) if fits else ContextPatch()
    return Behavior(
        kept.exit_code, output, patch, stdout=stdout, stderr=stderr, volatile=kept.volatile
    )


def stored_behavior(behavior: Behavior) -> Kept:
    """Convert a behavior into the form that a memory stores."""

    def text(data: bytes) -> str:
        return data.decode("utf-8", "surrogateescape")

    out, err = behavior.stdout, behavior.stderr
    output, patch = text(behavior.output), behavior.patch.to_json()
    channels = (text(out), text(err)) if out and err else None
    is_error = bool(err) and not out
    return Kept(behavior.exit_code, output, patch, channels, is_error, behavior.volatile)
