"""What the subcommands share: common options, completion of names, JSON on standard output."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand

if TYPE_CHECKING:
    from rich.console import Console

    from shioenv.dataset.manifest import Manifest
    from shioenv.sandbox.base import Limits


def complete_systems(incomplete: str) -> list[str]:
    """Names of systems, declared or built, that begin with what was typed."""
    from shioenv.system.build import cache_directory
    from shioenv.system.declare import declared_names

    built = (path.stem for path in (cache_directory() / "names").glob("[!.]*.json"))
    return sorted(name for name in {*declared_names(), *built} if name.startswith(incomplete))


def complete_commands(incomplete: str) -> list[str]:
    """Names of commands that have a grammar and begin with what was typed."""
    from shioenv.grammar.library import names_of_grammars

    return [name for name in names_of_grammars() if name.startswith(incomplete)]


def complete_samplers(incomplete: str) -> list[str]:
    """Names of samplers that begin with what was typed."""
    from shioenv.synthesis.samplers import SAMPLERS

    return [name for name in SAMPLERS if name.startswith(incomplete)]


def complete_policies(incomplete: str) -> list[str]:
    """Names of policies that begin with what was typed."""
    from shioenv.synthesis.policy import POLICIES

    return [name for name in POLICIES if name.startswith(incomplete)]


def complete_estimators(incomplete: str) -> list[str]:
    """Names of estimators that begin with what was typed."""
    from shioenv.irreducibility.estimators import ESTIMATORS

    return [name for name in ESTIMATORS if name.startswith(incomplete)]


def completing(*names: str) -> Callable[[str], list[str]]:
    """What completes one of a few names."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


Function = TypeVar("Function", bound=Callable[..., None])


class InputCommand(TyperCommand):
    """A subcommand that takes an input as one argument, and says so where it comes in pieces."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As usual; of `run ls -la` it tells how it is meant."""
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            # no such option, or one argument too many; what comes first begins an input
            several = type(error).__name__ in {"NoSuchOption", "UsageError"}
            if several and len(given) > 1 and re.fullmatch(r"[^-\s]\S*", given[0]):
                whole = shlex.quote(" ".join(given))
                error.message += f"\nAn input is one argument: {ctx.command_path} {whole}"  # type: ignore[attr-defined]
            raise


def command(
    app: typer.Typer,
    example: str,
    *,
    name: str | None = None,
    cls: type[TyperCommand] | None = None,
) -> Callable[[Function], Function]:
    """Makes a function a subcommand; the help is its docstring, then the example."""

    def add(function: Function) -> Function:
        paragraphs = re.split(r"\n\s*\n", function.__doc__ or "")
        text = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
        app.command(name, cls=cls, help=text, epilog=f"Example: {example}")(function)
        return function

    return add


Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]

SystemName = Annotated[
    str | None,
    typer.Option(
        "--system",
        metavar="NAME",
        autocompletion=complete_systems,
        help="A built system, or the TOML file it was built from (default: debian-12).",
        show_default=False,
    ),
]

StartDirectory = Annotated[
    str | None,
    typer.Option(
        "--cwd",
        metavar="DIR",
        help="Start directory in the system (default: the system's first one).",
        show_default=False,
    ),
]

Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        help="Wall time of one execution (default: 5).",
        show_default=False,
    ),
]

RecordTimeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        help="Wall time of one execution (default: 2).",
        show_default=False,
    ),
]
"""Of what makes a dataset."""

Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="W",
        help="Processes; any number gives the same bytes (default: one per processor).",
        show_default=False,
    ),
]

SamplerName = Annotated[
    str,
    typer.Option(
        "--sampler",
        metavar="NAME",
        autocompletion=complete_samplers,
        help="gcs (productions of the leftmost nonterminal), ucs (options of every command), "
        "ucs-universal (every production everywhere).",
    ),
]

CommandNames = Annotated[
    list[str] | None,
    typer.Option(
        "--command",
        metavar="COMMAND",
        autocompletion=complete_commands,
        help="Only inputs of this command; may be given again (default: all with a grammar).",
        show_default=False,
    ),
]


