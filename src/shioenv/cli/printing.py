"""What the command line prints: results for people and programs, tables, notes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table


def print_json(document: Any, *, indent: int | None = None) -> None:
    """Print one JSON document on standard output.

    Where a text (as of a file name) has a lone surrogate, all characters but ASCII are escaped.
    """
    text = json.dumps(document, ensure_ascii=False, indent=indent)
    try:
        content = text.encode()
    except UnicodeEncodeError:
        content = json.dumps(document, indent=indent).encode()
    write(content + b"\n")


def text_fields(name: str, text: str) -> dict[str, str]:
    """A text that the caller gave, as a field of a JSON document.

    Where the text is not UTF-8, a second field has its bytes as base64, as outputs have.
    """
    from shioenv.domain.behavior import output_text

    content = os.fsencode(text)
    shown, encoded = output_text(content)
    return {name: shown} if encoded is None else {name: shown, f"{name}_b64": encoded}


def valid(document: Any) -> Any:
    """A JSON document whose texts are valid Unicode: U+FFFD stands for what is not UTF-8."""
    if isinstance(document, str):
        return document.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if isinstance(document, Mapping):
        return {valid(name): valid(value) for name, value in document.items()}
    if isinstance(document, list | tuple):
        return [valid(value) for value in document]
    return document


def write(content: bytes) -> None:
    """Write bytes to standard output as they are."""
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def console(*, stderr: bool = False) -> Console:
    """A rich console that prints texts as they are, `[sudo]` and `:bug:` too.

    The console adds no colours of its own. Only on a terminal does the console break lines.
    """
    from functools import partial

    from rich.console import Console

    plain = partial(Console, stderr=stderr, highlight=False, markup=False, emoji=False)
    return plain() if plain().is_terminal else plain(soft_wrap=True, width=200)


def printable(text: str) -> str:
    """The text with unprintable characters but tabs escaped, so that no terminal obeys them."""
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable() or character == "\t"
        else character.encode("unicode_escape", "surrogatepass").decode("ascii")
        for character in text
    )


def counted(number: int, noun: str) -> str:
    """`1 record`, `2,000 records`: a number with its noun, whose plural ends in s."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def note(text: str) -> None:
    """Print a line on standard error: progress, a warning or a remark."""
    print(text, file=sys.stderr, flush=True)


def remark(text: str, *, dim: bool = True, color: str | None = None) -> None:
    """Print a line on standard error that goes with a result. Its style shows on a terminal."""
    typer.secho(printable(text), err=True, dim=dim or None, fg=color)


_DIFF_COLORS = {"+": "green", "-": "red", "@": "cyan"}
"""Colors of the lines of a diff, by their first character."""


def diff(text: str) -> None:
    """Print a diff on standard error: escaped and colored on a terminal, else exactly as it is."""
    if sys.stderr.isatty():
        for line in text.split("\n")[:-1]:
            remark(line, dim=False, color=_DIFF_COLORS.get(line[:1]))
    else:
        sys.stderr.flush()
        sys.stderr.buffer.write(text.encode())
        sys.stderr.buffer.flush()


def end_line(output: bytes) -> None:
    """End the line that an output left open on the terminal on which remarks follow."""
    if output and not output.endswith(b"\n") and sys.stderr.isatty():
        note("")


def show(parts: Iterable[RenderableType | bytes]) -> None:
    """Print lines, tables and styled texts on standard output, and bytes as they are."""
    rich = None
    for part in parts:
        if isinstance(part, bytes):
            write(part)
        elif isinstance(part, str):
            print(part)
        else:
            rich = rich or console()
            rich.print(part, soft_wrap=type(part).__name__ == "Text")


def table(
    headings: Sequence[str], *, left: int = 1, min_width: int | None = None, no_wrap: bool = False
) -> Table:
    """An empty table with these headings.

    The first `left` columns are aligned left, the others right, for numbers. `min_width` is the
    width of the first column, at least. With `no_wrap`, no cell is broken into lines.
    """
    from rich.table import Table

    made = Table(box=None, pad_edge=False, header_style="dim")
    for place, heading in enumerate(headings):
        made.add_column(
            heading,
            justify="left" if place < left else "right",
            min_width=None if place else min_width,
            no_wrap=no_wrap,
        )
    return made


def rows(facts: Mapping[str, object], width: int = 11) -> Iterator[str]:
    """A line for each fact: the name, padded to `width` columns, then the fact."""
    return (f"{name:{width}} {fact}" for name, fact in facts.items())
