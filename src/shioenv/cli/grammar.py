"""`shioenv grammar`: check, count and show the grammars."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shioenv.cli import shared
from shioenv.report.text import share

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shioenv.grammar.coverage import Coverage
    from shioenv.grammar.describe import Description
    from shioenv.grammar.examples import ExampleResult
    from shioenv.grammar.faults import Fault
    from shioenv.grammar.symbols import Grammar

app = typer.Typer(no_args_is_help=True, help="Grammars: what inputs may be written.")


@shared.command(app, "shioenv grammar check df ./my/own.grammar")
def check(
    grammars: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILES]...",
            autocompletion=shared.complete_commands,
            help="Names of shipped grammars, or paths of .grammar files (default: all shipped).",
        ),
    ] = None,
    run: Annotated[
        bool, typer.Option("--run", help="Also run every example on the system.")
    ] = False,
    system: shared.SystemName = None,
    json: shared.Json = False,
) -> None:
    """Check grammars: every fault with file, line and column, examples included.

    The exit status is 1 where there is a fault.
    """
    from shioenv.grammar.library import names_of_grammars

    asked = grammars or list(names_of_grammars())
    faults = [fault for one in asked for fault in _faults(one)]
    failed = _failed(asked, system) if run and not faults else []
    if json:
        shared.print_json(
            {
                "grammars": len(asked),
                "faults": [
                    {
                        "path": fault.path,
                        "line": fault.line,
                        "column": fault.column,
                        "code": fault.kind.value,
                        "message": fault.message,
                    }
                    for fault in faults
                ],
                "failed_examples": [
                    {"grammar": one.grammar, "input": one.text, "failures": list(one.failures)}
                    for one in failed
                ],
            }
        )
    else:
        for fault in faults:
            print(fault)
        for one in failed:
            print(f"{one.grammar}.grammar:{one.example.line}: `{one.text}`: {one.failures[0]}")
        bad = len(faults) + len(failed)
        print(f"{len(asked)} grammars, {bad or 'no'} fault{'s' * (bad != 1)}")
    if faults or failed:
        raise typer.Exit(1)


def _place(name: str) -> tuple[str, Path]:
    """Name and directory of a grammar given by name or path."""
    from shioenv.grammar.library import COMMANDS

    path = Path(name)
    if path.suffix == ".grammar" or "/" in name:
        return path.name.removesuffix(".grammar"), path.parent
    return name, COMMANDS


def _faults(name: str) -> tuple[Fault, ...]:
    from shioenv.grammar.library import check_grammars

    stem, directory = _place(name)
    return check_grammars([stem], directory=directory)


def _failed(asked: list[str], system: str | None) -> list[ExampleResult]:
    """The examples that do something else on the system than they say."""
    from shioenv.behavior.observe import open_sandbox
    from shioenv.grammar.examples import run_examples
    from shioenv.grammar.library import load_grammar

    with open_sandbox(system) as sandbox:
        versions = sandbox.system.packages

        def execute(text: str) -> tuple[int, str]:
            behavior = sandbox.run(text)
            return behavior.exit_code, behavior.text

        places = [_place(name) for name in asked]
        loaded = [load_grammar(stem, versions=versions, directory=there) for stem, there in places]
        return [result for result in run_examples(loaded, execute) if result.failures]


@shared.command(app, "shioenv grammar stats")
def stats(system: shared.SystemName = None, json: shared.Json = False) -> None:
    """Count nonterminals, productions, options and examples, per command and together.

    Grounded productions are those that a built system's own names add; without one they are left
    out.
    """
    from rich.table import Table

    from shioenv.grammar.bind import bind_all
    from shioenv.grammar.library import load_grammars
    from shioenv.grammar.symbols import count
    from shioenv.system.catalogue import catalogue
    from shioenv.system.store import find_system

    try:
        built = find_system(system)
    except Exception:
        if system is not None:
            raise
        built = None
    grammars = load_grammars(versions=built.packages if built else None)
    bound = bind_all(grammars, catalogue(built)) if built else None
    grounded = count(bound).grounded if bound else None
    total = count(grammars)
    rows = [
        {
            "command": one.name,
            "nonterminals": count([one]).nonterminals,
            "productions": count([one]).productions,
            "options": len(one.options),
            "examples": len(one.examples),
        }
        for one in grammars
    ]
    together = {
        "commands": len(grammars),
        "nonterminals": total.nonterminals,
        "productions": total.productions,
        "grounded_productions": grounded,
        "options": sum(len(one.options) for one in grammars),
        "examples": sum(len(one.examples) for one in grammars),
    }
    if json:
        shared.print_json(
            {
                **together,
                "system": built.name if built else None,
                "by_command": {str(row["command"]): row for row in rows},
            },
            indent=2,
        )
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("command")
    for heading in ("nonterminals", "productions", "options", "examples"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(*map(str, row.values()))
    table.add_section()
    columns = ("nonterminals", "productions", "options", "examples")
    table.add_row("together", *(str(together[column]) for column in columns), style="bold")
    console = shared.console()
    console.print(table)
    console.print("What several commands share counts once in the last line.", style="dim")
    if built:
        console.print(f"{grounded} more productions are names of {built.name}.", style="dim")


@shared.command(app, "shioenv grammar coverage df tar")
def coverage(
    grammars: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[COMMANDS]...",
            autocompletion=shared.complete_commands,
            help="Names of grammars, or paths of .grammar files (default: all shipped).",
        ),
    ] = None,
    system: shared.SystemName = None,
    json: shared.Json = False,
) -> None:
    """Compare grammars with the options that the system's own help texts document.

    Missing options are those that the help shows and the grammar lacks, unknown ones those that
    only the grammar has; excused is either with a reason in the grammar file. The exit status is 1
    where an option is missing or unknown.
    """
    from shioenv.behavior.observe import open_sandbox
    from shioenv.grammar.coverage import coverage as covered
    from shioenv.grammar.library import load_grammar, names_of_grammars

    with open_sandbox(system) as sandbox:
        versions = sandbox.system.packages
        places = [_place(name) for name in grammars or names_of_grammars()]
        loaded = [load_grammar(stem, versions=versions, directory=there) for stem, there in places]
        results = [covered(one, lambda text: sandbox.run(text).text) for one in loaded]
    if json:
        gaps = {
            kind: [
                {"command": gap.command, "option": gap.option, "reason": gap.reason}
                for result in results
                for gap in getattr(result, kind)
            ]
            for kind in ("missing", "unknown", "excused")
        }
        documented = sum(result.documented for result in results)
        shared.print_json({"commands": len(results), "documented": documented, **gaps}, indent=2)
    else:
        _print_coverage(results)
    if not all(result.complete for result in results):
        raise typer.Exit(1)


def _print_coverage(results: list[Coverage]) -> None:
    """A line for each command, the totals, and every option that wants attention."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("command")
    counts = ("documented", "missing", "unknown", "excused")
    for heading in counts:
        table.add_column(heading, justify="right")

    def numbers(result: Coverage) -> list[int]:
        gaps = (result.missing, result.unknown, result.excused)
        return [result.documented, *(len(one) for one in gaps)]

    for result in results:
        style = None if result.complete else "yellow"
        table.add_row(result.command, *map(str, numbers(result)), style=style)
    table.add_section()
    together = [sum(column) for column in zip(*map(numbers, results), strict=True)]
    table.add_row("together", *map(str, together), style="bold")
    shared.console().print(table)
    for result in results:
        for kind, gaps in (("missing", result.missing), ("unknown", result.unknown)):
            if gaps:
                print(f"{result.command}: {kind} {', '.join(gap.option for gap in gaps)}")


