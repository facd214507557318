"""Measurements of the grammars on a built system: the numbers of `docs/grammars.md`."""

from __future__ import annotations

import operator
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from datetime import UTC, date, datetime
from functools import cache
from itertools import islice
from typing import Any, Self

from shioenv.behavior.observe import open_sandbox
from shioenv.domain.inputs import Input
from shioenv.domain.runner import Runner, State
from shioenv.execution.job import Executor, NumberedJob, Tell, silent
from shioenv.execution.local import LocalExecutor
from shioenv.grammar.library import PAPER, load_grammars
from shioenv.grammar.parse import InputParser
from shioenv.synthesis.drawing import Drawing
from shioenv.synthesis.sample import sample
from shioenv.synthesis.traces import Sample
from shioenv.system.store import System, find_system
from shioenv.text import count
from shioenv_eval.grammars.coverage import count_grammars_size as size_of
from shioenv_eval.grammars.coverage import help_coverage
from shioenv_eval.report.markup import Table, grouped

COMMANDS, NONTERMINALS, PRODUCTIONS = 86, 803, 6222
"""The paper's grammars (Section 4.1), by its own counting rule."""

MISUSE, MISUSE_OF_A_COMMAND, EXIT_0, SPEED = 0.03, 0.10, 0.75, 5000
"""Goals: maximum misuse overall and for a command, minimum share of exit code 0, minimum speed.

The first three are shares of inputs; speed is inputs drawn per second on one core.
"""

JUDGED = 100
"""Minimum number of inputs to judge a command's share of misuse; with fewer, it is noisy."""

BATCH = 500
"""Number of inputs parsed back in one task."""

JUDGED_CHARACTERS = 4096
"""Maximum number of output characters that are judged: messages are at the beginning or end."""


@dataclass(frozen=True, slots=True)
class EndCounts:
    """Counts of the outcomes of executed inputs."""

    inputs: int = 0
    misuse: int = 0
    """Inputs that failed as misuse (`is_misuse`)."""
    exit_0: int = 0
    timed_out: int = 0

    def __add__(self, other: EndCounts) -> EndCounts:
        return EndCounts(*map(operator.add, astuple(self), astuple(other)))

    @property
    def misuse_share(self) -> float:
        """The share of misuse among the inputs; 0 if there are none."""
        return self.misuse / max(1, self.inputs)

    @property
    def exit_0_share(self) -> float:
        """The share of exit code 0 among the inputs; 0 if there are none."""
        return self.exit_0 / max(1, self.inputs)

    def to_json(self) -> dict[str, Any]:
        """Return the numbers and shares as a JSON object."""
        shares = {name: round(getattr(self, name), 5) for name in ("misuse_share", "exit_0_share")}
        return {**asdict(self), **shares}


def classify_end(exit_code: int, output: str, *, timed_out: bool = False) -> EndCounts:
    """Classify one input; of a long output the first and the last 2,048 characters are judged."""
    if len(output) > JUDGED_CHARACTERS:
        half = JUDGED_CHARACTERS // 2
        output = f"{output[:half]}\n{output[-half:]}"
    return EndCounts(1, int(is_misuse(exit_code, output)), int(exit_code == 0), int(timed_out))


def try_sample(runner: Runner, task: tuple[int, Sample]) -> tuple[str, EndCounts]:
    """Execute a sample once; return the grammar of its first command and the outcome."""
    _, sample = task
    behavior = runner.run(sample.input.text, State(cwd=sample.cwd))
    how = classify_end(behavior.exit_code, behavior.text, timed_out=behavior.timed_out)
    return sample.trace[0].grammar, how


@dataclass(frozen=True, slots=True)
class Endings:
    """The outcomes of one sampler's inputs, in total and by command."""

    together: EndCounts
    by_command: Mapping[str, EndCounts]

    @classmethod
    def of(cls, trials: Iterable[tuple[str, EndCounts]]) -> Self:
        """Sum up the outcomes of executed inputs, each with the name of its grammar."""
        groups = grouped(trials, operator.itemgetter(0))
        by_command = {
            name: sum((how for _, how in groups[name]), EndCounts()) for name in sorted(groups)
        }
        return cls(sum(by_command.values(), EndCounts()), by_command)

    def worst(self, number: int | None = None) -> list[tuple[str, EndCounts]]:
        """Return the `number` commands with the most misuse, or all, the worst first."""
        commands = self.by_command.items()
        return sorted(commands, key=lambda item: (-item[1].misuse_share, item[0]))[:number]

    def to_json(self) -> dict[str, Any]:
        """Return the numbers as a JSON object; `worst` are the ten worst commands."""
        return {
            "together": self.together.to_json(),
            "worst": {command: how.to_json() for command, how in self.worst(10)},
            "by_command": {command: how.to_json() for command, how in self.by_command.items()},
        }


