"""Masks: the parts of an input's behavior that vary between runs and cannot be predicted.

A field, line or number that differs between the runs is volatile.

If every run's output has the same number of lines, lines are compared by position. A word that
differs is volatile. If only its numbers differ, only these numbers are volatile. Lines of one shape
(the same words apart from numbers) are assumed to vary in the same words. So a constant line counts
as varying too, if more lines of its shape varied than were constant. For example, some lines of
`shred` about its 100 passes agree by chance.

If the numbers of lines differ, the lines that all runs share in the same order are required.
Between two of them any lines may occur, if some run has more lines there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import cached_property
from typing import Any

from shioenv.behavior.compare import NoisyNames
from shioenv.domain.behavior import Behavior
from shioenv.domain.context import escape
from shioenv_eval.patches import Operations, changed_files, operations

NUMBER = r"\d+(?:[.,:]\d+)*"
_NUMBERS = re.compile(NUMBER)
_WORDS = re.compile(r"(\S+)")
UNIT = r"(?:[kKMGT]?i?B(?:/s)?|[mun]?s)"
_UNIT = re.compile(UNIT + r"([,)]*)")
"""The unit after a number: another number may have another unit."""
_BLANK, _WORD = r"[^\S\n]", r"\S+"


@dataclass(frozen=True)
class Mask:
    """The volatile parts of an input's behavior, which are not compared."""

    exit_code: bool = False
    paths: NoisyNames = field(default_factory=NoisyNames)
    """Volatile paths of operations of the full patch."""
    files: NoisyNames = field(default_factory=NoisyNames)
    """Volatile files, by their names in `fs`."""
    lines: tuple[str | None, ...] | None = None
    """A regular expression for each line of the output; None matches any number of arbitrary lines.

    None instead of a tuple means that all runs wrote the same.
    """

    @property
    def volatile(self) -> bool:
        """Whether anything varies."""
        return bool(self.exit_code or self.paths or self.files or self.lines is not None)

    @property
    def channels(self) -> tuple[str, ...]:
        """The channels that vary, out of `exit_code`, `output` and `patch`."""
        varying = {
            "exit_code": self.exit_code,
            "output": self.lines is not None,
            "patch": bool(self.paths or self.files),
        }
        return tuple(name for name, varies in varying.items() if varies)

    @classmethod
    def of(cls, runs: Sequence[Behavior], moved: Mapping[str, Any] | None = None) -> Mask:
        """Build the mask of several runs of one input from their differences.

        If the content of a file varies, its size is volatile too, even if the size was the same in
        all runs. `moved` is as for `operations`.
        """
        texts = list(dict.fromkeys(output_text_of(run.output) for run in runs))
        patches = [operations(run.patch, moved) for run in runs]
        paths = NoisyNames.of([_by_path(patch) for patch in patches])
        contents = NoisyNames.of([run.content_digests for run in runs])
        written = {f"/fs/{escape(name)}" for name in contents.exact}
        sizes = written | {f"{path}/size" for path in written}
        return cls(
            exit_code=len({run.exit_code for run in runs}) > 1,
            paths=NoisyNames(paths.exact | sizes, paths.patterns),
            files=NoisyNames.of([_by_name(patch) for patch in patches]),
            lines=tuple(_patterns(texts)) if len(texts) > 1 else None,
        )

    def fits(self, output: bytes) -> bool:
        """Whether an output matches in everything that is not volatile.

        False if `lines` is None, since then only the one output that all runs wrote is right.
        """
        return self.lines is not None and _fits(self._compiled, output_text_of(output).split("\n"))

    def line_fits(self, number: int, line: str) -> bool:
        """Whether the output line with this number (from 0) matches the mask.

        False if the runs' outputs had different numbers of lines, or were all the same.
        """
        patterns = self._compiled
        pattern = patterns[number] if number < len(patterns) and None not in patterns else None
        return pattern is not None and pattern.fullmatch(line) is not None

    def operations(self, operations: Operations) -> Operations:
        """Filter out the operations at volatile paths."""
        if not self.paths:
            return operations
        return frozenset(one for one in operations if one[1] not in self.paths)

    def changes(self, changes: frozenset[tuple[str, str]]) -> frozenset[tuple[str, str]]:
        """Filter out the changes of volatile files."""
        if not self.files:
            return changes
        return frozenset(one for one in changes if one[1] not in self.files)

    @cached_property
    def _compiled(self) -> list[re.Pattern[str] | None]:
        return [None if line is None else re.compile(line) for line in self.lines or ()]

    def to_json(self) -> dict[str, Any]:
        """Return the mask as a JSON object, for `from_json`."""
        return {
            "exit_code": self.exit_code,
            "paths": _names_json(self.paths),
            "files": _names_json(self.files),
            "lines": None if self.lines is None else list(self.lines),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Mask:
        """Parse the output of `to_json`."""
        lines = document["lines"]
        return cls(
            document["exit_code"],
            _names(document["paths"]),
            _names(document["files"]),
            None if lines is None else tuple(lines),
        )


def output_text_of(output: bytes) -> str:
    """Decode an output for comparison: CR LF becomes LF, nothing is stripped.

    Bytes that are not UTF-8 become surrogates, so that different bytes stay different.
    """
    return output.replace(b"\r\n", b"\n").decode("utf-8", "surrogateescape")


def _by_path(operations: Operations) -> dict[str, object]:
    found: dict[str, frozenset[object]] = {}
    for operation in operations:
        found[operation[1]] = found.get(operation[1], frozenset()) | {operation}
    return dict(found)


def _by_name(operations: Operations) -> dict[str, object]:
    found: dict[str, frozenset[object]] = {}
    for verb, name in changed_files(operations):
        found[name] = found.get(name, frozenset()) | {verb}
    return dict(found)


def _names_json(names: NoisyNames) -> dict[str, list[str]]:
    return {"exact": sorted(names.exact), "patterns": list(names.patterns)}


def _names(document: Mapping[str, Any]) -> NoisyNames:
    return NoisyNames(frozenset(document["exact"]), tuple(document["patterns"]))


def _patterns(texts: Sequence[str]) -> Iterator[str | None]:
    """Yield a pattern for each line that all texts share, and None for each gap between them."""
    runs = [text.split("\n") for text in texts]
    if len({len(lines) for lines in runs}) == 1:
        yield from _aligned(list(zip(*runs, strict=True)))
        return
    shared = runs[0]
    for lines in runs[1:]:
        blocks = SequenceMatcher(None, shared, lines, autojunk=False).get_matching_blocks()
        shared = [line for block in blocks for line in shared[block.a : block.a + block.size]]
    gaps = [False] * (len(shared) + 1)
    for lines in runs:
        place = 0
        for number, line in enumerate(shared):
            found = lines.index(line, place)
            gaps[number] |= found > place
            place = found + 1
        gaps[-1] |= place < len(lines)
    for gap, kept in zip(gaps, [*shared, None], strict=True):
        if gap:
            yield None
        if kept is not None:
            yield re.escape(kept)


def _aligned(lines: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a pattern for each line; an element of `lines` holds one line from every run."""
    pieces = [[_WORDS.split(line) for line in runs] for runs in lines]
    kinds: dict[_Shape, list[list[str]]] = {}
    stayed = [each[0] for runs, each in zip(lines, pieces, strict=True) if len(set(runs)) == 1]
    for runs, each in zip(lines, pieces, strict=True):
        if len(set(runs)) > 1 and len({len(words) for words in each}) == 1:
            kinds.setdefault(_shape(each), []).extend(each)
    alike = {shape: [_Column(words) for words in zip(*kin, strict=True)]
             for shape, kin in kinds.items()}  # fmt: skip
    common = [
        (shape, alike[shape])
        for shape, kin in kinds.items()
        if len(kin) > len(lines[0]) * sum(_has(shape, words) for words in stayed)
    ]
    for runs, each in zip(lines, pieces, strict=True):
        if len({len(words) for words in each}) > 1:
            yield r"[^\n]*"
        elif len(set(runs)) > 1:
            shape = _shape(each)
            yield _pattern(each, shape, alike[shape])
        else:
            kind = next((kind for kind in common if _has(kind[0], each[0])), None)
            yield re.escape(runs[0]) if kind is None else _pattern(each, *kind)


_Shape = tuple[str | None, ...]
"""The shape of a line: alternating words and blanks, numbers as 0, None for varying parts."""


def _shape(pieces: Sequence[Sequence[str]]) -> _Shape:
    return tuple(
        _NUMBERS.sub("0", column[0]) if len(set(column)) == 1 else None
        for column in zip(*pieces, strict=True)
    )


def _has(shape: _Shape, pieces: Sequence[str]) -> bool:
    """Whether a line, split into words and blanks, has a shape."""
    return len(shape) == len(pieces) and all(
        part is None or part == _NUMBERS.sub("0", piece)
        for part, piece in zip(shape, pieces, strict=True)
    )


class _Column:
    """The words at one place of lines of one shape."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = frozenset(words)

    @cached_property
    def pattern(self) -> str:
        """A regular expression for all the words."""
        return _word(sorted(self.words))

    def with_words(self, words: Sequence[str]) -> str:
        """Return a regular expression for the column's words and these."""
        if self.words.issuperset(words):
            return self.pattern
        return _word(sorted(self.words.union(words)))


def _pattern(pieces: Sequence[Sequence[str]], shape: _Shape, kin: Sequence[_Column]) -> str:
    """Return a regular expression for one line; `pieces` holds that line's words in each run.

    `kin` are the columns of lines of the same shape, whose variation is allowed in this line too.
    """
    columns = list(zip(*pieces, strict=True))
    varies = [part is None for part in shape]
    made = []
    for place, column in enumerate(columns):
        if place % 2:
            unit = _UNIT.fullmatch(column[0]) if place >= 2 and varies[place - 2] else None
            word = kin[place].with_words(column) if varies[place] else _word(column)
            made.append(UNIT + re.escape(unit[1]) if unit else word)
        elif any(varies[max(0, place - 1) : place + 2]):
            inner = 0 < place < len(columns) - 1
            made.append(_BLANK + ("+" if inner else "*"))
        else:
            made.append(re.escape(column[0]))
    return "".join(made)


def _word(words: Sequence[str]) -> str:
    if all(word == words[0] for word in words):
        return re.escape(words[0])
    if len({_NUMBERS.sub("0", word) for word in words}) > 1:
        return _WORD
    numbers = list(zip(*(_NUMBERS.findall(word) for word in words), strict=True))
    parts = _NUMBERS.split(words[0])
    made = re.escape(parts[0])
    for number, rest in zip(numbers, parts[1:], strict=True):
        made += (re.escape(number[0]) if len(set(number)) == 1 else NUMBER) + re.escape(rest)
    return made


def _fits(patterns: Sequence[re.Pattern[str] | None], lines: Sequence[str]) -> bool:
    """Whether lines match the patterns; the pattern None matches any number of arbitrary lines."""
    place = pattern = 0
    gap: tuple[int, int] | None = None
    while place < len(lines):
        here = patterns[pattern] if pattern < len(patterns) else None
        if pattern < len(patterns) and here is None:
            gap = pattern, place
            pattern += 1
        elif here is not None and here.fullmatch(lines[place]):
            pattern += 1
            place += 1
        elif gap is not None:
            gap = gap[0], gap[1] + 1
            pattern, place = gap[0] + 1, gap[1]
        else:
            return False
    return all(left is None for left in patterns[pattern:])