@shared.command(app, "shioenv grammar report --count 1000 --ucs-count 500 --round-trip 5000")
def report(
    count: Annotated[
        int, typer.Option(min=1, metavar="N", help="Inputs of gcs that are executed.")
    ] = 20_000,
    ucs_count: Annotated[
        int, typer.Option(min=1, metavar="N", help="Inputs of ucs that are executed.")
    ] = 5_000,
    round_trip: Annotated[
        int, typer.Option(min=1, metavar="N", help="Inputs of gcs that are parsed back.")
    ] = 100_000,
    seed: Annotated[int, typer.Option(help="The same seed gives the same inputs.")] = 0,
    workers: Annotated[int, typer.Option(min=1, metavar="W", help="Processes.")] = 2,
    system: shared.SystemName = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the page docs/grammars.md.")
    ] = False,
    json: shared.Json = False,
) -> None:
    """Measure the grammars on a system: size, options covered, misuse, exit codes, speed.

    Samples single commands and executes each once, which takes a few minutes. Misuse is a failure
    that the program blames on the command line as typed. The exit status is 1 where a number is not
    what it must be.
    """
    from shioenv.execution.local import LocalExecutor
    from shioenv.report.grammar_report import grammar_report, page

    made = grammar_report(
        inputs=count,
        ucs_inputs=ucs_count,
        round_trip=round_trip,
        seed=seed,
        system=system,
        executor=LocalExecutor(workers),
        tell=shared.note,
    )
    if json:
        shared.print_json(made.to_json(), indent=2)
    elif markdown:
        shared.write(page(made).encode())
    else:
        for what, must, measured, reached in made.goals():
            print(f"{'  ' if reached else '! '}{what.replace('`', '')}: {measured} ({must})")
        for name, outcome in (("gcs", made.gcs), ("ucs", made.ucs)):
            worst = (f"{one} {share.misuse_share:.1%}" for one, share in outcome.worst())
            print(f"most misuse, {name}: {', '.join(worst)}")
    if not made.reached:
        raise typer.Exit(1)