@dataclass(frozen=True, slots=True)
class GrammarReport:
    """All measurements, with their conditions."""

    date: date
    system: str
    system_digest: str
    seed: int
    commands: int
    nonterminals: int
    productions: int
    documented: int
    """Options in the system's help texts."""
    missing: int
    unknown: int
    excused: int
    gcs: Endings
    ucs: Endings
    speed: float
    """GCS inputs drawn per second on one core, not executed."""
    parsed_back: int
    """GCS inputs whose text was parsed again."""
    parsed_otherwise: int
    """GCS inputs whose text parsed to other arguments."""

    def goals(self) -> Iterator[tuple[str, str, str, bool]]:
        """Yield each goal's description, target and measured value, and whether it is met."""
        gcs, ucs = self.gcs.together, self.ucs.together
        judged = [(name, how) for name, how in self.gcs.worst() if how.inputs >= JUDGED]
        sizes = self.commands, self.nonterminals, self.productions
        yield (
            "commands / nonterminals / productions",
            f"{COMMANDS} / > {NONTERMINALS} / > {PRODUCTIONS:,}",
            " / ".join(f"{size:,}" for size in sizes),
            all(map(operator.ge, sizes, (COMMANDS, NONTERMINALS + 1, PRODUCTIONS + 1))),
        )
        yield (
            "options only in `--help` / only in the grammar, without a stated reason",
            "0 / 0",
            f"{self.missing} / {self.unknown}, of {self.documented:,} documented "
            f"({self.excused} excused)",
            not (self.missing or self.unknown),
        )
        misuse, most = gcs.misuse_share, f"at most {MISUSE:.0%} overall"
        measured = f"{misuse:.2%} of {gcs.inputs:,}"
        yield "GCS inputs that fail as misuse", most, measured, misuse <= MISUSE
        misuse, measured = 0.0, f"unknown: no command has {JUDGED} inputs"
        for name, how in judged[:1]:
            misuse = how.misuse_share
            measured = f"{misuse:.1%} (`{name}`, of {how.inputs})"
        most = f"at most {MISUSE_OF_A_COMMAND:.0%}"
        what = f"… of the worst command with at least {JUDGED} inputs"
        yield what, most, measured, misuse <= MISUSE_OF_A_COMMAND
        done = gcs.exit_0_share
        yield "GCS inputs that exit 0", f"at least {EXIT_0:.0%}", f"{done:.1%}", done >= EXIT_0
        measured = f"{ucs.misuse_share:.1%} of {ucs.inputs:,}; exit 0: {ucs.exit_0_share:.1%}"
        yield "UCS inputs that fail as misuse", "reported", measured, True
        what = "GCS inputs sampled per second on one core, without execution"
        yield what, f"at least {SPEED:,}", f"{self.speed:,.0f}", self.speed >= SPEED
        what = "GCS inputs that parse back to their own arguments"
        measured = f"{self.parsed_back - self.parsed_otherwise:,} of {self.parsed_back:,}"
        yield what, "100%", measured, not self.parsed_otherwise

    @property
    def reached(self) -> bool:
        """Whether every goal is met."""
        return all(reached for *_, reached in self.goals())

    def to_json(self) -> dict[str, Any]:
        """Return the report with its shares as a JSON object."""
        document = {**asdict(self), "date": self.date.isoformat(), "reached": self.reached}
        return {**document, "gcs": self.gcs.to_json(), "ucs": self.ucs.to_json()}


