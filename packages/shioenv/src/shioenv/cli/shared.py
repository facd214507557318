"""Helpers of the subcommands: printing of results, common options, completion of names."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, is_dataclass, replace
from functools import wraps
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from shioenv.bash.words import quoted
from shioenv.cli.printing import InPanels, note, print_json, show, write
from shioenv.irreducibility.scoring import USUAL, Scoring

if TYPE_CHECKING:
    from rich.console import RenderableType

    from shioenv.sandbox.base import Limits
    from shioenv.synthesis.drawing import Drawing


@dataclass(frozen=True, slots=True)
class Printout:
    """The output of a subcommand: a document for programs, parts for people, the exit status."""

    document: Any
    """The document that `--json` prints. Bytes are printed raw, None prints nothing."""
    parts: Iterable[RenderableType | bytes] = ()
    """The output without `--json`: lines, tables and raw bytes."""
    indent: int | None = None
    """The document's indentation in spaces; None for one line."""
    status: int = 0

    def give(self, *, json: bool) -> None:
        """Print the document (`json`) or the parts. A status other than 0 exits the subcommand."""
        if not json:
            show(self.parts)
        elif isinstance(self.document, bytes):
            write(self.document)
        elif self.document is not None:
            print_json(self.document, indent=self.indent)
        if self.status:
            raise typer.Exit(self.status)


Printouts: TypeAlias = Printout | Iterable[Printout]
"""One printout, or several in order."""

Function = TypeVar("Function", bound=Callable[..., Printouts | None])


def command(
    app: typer.Typer, example: str, name: str | None = None, cls: type[TyperCommand] | None = None
) -> Callable[[Function], Function]:
    """Make a decorator that adds a function to `app` as a subcommand.

    The help is the function's docstring, then the example. If the function returns printouts, these
    are printed, and the subcommand gets the option `--json`. A parameter with a dataclass as type
    becomes one option per field.
    """

    def add(function: Function) -> Function:
        epilog = f"Example: {example}"
        app.command(name, cls=cls or Subcommand, help=_help(function), epilog=epilog)(
            _printing(function)
        )
        return function

    return add


def group(app: typer.Typer, example: str) -> Callable[[Function], Function]:
    """Like `command`, for the function that runs when a group is called without a subcommand."""

    def add(function: Function) -> Function:
        text, epilog = _help(function), f"Example: {example}"
        callback = _printing(function, alone=True)
        app.callback(cls=_Group, invoke_without_command=True, help=text, epilog=epilog)(callback)
        return function

    return add


def _help(function: Callable[..., Any]) -> str:
    """Format the docstring as help: one line per paragraph, escaped for rich's markup."""
    paragraphs = re.split(r"\n\s*\n", function.__doc__ or "")
    text = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    return text.replace("[", "\\[")


def _printing(
    function: Callable[..., Printouts | None], *, alone: bool = False
) -> Callable[..., None]:
    """Wrap `function` to take all options as keywords and print the returned printouts.

    With `alone`, the function of a group is called only without a subcommand.
    """
    own = parameters_of(function)
    groups = {
        parameter.name: parameters_of(parameter.annotation)
        for parameter in own
        if isinstance(parameter.annotation, type) and is_dataclass(parameter.annotation)
    }
    options = [option for each in own for option in groups.get(each.name, [each])]
    asks_json = any(parameter.name == "json" for parameter in own)
    if not asks_json and function.__annotations__["return"] != "None":
        options += parameters_of(_json)
    if alone:
        kind = inspect.Parameter.KEYWORD_ONLY
        options.insert(0, inspect.Parameter("ctx", kind, annotation=typer.Context))

    @wraps(function)
    def printing(**given: Any) -> None:
        if alone and given.pop("ctx").invoked_subcommand is not None:
            return
        json = given.get("json", False) if asks_json else given.pop("json", False)
        for each in own:
            if each.name in groups:
                fields = {field.name: given.pop(field.name) for field in groups[each.name]}
                given[each.name] = each.annotation(**fields)
        printouts = function(**given) or ()
        for printout in (printouts,) if isinstance(printouts, Printout) else printouts:
            printout.give(json=json)

    printing.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    printing.__annotations__ = {option.name: option.annotation for option in options}
    return printing


def parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters of a function or dataclass, keyword-only, with resolved annotations."""
    kinds = get_type_hints(function, include_extras=True)
    return [
        parameter.replace(annotation=kinds[name], kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in inspect.signature(function).parameters.items()
    ]


def completing(*names: str) -> Callable[[str], list[str]]:
    """Make a completion function for a set of names.

    `module:name` refers to an object that contains names, or to a function that returns names. The
    module is imported only when completing.
    """

    def complete(incomplete: str) -> list[str]:
        offered: list[str] = []
        for name in names:
            there = resolve_name(name) if ":" in name else [name]
            offered += there() if callable(there) else there
        return [name for name in offered if name.startswith(incomplete)]

    return complete


def names_of_systems() -> list[str]:
    """Return the names of declared and built systems."""
    from shioenv.files.durable import cache_directory
    from shioenv.system.declare import declared_names

    built = (path.stem for path in (cache_directory() / "names").glob("[!.]*.json"))
    return sorted({*declared_names(), *built})


complete_systems = completing(f"{__name__}:names_of_systems")
complete_commands = completing("shioenv.grammar.library:choosable")
complete_samplers = completing("shioenv.synthesis.samplers:SAMPLERS")
complete_policies = completing("shioenv.synthesis.policy:NAMED")
complete_estimators = completing("shioenv.irreducibility.estimators:ESTIMATORS")


class _Group(InPanels, TyperGroup):
    """A group that also runs without a subcommand."""


class Subcommand(InPanels, TyperCommand):
    """A subcommand whose usage errors show the correct command line."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, and explain a usage error."""
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            self.explain(error, ctx, given)
            raise

    def explain(self, error: Any, ctx: Any, given: list[str]) -> None:
        """Show `export DATASET --out FILE` in the error for `export DATASET FILE`."""
        missing = getattr(getattr(error, "param", None), "opts", ())
        if type(error).__name__ == "MissingParameter" and "--out" in missing:
            _, more, _ = self.make_parser(ctx).parse_args(list(given))
            if len(more) == 1 and given[-1] == more[0]:
                whole = " ".join(map(quoted, given[:-1]))
                error.message = (
                    f"Give the output with --out: {ctx.command_path} {whole} --out "
                    f"{quoted(more[0])}"
                )


class InputCommand(Subcommand):
    """A subcommand that takes an input as one argument."""

    def explain(self, error: Any, ctx: Any, given: list[str]) -> None:
        """Show the input as one argument in the error for `run ls -la`."""
        # an unknown option or too many arguments after a word that may begin an input
        several = type(error).__name__ in {"NoSuchOption", "UsageError"}
        if several and len(given) > 1 and re.fullmatch(r"[^-\s]\S*", given[0]):
            whole = quoted(" ".join(given))
            error.message += f"\nAn input is one argument: {ctx.command_path} {whole}"


def _json(json: Json = False) -> None:
    """Define the option `--json` of every subcommand that prints a document."""


Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Directory = Annotated[Path, typer.Argument(metavar="DIR", help="Directory of the dataset.")]
InputArgument = Annotated[
    str,
    typer.Argument(
        metavar="INPUT", help="The text of the input; - for inputs on standard input, one a line."
    ),
]
Seed = Annotated[int, typer.Option(help="Random seed. The same seed gives the same inputs.")]

SystemName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        autocompletion=complete_systems,
        help="A built system by name, or its TOML file (default: debian-12).",
    ),
]

Host = Annotated[
    str, typer.Option(metavar="ADDRESS", help="Address to listen on; 0.0.0.0 accepts other hosts.")
]
Port = Annotated[
    int,
    typer.Option(min=0, max=65535, metavar="N", help="Port to listen on; 0 chooses a free one."),
]

StartDirectory = Annotated[
    str | None,
    typer.Option(
        metavar="DIR", help="Start directory (default: the first one that the system declares)."
    ),
]

Timeout = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS", help="Time limit of an execution (default: 5; in a microvm 40)."
    ),
]

HubRepository = Annotated[
    str, typer.Argument(metavar="OWNER/NAME", help="A repository on the hub.")
]
PrivateRepository = Annotated[
    bool, typer.Option("--private", help="Make a new repository private.")
]
CardLicense = Annotated[
    str, typer.Option("--license", metavar="ID", help="License in the card, such as cc-by-4.0.")
]

