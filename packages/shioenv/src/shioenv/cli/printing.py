"""Output of the command line: results for people and programs, tables, notes."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from shioenv.text import printable as printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

    from shioenv.dataset.manifest import Manifest


_HALF = re.compile("[\ud800-\udfff]")
"""Matches a lone surrogate, which Python uses for a byte that is not UTF-8."""


def print_json(document: Any, *, indent: int | None = None) -> None:
    """Print one JSON document on standard output, encoded by `json_bytes`."""
    write(json_bytes(document, indent=indent) + b"\n")


def json_bytes(document: Any, *, indent: int | None = None) -> bytes:
    """Encode a JSON document in strict UTF-8, without lone surrogates.

    In texts that are not valid UTF-8, as in arguments or paths, invalid bytes become U+FFFD. Beside
    a member `NAME` with such a text, a member `NAME_b64` has the text's bytes as base64. If `NAME`
    is a list with such a text, `NAME_b64` is a list with the bytes of every text. If the name of a
    member has invalid bytes, all names in the same object are escaped.
    """
    text = json.dumps(document, ensure_ascii=False, indent=indent)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(_unicode(document), ensure_ascii=False, indent=indent).encode()


def _unicode(value: Any) -> Any:
    """Replace invalid texts of a value by valid Unicode, and add the bytes of such texts."""
    from shioenv.domain.behavior import output_text
    from shioenv.domain.names import name_text

    if isinstance(value, str):
        return output_text(_bytes(value))[0]
    if isinstance(value, list | tuple):
        return [_unicode(each) for each in value]
    if not isinstance(value, dict):
        return value
    escaped = any(map(_has_bytes, value))  # otherwise `\xff` would be ambiguous
    members: dict[Any, Any] = {}
    for given, member in value.items():
        name = name_text(_bytes(given)) if escaped and isinstance(given, str) else given
        if member is not None or name not in members:  # `output_b64` is None beside a valid text
            members[name] = _unicode(member)
        if _has_bytes(member) and value.get(f"{given}_b64") is None:
            members[f"{name}_b64"] = _base64(member)
    return members


def _has_bytes(value: Any) -> bool:
    """Whether a text, or a text in a list, is invalid Unicode."""
    if isinstance(value, list | tuple):
        return any(map(_has_bytes, value))
    return isinstance(value, str) and _HALF.search(value) is not None


def _base64(value: Any) -> Any:
    """Encode the bytes of a text, or of each text in a list, as base64; None for other values."""
    import base64

    if isinstance(value, list | tuple):
        return [_base64(each) for each in value]
    return base64.b64encode(_bytes(value)).decode("ascii") if isinstance(value, str) else None


def _bytes(text: str) -> bytes:
    """Return the bytes of a text. A lone surrogate from a JSON file becomes three bytes."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def write(content: bytes) -> None:
    """Write raw bytes to standard output."""
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def console(*, stderr: bool = False) -> Console:
    """Create a rich console that prints texts literally, including `[sudo]` and `:bug:`.

    The console adds no colours. It wraps lines only on a terminal.
    """
    from functools import partial

    from rich.console import Console

    plain = partial(Console, stderr=stderr, highlight=False, markup=False, emoji=False)
    return plain() if plain().is_terminal else plain(soft_wrap=True, width=200)


def counted(number: int, noun: str) -> str:
    """Format a number with its noun: `1 record`, `2,000 records`. The plural ends in s."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def note(text: str) -> None:
    """Print a line on standard error: progress, a warning or a remark."""
    print(text, file=sys.stderr, flush=True)


def note_unfinished(directory: Path, manifest: Manifest) -> int:
    """Count the finished records, and print a note on standard error if some are missing."""
    from shioenv.dataset.record_reader import count_unfinished

    if manifest.complete:
        return manifest.records
    waiting = count_unfinished(directory)
    held, wanted = manifest.records + waiting, manifest.count
    note(
        f"{directory} is not finished: {held:,} of its {wanted:,} records are used, those in "
        f"finished shards{' and in journals' if waiting else ''}"
    )
    return held


def remark(text: str, *, dim: bool = True, color: str | None = None) -> None:
    """Print a line about a result on standard error, with a style if that is a terminal."""
    typer.secho(printable(text), err=True, dim=dim or None, fg=color)


def end_line(output: bytes) -> None:
    """Print a newline if remarks follow on the same terminal and the output does not end in one."""
    if output and not output.endswith(b"\n") and sys.stderr.isatty():
        note("")


def show(parts: Iterable[RenderableType | bytes]) -> None:
    """Print lines, tables, styled texts and raw bytes on standard output."""
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
    """Create an empty table with these headings.

    The first `left` columns are aligned left, the others right, for numbers. `min_width` is the
    minimum width of the first column. With `no_wrap`, cells are not wrapped.
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
    """Format each fact as a line: its name, padded to `width` columns, then its value."""
    return (f"{name:{width}} {fact}" for name, fact in facts.items())


MANY = 8
"""If a command has at most this many options, its help has a single panel."""

PANELS = {
    "Inputs": "sampler command policy horizon composite-share mistakes session-length grammars "
    "sampler-label part cwd history pool suite max-arguments",
    "Scores": "budget noise-runs estimator target-se process-budget without-scores",
    "Execution": "system sandbox revert timeout start-timeout without-shell-state workers engine "
    "address cache-size no-cache tty runs",
    "Output": "format compress license markdown figure log",
    "Models": "model machine-below seq2seq stages without abstain-below explain language-model "
    "endpoint agent",
    "Training": "size seq2seq-size memory-sizes device minutes total-minutes steps batch-tokens "
    "learning-rate every patience checkpoint questions",
    "Comparison": "against against-system level at-least",
    "Access": "host port key key-file passwords authorized-keys",
    "Limits": "sessions idle rate connections per-address max-duration delay max-turns",
}
"""The panels, with the names of their options. Other options are in the first panel."""

_PANEL_OF = {f"--{name}": panel for panel, names in PANELS.items() for name in names.split()}


class InPanels:
    """A mixin for commands and groups, which prints their options in panels."""

    params: list[Any]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help. Options that declare a panel themselves remain in it."""
        options = [each for each in self.params if each.param_type_name == "option"]
        if len(options) > MANY:
            for option in options:
                option.rich_help_panel = option.rich_help_panel or _PANEL_OF.get(option.opts[0])
        super().format_help(ctx, formatter)  # type: ignore[misc]