def grammar_report(
    *,
    inputs: int = 20_000,
    ucs_inputs: int = 5_000,
    round_trip: int = 100_000,
    seed: int = 0,
    system: str | None = None,
    executor: Executor | None = None,
    tell: Tell = silent,
) -> GrammarReport:
    """Measure the shipped grammars on a built system: count, execute and parse back.

    Every input is a single command. `inputs` (GCS) and `ucs_inputs` are numbers of inputs to
    execute, `round_trip` that of GCS inputs to parse back. Deterministic in `seed` except for
    speed, date, and what is volatile. With the defaults it takes about four minutes. `tell` is
    called with progress messages. Errors: those of `find_system`, `open_sandbox`.
    """
    built = find_system(system)
    executor = executor or LocalExecutor()
    grammars = load_grammars(host_clock=built.host_clock)
    size = size_of(grammars)
    tell("options: comparing with the system's help texts")
    with open_sandbox(built) as sandbox:
        covered = [
            help_coverage(grammar, lambda text: sandbox.run(text).text) for grammar in grammars
        ]
    tell(f"parsing back {round_trip:,} inputs")
    stream = _stream("gcs", built, seed, max(round_trip, inputs))
    started = time.process_time()
    drawn = list(stream)
    speed = len(drawn) / (time.process_time() - started)
    otherwise = _parsed_otherwise(drawn[:round_trip], executor)
    job = NumberedJob(try_sample, system=system or built.name, what="input")

    def endings(sampler: str, samples: Sequence[Sample]) -> Endings:
        tell(f"executing {len(samples):,} inputs of {sampler}")
        with executor:
            return Endings.of(trial for _, trial in executor.map(job, enumerate(samples)))

    return GrammarReport(
        date=datetime.now(UTC).date(),
        system=built.name,
        system_digest=built.digest,
        seed=seed,
        commands=len(grammars),
        nonterminals=size.nonterminals,
        productions=size.productions,
        documented=sum(options.documented for options in covered),
        missing=sum(len(options.missing) for options in covered),
        unknown=sum(len(options.unknown) for options in covered),
        excused=sum(len(options.excused) for options in covered),
        gcs=endings("gcs", drawn[:inputs]),
        ucs=endings("ucs", list(_stream("ucs", built, seed, ucs_inputs))),
        speed=speed,
        parsed_back=min(round_trip, len(drawn)),
        parsed_otherwise=otherwise,
    )


def _stream(sampler: str, system: System, seed: int, number: int) -> Iterator[Sample]:
    drawing = Drawing(
        sampler=sampler, policy="paper", seed=seed, commands=("all",), composite_share=0.0
    )
    return islice(sample(drawing, system=system), number)


def _parsed_otherwise(samples: list[Sample], executor: Executor) -> int:
    """Return the number of samples whose text parses to other arguments than were sampled."""
    shown = [sample.input.input_args for sample in samples]
    batches = [shown[start : start + BATCH] for start in range(0, len(shown), BATCH)]
    with executor:
        return sum(n for _, n in executor.map(NumberedJob(_otherwise), enumerate(batches)))


def _otherwise(lane: object, task: tuple[int, list[list[str]]]) -> int:
    inputs = [Input.from_marked(input_args) for input_args in task[1]]
    return sum(_parser().parse(shell_input.text) != shell_input for shell_input in inputs)


@cache
def _parser() -> InputParser:
    return InputParser(load_grammars())


def grammars_page(report: GrammarReport) -> str:
    """Return the page `docs/grammars.md` as Markdown, with a final newline."""
    lines = [
        "# Quality of the grammars",
        "",
        f"Made by `make grammars-report` on {report.date.isoformat()}, on the system "
        f"`{report.system}` (digest `{report.system_digest}`), seed {report.seed}.",
        f"{report.gcs.together.inputs:,} single-command inputs of `gcs` and "
        f"{report.ucs.together.inputs:,} of `ucs` were executed once each.",
        "",
        "| | target | measured | met |",
        "|---|---|---|---|",
    ]
    for what, must, measured, reached in report.goals():
        mark = "" if must == "reported" else "yes" if reached else "**no**"
        lines.append(f"| {what} | {must} | {measured} | {mark} |")
    lines += [
        "",
        "*Misuse* is a failed input (exit code not 0) whose output reports an error in the command",
        "line: an unknown or conflicting option, a missing or extra operand, or an argument that",
        "the program cannot parse. A missing file, a missing permission or a refused connection is",
        "not misuse. The messages are listed in",
        "`packages/shioenv-eval/src/shioenv_eval/report/grammar_report.py`. The "
        "[reference](reference/grammar-format.md#coverage) explains how options are compared.",
        "",
    ]
    rows = []
    for command, of_gcs in report.gcs.worst():
        cells = [f"`{command}`", "paper" if command in PAPER else "all"]
        for how in (of_gcs, report.ucs.by_command.get(command, EndCounts())):
            cells += [count(how.inputs), f"{how.misuse_share:.1%}", f"{how.exit_0_share:.1%}"]
        rows.append(cells)
    by_command = Table(
        "By command",
        "Commands with the most misuse come first. The set `paper` has the paper's 86 commands, "
        "`all` these and all others. UCS fills option slots with the options of any command; most "
        "programs reject them.",
        ("command", "set", "GCS inputs", "misuse", "exit 0", "UCS inputs", "misuse", "exit 0"),
        rows,
    )
    return "\n".join([*lines, by_command.markdown])


_PROGRAM = r"(?:bash: line \d+: )?[\w./+-]+: "