RecordTimeout = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS", help="Time limit of an execution (default: 2; in a microvm 16)."
    ),
]
"""The time limit of subcommands that make datasets."""

WithoutShellState = Annotated[
    bool,
    typer.Option(
        "--without-shell-state",
        help="Do not record changes of the shell itself, for hosts where `shioenv doctor` reports "
        "that it cannot be read.",
    ),
]

SandboxName = Annotated[
    str,
    typer.Option(
        "--sandbox",
        metavar="NAME",
        autocompletion=completing("shioenv.sandbox.base:SANDBOXES"),
        help="namespaces, microvm (in QEMU), microvm-bare (inputs are root of the machine, without "
        "shell state) or firecracker (untested on Firecracker itself). Virtual machines need "
        "`shioenv system build --microvm`.",
    ),
]

Revert = Annotated[
    str,
    typer.Option(
        metavar="input|N|never",
        autocompletion=completing("input", "never"),
        help="Restore a microvm before every input, before every Nth, or never; always after "
        "changes that cannot be undone inside it.",
    ),
]

Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="W",
        help="Worker processes (default: one per processor). They do not affect the result.",
    ),
]

EngineName = Annotated[
    str,
    typer.Option(
        metavar="ENGINE",
        autocompletion=completing("shioenv.execution.local:ENGINES"),
        help="Workers on this host (local) or a Ray cluster (ray).",
    ),
]

Address = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Ray cluster: HOST:PORT or auto (default: RAY_ADDRESS, else this host).",
    ),
]

SamplerName = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        autocompletion=complete_samplers,
        help="gcs: follow a command's grammar. ucs: choose among the options of all commands. "
        "ucs-universal: choose among all productions at each step.",
    ),
]

CommandNames = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COMMAND",
        autocompletion=complete_commands,
        help="Sample only this command, or a set of commands: paper (the 86 of the paper, the "
        "default), or all that have a grammar. Repeatable.",
    ),
]


GrammarDirectory = Annotated[
    Path | None,
    typer.Option(
        "--grammars",
        metavar="DIR",
        envvar="SHIOENV_GRAMMARS",
        help="Directory with further grammars, NAME.grammar.",
    ),
]

PolicyName = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        autocompletion=complete_policies,
        help="Distribution of inputs: people (as people type), paper (the grammars' weights), "
        "mixed (half of each), uniform, lengths, or a FILE.json. lengths draws 0 to 12 arguments "
        "equally often. ucs and ucs-universal support paper, uniform, lengths, and a FILE.json "
        "without once, values and usage_share (default: mixed with gcs, paper with ucs and "
        "ucs-universal).",
        show_default=False,
    ),
]


def _budget(default: str = "") -> Any:
    return typer.Option(
        min=1, metavar="M", help=f"Maximum number of sub-inputs executed per input{default}."
    )


def _estimator(default: str = "") -> Any:
    return typer.Option(
        metavar="NAME",
        autocompletion=complete_estimators,
        help="Choice of sub-inputs if the budget does not cover all: paper, pps, stratified, or "
        f"balanced. balanced has by far the smallest error{default}.",
    )


Budget = Annotated[int, _budget()]
EstimatorName = Annotated[str, _estimator()]

UsualBudget = Annotated[int | None, _budget(f" (default: {USUAL.budget})")]
UsualNoiseRuns = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help=f"Runs of an input that determine its noise threshold (default: {USUAL.noise_runs}).",
    ),
]
UsualEstimatorName = Annotated[str | None, _estimator(f" (default: {USUAL.estimator})")]
TargetError = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        help="Stop at this standard error (default: use the whole budget).",
    ),
]
ProcessBudget = Annotated[
    int | None,
    typer.Option(
        min=0,
        metavar="N",
        help="Maximum number of processes started by all sub-inputs of an input; 0: no limit "
        f"(default: {USUAL.process_budget} for datasets, else 0).",
    ),
]

Horizon = Annotated[
    int, typer.Option(min=1, metavar="N", help="Maximum number of arguments of a command.")
]
CompositeShare = Annotated[
    float,
    typer.Option(
        min=0,
        max=1,
        metavar="SHARE",
        help="Share of inputs with several commands; 0: only single commands.",
    ),
]
Mistakes = Annotated[
    float,
    typer.Option(
        min=0,
        max=1,
        metavar="SHARE",
        help="Share of inputs with a mistake, such as an unknown option or a misspelt name.",
    ),
]
SessionLength = Annotated[
    int,
    typer.Option(
        min=1,
        max=32,
        metavar="N",
        help="Inputs per session. They are run in one shell, and later ones use files made by "
        "earlier ones.",
    ),
]


