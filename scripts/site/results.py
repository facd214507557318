"""Pages of results on the site: a chart first, tables of at most six columns, details on demand."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path

MOST = 6
"""Columns of a table; a wider one begins with these, and unfolds."""

BARS = {
    "evaluation.md": ("predictor", "EM", "Exact match of single commands"),
    "conformance.md": ("", "right", "Share of cases that a shell gets right"),
    "leaderboard.md": ("predictor", "EM", "Exact match on the public test suite"),
    "modeling.md": ("", "single: EM", "Exact match of single inputs that people typed"),
}
"""Pages without a picture of their own: the columns of names and of values, and the title."""

_RULE = re.compile(r"^\|(:?-+:?\|)+$")
_VALUE = re.compile(r"\d?\.\d+")


def arranged(page: Path, text: str) -> str:
    """Return a page of results as the site shows it."""
    lines = text.splitlines()
    chart = _chart(page, lines)
    if chart:
        title = next(number for number, line in enumerate(lines) if line.startswith("# "))
        lines[title + 1 : title + 1] = ["", *chart]
    return "\n".join(_narrow(lines)) + "\n"


def _chart(page: Path, lines: list[str]) -> list[str]:
    """Return the lines of the page's chart; none where the page shows one or has no figures."""
    picture = page.with_suffix(".png")
    if picture.is_file():
        return [f"![{lines[0].removeprefix('# ')}, as a chart]({picture.name})", ""]
    if page.name not in BARS:
        return []
    name, value, title = BARS[page.name]
    rows = next(found for found in _tables(lines) if [name, value] == _columns(found[0], value))
    at = rows[0].index(value)
    bars = [f'<figure class="bars" markdown="0"><figcaption>{title}</figcaption>']
    for row in rows[1:]:
        if number := _VALUE.search(row[at]):
            label = html.escape(re.sub(r"\[(.*?)\]\([^)]*\)", r"\1", row[0]).replace("`", ""))
            share = min(100.0, 100 * float(number[0]))
            bars.append(f'<div><span>{label}</span><i style="width:{share:.0f}%"></i>'
                        f"<b>{number[0]}</b></div>")  # fmt: skip
    return [*bars, "</figure>", ""]


def _columns(headings: list[str], value: str) -> list[str]:
    return [headings[0], value if value in headings else ""]


def _tables(lines: list[str]) -> Iterator[list[list[str]]]:
    """The cells of each table, row by row, the headings first."""
    for start, line in enumerate(lines):
        if _RULE.match(line):
            rows = [lines[start - 1]]
            for row in lines[start + 1 :]:
                if not row.startswith("|"):
                    break
                rows.append(row)
            yield [_cells(row) for row in rows]


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]


def _narrow(lines: list[str]) -> Iterator[str]:
    """Cut each wide table after its first columns, and fold the whole one below it."""
    table: list[str] = []
    for line in [*lines, ""]:
        if line.startswith("|"):
            table.append(line)
            continue
        if table:
            yield from _folded(table)
            table = []
        yield line


def _folded(table: list[str]) -> Iterator[str]:
    columns = len(_cells(table[0]))
    if columns <= MOST:
        yield from table
        return
    for row in table:
        yield (
            "| " + " | ".join(_cells(row)[:MOST]) + " |"
            if not _RULE.match(row)
            else ("|" + "|".join(row.split("|")[1 : MOST + 1]) + "|")
        )
    yield from ("", f'<details markdown="1"><summary>All {columns} columns</summary>', "")
    yield from table
    yield from ("", "</details>")