_MESSAGES = (
    # the last line of usage errors of GNU programs and similar ones
    r"Try ['`\"].*--help['\"].*",
    r"[Uu]sage:? ?.*",
    r"curl: try 'curl --help'.*",
    # options
    _PROGRAM + r"(?:.*: )?(?:invalid|unrecognized|unknown|illegal|bad) option\b.*",
    _PROGRAM + r"option .*(?:requires an argument|allow an argument|is ambiguous.*|: is .*)",
    _PROGRAM + r"option .*: (?:requires parameter|expected a proper numerical parameter).*",
    _PROGRAM + r"(?:unknown predicate|ambiguous option|unrecognized: ).*",
    _PROGRAM + r".*(?:mutually exclusive|are incompatible|cannot be (?:combined|used together)).*",
    _PROGRAM + r"(?:cannot|can't) (?:be )?(?:combine|both|do --|split in more|specify).*",
    _PROGRAM + r".*\bmay only be used with\b.*",
    _PROGRAM + r".*(?:both selected and excluded|used more than once|makes? (?:no )?sense).*",
    _PROGRAM + r".*(?:conflicts? with|cannot be used (?:together )?with|don't make sense).*",
    _PROGRAM + r"(?:multiple|only one) .*(?:specified|may be .*)",
    _PROGRAM + r".*requires either .*",
    r"(?:q/)?-q[/,]-*.*cannot be used together with .*",
    # operands
    _PROGRAM + r"(?:missing|extra|too (?:many|few)|not enough) .*",
    _PROGRAM + r".*(?:you must specify|must specify|must be specified|must end in X).*",
    _PROGRAM + r"(?:bad command line argument|bad usage).*",
    _PROGRAM + r".*\b(?:missing URL|no URL specified|missing host operand).*",
    # invalid arguments
    _PROGRAM + r"(?!cannot ).*\b[Ii]nvalid (?!argument$|or incomplete|user|group|magic|cross).*",
    _PROGRAM + r".*\b(?:[Uu]nknown|unrecognized) (?:column|level|facility|time format|param).*",
    _PROGRAM + r".*\b(?:must be a single character|multi-character|is not (?:a )?positive).*",
    _PROGRAM
    + r".*\b(?:Unmatched |Invalid (?:regular expression|range|back ?reference|preceding)).*",
    _PROGRAM + r".*\b(?:positions|fields) are numbered from 1.*",
    _PROGRAM + r".*\b(?:failed to parse|argument failed|Numerical result out of range).*",
    _PROGRAM + r".*\b(?:not a valid identifier|numeric argument required|syntax error|[Ss]yntax).*",
    _PROGRAM + r"(?:tab size.* (?:cannot|must) be .*|cannot print .*)",
    _PROGRAM + r"-e expression #\d+, char \d+: .*",
    _PROGRAM + r".*(?:when translating|string2 must|range-endpoints|equivalence class|construct).*",
    _PROGRAM + r".*(?:ends with an unescaped backslash|option used in invalid context).*",
    r"[Ee]rror: .*(?:syntax error|conflicts with|makes no sense|[Gg]arbage option|unknown ).*",
    r"[Ee]rror: .*(?:is a garbage|is expected rather than|is duplicate|not allowed in this).*",
    r"[Ee]rror: argument \".*\" is wrong(?!: (?:Device|Invalid VRF|Not a valid VRF)).*",
    r"(?:Command|Object|Option) \".*\" is unknown, try .*",
    r"Unknown address family .*|ethtool \(.*\): unknown parameter .*",
    r"Error: duplicate \".*\": .*",
    r"Not enough information: .*",
    r"Flush requires arguments\.|preferred_lft is greater than valid_lft",
    r"Command line is not complete\..*",
    r"bash: -c: line \d+: syntax error.*",
)

_QUOTES = str.maketrans("\u2018\u2019", "''")
_MISUSE = re.compile("|".join(f"(?:{message})" for message in _MESSAGES))


def complaint(exit_code: int, output: str) -> str | None:
    """Return the output line that reports a usage error; None if there is no misuse.

    `output` includes standard error. Exit code 0 is not misuse. Neither is an input that was ended
    by a limit (124) or a signal (129 to 254).
    """
    if exit_code in {0, 124} or 128 < exit_code < 255:
        return None
    for line in output.translate(_QUOTES).splitlines():
        if _MISUSE.fullmatch(line):
            return line
    return None


def is_misuse(exit_code: int, output: str) -> bool:
    """Whether an input with this outcome failed as misuse.

    That is the case if its exit code is not 0, and a program complains about the command line
    regardless of existing files:

    - an option that is unknown, ambiguous, lacks its value, takes none, or excludes another one;
    - an operand that is missing, or one too many;
    - an argument with invalid syntax (number, date, mode, format, pattern, address, keyword), or
      out of the program's range.

    A correct command line that cannot be executed is not misuse. Examples are a missing file, a
    directory, an unknown user or device, missing permission, a refused connection, and a failed
    check. The paper does not count failures.
    """
    return complaint(exit_code, output) is not None
