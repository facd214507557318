"""`shioenv`: all subcommands put together, and how errors are printed."""

from __future__ import annotations

import copy
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command_name

from shioenv.cli import (
    conform,
    dataset,
    doctor,
    evaluate,
    experiment,
    generate,
    grammar,
    model,
    predict,
    preview,
    printing,
    report,
    run,
    sample,
    score,
    serve,
    shared,
    shell,
    suite,
    system,
    tasks,
    train,
)
from shioenv.cli.interrupts import INTERRUPTED, interruptible
from shioenv.errors import ShioenvError


class CommandGroup(TyperGroup):
    """The group of all subcommands. A ShioenvError ends as a message and an exit status."""

    def invoke(self, ctx: Any) -> Any:
        """Run the subcommand. A ShioenvError exits with its own status, Ctrl-C with 130."""
        try:
            with interruptible():
                return super().invoke(ctx)
        except ShioenvError as error:
            print_error(error)
            raise typer.Exit(error.exit_status) from error
        except KeyboardInterrupt as error:
            print("interrupted", file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from error


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


app = typer.Typer(
    name="shioenv",
    cls=CommandGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit status: 0 done, 1 the work failed, 2 wrong usage, 3 this host lacks something.",
)


@app.callback()
def shioenv(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Shell inputs, written by grammars, executed on a pristine system, recorded and scored."""


shared.command(app, "shioenv doctor")(doctor.doctor)
app.add_typer(system.app, name="system")
shared.command(
    app, "shioenv run 'sort -u documents/names.txt > sorted.txt'", cls=shared.InputCommand
)(run.run)
shared.command(app, "shioenv shell --changes")(shell.shell)
shared.command(app, "shioenv preview -- touch new", cls=preview.PreviewCommand)(preview.preview)
shared.command(app, "shioenv score 'ls -laT 32'", cls=shared.InputCommand)(score.score)
app.add_typer(grammar.app, name="grammar")
shared.command(app, "shioenv sample --count 5 --seed 7 --command df")(sample.sample)
shared.command(app, "shioenv generate ./dataset --count 1000 --seed 7")(generate.generate)
shared.command(dataset.app, "shioenv dataset report ./dataset --out report.html")(report.report)
app.add_typer(dataset.app, name="dataset")
app.add_typer(tasks.app, name="tasks")
app.add_typer(serve.app, name="serve")
app.add_typer(experiment.app, name="experiment")
app.add_typer(suite.app, name="suite")
app.add_typer(evaluate.app, name="evaluate")
app.add_typer(conform.app, name="conform")
app.add_typer(train.app, name="train")
app.add_typer(model.app, name="model")
shared.command(app, "shioenv predict 'wc -l scripts/*.sh | tail -1'", cls=shared.InputCommand)(
    predict.predict
)


def narrowed(word: str) -> typer.Typer:
    """The app with the one subcommand that a word names; the whole app where it names none.

    To build all subcommands takes 30 ms, to build one takes none.
    """
    one = copy.copy(app)
    one.registered_groups = [group for group in app.registered_groups if group.name == word]
    one.registered_commands = [
        command
        for command in app.registered_commands
        if command.callback is not None and get_command_name(command.callback.__name__) == word
    ]
    return one if one.registered_groups or one.registered_commands else app
