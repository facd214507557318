"""Tables composed of recorded columns: `-o NAME,SIZE` from `-o NAME` and `-o SIZE`.

The value of an option names the columns of a table. Records with one column show its cells. Records
with two columns show the width of the first one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TypeAlias

from shioenv_model.bash.work import spend, uncounted
from shioenv_model.memory.example_records import Induced, Matching, Record
from shioenv_model.memory.rewrite import Kept, Taken

MOST_COLUMNS = 16
"""Maximum number of columns of a table (our choice)."""

LOOKED_AT = 40
"""Maximum number of records read for one column."""

CHECKED = 6
"""Maximum number of records with several columns that are composed as a check."""

_COLUMNS = re.compile(r"[\w%:.+-]+(,[\w%:.+-]+)*=?")

Others: TypeAlias = tuple[tuple[tuple[str, str | None], ...], tuple[str, ...]]
"""The other options of a command, and its operands, which determine the rows."""


@dataclass(frozen=True)
class Column:
    """A column as in a record."""

    lines: tuple[str, ...]
    """The header and the cells, as in a table with only this column."""
    right: bool
    """Whether the cells are right-aligned."""
    number: int
    """The record's number."""

    @property
    def tight(self) -> int:
        """The width of the longest line."""
        return max(map(len, self.lines), default=0)


class Tables:
    """Composes tables.

    `records` returns records of a utility whose texts match a pattern (`Matching`).
    """

    def __init__(self, records: Matching) -> None:
        self._records = lru_cache(maxsize=2_000)(records)
        self._column = lru_cache(maxsize=2_000)(self._shown)
        self._width = lru_cache(maxsize=2_000)(self._seen_width)

    def put_together(self, ours: Taken, without: int = -1) -> Induced | None:
        """Compose the table that a command prints; None if its columns are unknown.

        The record `without` is not used.
        """
        if ours.form.filters or ours.form.guessed:
            return None
        for option, value in ours.form.options:
            if value and "," in value and _COLUMNS.fullmatch(value):
                with uncounted():
                    found = self._made(ours, option, value, without)
                if found is not None:
                    spend(len(found.kept.output))
                    return found
        return None

    def _made(self, ours: Taken, option: str, value: str, without: int) -> Induced | None:
        names = value.removesuffix("=").split(",")
        others = _others(ours, option)
        if len(names) > MOST_COLUMNS or others is None or value.endswith("="):
            return None
        utility = ours.form.utility
        made = self._text(utility, option, names, others, without)
        if made is None:
            return None
        agreed = failed = 0
        for number, theirs, kept in self._several(utility, option, others, without):
            value_of = dict(theirs.form.options)[option] or ""
            again = self._text(utility, option, value_of.split(","), others, number)
            if again is not None:
                is_same = _own(again[0], theirs) == kept.output
                agreed, failed = agreed + is_same, failed + (not is_same)
                if agreed + failed == CHECKED:
                    break
        if failed > agreed:
            return None
        text, number = made
        kept = Kept(0, _own(text, ours), "[]")
        return Induced(ours, kept, f"table({len(names)} columns)", agreed, number)

    def _text(
        self, utility: str, option: str, names: Sequence[str], others: Others, without: int
    ) -> tuple[str, int] | None:
        """Compose the table; return it with the number of a record of its first column.

        In the table, `_OWN` stands for the command's own text.
        """
        columns: list[Column] = []
        for name in names:
            column = self._column(utility, option, name, others, without)
            if column is None or len(column.lines) != len((columns or [column])[0].lines):
                return None
            columns.append(column)
        widths: list[int] = []
        for name, column in zip(names[:-1], columns[:-1], strict=True):
            width = column.tight
            if not column.right:
                seen = self._width(utility, option, name, others, without)
                if seen is None and others[0]:  # else as in records of this option alone
                    seen = self._width(utility, option, name, ((), ()), without)
                    seen = None if seen is None else max(seen, width)
                width = width if seen is None else seen
            widths.append(width)
        lines = []
        for row in range(len(columns[0].lines)):
            cells = []
            for number, column in enumerate(columns):
                cell = column.lines[row]
                if number < len(widths):
                    cell = cell.ljust(widths[number])[: max(widths[number], 0)]
                cells.append(cell)
            lines.append(" ".join(cells) + "\n")
        return "".join(lines), columns[0].number

    def _matching(
        self, utility: str, option: str, others: Others, part: str, pattern: str
    ) -> list[Record]:
        """Return records with the same rows whose text matches a pattern."""
        found = self._records(utility, part, pattern, LOOKED_AT)
        return [
            each
            for each in found
            if option in dict(each[1].form.options)
            and _others(each[1], option) == others
            and not each[2].is_error
            and each[2].exit_code == 0
            and each[2].patch == "[]"
        ]

    def _shown(
        self, utility: str, option: str, name: str, others: Others, without: int, depth: int = 0
    ) -> Column | None:
        """Return a column from a record with only that column, or from a record with two.

        In a record with two columns, the other column must be known. It is found in the same way,
        in at most `_DEEPEST` steps.
        """
        alone = rf"(?<![\w,%]){re.escape(name)}(?![\w,=])"
        for number, theirs, kept in self._matching(utility, option, others, name, alone):
            if number != without and dict(theirs.form.options)[option] == name:
                lines = tuple(_owned(kept.output, theirs).split("\n")[:-1])
                even = len(set(map(len, lines))) == 1
                return Column(lines, even and any(line[:1] == " " for line in lines), number)
        several = rf"(?<![\w%]){re.escape(name)}(?![\w=])"
        for number, theirs, kept in self._matching(utility, option, others, name, several):
            names = (dict(theirs.form.options)[option] or "").split(",")
            if number != without and len(names) > 1 and name in names:
                column = _split(_owned(kept.output, theirs).split("\n")[:-1], names, name, number)
                if column is not None:
                    return column
        if depth == _DEEPEST:
            return None
        pair = rf"[\w%],{re.escape(name)}(?![\w,=])|(?<![\w,%]){re.escape(name)},[\w%]"
        for number, theirs, kept in self._matching(utility, option, others, name, pair):
            names = (dict(theirs.form.options)[option] or "").split(",")
            if number == without or len(names) != 2 or name not in names or names[0] == names[1]:
                continue
            first = names[0] == name
            other = self._column(
                utility, option, names[1 if first else 0], others, number, depth + 1
            )
            if other is None:
                continue
            column = _beside(_owned(kept.output, theirs).split("\n")[:-1], other, number, first)
            if column is not None:
                return column
        return None

    def _several(self, utility: str, option: str, others: Others, without: int) -> list[Record]:
        """Return records that list the same rows in several columns."""
        found = self._matching(utility, option, others, ",", r"[\w%],[\w%]")
        return [
            each
            for each in found
            if each[0] != without
            and _COLUMNS.fullmatch(dict(each[1].form.options)[option] or "-,")
            and "," in (dict(each[1].form.options)[option] or "")
            and "=" not in (dict(each[1].form.options)[option] or "")
        ]

    def _seen_width(
        self, utility: str, option: str, name: str, others: Others, without: int
    ) -> int | None:
        """Return the width of a column that precedes another one, from a record with both."""
        pattern = rf"(?<![\w,%]){re.escape(name)},[\w%:.]+(?![\w,=])"
        for number, theirs, kept in self._matching(utility, option, others, name, pattern):
            names = (dict(theirs.form.options)[option] or "").split(",")
            if number == without or len(names) != 2 or names[0] != name:
                continue
            following = self._column(utility, option, names[1], others, number)
            head = kept.output.partition("\n")[0]
            if following is None:
                continue
            if following.right:
                return len(head) - 1 - following.tight
            place = head.rfind(following.lines[0]) if following.lines else -1
            return place - 1 if place > 0 else None
        return None


