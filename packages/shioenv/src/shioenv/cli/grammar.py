"""`shioenv grammar`: show the grammars."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from shioenv.cli import shared

if TYPE_CHECKING:
    from shioenv.grammar.symbols import Grammar

app = typer.Typer(
    name="grammar",
    no_args_is_help=True,
    help="Check, show and write grammars, which define valid inputs.",
)


@shared.command(app, "shioenv grammar show df")
def show(
    command: Annotated[
        str,
        typer.Argument(autocompletion=shared.complete_commands, help="A command with a grammar."),
    ],
    productions: Annotated[
        bool, typer.Option("--productions", help="Print the productions instead of the file.")
    ] = False,
    own: shared.GrammarDirectory = None,
) -> shared.Printout:
    """Show the grammar of a command."""
    from shioenv.grammar.library import load_grammar, own_grammars, place_of_grammar

    stem, directory = place_of_grammar(command, own_grammars(own))
    grammar = load_grammar(stem, directory=directory)
    parts: list[str | bytes] = [(directory / f"{stem}.grammar").read_bytes()]
    if productions:
        parts = [str(made) for bodies in grammar.productions.values() for made in bodies]
    return shared.Printout(_document(grammar), parts, indent=2)


def _document(grammar: Grammar) -> dict[str, object]:
    header = grammar.header
    return {
        "command": grammar.name,
        "manual": header.manual,
        "version": header.version,
        "package": header.package,
        "volatile": header.volatile,
        "pipe": grammar.pipe is not None,
        "options": [
            {"names": list(option.names), "value": option.value} for option in grammar.options
        ],
        "left_out": [asdict(omission) for omission in grammar.omissions],
        "productions": {
            str(head): [str(production) for production in productions]
            for head, productions in grammar.productions.items()
        },
        "examples": [
            [example.command, *(argument.marked for argument in example.arguments)]
            for example in grammar.examples
        ],
    }
