"""Commands of `shioenv grammar` for authors of grammars."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shioenv.cli import printing, shared, stdin
from shioenv.cli.progress import counting
from shioenv.text import share

if TYPE_CHECKING:
    from rich.table import Table

    from shioenv.behavior.observe import SandboxRunner
    from shioenv.grammar.library import OwnGrammars
    from shioenv.grammar.symbols import Grammar
    from shioenv.synthesis.drawing import Drawing
    from shioenv.system.store import System
    from shioenv_eval.grammars.coverage import Coverage
    from shioenv_eval.grammars.describe import DescribedSegment, Description
    from shioenv_eval.grammars.grammar_check import ExampleResult
    from shioenv_eval.report.grammar_report import GrammarReport

app = typer.Typer()
"""The commands of the group `grammar`."""

GAPS = ("missing", "unknown", "excused")
"""Kinds of differences between the options of a grammar and of a help text."""


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
    from shioenv.grammar.library import own_grammars
    from shioenv_eval.grammars.grammar_check import check_grammars

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


def asked_grammars(names: list[str] | None, own: OwnGrammars | None) -> list[tuple[str, Path]]:
    """Return names and directories of the requested grammars; default: the user's, else all.

    Errors: UnknownGrammarError.
    """
    from shioenv.grammar.library import check_known, chosen_grammars, place_of_grammar

    chosen = names or (own.names if own else ("all",))
    places = [place_of_grammar(name, own) for name in chosen_grammars(chosen, own)]
    for name, directory in places:
        check_known([name], directory)
    return places


def grammars_at(places: Iterable[tuple[str, Path]], sandbox: SandboxRunner) -> list[Grammar]:
    """Load the grammars at these places, for the system of a sandbox."""
    from shioenv.grammar.library import load_grammar

    clock = sandbox.system.host_clock
    return [load_grammar(stem, host_clock=clock, directory=there) for stem, there in places]


def _failed(asked: list[tuple[str, Path]], system: str | None) -> list[ExampleResult]:
    """Return the results of examples whose behavior on the system contradicts their claim."""
    from shioenv_eval.grammars.grammar_check import run_examples

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

    from shioenv.grammar.bind import bind
    from shioenv.grammar.library import load_grammars, own_grammars
    from shioenv.system.catalogue import catalogue
    from shioenv.system.store import find_system
    from shioenv_eval.grammars.coverage import count_grammars_size

    try:
        built = find_system(system)
    except Exception:
        if system is not None:
            raise
        built = None
    host_clock = built is not None and built.host_clock
    grammars = load_grammars(host_clock=host_clock, own=own_grammars(own))
    grounded = None
    if built:
        values = catalogue(built)
        grounded = count_grammars_size(bind(each, values) for each in grammars).grounded
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
    from shioenv_eval.grammars.coverage import count_grammars_size

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

    The policy holds counts of commands, options, operators and kinds of operand (such as glob or
    absolute path), and no other part of the inputs.
    """
    from dataclasses import replace

    from shioenv.grammar.library import load_grammars, own_grammars
    from shioenv.synthesis.policy import NAMED
    from shioenv_eval.grammars.describe import Describer, count_usage

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
            "--file", metavar="FILE", help="Parse each line of this file instead (- is stdin)."
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
    from shioenv.grammar.library import load_grammars, own_grammars
    from shioenv.system.store import find_system
    from shioenv_eval.grammars.describe import Describer, grammars_on

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
        ("their arguments, derived", sum(each.derivable for each in arguments), len(arguments)),
    )
    for label, part, whole in rows:
        yield f"{label:32} {part:6} of {whole:6}  {share(part, whole)}"


@shared.command(app, "shioenv grammar coverage df tar")
def coverage(
    grammars: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[COMMANDS]...",
            autocompletion=shared.complete_commands,
            help="Grammars by name, a set (paper, all), or paths of .grammar files "
            "(default: all in --grammars, else all shipped).",
        ),
    ] = None,
    drawn: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Sample N inputs instead, and list the grammars' options that none of them has.",
        ),
    ] = None,
    seed: shared.Seed = 0,
    policy: shared.PolicyName = "default",
    own: shared.GrammarDirectory = None,
    system: shared.SystemName = None,
) -> shared.Printout:
    """Compare grammars with the options in the commands' help texts.

    A missing option is only in the help text; an unknown option is only in the grammar. A reason
    in the grammar file excuses either. The exit status is 1 if an option is missing or unknown.

    With --drawn, inputs are sampled as by `shioenv sample` and not executed. For executed inputs
    use `dataset stats --coverage`.
    """
    if drawn is not None:
        drawing = shared.DrawingOptions(command=grammars, policy=policy, grammars=own)
        return _drawn(drawing.drawing("gcs", seed), drawn, system)
    from shioenv.grammar.library import own_grammars
    from shioenv_eval.grammars.coverage import help_coverage as covered

    asked = asked_grammars(grammars, own_grammars(own))
    with opened(system) as sandbox:
        loaded = grammars_at(asked, sandbox)
        results = [covered(grammar, lambda text: sandbox.run(text).text) for grammar in loaded]
    document = {
        "commands": len(results),
        "documented": sum(result.documented for result in results),
        **{
            kind: [asdict(gap) for result in results for gap in getattr(result, kind)]
            for kind in GAPS
        },
    }
    complete = all(result.complete for result in results)
    return shared.Printout(document, _covered(results), indent=2, status=0 if complete else 1)