PolicyName = Annotated[
    str,
    typer.Option(
        "--policy",
        metavar="NAME",
        autocompletion=complete_policies,
        help="weighted (as the grammars say), uniform, lengths (0 to 12 arguments equally "
        "often), or a FILE.json of counts by production.",
    ),
]

Budget = Annotated[
    int, typer.Option(min=1, metavar="M", help="Sub-inputs executed at most, per input.")
]
NoiseRuns = Annotated[
    int, typer.Option(min=1, metavar="N", help="Runs that give the noise threshold.")
]
EstimatorName = Annotated[
    str,
    typer.Option(
        "--estimator",
        metavar="NAME",
        autocompletion=complete_estimators,
        help="How sub-inputs are chosen where not all are run: paper, pps, stratified, or balanced "
        "(by far the smallest error).",
    ),
]
TargetError = Annotated[
    float | None,
    typer.Option(
        "--target-se",
        metavar="X",
        help="Run no more sub-inputs once the standard error is at most this (default: until the "
        "budget is spent).",
        show_default=False,
    ),
]

Horizon = Annotated[int, typer.Option(min=1, metavar="N", help="Arguments of one command at most.")]
CompositeShare = Annotated[
    float,
    typer.Option(min=0, max=1, metavar="SHARE", help="Share of inputs of several commands."),
]
Composites = Annotated[
    str | None,
    typer.Option(
        "--composites",
        metavar="off|on",
        help="off: single commands only; on: as often as --composite-share says.",
        show_default=False,
    ),
]


def share_of_composites(composites: str | None, share: float) -> float:
    """The share that `--composites` and `--composite-share` ask for. Errors: UsageError."""
    from shioenv.errors import UsageError

    if composites not in {None, "off", "on"}:
        raise UsageError(f"--composites is off or on, not {composites!r}")
    return 0.0 if composites == "off" else share


def limits_of(timeout: float | None) -> Limits | None:
    """The default limits with this wall time; None, for those of who runs, where none is given.

    LimitsError for a time that leaves nothing to run with.
    """
    from shioenv.sandbox.base import Limits

    return None if timeout is None else Limits(wall_seconds=timeout)


def print_json(document: Any, *, indent: int | None = None) -> None:
    """Prints one JSON document on standard output, lone surrogates of file names escaped."""
    text = json.dumps(document, ensure_ascii=False, indent=indent)
    try:
        content = text.encode()
    except UnicodeEncodeError:
        content = json.dumps(document, indent=indent).encode()
    write(content + b"\n")


def write(content: bytes) -> None:
    """Writes bytes to standard output as they are."""
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def console(*, stderr: bool = False) -> Console:
    """A rich console that takes texts as they are, `[sudo]` and `:bug:` too, and has no colours of
    its own; it breaks lines on a terminal alone.
    """
    from functools import partial

    from rich.console import Console

    plain = partial(Console, stderr=stderr, highlight=False, markup=False, emoji=False)
    return plain() if plain().is_terminal else plain(soft_wrap=True, width=200)


def printable(text: str) -> str:
    """The text with control characters escaped, so that no terminal obeys what an input wrote."""
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable() or character == "\t"
        else character.encode("unicode_escape", "surrogatepass").decode("ascii")
        for character in text
    )


def note(text: str) -> None:
    """Prints a line of progress on standard error."""
    print(text, file=sys.stderr, flush=True)


def note_unfinished(directory: Path, manifest: Manifest) -> None:
    """Says on standard error which records are looked at, where a dataset is not finished."""
    if not manifest.complete:
        held, wanted = manifest.records, manifest.count
        note(
            f"{directory} is not finished: this is of {held:,} of its {wanted:,} records, those in "
            "finished shards"
        )


def print_rows(rows: Mapping[str, str]) -> None:
    """Prints facts by name on standard output, a line each."""
    for key, value in rows.items():
        print(f"{key:11} {value}")