@shared.command(app, "shioenv grammar draft nl")
def draft(
    command: Annotated[str, typer.Argument(help="A program of the system, or a builtin of bash.")],
    system: shared.SystemName = None,
) -> None:
    """Write a first grammar of a command from the system's own help text.

    It has every option that the help shows and passes `grammar check`; values, weights and examples
    are a beginning. Redirect it into NAME.grammar and go on from there.
    """
    from shioenv.behavior.observe import open_sandbox
    from shioenv.grammar.draft import draft as drafted

    with open_sandbox(system) as sandbox:

        def execute(text: str) -> tuple[int, str]:
            behavior = sandbox.run(text)
            return behavior.exit_code, behavior.text

        packages = sandbox.system.packages
        package = _package(command, packages, execute)
        version = packages.get(package, "0")
        text = drafted(command, execute, package=package, version=_upstream(version))
    shared.write(text.encode())


def _package(
    command: str, packages: Mapping[str, str], execute: Callable[[str], tuple[int, str]]
) -> str:
    """The package that ships a command, by the package manager's own lists on the system."""
    program = command.partition("-")[0] if command.startswith("ip-") else command
    paths = f"/bin/{program} /usr/bin/{program} /sbin/{program} /usr/sbin/{program}"
    code, output = execute(
        f"for f in {paths}; do grep -lx $f /var/lib/dpkg/info/*.list; done 2>/dev/null | head -n 1"
    )
    name = output.strip().rpartition("/")[2].removesuffix(".list").partition(":")[0]
    return name if code == 0 and name in packages else "bash"


def _upstream(version: str) -> str:
    """A package's version without epoch and distribution suffix: `1:9.1-1+b1` -> `9.1`."""
    return version.rpartition(":")[2].partition("-")[0]


@shared.command(app, "shioenv grammar parse 'ls -laT 32 | wc -l'")
def parse(
    text: Annotated[
        str | None,
        typer.Argument(metavar="[INPUT]", help="Any Bash input, quoted.", show_default=False),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="F", help="Instead, every line of this file (- is stdin)."),
    ] = None,
    json: shared.Json = False,
) -> None:
    """Take inputs apart: commands, operators, redirections, and what each argument is.

    Says of each argument whether the command's grammar derives it. Any text will do; what no parser
    can take apart is one command with words. Many inputs end with the shares.
    """
    import sys

    from shioenv.errors import UsageError
    from shioenv.grammar.describe import Describer
    from shioenv.grammar.library import load_grammars

    if (text is None) == (file is None):
        raise UsageError(
            "one input, or a file of them", hint="shioenv grammar parse 'ls -l', or --file FILE"
        )
    describer = Describer(load_grammars())
    if text is not None:
        described = [describer.describe(text)]
    else:
        assert file is not None
        try:
            content = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        except OSError as error:
            raise UsageError(f"cannot read {file}: {error.strerror}") from error
        lines = content.decode("utf-8", "surrogateescape").split("\n")
        described = [describer.describe(line) for line in lines if line]
    for one in described:
        if json:
            shared.print_json(_parsed(one))
        elif text is not None:
            _print_parsed(one)
    if not json and text is None:
        _print_shares(described)


