"""The command `shioenv`: assembly of its subcommands, and printing of errors."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from shioenv.cli import printing, subcommands
from shioenv.cli.interrupts import BROKEN_PIPE, INTERRUPTED, interruptible, is_reader_gone
from shioenv.errors import ShioenvError

START = """\
ShIOEnv runs shell inputs on a pristine machine and records what each one changes.

  shioenv doctor                               Check that this host can run inputs.
  shioenv system build                         Build the machine that inputs run on.
  shioenv run 'mkdir -m 750 new; ls -ld new'   Run one input and show what it changes.
  shioenv generate ./dataset --count 20        Make a dataset of sampled inputs.
  shioenv dataset show ./dataset               Show records of the dataset.

All commands: shioenv --help. Options of a command: shioenv run --help.
Guides and reference: the directory docs/ of the source.
"""
"""The output of `shioenv` without arguments: the commands that a newcomer needs."""


class CommandGroup(TyperGroup):
    """The group of all subcommands. A ShioenvError becomes a message and an exit status."""

    def invoke(self, ctx: Any) -> Any:
        """Run the subcommand.

        A ShioenvError exits with its own status, Ctrl-C with 130, and a closed output pipe with
        141.
        """
        try:
            with interruptible(), _piped():
                return super().invoke(ctx)
        except ShioenvError as error:
            print_error(error)
            raise typer.Exit(error.exit_status) from error
        except KeyboardInterrupt as error:
            if not hasattr(error, "__notes__"):  # notes have been printed
                print("interrupted", file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from error
        except Exception as error:
            if type(error).__name__ == "BadParameter":  # click's class, or typer's copy of it
                error.message = _plain_kinds(error.message)  # type: ignore[attr-defined]
            raise

    def make_context(
        self, info_name: str | None, args: list[str], *given: Any, **named: Any
    ) -> Any:
        """Parse the options, and print the help if requested.

        `help` (also before a subcommand) and `version` work like `--help` and `--version`. Without
        arguments, print `START`.
        """
        if not args and not named.get("resilient_parsing"):  # set while completing
            with _piped():
                print(START, end="")
            raise typer.Exit
        if args[:1] == ["help"]:
            args = [*args[1:], "--help"]
        elif args == ["version"]:
            args = ["--version"]
        with _piped():
            return super().make_context(info_name, args, *given, **named)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help, with the subcommands in panels."""
        for name, command in self.commands.items():
            command.rich_help_panel = subcommands.panel(name)  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)


def _plain_kinds(message: str) -> str:
    """Rewrite a message about an option: `a whole number` instead of `a valid integer range`."""
    message = re.sub(r"is not a valid integer( range)?\b", "is not a whole number", message)
    return re.sub(r"is not a valid float( range)?\b", "is not a number", message)


@contextmanager
def _piped() -> Iterator[None]:
    """Exit with the status `BROKEN_PIPE` when the reader of the output has closed the pipe."""
    try:
        yield
    except BrokenPipeError as error:
        if not is_reader_gone():
            raise
        raise typer.Exit(BROKEN_PIPE) from error
    except SystemExit as error:
        if not isinstance(error.__context__, BrokenPipeError):  # rich exits on its own
            raise
        raise typer.Exit(BROKEN_PIPE) from error


def print_error(error: ShioenvError) -> None:
    """Print `error: message (CODE)` and the hint to standard error."""
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    first, *rest = error.message.split("\n")
    line = Text.assemble(("error", "bold red"), f": {printing.printable(first)} ({error.code})")
    console.print(line)
    for text in rest:
        console.print(Text(printing.printable(text)))
    if error.hint:
        console.print(Text(f"  hint: {error.hint}", style="dim"))


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"shioenv {version('shioenv')}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Generate shell inputs, run them, record and score effects."""


@cache
def application(word: str = "", inner: str = "") -> typer.Typer:
    """Return the app with the subcommand `word`, or with all subcommands if there is none.

    Only the modules of the returned subcommands are imported: one takes almost no time, all take
    0.1 s. `inner` is the word after `word` on the command line.
    """
    app = typer.Typer(
        name="shioenv",
        cls=CommandGroup,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog="Exit status: 0 done, 1 the work failed, 2 wrong usage, 3 this host lacks"
        " something.",
    )
    app.callback()(_options)
    if word == "--version" or (word, inner) == ("version", ""):
        return app
    found = subcommands.Subcommands()
    for part in found.subcommands(word, inner):
        app.add_typer(part)
    if "_SHIOENV_COMPLETE" not in os.environ:
        for line in found.remarks(word, inner):
            printing.note(line)
    return app