def _drawn(drawing: Drawing, count: int, system: str | None) -> shared.Printout:
    """Count the options of sampled inputs."""
    from shioenv.synthesis.sample import check_names
    from shioenv.system.store import find_system
    from shioenv_eval.grammars.drawn_options import coverage_of_samples

    check_names(drawing)
    with counting("inputs") as report:
        found = coverage_of_samples(drawing, find_system(system), count, report)
    return shared.Printout(found.to_json(), found.lines(), indent=2)


def _covered(results: list[Coverage]) -> Iterator[str | Table]:
    """Build a table of commands and totals, then lists of missing and unknown options."""
    table = printing.table(("command", "documented", *GAPS))

    def numbers(result: Coverage) -> list[int]:
        return [result.documented, *(len(getattr(result, kind)) for kind in GAPS)]

    for result in results:
        style = None if result.complete else "yellow"
        table.add_row(result.command, *map(str, numbers(result)), style=style)
    table.add_section()
    together = [sum(column) for column in zip(*map(numbers, results), strict=True)]
    table.add_row("together", *map(str, together), style="bold")
    yield table
    for result in results:
        for kind, gaps in (("missing", result.missing), ("unknown", result.unknown)):
            if gaps:
                yield f"{result.command}: {kind} {', '.join(gap.option for gap in gaps)}"


@shared.command(app, "shioenv grammar draft nl > nl.grammar")
def draft(
    command: Annotated[str, typer.Argument(help="A program of the system, or a builtin of Bash.")],
    manual: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The command's manual page in roff (default: from the system, else this host).",
        ),
    ] = None,
    system: shared.SystemName = None,
) -> None:
    """Draft a grammar from a command's help text and manual page.

    The grammar has all options of the help text, and passes `grammar check`. Values, weights and
    examples are guesses, marked by comments. Redirect it to NAME.grammar and improve it.
    """
    from shioenv_eval.grammars.draft import draft_grammar as drafted

    with opened(system) as sandbox:
        execute = executing(sandbox)
        package, version = _package(command, sandbox.system.packages, execute)
        page = _manual(command, manual, sandbox.system)
        text = drafted(command, execute, package=package, version=version, manual=page)
    guesses = sum(line.startswith("# - ") for line in text.splitlines())
    if guesses:
        printing.note(f"{guesses} guesses are listed in the comment above the examples")
    printing.write(text.encode())


def _manual(command: str, file: Path | None, system: System) -> str:
    """Return the text of a command's manual page; "" if there is none and none is given."""
    from shioenv.errors import UsageError
    from shioenv.files.regular import read_regular
    from shioenv_eval.grammars.help import LARGEST, manual_text

    if file is not None:
        try:
            return manual_text(read_regular(file, LARGEST))
        except OSError as error:
            raise UsageError(f"cannot read {file}: {error.strerror}") from error
    if "/" in command:
        return ""
    places = [f"/usr/share/man/man{n}/{command}.{n}{end}" for n in (1, 8) for end in ("", ".gz")]
    for place in places:
        if (content := system.content(place)) is not None:
            return manual_text(content)
    for place in filter(os.path.isfile, places):
        printing.note(f"using the manual page {place} of this host: the system has none")
        return manual_text(read_regular(place, LARGEST))
    return ""