def _beside(lines: Sequence[str], other: Column, number: int, first: bool) -> Column | None:
    """Extract the column beside a known one in a table of two columns; None if it is ambiguous.

    `first`: the extracted column is the first of the two.
    """
    if not lines or len(lines) != len(other.lines):
        return None
    if first:
        head = lines[0]
        width = len(head) - 1 - other.tight if other.right else head.rfind(other.lines[0]) - 1
        cells = [line[:width] for line in lines]
        if width < 1 or any(line[width : width + 1] not in ("", " ") for line in lines):
            return None
    elif other.right:
        width = other.tight
        cells = [line[width + 1 :] for line in lines]
    else:
        return None
    return _of_cells(cells, number, last=not first)


def _of_cells(cells: Sequence[str], number: int, *, last: bool) -> Column | None:
    """Build a column from its cells in a table; None if a cell may be truncated."""
    if len(set(map(len, cells))) == 1 and any(cell[:1] == " " for cell in cells):
        return Column(tuple(cells), right=True, number=number)
    whole = [cell.rstrip() for cell in cells]
    if not last and any(len(cell) == len(cells[0]) > len(whole[0]) for cell in whole[1:]):
        return None
    return Column(tuple(whole), right=False, number=number)


def _split(lines: Sequence[str], names: Sequence[str], name: str, number: int) -> Column | None:
    """Extract a column of a table in which the start of every column is unambiguous."""
    heads = list(re.finditer(r"\S+", lines[0])) if lines else []
    if len(heads) != len(names):
        return None
    begins = [0]
    for before, after in pairwise(heads):
        places = range(before.end(), after.start())
        blank = [at for at in places if all(line[at : at + 1] in ("", " ") for line in lines)]
        if len(blank) != 1:
            return None
        begins.append(blank[0] + 1)
    place = names.index(name)
    last = place == len(names) - 1
    end = None if last else begins[place + 1] - 1
    return _of_cells([line[begins[place] : end] for line in lines], number, last=last)


_DEEPEST = 2
"""Maximum number of two-column records used one after the other to find a column."""

_OWN = "\ue000"
"""A private-use character as a placeholder for the command's own text in a cell."""


def _owned(output: str, taken: Taken) -> str:
    return output.replace(" ".join((taken.form.command, *taken.form.words)), _OWN)


def _own(text: str, taken: Taken) -> str:
    return text.replace(_OWN, " ".join((taken.form.command, *taken.form.words)))


def _others(taken: Taken, option: str) -> Others | None:
    """Return the options and operands that determine the rows; None for a repeated option."""
    others = tuple(
        sorted(
            (each for each in taken.form.options if each[0] != option),
            key=lambda each: (each[0], each[1] or ""),
        )
    )
    if len(others) != len(taken.form.options) - 1:
        return None
    return others, taken.form.operands
