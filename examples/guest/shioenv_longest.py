"""A guest of ShIOEnv: the command `dataset longest`, and the predictor `echoes`."""

from __future__ import annotations

import heapq
import shlex
from typing import Annotated, Any

import typer

from shioenv.cli import printing, shared
from shioenv.dataset.record_reader import read_records
from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import State
from shioenv.errors import Abstained

app = typer.Typer()


@shared.command(app, "shioenv dataset longest ./dataset --count 5")
def longest(
    directory: shared.Directory,
    count: Annotated[int, typer.Option(min=1, metavar="N", help="How many records.")] = 5,
) -> shared.Printout:
    """Print the inputs of a dataset that have the most arguments."""
    records = heapq.nlargest(count, read_records(directory), key=lambda each: each.n_arguments)
    document = [{"id": each.session_id, "arguments": each.n_arguments} for each in records]
    lines = [f"{each.n_arguments:4}  {printing.printable(each.input)}" for each in records]
    return shared.Printout(document, lines, indent=2)


class Echoes:
    """Answers `echo` if its operands are plain words, and declines every other input."""

    version = "1"

    def __init__(self, setting: Any) -> None:
        """Accept the setting: the text after `echoes:`, the suite's system, its start directory."""

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        """Return the words after `echo`. Errors: Abstained for any other input."""
        try:
            command, *words = shlex.split(shell_input)
        except ValueError:
            command, words = "", []
        if command != "echo" or set(shell_input) & set("$`|;&<>*?[{(~!#\\\n") or "-" in words[:1]:
            raise Abstained("it is no echo of words")
        return Behavior(0, f"{' '.join(words)}\n".encode("utf-8", "surrogateescape"))
