"""`shioenv grammar`: check, count and show the grammars."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shioenv.cli import printing, shared, stdin
from shioenv.text import share

if TYPE_CHECKING:
    from shioenv.behavior.observe import SandboxRunner
    from shioenv.grammar.describe import DescribedSegment, Description
    from shioenv.grammar.examples import ExampleResult
    from shioenv.grammar.library import OwnGrammars
    from shioenv.grammar.symbols import Grammar

app = typer.Typer(
    name="grammar",
    no_args_is_help=True,
    help="Check, show and write grammars, which define valid inputs.",
)


def opened(system: str | None) -> SandboxRunner:
    """Open a sandbox that reports outputs and exit codes, but no shell state."""
    from shioenv.behavior.observe import open_sandbox
    from shioenv.sandbox.base import Limits

    return open_sandbox(system, Limits(without_shell_state=True))


def executing(sandbox: SandboxRunner) -> Callable[[str], tuple[int, str]]:
    """Return a function that executes a text and returns its exit code and output."""

    def execute(text: str) -> tuple[int, str]:
        behavior = sandbox.run(text)
        return behavior.exit_code, behavior.text

    return execute


@shared.command(app, "shioenv grammar check df ./my/own.grammar")
def check(
    grammars: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILES]...",
            autocompletion=shared.complete_commands,
            help="Grammars by name, a set (paper, all), or paths of .grammar files "
            "(default: all in --grammars, else all shipped).",
        ),
    ] = None,
    run: Annotated[
        bool, typer.Option("--run", help="Also run the examples on the system.")
    ] = False,
    own: shared.GrammarDirectory = None,
    system: shared.SystemName = None,
) -> shared.Printout:
    """Check grammars and their examples.

    Each fault is printed with file, line and column. The exit status is 1 if there is a fault.
    """
    from shioenv.grammar.library import check_grammars, own_grammars

    asked = asked_grammars(grammars, own_grammars(own))
    faults = [fault for name, there in asked for fault in check_grammars([name], directory=there)]
    failed = _failed(asked, system) if run and not faults else []
    document = {
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
            {"grammar": result.grammar, "input": result.text, "failures": result.failures}
            for result in failed
        ],
    }
    lines = [
        *map(str, faults),
        *(
            f"{result.grammar}.grammar:{result.example.line}: `{result.text}`: {result.failures[0]}"
            for result in failed
        ),
    ]
    bad = len(lines)
    faulty = printing.counted(bad, "fault") if bad else "no faults"
    lines.append(f"{printing.counted(len(asked), 'grammar')}, {faulty}")
    return shared.Printout(document, lines, status=1 if bad else 0)


def _place(name: str, own: OwnGrammars | None = None) -> tuple[str, Path]:
    """Return name and directory of a grammar, given by name or path; user grammars come first."""
    from shioenv.grammar.library import COMMANDS

    path = Path(name)
    if path.suffix == ".grammar" or "/" in name:
        return path.name.removesuffix(".grammar"), path.parent
    return name, own.directory if own and name in own.names else COMMANDS


def asked_grammars(names: list[str] | None, own: OwnGrammars | None) -> list[tuple[str, Path]]:
    """Return names and directories of the requested grammars; default: the user's, else all.

    Errors: UnknownGrammarError.
    """
    from shioenv.grammar.library import check_known, chosen_grammars

    chosen = names or (own.names if own else ("all",))
    places = [_place(name, own) for name in chosen_grammars(chosen, own)]
    for name, directory in places:
        check_known([name], directory)
    return places


def grammars_at(places: Iterable[tuple[str, Path]], sandbox: SandboxRunner) -> list[Grammar]:
    """Load the grammars at these places, for the program versions in a sandbox."""
    from shioenv.grammar.library import load_grammar

    versions = sandbox.system.versions
    return [load_grammar(stem, versions=versions, directory=there) for stem, there in places]


def _failed(asked: list[tuple[str, Path]], system: str | None) -> list[ExampleResult]:
    """Return the results of examples whose behavior on the system contradicts their claim."""
    from shioenv.grammar.examples import run_examples

    with opened(system) as sandbox:
        results = run_examples(grammars_at(asked, sandbox), executing(sandbox))
        return [result for result in results if result.failures]


@shared.command(app, "shioenv grammar stats")
def stats(own: shared.GrammarDirectory = None, system: shared.SystemName = None) -> shared.Printout:
    """Count nonterminals, productions, options and examples.

    Grounded productions come from the names of a built system. Without a built system they are not
    counted.
    """
    from rich.text import Text

    from shioenv.grammar.bind import bind_all
    from shioenv.grammar.library import load_grammars, own_grammars
    from shioenv.grammar.symbols import count_grammars_size
    from shioenv.system.catalogue import catalogue
    from shioenv.system.store import find_system

    try:
        built = find_system(system)
    except Exception:
        if system is not None:
            raise
        built = None
    versions = built.versions if built else None
    grammars = load_grammars(versions=versions, own=own_grammars(own))
    grounded = count_grammars_size(bind_all(grammars, catalogue(built))).grounded if built else None
    together = _counts(grammars)
    by_command = {grammar.name: _counts([grammar]) for grammar in grammars}
    document = {
        "commands": len(grammars),
        **together,
        "grounded_productions": grounded,
        "system": built.name if built else None,
        "by_command": {name: {"command": name, **counts} for name, counts in by_command.items()},
    }
    table = printing.table(("command", *together))
    for name, counts in by_command.items():
        table.add_row(name, *map(str, counts.values()))
    table.add_section()
    table.add_row("together", *map(str, together.values()), style="bold")
    notes = ["The last line counts symbols that several commands share once."]
    if built:
        notes.append(f"{grounded} further productions are names that exist on {built.name}.")
    return shared.Printout(
        document, [table, *(Text(note, style="dim") for note in notes)], indent=2
    )


def _counts(grammars: Sequence[Grammar]) -> dict[str, int]:
    from shioenv.grammar.symbols import count_grammars_size

    total = count_grammars_size(grammars)
    return {
        "nonterminals": total.nonterminals,
        "productions": total.productions,
        "options": sum(len(grammar.options) for grammar in grammars),
        "examples": sum(len(grammar.examples) for grammar in grammars),
    }


@shared.command(app, "shioenv grammar usage ./history.txt > mine.json")
def usage(
    file: Annotated[
        Path, typer.Argument(metavar="INPUTS", help="File of inputs, one a line (- is stdin).")
    ],
    about: Annotated[
        str, typer.Option(metavar="TEXT", help="Description of the inputs, stored in the policy.")
    ] = "",
    own: shared.GrammarDirectory = None,
) -> shared.Printout:
    """Make a policy, for `--policy FILE.json`, from a list of inputs.

    It counts commands, options, operators and forms of words. It contains nothing else of the
    inputs.
    """
    from dataclasses import replace

    from shioenv.grammar.describe import Describer
    from shioenv.grammar.library import load_grammars, own_grammars
    from shioenv.synthesis.policy import NAMED
    from shioenv.synthesis.usage_tables import count_usage

    describer = Describer(load_grammars(own=own_grammars(own)))
    made = count_usage(map(describer.describe, stdin.given_lines(file)), about)
    document = replace(NAMED["people"], usage=made, utility_share=1.0).to_json()
    return shared.Printout(document, [printing.json_bytes(document, indent=1)])


@shared.command(app, "shioenv grammar parse 'ls -laT 32 | wc -l'")
def parse(
    text: Annotated[
        str | None, typer.Argument(metavar="[INPUT]", help="A Bash input, as one quoted argument.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            metavar="FILE",
            help="Parse each line of this file instead (- is stdin).",
        ),
    ] = None,
    any_system: Annotated[
        bool,
        typer.Option(
            "--any-system", help="Accept any word as a file, user or other name of the system."
        ),
    ] = False,
    own: shared.GrammarDirectory = None,
    system: shared.SystemName = None,
) -> Iterator[shared.Printout]:
    """Parse an input: commands, operators, redirections, arguments.

    Each argument is shown with its type, and whether the command's grammar derives it on the
    system. Invalid Bash is shown as one command with words. With --file, the shares of parsed and
    derived inputs are printed; --json prints each input instead.
    """
    from shioenv.errors import UsageError
    from shioenv.grammar.describe import Describer
    from shioenv.grammar.library import load_grammars, own_grammars
    from shioenv.synthesis.sample import grammars_on
    from shioenv.system.store import find_system

    if (text is None) == (file is None):
        raise UsageError(
            "give either an INPUT or --file", hint="shioenv grammar parse 'ls -l', or --file FILE"
        )
    directory = own_grammars(own)
    describer = Describer(
        load_grammars(own=directory) if any_system else grammars_on(find_system(system), directory)
    )
    if text is not None:
        described = [describer.describe(text)]
    else:
        assert file is not None
        described = [describer.describe(line) for line in stdin.given_lines(file)]
    for description in described:
        yield shared.Printout(
            _parsed(description), () if text is None else _parsed_lines(description)
        )
    if text is None:
        yield shared.Printout(None, _shares(described))


def _parsed(description: Description) -> dict[str, object]:
    return {
        "input": description.text,
        "parsed": description.parsed,
        "segments": [_segment(segment) for segment in description.segments],
    }


def _segment(segment: DescribedSegment) -> dict[str, object]:
    document = asdict(segment)
    del document["digits"]  # only tables of usage need digits
    return {
        **document,
        "redirections": [
            {"operator": operator, "target": target} for operator, target in segment.redirections
        ],
        "nested": [_segment(inner) for inner in segment.nested],
        "substituted": [_segment(inner) for inner in segment.substituted],
    }


def _parsed_lines(description: Description) -> Iterator[str]:
    """Describe each part of an input in one line."""
    if not description.parsed:
        yield "the Bash parser cannot parse this input; only its words are shown"
    for segment in description.segments:
        if segment.operator:
            yield segment.operator
        known = "" if segment.grammar else "  (no grammar)"
        for assignment in segment.assignments:
            yield f"  {'assignment':10} {assignment}"
        yield f"{segment.command}{known}"
        for argument in segment.arguments:
            value = f" = {argument.value}" if argument.value is not None else ""
            option = f"{argument.option}{value}" if argument.option else ""
            mark = "" if argument.derivable or not segment.grammar else "not in the grammar"
            mark += f": {argument.cause}" if mark else ""
            yield f"  {argument.kind.value:10} {argument.text:24} {option:24} {mark}".rstrip()
        alone = all(argument.derivable for argument in segment.arguments)
        if segment.grammar and alone and not segment.derivable:
            yield "  not derived: no start line of the grammar combines these arguments"
        for operator, target in segment.redirections:
            yield f"  {'redirected':10} {operator} {target or ''}".rstrip()


def _shares(described: list[Description]) -> Iterator[str]:
    """Count the inputs that could be parsed, and their parts that the grammars derive."""
    segments = [segment for description in described for segment in description.segments]
    known = [segment for segment in segments if segment.grammar]
    arguments = [argument for segment in known for argument in segment.arguments]
    rows = (
        ("inputs parsed as Bash", sum(each.parsed for each in described), len(described)),
        ("commands with a grammar", len(known), len(segments)),
        ("of these, derived in full", sum(segment.derivable for segment in known), len(known)),
        (
            "their arguments, derived",
            sum(argument.derivable for argument in arguments),
            len(arguments),
        ),
    )
    for label, part, whole in rows:
        yield f"{label:32} {part:6} of {whole:6}  {share(part, whole)}"


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
    from shioenv.grammar.library import load_grammar, own_grammars

    stem, directory = _place(command, own_grammars(own))
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