def _parsed(description: Description) -> dict[str, object]:
    return {
        "input": description.text,
        "parsed": description.parsed,
        "segments": [
            {
                "command": segment.command,
                "operator": segment.operator,
                "arguments": [
                    {
                        "text": one.text,
                        "kind": one.kind.value,
                        "option": one.option,
                        "value": one.value,
                        "derivable": one.derivable,
                    }
                    for one in segment.arguments
                ],
                "redirections": [
                    {"operator": operator, "target": target}
                    for operator, target in segment.redirections
                ],
                "assignments": list(segment.assignments),
                "grammar": segment.grammar,
                "derivable": segment.derivable,
            }
            for segment in description.segments
        ],
    }


def _print_parsed(description: Description) -> None:
    """One line for each part of an input."""
    if not description.parsed:
        print("no Bash parser reads all of this input; its words are shown")
    for segment in description.segments:
        if segment.operator:
            print(segment.operator)
        known = "" if segment.grammar else "  (no grammar)"
        for assignment in segment.assignments:
            print(f"  {'assignment':10} {assignment}")
        print(f"{segment.command}{known}")
        for one in segment.arguments:
            value = f" = {one.value}" if one.value is not None else ""
            option = f"{one.option}{value}" if one.option else ""
            mark = "" if one.derivable or not segment.grammar else "not in the grammar"
            print(f"  {one.kind.value:10} {one.text:24} {option:24} {mark}".rstrip())
        for operator, target in segment.redirections:
            print(f"  {'redirected':10} {operator} {target or ''}".rstrip())


def _print_shares(described: list[Description]) -> None:
    """How many inputs could be read, and how many of their parts the grammars know."""
    segments = [segment for one in described for segment in one.segments]
    known = [segment for segment in segments if segment.grammar]
    arguments = [argument for segment in known for argument in segment.arguments]
    rows = (
        ("inputs read by the Bash parser", sum(one.parsed for one in described), len(described)),
        ("commands with a grammar", len(known), len(segments)),
        ("of these derived as a whole", sum(one.derivable for one in known), len(known)),
        ("their arguments derived", sum(one.derivable for one in arguments), len(arguments)),
    )
    for label, part, whole in rows:
        print(f"{label:32} {part:6} of {whole:6}  {share(part, whole)}")


@shared.command(app, "shioenv grammar show df")
def show(
    command: Annotated[
        str,
        typer.Argument(autocompletion=shared.complete_commands, help="A command with a grammar."),
    ],
    productions: Annotated[
        bool, typer.Option("--productions", help="Print the productions, not the file.")
    ] = False,
    json: shared.Json = False,
) -> None:
    """Show the grammar of a command: the file as it is written, or what it means."""
    from shioenv.grammar.library import load_grammar

    stem, directory = _place(command)
    grammar = load_grammar(stem, directory=directory)
    if json:
        shared.print_json(_document(grammar), indent=2)
    elif productions:
        for bodies in grammar.productions.values():
            for production in bodies:
                print(production)
    else:
        shared.write((directory / f"{stem}.grammar").read_bytes())


def _document(grammar: Grammar) -> dict[str, object]:
    header = grammar.header
    return {
        "command": grammar.name,
        "manual": header.manual,
        "version": header.version,
        "package": header.package,
        "volatile": header.volatile,
        "pipe": grammar.pipe is not None,
        "options": [{"names": list(one.names), "value": one.value} for one in grammar.options],
        "left_out": [{"options": list(o.options), "reason": o.reason} for o in grammar.omissions],
        "productions": {
            str(head): [str(production) for production in productions]
            for head, productions in grammar.productions.items()
        },
        "examples": [
            [one.command, *(argument.marked for argument in one.arguments)]
            for one in grammar.examples
        ],
    }
