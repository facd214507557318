"""A table, as Markdown and as HTML."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Self, TypeVar

from shioenv.text import visible

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Group items by key; groups and their items keep the original order."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under headers, with a title and a note that explains how to read the rows."""

    title: str
    note: str
    headers: tuple[str, ...]
    rows: Sequence[Sequence[str]]

    @classmethod
    def of(
        cls, title: str, note: str, columns: Mapping[str, Callable[..., str]], items: Iterable[Any]
    ) -> Self:
        """Create a table with a row for each item; `columns` maps headers to cell functions."""
        rows = [tuple(cell_of(item) for cell_of in columns.values()) for item in items]
        return cls(title, note, tuple(columns), rows)

    @property
    def markdown(self) -> str:
        """The table as Markdown, below its title and note; numeric columns are right-aligned."""
        lines = [f"## {self.title}", "", self.note, ""]
        if self.rows:
            columns = zip(*self.rows, strict=True)
            rules = ("---:" if all(map(_is_number, column)) else "---" for column in columns)
            lines += [_row(self.headers), f"|{'|'.join(rules)}|", *map(_row, self.rows), ""]
        return "\n".join(lines)

    @property
    def html(self) -> str:
        """The table as HTML, with its title as caption, in a scrollable element.

        Every cell is escaped text.
        """
        title = escape(self.title)
        heads = "".join(f'<th scope="col">{escape(header)}</th>' for header in self.headers)
        rows = []
        for head, *cells in ([escape(visible(cell)) for cell in row] for row in self.rows):
            others = "".join(f"<td>{cell}</td>" for cell in cells)
            rows.append(f'<tr><th scope="row">{head}</th>{others}</tr>\n')
        return (
            f'<div class="scroll" tabindex="0" role="region" aria-label="{title}">\n<table>\n'
            f"<caption>{title}</caption>\n<thead><tr>{heads}</tr></thead>\n"
            f"<tbody>\n{''.join(rows)}</tbody>\n</table>\n</div>\n"
        )


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _is_number(cell: str) -> bool:
    return not cell or cell[0] in "-+0123456789"