@dataclass(frozen=True, slots=True)
class ScoringSettings:
    """Options of the scoring; None for options that are not given."""

    budget: UsualBudget = None
    noise_runs: UsualNoiseRuns = None
    estimator: UsualEstimatorName = None
    target_se: TargetError = None
    process_budget: ProcessBudget = None

    def applied_to(self, usual: Scoring) -> Scoring:
        """Return `usual` with the values of the given options."""
        given = {name: value for name, value in asdict(self).items() if value is not None}
        return replace(usual, **given)


@dataclass(frozen=True, slots=True)
class DrawingOptions:
    """Options of a drawing, except sampler and seed, which subcommands define themselves."""

    command: CommandNames = None
    horizon: Horizon = 12
    composite_share: CompositeShare = 0.25
    policy: PolicyName = "default"
    mistakes: Mistakes = 0.0
    session_length: SessionLength = 1
    grammars: GrammarDirectory = None

    def drawing(self, sampler: str, seed: int) -> Drawing:
        """Create the drawing."""
        from shioenv.synthesis.drawing import Drawing

        given = asdict(self)
        commands, own = tuple(given.pop("command") or ()), str(given.pop("grammars") or "")
        return Drawing(sampler=sampler, seed=seed, commands=commands, own_grammars=own, **given)


SLOWER = 8
"""The factor on default times in a microVM, because its processor may be emulated."""
_SECONDS = ("wall_seconds", "cpu_seconds", "background_seconds", "scan_seconds")

UNTRIED = (
    "warning: --sandbox firecracker was tested only with a stand-in for Firecracker's interface; "
    "--sandbox microvm uses QEMU and is tested"
)


@dataclass(frozen=True, slots=True)
class LimitsOptions:
    """Options of the limits of an execution."""

    timeout: Timeout = None
    without_shell_state: WithoutShellState = False
    sandbox: SandboxName = "namespaces"
    revert: Revert = "input"

    def limits(self, usual: Limits | None = None) -> Limits:
        """Return `usual` (or the default limits) with the values of the given options.

        In a virtual machine, times without an option are multiplied by `SLOWER`. Errors:
        LimitsError for a time out of range, an unknown sandbox, or a `revert` that the sandbox does
        not support. UsageError for a `revert` that is not input, never or a number above 0.
        """
        from shioenv.errors import UsageError
        from shioenv.sandbox.backends import inherited_by_inputs
        from shioenv.sandbox.base import LARGEST, MACHINES, Limits

        most = LARGEST["wall_seconds"]
        if self.timeout is not None and not 0 < self.timeout <= most:
            raise UsageError(
                f"--timeout {self.timeout:g} is out of range",
                hint=f"give more than 0 and at most {most:,} seconds, or omit it",
            )
        runs = {"input": "1", "never": "0"}.get(self.revert, self.revert)
        if not runs.isdecimal() or (runs == "0" and self.revert != "never"):
            raise UsageError(
                f"invalid --revert {self.revert!r}", hint="give input, never, or a number above 0"
            )
        usual = usual or Limits()
        if self.sandbox in MACHINES:  # the processor may be emulated
            slower = {name: getattr(usual, name) * SLOWER for name in _SECONDS}
            usual = replace(usual, **slower)
        limits = replace(
            usual,
            wall_seconds=usual.wall_seconds if self.timeout is None else self.timeout,
            without_shell_state=self.without_shell_state,
            sandbox=self.sandbox,
            revert=int(runs),
        )
        if self.sandbox == "firecracker":
            note(UNTRIED)
        for sentence in inherited_by_inputs(limits):
            note(f"warning: {sentence}")
        return limits


@dataclass(frozen=True, slots=True)
class RecordLimits(LimitsOptions):
    """Options of the limits in subcommands that make datasets, with shorter times."""

    timeout: RecordTimeout = None

    def limits(self, usual: Limits | None = None) -> Limits:
        """See `LimitsOptions.limits`. The default limits are those of datasets."""
        from shioenv.sandbox.base import LIMITS

        return LimitsOptions.limits(self, usual or LIMITS)
