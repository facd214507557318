"""`shioenv grammar draft` and `coverage`: grammars derived from, and compared with, help texts."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shioenv.cli import printing, shared
from shioenv.cli.grammar import asked_grammars, executing, grammars_at, opened

if TYPE_CHECKING:
    from rich.table import Table

    from shioenv.system.store import System
    from shioenv_eval.drafting.coverage import Coverage

app = typer.Typer()
"""The commands of the group `grammar`."""

GAPS = ("missing", "unknown", "excused")
"""Kinds of differences between the options of a grammar and of a help text."""


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
    own: shared.GrammarDirectory = None,
    system: shared.SystemName = None,
) -> shared.Printout:
    """Compare grammars with the options in the commands' help texts.

    A missing option is only in the help text; an unknown option is only in the grammar. A reason
    in the grammar file excuses either. The exit status is 1 if an option is missing or unknown.
    """
    from shioenv.grammar.library import own_grammars
    from shioenv_eval.drafting.coverage import help_coverage as covered

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
    from shioenv_eval.drafting.draft import draft_grammar as drafted

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
    from shioenv_eval.drafting.help import LARGEST, manual_text

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