def _package(
    command: str, packages: Mapping[str, str], execute: Callable[[str], tuple[int, str]]
) -> tuple[str, str]:
    """Return the package of a command, from the system's dpkg lists, and the package's version.

    The package of a builtin is `bash`. For a command in no list, the package has the command's name
    and the version that the command prints, else 0.
    """
    from shioenv.bash.words import quoted

    program = quoted(command.partition("-")[0] if command.startswith("ip-") else command)
    kind, asked = execute(f"type -t -- {program}")
    if kind == 0 and asked.strip() in {"builtin", "keyword"}:
        return "bash", _upstream(packages.get("bash", "0"))
    _, output = execute(
        f"f=$(type -P -- {program}) && g=$(readlink -f -- $f) && for p in $f ${{f#/usr}} $g "
        "${g#/usr}; do grep -lxF -e $p /var/lib/dpkg/info/*.list; done 2>/dev/null | head -n 1"
    )
    name = output.strip().rpartition("/")[2].removesuffix(".list").partition(":")[0]
    if name in packages:
        return name, _upstream(packages[name])
    _, told = execute(f"{program} --version 2>&1 < /dev/null | head -n 3")
    version = re.search(r"\b\d+(?:\.\d+)+", told)
    own = re.sub(r"[^a-z0-9+.-]", "-", command.rpartition("/")[2].lower()).strip("-.+")
    return own or "unknown", version[0] if version else "0"


def _upstream(version: str) -> str:
    """Strip epoch and distribution suffix from a package version: `1:9.1-1+b1` -> `9.1`."""
    return version.rpartition(":")[2].partition("-")[0]


@shared.command(app, "shioenv grammar report --count 1000 --ucs-count 500 --round-trip 5000")
def report(
    count: Annotated[
        int, typer.Option(min=1, metavar="N", help="Inputs of gcs to execute.")
    ] = 20_000,
    ucs_count: Annotated[
        int, typer.Option(min=1, metavar="N", help="Inputs of ucs to execute.")
    ] = 5_000,
    round_trip: Annotated[
        int, typer.Option(min=1, metavar="N", help="Inputs of gcs to parse back.")
    ] = 100_000,
    seed: shared.Seed = 0,
    workers: Annotated[int, typer.Option(min=1, metavar="W", help="Worker processes.")] = 2,
    system: shared.SystemName = None,
    against: Annotated[
        Path | None,
        typer.Option(
            "--compare-with",
            metavar="INPUTS",
            help="Instead, compare the policies with the inputs in this file, one a line (- is "
            "stdin).",
        ),
    ] = None,
    draws: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="Inputs of each policy, for --compare-with."),
    ] = 5000,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print as Markdown, as in docs/grammars.md.")
    ] = False,
) -> shared.Printout:
    """Measure grammars: size, coverage, misuse, exit codes, speed.

    Single commands are sampled and executed once each, which takes a few minutes. Misuse is a
    failure that the program attributes to the command line. The exit status is 1 if a goal is
    missed.

    With --compare-with, nothing is executed. The report counts the given inputs that the grammars
    derive on the system. It compares inputs drawn by the policies `mixed`, `people` and `paper`
    with the given inputs, and with the shipped table of usage counts.
    """
    if against is not None:
        return _against(against, draws, seed, system, markdown=markdown)
    from shioenv.execution.local import LocalExecutor
    from shioenv_eval.report.grammar_report import grammar_report, grammars_page

    made = grammar_report(
        inputs=count,
        ucs_inputs=ucs_count,
        round_trip=round_trip,
        seed=seed,
        system=system,
        executor=LocalExecutor(workers),
        tell=printing.note,
    )
    parts = [grammars_page(made).encode()] if markdown else _goals(made)
    return shared.Printout(made.to_json(), parts, indent=2, status=0 if made.reached else 1)


def _against(
    file: Path, draws: int, seed: int, system: str | None, *, markdown: bool
) -> shared.Printout:
    from shioenv_eval.report.likeness import compare_with_people

    texts = stdin.given_lines(file)
    made = compare_with_people(texts, draws=draws, seed=seed, system=system)
    if markdown:
        made_by = f"`shioenv grammar report --compare-with INPUTS --draws {draws} --seed {seed}`"
        source = f"Made by {made_by}, from {len(texts):,} inputs written by people."
        return shared.Printout(made.to_json(), [made.markdown(source).encode()], indent=2)
    table = printing.table(("", *made.policies))
    for label, cells in made.rows():
        table.add_row(label, *cells)
    lines = [
        f"{label:10} {share.part:6} of {share.whole:6} derived  {share.share:.1%}"
        for label, share in made.shares()
    ]
    return shared.Printout(made.to_json(), [*lines, table], indent=2)


def _goals(made: GrammarReport) -> Iterator[str]:
    for what, must, measured, reached in made.goals():
        yield f"{'  ' if reached else '! '}{what.replace('`', '')}: {measured} ({must})"
    for name, outcome in (("gcs", made.gcs), ("ucs", made.ucs)):
        worst = (f"{command} {of.misuse_share:.1%}" for command, of in outcome.worst())
        yield f"most misuse, {name}: {', '.join(worst)}"
